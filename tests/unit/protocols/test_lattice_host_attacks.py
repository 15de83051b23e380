"""What a cheating host of a job under the lattice scheme cannot do to the guest."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedboost.crypto.lattice.released import AnswerShape
from fedboost.encrypted.guest import offers
from fedboost.encrypted.guest.offers import Offers, read_offers
from fedboost.encrypted.lattice import answers as lattice_answers
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import GuestRows, NodeBounds
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.protocols.hybridtree import guest as hybrid_steps
from fedboost.protocols.secureboost import guest as guest_steps
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.support.lattice_jobs import LATTICE
from tests.unit.protocols.test_hybridtree_host_attacks import only_from
from tests.unit.protocols.test_secureboost_attacks import ints, values_of

TELCO, SHOP = HOSTS[:2]
ROWS = 18  # training rows of the tiny job
ENCRYPTED: dict[str, Any] = {"encryption": {"scheme": LATTICE}}


def lied(kind, lie, skip=0, protocol="lattice"):
    """The error that ends the tiny job in which a host lies once."""
    alter = only_from(SHOP, changing(kind, lie, skip))
    with pytest.raises(FedboostError) as ended:
        now(getattr(conversations, protocol)(alter, **ENCRYPTED).walk())
    assert isinstance(ended.value, PeerError)
    return ended.value


# Nonces


@pytest.mark.parametrize("protocol", ["lattice", "hybridtree"])
@pytest.mark.parametrize("n_bytes", [0, 1, 31, 33, 62])
def test_nonces_of_another_size_are_refused_by_name(n_bytes, protocol):
    error = lied("Nonce", lambda said: setattr(said, "nonce", bytes(n_bytes)), protocol=protocol)
    assert error.what == f"{SHOP} sent a nonce of {n_bytes} bytes"
    assert error.where == {"party": SHOP, "step": "hear_nonces"}


@pytest.mark.parametrize("protocol", ["lattice", "hybridtree"])
@pytest.mark.parametrize("n_bytes", [63, 4096])
def test_long_nonces_are_refused_before_they_are_read(n_bytes, protocol):
    error = lied("Nonce", lambda said: setattr(said, "nonce", bytes(n_bytes)), protocol=protocol)
    assert f"{keys.NONCE_BYTES_MAX} is the most" in error.what


async def test_a_guest_that_has_encrypted_nothing_takes_little():
    room = await conversations.lattice().until("hear_nonces")
    assert guest_steps.bytes_max(room.state(GUEST), "hear_nonces") == keys.NONCE_BYTES_MAX
    other = await conversations.hybridtree(**ENCRYPTED).until("hear_nonces")
    assert hybrid_steps.bytes_max(other.state(GUEST), "hear_nonces") == keys.NONCE_BYTES_MAX


# The parts of an offer, with sums that are bytes


NODES = (3, 5, 2)  # rows of the open nodes
MOST = 6  # sums of one


@dataclass
class NodeBytes(GuestRows):
    """Each sum is one octet, and as many more as its node has rows; read as the octet."""

    sizes: Any = None

    def parts(self):
        """None."""
        return iter(())

    @property
    def per_row(self):
        """One."""
        return 1

    def key_for(self, host):
        """None of its own."""
        del host
        return b""

    def count(self, sums):
        """One each."""
        return sum(sums)

    def n_bytes(self, sums, nodes):
        """See the class."""
        return sum(count * (1 + node.rows) for count, node in zip(sums, nodes, strict=True))

    def read(self, answers, sums, nodes):
        """See the class; refuses other lengths."""
        found = []
        for count, node in zip(sums, nodes, strict=True):
            size = count * (1 + node.rows)
            if len(answers) < size:
                raise PeerError("too few bytes")
            found += list(answers[: size : 1 + node.rows])
            answers = answers[size:]
        assert not answers
        return np.array([found, found], np.int64).T

    def bytes_max(self, sums):
        """All."""
        return 9 * sum(sums)


def expecting(host=SHOP, most=MOST, bytes_max=1 << 20):
    nodes = [NodeBounds(own, np.zeros(2, np.int64)) for own in NODES]
    return Offers(NodeBytes(), nodes, most, host, bytes_max)


def said(counts, raw, count=None):
    """A part; `counts` of its nodes, None for further sums of those before."""
    message = pb.CandidateSums() if counts is None else pb.CandidateSums(candidates=ints(*counts))
    packages = pb.Ciphertexts(count=len(raw) if count is None else count, data=raw)
    message.packages.CopyFrom(packages)
    return message


FIRST, SECOND = b"\1aaa\2aaa", b"\3bbbbb"  # two sums of the first node, one of the second
WHOLE = {
    "in one part": [said([2, 1, 0], FIRST + SECOND, 3)],
    "a node a part": [said([2], FIRST, 2), said([1], SECOND, 1), said([0], b"", 0)],
    "a sum a part": [
        said([2], FIRST[:4], 1),
        said(None, FIRST[4:], 1),
        said([1, 0], SECOND, 1),
    ],
    "cut anywhere": [said([2, 1], FIRST[:1], 1), said(None, FIRST[1:] + SECOND, 2), said([0], b"")],
}


@pytest.mark.parametrize("parts", WHOLE.values(), ids=WHOLE)
def test_an_offer_may_come_in_any_parts(parts):
    found = expecting()
    for part in parts:
        found.add(part)
    assert [(sums[:, 0].tolist(), shape.candidates) for sums, shape in found.whole()] == [
        ([1, 2], 2),
        ([3], 1),
        ([], 0),
    ]


SPOILT = {
    "too many nodes": [said([2, 1, 0, 0], FIRST + SECOND, 3)],
    "too many nodes in all": [said([2], FIRST, 2), said([1, 0, 0], SECOND, 1)],
    "a node too many": [*WHOLE["in one part"], said([0], b"")],
    "further sums of nothing": [said(None, FIRST, 2)],
    "empty further sums of nothing": [said(None, b"")],
    "further sums behind the last": [*WHOLE["in one part"], said(None, SECOND, 1)],
    "further sums of what is full": [said([2], FIRST, 2), said(None, SECOND, 1)],
    "nodes before the last are full": [said([2], FIRST[:4], 1), said([1], SECOND, 1)],
    "nothing of a node": [said([2], b"")],
    "empty further sums": [said([2], FIRST[:4], 1), said(None, b"")],
    "too many sums": [said([2], FIRST + FIRST[:4], 3)],
    "too many further sums": [said([2], FIRST[:4], 1), said(None, FIRST, 2)],
    "endless sums": [said([2], FIRST, 2**64 - 1)],
    "too few bytes": [said([2], FIRST[:-1], 2)],
    "too many bytes": [said([2], FIRST + b"a", 2)],
    "too many bytes in a part": [said([2], FIRST + b"a", 1)],
    "too many bytes in all": [said([2], FIRST, 1), said(None, b"a", 1)],
    "bytes of no sums": [said([0], b"a", 0)],
    "too many candidates": [said([MOST + 1], bytes(28), 7)],
    "fewer than none": [said([-1], b"")],
}


@pytest.mark.parametrize("parts", SPOILT.values(), ids=SPOILT)
def test_parts_that_do_not_fit_the_open_nodes_are_refused(parts):
    found = expecting()
    for part in parts[:-1]:
        found.add(part)
    with pytest.raises(PeerError):
        found.add(parts[-1])


SHORT = {
    "nothing at all": [],
    "a node is missing": [said([2, 1], FIRST + SECOND, 3)],
    "sums are missing": [said([2, 1, 0], FIRST, 2)],
    "sums of the first node are missing": [said([2], FIRST[:4], 1)],
}


@pytest.mark.parametrize("parts", SHORT.values(), ids=SHORT)
def test_offers_that_end_too_early_are_refused(parts):
    found = expecting()
    for part in parts:
        found.add(part)
    with pytest.raises(PeerError, match="3 are open"):
        found.whole()


def test_streams_of_several_hosts_need_not_be_equally_long():
    coming = {SHOP: expecting(), TELCO: expecting(TELCO)}
    one, several = WHOLE["in one part"], WHOLE["a node a part"]
    rows = [{SHOP: one[0], TELCO: several[0]}, {TELCO: several[1]}, {TELCO: several[2]}]
    found = read_offers(iter(rows), coming)
    assert len(found[SHOP]) == len(found[TELCO]) == 3
    with pytest.raises(PeerError, match=f"stranger offered splits, expected {SHOP}"):
        read_offers(iter([{"stranger": one[0]}]), {SHOP: expecting()})
    short = iter([{SHOP: one[0], TELCO: several[0]}])
    with pytest.raises(PeerError, match=f"{TELCO} sent sums of 1 nodes, 3 are open"):
        read_offers(short, {SHOP: expecting(), TELCO: expecting(TELCO)})


# Answers


def shape_of(state, rows):
    """Of an answer about a node with so many rows, in the guest's tree."""
    secret = state.encrypted.secret
    return AnswerShape(secret.tree.parameters, 2, secret.budget.width(rows))


