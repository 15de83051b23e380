"""What a cheating guest of a job under the lattice scheme cannot do to a host."""

import contextlib
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fedboost.crypto import layout
from fedboost.crypto.lattice.polynomials import NONCE_BYTES, TreePolynomials
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.lattice import guest as lattice_guest
from fedboost.encrypted.lattice import host as lattice_host
from fedboost.encrypted.number import packed
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import NodeBounds
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.hybridtree import host as hybrid_steps
from fedboost.protocols.secureboost import host as host_steps
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.support.lattice_jobs import LATTICE
from tests.unit.protocols.test_secureboost_attacks import ints, only_to, values_of

TELCO, SHOP = HOSTS[:2]
ROWS = 18  # training rows of the tiny job
BITS = 15  # of a gradient of so many
ENCRYPTED = {"encryption": {"scheme": LATTICE}, "precision_bits": None}


def conversation(protocol):
    """The tiny job of a protocol under the lattice scheme."""
    return getattr(conversations, protocol)(**ENCRYPTED)


def last_to(room, receiver, kind):
    """A copy of the last message of a kind that a party has had."""
    message = next(
        p.message
        for p in reversed(room.posted)
        if p.envelope.receiver == receiver and isinstance(p.message, kind)
    )
    copy = kind()
    copy.CopyFrom(message)
    return copy


# Nonces and keys


async def asked_for_a_key(protocol="lattice"):
    """A host of the tiny job before it hears the guest, and what an honest guest says."""
    room = await conversation(protocol).until("accept_key")
    return room.state(SHOP), last_to(room, SHOP, pb.EncryptionKey)


def nonces(change):
    def lie(said):
        told = change(list(said.nonces))
        del said.nonces[:]
        said.nonces.extend(told)

    return lie


UNSOUND = {
    "no nonces": (nonces(lambda _: []), "0 nonces for 3 parties"),
    "one too few": (nonces(lambda own: own[:-1]), "2 nonces for 3 parties"),
    "one too many": (nonces(lambda own: [*own, own[0]]), "4 nonces for 3 parties"),
    "ours replaced": (nonces(lambda own: [*own[:2], bytes(32)]), "in the place of ours"),
    "ours at another's place": (nonces(lambda own: [own[0], own[2], own[1]]), "place of ours"),
    "ours as the guest's": (nonces(lambda own: [own[2], own[1], own[0]]), "place of ours"),
    "ours and more": (nonces(lambda own: [*own[:2], own[2] + b"\0"]), "place of ours"),
    "the guest's is short": (nonces(lambda own: [own[0][:-1], *own[1:]]), "got 31"),
    "the guest's is long": (nonces(lambda own: [own[0] + b"\0", *own[1:]]), "got 33"),
    "the guest's is empty": (nonces(lambda own: [b"", *own[1:]]), "got 0"),
    "another host's is short": (nonces(lambda own: [own[0], own[1][1:], own[2]]), "got 31"),
    "a key": (lambda said: setattr(said, "key", b"plain"), "3 nonces for 3 parties"),
    "another scheme": (lambda said: setattr(said, "scheme", "paillier"), "job says lattice"),
    "other parameters": (lambda said: setattr(said, "scheme", "lattice-4096"), "job says lattice"),
    "a bit more": (lambda said: setattr(said, "value_bits", BITS + 1), "declares 16 bits"),
    "a bit less": (lambda said: setattr(said, "value_bits", BITS - 1), "declares 14 bits"),
    "no bits": (lambda said: setattr(said, "value_bits", 0), "declares 0 bits"),
    "64 bits": (lambda said: setattr(said, "value_bits", 64), "declares 64 bits"),
}


