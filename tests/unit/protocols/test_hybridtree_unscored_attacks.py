"""What a curious or cheating party of an unscored job cannot do, and what it sees."""

import ast
import inspect

import numpy as np
import pytest

from fedboost.core import hybrid
from fedboost.crypto import residues
from fedboost.crypto.api import BlindedPackages
from fedboost.crypto.masking import Masks, answer_masks
from fedboost.encrypted.number import leaf_answers, leaf_values
from fedboost.encrypted.number.leaf_answers import MaskingHost, Precision
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError, PolicyError, ProtocolError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows
from fedboost.protocols.hybridtree import guest as guest_steps
from fedboost.protocols.hybridtree import host as host_steps
from fedboost.protocols.hybridtree import unscored
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, Hand, changing, now

TELCO, SHOP = HOSTS[:2]
ALONE = "the hosts' answers do not add up to leaf values"


def outcome(alter, **more):
    """The error that ends the tiny job when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.hybridtree_unscored(alter, **more).walk())
    return ended.value


def only_from(sender, alter):
    """Changes what one party sends and leaves the others alone."""
    return lambda e, payload: alter(e, payload) if e.sender == sender else (e, payload)


def only_to(receiver, alter):
    """Changes what one receiver gets and leaves the others alone."""
    return lambda e, payload: alter(e, payload) if e.receiver == receiver else (e, payload)


# Hosts that mask otherwise than they should


def lying_masks(monkeypatch, change):
    """The host TELCO masks what `change` makes of its places shared with others."""
    masks = MaskingHost.masks

    def other(self, number, rows, packing, each=1):
        if self.context.party != TELCO:
            return masks(self, number, rows, packing, each)
        return change(self, masks, number, rows, packing)

    monkeypatch.setattr(MaskingHost, "masks", other)


def none_at_all(state, masks, number, rows, packing):
    return answer_masks((rows.stop, packing.outputs), packing.mask_bits, [])


def one_row_less(state, masks, number, rows, packing):
    state.shared = {host: indices[1:] for host, indices in state.shared.items()}
    return masks(state, number, rows, packing)


def another_row(state, masks, number, rows, packing):
    free = {h: np.setdiff1d(np.arange(rows.stop), indices) for h, indices in state.shared.items()}
    state.shared = {h: np.append(indices[:-1], free[h][0]) for h, indices in state.shared.items()}
    return masks(state, number, rows, packing)


def another_tree(state, masks, number, rows, packing):
    return masks(state, number + 1, rows, packing)


def both_add(state, masks, number, rows, packing):
    found = masks(state, number, rows, packing)
    return Masks(-found.limbs, found.bits, found.streams)


@pytest.mark.parametrize("change", [none_at_all, one_row_less, another_row, another_tree, both_add])
def test_a_host_whose_masks_do_not_cancel_is_refused(monkeypatch, change):
    lying_masks(monkeypatch, change)
    error = outcome(None)
    assert isinstance(error, PeerError)
    assert error.what == ALONE
    assert error.where == {"party": GUEST, "step": "add_values"}


def test_an_answer_cannot_leave_without_masks_where_rows_may_have_several_hosts(monkeypatch):
    lying_masks(monkeypatch, lambda *_: None)
    assert "do not have the masks that they leave under" in outcome(None).what


# Keys of masks


def resigned(key):
    """A host's answer key replaced by another one that it signs."""

    def change(offered):
        context = conversations.hybridtree_unscored().contexts[TELCO].attempt.digest
        offered.key = key
        text = b"fedboost answer key 1" + context + TELCO.encode() + key
        offered.signature = Hand(TELCO).sign(text)

    return change


def signed_by_the_guest(offered):
    context = conversations.hybridtree_unscored().contexts[TELCO].attempt.digest
    text = b"fedboost answer key 1" + context + TELCO.encode() + offered.key
    offered.signature = Hand(GUEST).sign(text)


def signed_as_another(offered):
    context = conversations.hybridtree_unscored().contexts[TELCO].attempt.digest
    text = b"fedboost answer key 1" + context + SHOP.encode() + offered.key
    offered.signature = Hand(TELCO).sign(text)


def other_key(offered):
    offered.key = bytes(31) + b"\x09"