def shape():
    """Of an answer about the root, in the tiny job."""

    async def run():
        room = await conversations.lattice().until("open_layer")
        return shape_of(room.state(GUEST), ROWS)

    return now(run())


def data(change):
    def lie(message):
        message.packages.data = change(message.packages.data)

    return lie


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own[:-1],
        lambda own: own + b"\0",
        lambda own: own + own[:100],
        lambda own: own[: len(own) // 2],
        lambda own: b"",
        lambda own: 2 * own,
    ],
    ids=["an octet less", "an octet more", "many more", "half", "none", "twice"],
)
@pytest.mark.parametrize("protocol", ["lattice", "hybridtree"])
def test_answers_of_another_size_are_refused(change, protocol):
    error = lied("CandidateSums", data(change), protocol=protocol)
    assert error.where["step"] == "choose_splits"


def flipped(bit):
    """Flips a bit of the first answer, counted from its end."""
    raw = shape().n_bytes

    def change(own):
        changed = bytearray(own)
        changed[raw - 1 - bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    return data(change)


def test_what_fills_up_the_last_octet_of_an_answer_must_be_zeros():
    width = shape().width
    spare = -2 * width % 8
    assert spare > 0
    for bit in range(8 - spare, 8):
        error = lied("CandidateSums", flipped(bit))
        assert error.where["step"] == "choose_splits"


def test_sums_beyond_those_of_the_nodes_rows_are_refused():
    error = lied("CandidateSums", flipped(8 - -2 * shape().width % 8 - 1))  # the highest bit
    assert error.what == "an answer does not decrypt into a sum of its node's rows"
    assert error.where["step"] == "choose_splits"


PACKED: dict[str, Any] = {"encryption": {"scheme": LATTICE, "answers": "packed"}}


def lied_packed(change):
    """The error that ends the tiny job of packed answers in which a host changes a batch."""
    with pytest.raises(PeerError) as ended:
        now(conversations.lattice(only_from(SHOP, changing("CandidateSums", data(change))),
                                  **PACKED).walk())  # fmt: skip
    assert ended.value.where["step"] == "choose_splits"
    return ended.value.what


@pytest.mark.parametrize(
    "change",
    [lambda own: own[:-1], lambda own: own + b"\0", lambda own: b"", lambda own: 2 * own],
    ids=["a byte less", "a byte more", "nothing", "twice"],
)
def test_batches_of_another_size_are_refused(change):
    lied_packed(change)


@pytest.mark.parametrize("place", [0, 4096 * 38 // 8 // 2], ids=["first", "middle"])
def test_a_vector_of_a_batch_that_is_changed_is_no_sum(place):
    """Every coefficient of c1 meets secret numbers: no bit of weight can change unnoticed."""

    def change(own):
        changed = bytearray(own)
        for byte in range(place, place + 64):
            changed[byte] ^= 0xFF
        return bytes(changed)

    assert "does not decrypt into a sum" in lied_packed(change)


def test_what_fills_up_a_batch_must_be_zeros():
    async def counted():
        room = await conversations.lattice(**PACKED).until("choose_splits")
        me = room.state(GUEST)
        shape, budget = me.encrypted.packing.shape, me.encrypted.secret.budget
        return me, shape, budget.width(ROWS)

    _, shape, width = now(counted())
    number = shape.parameters.packed_bits(width)[1]

    def change(own):
        count = next(n for n in range(1, 33) if shape.batch_bytes(n, width) == len(own))
        assert count * number % 8
        return own[:-1] + bytes([own[-1] | 0x80])

    assert lied_packed(change) == "an answer does not decrypt into a sum of its node's rows"


def test_noise_is_no_answer():
    draw = np.random.default_rng(5)
    raw = shape().n_bytes
    spare = -2 * shape().width % 8

    def noise(own):
        answers = draw.integers(0, 256, (len(own) // raw, raw), dtype=np.uint8)
        answers[:, -1] &= 0xFF >> spare
        return answers.tobytes()

    error = lied("CandidateSums", data(noise))
    assert error.what == "an answer does not decrypt into a sum of its node's rows"


def test_answers_of_the_tree_before_are_noise():
    """Every tree has secrets of its own."""
    first: list[pb.CandidateSums] = []

    def replay(envelope, payload):
        if envelope.sender != SHOP or not envelope.kind.endswith("CandidateSums"):
            return envelope, payload
        message = pb.CandidateSums.FromString(payload)
        if message.HasField("candidates") and len(values_of(message.candidates)) == 1:
            first.append(message)  # a root's
        if len(first) < 2 or message is not first[1]:
            return envelope, payload

        def lie(other):
            other.CopyFrom(first[0])

        return changing("CandidateSums", lie)(envelope, payload)

    with pytest.raises(PeerError) as ended:
        now(conversations.lattice(replay).walk())
    assert len(first) == 2
    assert ended.value.what == "an answer does not decrypt into a sum of its node's rows"


async def test_more_sums_than_a_host_may_send_are_refused_before_they_are_decrypted():
    room = await conversations.lattice().until("choose_splits")
    me = room.state(GUEST)
    most = offers.HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin
    flood = pb.CandidateSums(candidates=ints(most + 1))
    with pytest.raises(PeerError, match=f"{most} is the most"):
        guest_steps.choose_splits(me, iter([{SHOP: flood}]))


async def test_a_part_is_no_larger_than_so_many_answers():
    room = await conversations.lattice().until("choose_splits")
    me = room.state(GUEST)
    most = guest_steps.bytes_max(me, "choose_splits")
    answers = lattice_answers.ANSWERS_EACH * shape_of(me, ROWS).n_bytes
    assert most == answers + wire.PIECE_BYTES < wire.MESSAGE_BYTES_MAX