@pytest.mark.parametrize(("lie", "says"), UNSOUND.values(), ids=UNSOUND)
async def test_what_no_polynomials_can_come_from_is_refused_and_leaves_no_trace(lie, says):
    me, said = await asked_for_a_key()
    good = pb.EncryptionKey()
    good.CopyFrom(said)
    lie(said)
    with pytest.raises(PeerError) as refused:
        host_steps.accept_key(me, said)
    assert says in refused.value.what
    assert not type(me).side.is_set(me)
    assert not type(me).first_tree.is_set(me)
    host_steps.accept_key(me, good)
    assert isinstance(me.side, lattice_host.LatticeHost)


@pytest.mark.parametrize("bits", [0, 6, 16, 53, 64])
async def test_a_host_of_hybridtree_refuses_bits_that_no_lattice_job_has(bits):
    me, said = await asked_for_a_key("hybridtree")
    said.value_bits = bits
    with pytest.raises(PeerError, match=f"declares {bits} bits per gradient, the job has 7 to"):
        hybrid_steps.accept_key(me, said)
    assert not type(me).side.is_set(me)
    for fits in (7, 12, BITS):  # as many as more rows than ours leave
        said.value_bits = fits
        hybrid_steps.accept_key(me, said)
        side: Any = me.side
        assert side.budget.message_bits == fits + 1


async def test_nonces_and_keys_of_trees_are_refused_where_the_scheme_has_none():
    room = await conversations.secureboost().until("accept_key")
    said = last_to(room, SHOP, pb.EncryptionKey)
    said.nonces.append(bytes(NONCE_BYTES))
    with pytest.raises(PeerError, match="sent nonces, which plain has no use for"):
        host_steps.accept_key(room.state(SHOP), said)

    def lie(part):
        part.tree_key = b"key"

    with pytest.raises(PeerError, match="has no use for") as refused:
        await conversations.secureboost(only_to(SHOP, changing("EncryptedGradients", lie))).walk()
    assert refused.value.where == {"party": SHOP, "step": "receive_gradients"}


def test_hosts_that_were_told_different_nonces_answer_nothing_that_decrypts():
    """A guest's own doing: it cannot give one host another origin than the one it works with."""
    other = nonces(lambda own: [bytes(NONCE_BYTES), *own[1:]])
    with pytest.raises(PeerError, match="does not decrypt into a sum"):
        now(conversations.lattice(only_to(SHOP, changing("EncryptionKey", other))).walk())


# Rows and keys of trees


async def asked_for_rows(protocol="lattice"):
    """A host of the tiny job before rows come, and the one part that an honest guest sends."""
    before = await conversation(protocol).until("encrypt_gradients")  # then hosts read ahead
    room = await conversation(protocol).until("receive_gradients")
    kind = BottomRows if protocol == "hybridtree" else pb.EncryptedGradients
    return before.state(SHOP), last_to(room, SHOP, kind)


def taken_in(state, *parts):
    """Refused, with this text, and without a trace."""
    with pytest.raises(PeerError) as refused:
        host_steps.receive_gradients(state, iter(parts))
    assert not type(state).gradients.is_set(state)
    assert (state.tree_batch.trees, state.tree_batch.first) == ([], -1)
    return refused.value.what


def keyed(change):
    return lambda part: setattr(part, "tree_key", change(part.tree_key))


def rows(change):
    return lambda part: setattr(part.rows, "data", change(part.rows.data))