@pytest.mark.parametrize("change", [signed_by_the_guest, signed_as_another, other_key])
def test_a_key_that_its_host_has_not_signed_is_refused(change):
    error = outcome(only_from(TELCO, changing("AnswerKey", change)))
    assert isinstance(error, PeerError)
    assert f"the signature of {TELCO} does not fit" in error.what
    assert error.where == {"party": SHOP, "step": "hear_answer_keys"}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (bytes(32), "small order"),
        (bytes([1, *bytes(31)]), "small order"),
        (bytes(31), "32 bytes"),
        (bytes(33), "32 bytes"),
        (b"", "32 bytes"),
    ],
)
def test_a_signed_key_that_is_none_is_refused(key, says):
    error = outcome(only_from(TELCO, changing("AnswerKey", resigned(key))))
    assert isinstance(error, PeerError)
    assert says in error.what
    assert error.where["step"] == "hear_answer_keys"


def test_a_host_that_hands_out_a_key_it_does_not_own_gets_noise_and_a_refusal():
    key = MaskingHost(conversations.hybridtree_unscored().contexts[SHOP]).key.public
    error = outcome(only_from(TELCO, changing("AnswerKey", resigned(key))))
    assert error.what == ALONE


# A cheating guest


def none_shared(message):
    message.rows.data = bytes(len(message.rows.data))


def all_shared(message):
    """Every bit of the message's rows; TELCO has 15."""
    message.rows.CopyFrom(wire.pack_bits(np.ones(15, np.bool_)))


def another_shared(message):
    data = bytearray(message.rows.data)
    data[0], data[-1] = data[0] ^ 0x80, data[-1] ^ 0x02
    message.rows.data = bytes(data)


@pytest.mark.parametrize("change", [none_shared, all_shared, another_shared])
def test_a_guest_that_tells_hosts_different_shared_rows_gets_noise_and_stops(change):
    error = outcome(only_to(TELCO, changing("SharedRows", change)))
    assert error.what == ALONE
    assert error.where["party"] == GUEST


@pytest.mark.parametrize("bits", [0, 8, 16, 17, 30])
def test_shared_rows_are_one_bit_for_each_row_and_other_host(bits):
    """Of 15 rows; the last bit of 16 must be zero."""

    def change(message):
        message.rows.CopyFrom(wire.pack_bits(np.ones(bits, np.bool_)))

    error = outcome(only_to(TELCO, changing("SharedRows", change)))
    assert isinstance(error, PeerError)
    assert "the rows that other hosts have" in error.what
    assert error.where == {"party": TELCO, "step": "learn_shared"}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"value_bits": 0}, PeerError),
        ({"value_bits": 60}, PeerError),
        ({"value_bits": 65}, PolicyError),
        ({"first_tree": 1}, PeerError),
        ({"scheme": "paillier"}, PeerError),
        ({"key": b"plain?"}, PeerError),
    ],
)
def test_a_key_that_leaf_values_cannot_have_is_refused(change, kind):
    def lie(message):
        for name, value in change.items():
            setattr(message, name, value)

    error = outcome(changing("EncryptionKey", lie))
    assert isinstance(error, kind), error
    assert error.where["step"] == "accept_key"


def test_gradients_beyond_the_declared_bits_do_not_leave_the_guest(monkeypatch):
    counted = hybrid.counted_gradients
    monkeypatch.setattr(hybrid, "counted_gradients", lambda *a: counted(*a) + (1 << 27))
    assert "outside the declared" in outcome(None).what


@pytest.mark.parametrize("tree", [1, 2**32 - 1])
def test_a_tree_out_of_turn_is_refused(tree):
    def lie(part):
        part.gradients.tree = tree

    error = outcome(only_to(TELCO, changing("BottomRows", lie)))
    assert isinstance(error, PeerError)
    assert "began tree" in error.what


@pytest.mark.parametrize("node", [2, 7, -1, 2**31 - 1])
def test_rows_below_nodes_that_no_tree_has_are_refused(node):
    def lie(part: BottomRows):
        at = np.frombuffer(part.at.data, np.int32).copy()
        at[3] = node
        part.at.CopyFrom(wire.pack(at))

    error = outcome(only_to(TELCO, changing("BottomRows", lie)))
    assert error.what == "the guest put rows below nodes that no tree of the job has"