BEYOND = b"\xff" * 7  # 2^56 − 1
UNFIT = {
    "no key": (keyed(lambda _: b""), "a key of 0 bytes"),
    "a short key": (keyed(lambda own: own[:-1]), "a key of 28671 bytes"),
    "a long key": (keyed(lambda own: own + b"\0"), "a key of 28673 bytes"),
    "the key of one output": (keyed(lambda own: own[: len(own) // 2]), "a key of 14336 bytes"),
    "a number of the key beyond q": (keyed(lambda own: own[:-7] + BEYOND), "out of range"),
    "a key of zeros": (keyed(lambda own: bytes(len(own))), "not random"),
    "one output's key of zeros": (keyed(lambda own: bytes(14336) + own[14336:]), "not random"),
    "a row less": (rows(lambda own: own[:-14]), "rows"),
    "an octet less": (rows(lambda own: own[:-1]), "rows"),
    "an octet more": (rows(lambda own: own + b"\0"), "rows"),
    "a number beyond q": (rows(lambda own: own[:-7] + BEYOND), "out of range"),
    "q itself": (rows(lambda own: b"\0" * 6 + b"\x20" + own[7:]), "out of range"),
    "fewer rows than there are": (
        lambda part: part.rows.CopyFrom(pb.Ciphertexts(count=17, data=part.rows.data[:-14])),
        "of 17 rows, expected 18",
    ),
    "more rows than there are": (
        lambda part: part.rows.CopyFrom(pb.Ciphertexts(count=19, data=part.rows.data + bytes(14))),
        "expected row 0",
    ),
    "endless rows": (lambda part: setattr(part.rows, "count", 2**64 - 1), "expected row 0"),
}


@pytest.mark.parametrize(("lie", "says"), UNFIT.values(), ids=UNFIT)
async def test_rows_and_keys_that_cannot_be_are_refused(lie, says):
    me, part = await asked_for_rows()
    good = pb.EncryptedGradients()
    good.CopyFrom(part)
    lie(part)
    assert says in taken_in(me, part)
    host_steps.receive_gradients(me, iter([good]))
    assert me.tree_batch.first == 0


PACKED: dict[str, Any] = {"encryption": {"scheme": LATTICE, "answers": "packed"}}
PUBLIC_BYTES = 28672  # b' of both numbers, in front of the packing key


async def asked_for_packed_rows():
    """As `asked_for_rows`, in a job whose answers are packed."""
    before = await conversations.lattice(**PACKED).until("encrypt_gradients")
    room = await conversations.lattice(**PACKED).until("receive_gradients")
    return before.state(SHOP), last_to(room, SHOP, pb.EncryptedGradients)


UNPACKED = {
    "no packing key": (lambda own: own[:PUBLIC_BYTES], "a key of 28672 bytes"),
    "a short one": (lambda own: own[:-1], "which the job does not have"),
    "a long one": (lambda own: own + b"\0", "which the job does not have"),
    "one of more slots than are": (
        lambda own: own + bytes(15 * (len(own) - PUBLIC_BYTES)),
        "which the job does not have",
    ),
    "a residue beyond its prime": (lambda own: own[:-4] + b"\xff" * 4, "out of range"),
}


@pytest.mark.parametrize(("change", "says"), UNPACKED.values(), ids=UNPACKED)
async def test_packing_keys_that_cannot_be_are_refused(change, says):
    me, part = await asked_for_packed_rows()
    good = pb.EncryptedGradients()
    good.CopyFrom(part)
    part.tree_key = change(part.tree_key)
    assert says in taken_in(me, part)
    host_steps.receive_gradients(me, iter([good]))
    assert me.gradients.packing.key.shape.slots == 32


async def test_a_job_of_vectors_takes_no_packing_key():
    _, part = await asked_for_packed_rows()
    own: dict[str, Any] = {"encryption": {"scheme": LATTICE, "answers": "vectors"}}
    me = (await conversations.lattice(**own).until("encrypt_gradients")).state(SHOP)
    assert "which the job does not have" in taken_in(me, part)


def test_a_packing_key_that_encrypts_something_else_decrypts_to_nothing():
    """A guest's own doing, and its loss: the host packs whatever it is sent."""

    def lie(part):
        public, own = part.tree_key[:PUBLIC_BYTES], part.tree_key[PUBLIC_BYTES:]
        part.tree_key = public + own[len(own) // 2 :] + own[: len(own) // 2]

    alter = only_to(SHOP, changing("EncryptedGradients", lie))
    with pytest.raises(PeerError, match="does not decrypt into a sum"):
        now(conversations.lattice(alter, **PACKED).walk())


def test_a_second_packing_key_for_the_same_trees_is_refused():
    """Under it the same answers would be packed once more, with errors of the guest's choice."""
    held = []

    def note(part):
        held.append(part.tree_key)

    def lie(part):
        nonce = part.tree_key[:NONCE_BYTES]
        part.tree_key = nonce + held[0][NONCE_BYTES:]

    own: dict[str, Any] = {
        "encryption": {"scheme": LATTICE, "answers": "packed", "key_trees": 2},
        "n_estimators": 3,
    }
    second, third = changing("EncryptedGradients", note, 1), changing("EncryptedGradients", lie, 2)
    alter = only_to(SHOP, lambda *sent: third(*second(*sent)))
    with pytest.raises(PeerError, match="which the job does not have"):
        now(conversations.lattice(alter, **own).walk())


def test_a_tree_that_shares_a_secret_has_a_nonce_of_its_own():
    own: dict[str, Any] = {"encryption": {"scheme": LATTICE, "key_trees": 2}}

    def lie(part):
        part.tree_key = part.tree_key[:8]

    with pytest.raises(PeerError, match="nonce of 32 bytes, got 8"):
        now(conversations.lattice(only_to(SHOP, changing("EncryptedGradients", lie)), **own).walk())


def halves(part):
    """The same rows in two parts."""
    first, second = pb.EncryptedGradients(), pb.EncryptedGradients(tree=part.tree, first_row=9)
    first.CopyFrom(part)
    data = part.rows.data
    first.rows.CopyFrom(pb.Ciphertexts(count=9, data=data[: len(data) // 2]))
    second.rows.CopyFrom(pb.Ciphertexts(count=9, data=data[len(data) // 2 :]))
    return first, second


async def test_a_key_comes_once_and_with_the_first_rows():
    me, part = await asked_for_rows()
    key, (first, second) = part.tree_key, halves(part)
    second.tree_key = key
    assert "expected row 9" in taken_in(me, first, second)
    first.ClearField("tree_key")
    assert "expected row 9" in taken_in(me, first, second)
    first, second = halves(part)
    again = pb.EncryptedGradients(tree=part.tree, first_row=ROWS, tree_key=key)
    assert f"expected row {ROWS}" in taken_in(me, first, second, again)
    host_steps.receive_gradients(me, iter([first, second]))
    assert len(me.gradients.rows.encrypted) == ROWS


async def test_empty_parts_lie_behind_the_last_row_alone():
    me, part = await asked_for_rows()
    first, second = halves(part)
    nothing = pb.EncryptedGradients(tree=part.tree, first_row=9)
    assert "expected row 9" in taken_in(me, first, nothing, second)
    nothing.first_row = 0
    assert "expected row 0" in taken_in(me, nothing, first, second)
    nothing.first_row = ROWS
    host_steps.receive_gradients(me, iter([first, second, nothing]))


async def test_a_host_of_hybridtree_wants_the_key_with_the_places_of_its_rows():
    me, part = await asked_for_rows("hybridtree")
    good = BottomRows()
    good.CopyFrom(part)
    for key in (b"", part.gradients.tree_key[:-1], bytes(len(part.gradients.tree_key))):
        part.gradients.tree_key = key
        with pytest.raises(PeerError, match=r"a key of|not random"):
            hybrid_steps.receive_gradients(me, iter([part]))
        assert not type(me).gradients.is_set(me)
        assert (me.tree_batch.trees, me.tree_batch.first) == ([], -1)
    hybrid_steps.receive_gradients(me, iter([good]))
    assert me.tree_batch.first == 0


def of_zeros(tree, host):
    """a' = 0, with which an answer's zero encryption hides nothing."""
    del host
    return np.zeros(tree.parameters.ring, np.uint64)


@contextlib.contextmanager
def cheating_guest():
    """The guest's keys come of a' = 0; the host derives its own."""
    own = lattice_guest.LatticeGuestRows.key_for

    def key_for(self, host):
        with mock.patch.object(TreePolynomials, "of_answers", of_zeros):
            return own(self, host)

    with mock.patch.object(lattice_guest.LatticeGuestRows, "key_for", key_for):
        yield


@pytest.mark.parametrize("protocol", ["lattice", "hybridtree"])
def test_a_guest_with_a_polynomial_of_its_own_is_refused_by_every_host(protocol):
    with cheating_guest(), pytest.raises(PeerError, match="not random") as refused:
        now(conversation(protocol).walk())
    assert refused.value.where["step"] == "receive_gradients"


def test_a_key_for_another_host_decrypts_to_nothing():
    held = {}

    def swap(envelope, payload):
        if not envelope.kind.endswith("EncryptedGradients") or envelope.part:
            return envelope, payload
        if envelope.receiver not in held:
            held[envelope.receiver] = pb.EncryptedGradients.FromString(payload).tree_key
        other = next((key for party, key in held.items() if party != envelope.receiver), b"")

        def lie(part):
            part.tree_key = other

        return (
            changing("EncryptedGradients", lie)(envelope, payload)
            if other
            else (
                envelope,
                payload,
            )
        )

    room = conversations.lattice(swap)
    with pytest.raises(FedboostError, match="does not decrypt into a sum"):
        now(room.walk())


# Sizes


async def test_the_largest_lawful_parts_fit_their_bounds():
    room = await conversations.lattice().until("receive_gradients")
    me = room.state(SHOP)
    own = me.side.budget.parameters
    part = pb.EncryptedGradients(
        tree=2**32 - 1,
        first_row=2**64 - 1,
        rows=pb.Ciphertexts(
            count=lattice_answers.BLOCKS_EACH * own.ring,
            data=bytes(lattice_answers.BLOCKS_EACH * own.ring * 2 * own.word_bytes),
        ),
        tree_key=bytes(lattice_answers.tree_key_bytes(own, 2, 256)),
    )
    size, most = part.ByteSize(), host_steps.bytes_max(me, "receive_gradients")
    assert size <= most < size + 2048
    guest = room.state(GUEST)
    nonce = pb.Nonce(nonce=bytes(NONCE_BYTES))
    assert nonce.ByteSize() <= keys.NONCE_BYTES_MAX
    sums = guest.encrypted.bytes_max([lattice_answers.ANSWERS_EACH * 3])
    assert sums == lattice_answers.ANSWERS_EACH * guest.encrypted.bytes_max([1])
    plain = await conversations.secureboost().until("receive_gradients")
    assert isinstance(plain.state(SHOP).side, packed.PackedHost)
    assert plain.state(SHOP).side.sizes.bytes_max == layout.ENCRYPTED_BLOCK_BYTES


async def test_a_node_without_rows_is_answered_with_nothing_but_zeros(monkeypatch):
    """A guest may open a node all of whose rows it has sent to the other side: here a root, at a
    host that does not draw the tree's rows itself.
    """
    monkeypatch.setattr(host_steps, "check_sample", lambda *_, **__: None)
    me, part = await asked_for_rows()
    part.taking_part.CopyFrom(wire.pack_bits(np.zeros(ROWS, np.bool_)))
    part.rows.CopyFrom(pb.Ciphertexts())
    host_steps.receive_gradients(me, iter([part]))
    frontier = Frontier(
        divided=ints(), goes_right=wire.pack_bits(np.zeros(0, np.bool_)), open=ints(0)
    )
    sent: list[Any] = [out.send for out in host_steps.sum_candidates(me, frontier)]
    rows = (await conversation("lattice").until("open_layer")).state(GUEST).encrypted
    [counts] = [values_of(one.candidates) for one in sent if one.HasField("candidates")]
    data = b"".join(one.packages.data for one in sent)
    nothing = [NodeBounds(0, np.zeros(2, np.int64))]
    assert sum(counts) > 0
    assert not rows.read(data, counts, nothing).any()