# A cheating host


@pytest.mark.parametrize("count", [-1, 1])
def test_a_host_with_too_few_or_too_many_answers_is_refused(count):
    def lie(message):
        width = len(message.packages.data) // message.packages.count
        message.packages.count += count
        whole = message.packages.data + bytes(width)
        message.packages.data = whole[: width * message.packages.count]

    error = outcome(only_from(TELCO, changing("LeafAnswers", lie)))
    assert isinstance(error, PeerError)
    # More bytes than answers can have are refused before they are read.
    assert "packages of answers" in error.what or "bytes" in error.what


def test_an_answer_beyond_its_field_is_refused():
    def lie(message):
        data = bytearray(message.packages.data)
        data[-30:-1] = b"\x7f" * 29
        message.packages.data = bytes(data)

    assert isinstance(outcome(only_from(TELCO, changing("LeafAnswers", lie))), PeerError)


async def test_a_refused_answer_leaves_the_guest_as_it_was():
    room = await conversations.hybridtree_unscored().until("add_values")
    me = room.state(GUEST)
    got = {p.envelope.sender: p.message for p in room.posted if p.envelope.receiver == GUEST}
    before = (me.growing.added, me.trees_closed, me.margin.tobytes())
    bad = dict(got)
    bad[TELCO] = pb.LeafAnswers(packages=pb.Ciphertexts(count=1, data=bytes(32)))
    with pytest.raises(PeerError):
        guest_steps.add_values(me, bad)
    assert before == (me.growing.added, me.trees_closed, me.margin.tobytes())
    guest_steps.add_values(me, got)
    assert me.growing.added.shape == (36, 1)


# A coordinator that has a host do what the job does not say


@pytest.mark.parametrize(
    ("room", "until", "step", "says"),
    [
        ("hybridtree_unscored", "answer_rows", "sum_candidates", "splits are unscored"),
        ("hybridtree", "sum_candidates", "answer_rows", "splits are scored"),
    ],
)
async def test_a_step_of_the_other_kind_of_split_is_refused(room, until, step, says):
    made_room = await getattr(conversations, room)().until(until)
    with pytest.raises(ProtocolError, match=says):
        await made_room.call(step, TELCO)
    assert made_room.state(TELCO).splits == []


def test_hosts_that_were_not_told_what_they_share_do_not_answer():
    me = MaskingHost(conversations.hybridtree_unscored().contexts[TELCO])
    packing = Precision(20, 2, 2, 1).layout(2048)
    with pytest.raises(ProtocolError, match="before they know which rows they share"):
        me.masks(0, slice(0, 5), packing)


# What leaves a host


def test_nothing_leaves_a_host_but_keys_and_released_answers(monkeypatch):
    released = []
    release = residues.ResiduePublic.release

    def watched(self, *args, **more):
        out = release(self, *args, **more)
        assert isinstance(out, BlindedPackages)
        assert isinstance(more["masks"], Masks)
        released.append(out.to_bytes())
        return out

    monkeypatch.setattr(residues.ResiduePublic, "release", watched)
    room = conversations.hybridtree_unscored()
    now(room.walk())
    sent = [p for p in room.posted if p.envelope.sender in HOSTS]
    assert {p.message.DESCRIPTOR.name for p in sent} == {"AnswerKey", "LeafAnswers"}
    answers = [p for p in sent if p.message.DESCRIPTOR.name == "LeafAnswers"]
    assert {p.envelope.receiver for p in answers} == {GUEST}
    assert sorted(p.message.packages.data for p in answers) == sorted(released)
    keys = {p.message.key for p in sent if p.message.DESCRIPTOR.name == "AnswerKey"}
    assert keys == {room.state(h).answering.key.public for h in (TELCO, SHOP)}


def test_a_hosts_code_turns_nothing_but_released_answers_into_bytes():
    calls = [
        ast.unparse(node.func.value)
        for module in (host_steps, unscored, leaf_values, leaf_answers)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to_bytes", "tobytes")
    ]
    # The public key of the guest, in checkpoints and the shard; the number of an answer.
    assert sorted(calls) == ["_host_key(host).key", "_host_key(host).key", "number", "released"]
