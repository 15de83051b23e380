"""What a curious or cheating party of a secureboost job cannot do."""

import ast
import inspect

import numpy as np
import pytest

from fedboost.crypto import residues
from fedboost.crypto.api import BlindedPackages, Ciphertexts
from fedboost.encrypted.cells import adding, node_cells, request, row_cells, tree_part
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.host import answers as host_answers
from fedboost.encrypted.host import tree as host_tree
from fedboost.encrypted.lattice import host as lattice_host
from fedboost.encrypted.number import packed
from fedboost.encrypted.tree import batch, growth
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, DataError, FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.secureboost import host as host_steps
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, frame_of, now, resealed, room_for

HOST = HOSTS[1]  # owns the first split of the tiny job
ROWS = 18  # training rows of the tiny job


def outcome(alter):
    """The error that ends the tiny job when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.secureboost(alter).walk())
    return ended.value


def ints(*values):
    return wire.pack(np.array(values, np.int32))


def values_of(array):
    return np.frombuffer(array.data, np.int32).tolist()


# A cheating guest


def set_open(*nodes):
    return lambda frontier: frontier.open.CopyFrom(ints(*nodes))


@pytest.mark.parametrize(
    ("skip", "nodes"),
    [
        (0, ()),
        (0, (1,)),
        (0, (0, 0)),
        (0, (0, 1)),
        (0, (-1,)),
        (2, (0,)),  # closed by now
        (2, (1, 1)),
        (2, (2, 1)),  # not in order
        (2, (1, 3)),  # a grandchild
        (2, (2**31 - 1,)),
    ],
)
def test_a_guest_that_opens_other_nodes_is_refused(skip, nodes):
    error = outcome(changing("Frontier", set_open(*nodes), skip))
    assert isinstance(error, PeerError)
    assert "opened nodes that are not children" in error.what
    assert error.where["step"] == "sum_candidates"


def flip_first_row(message):
    data = bytearray(message.goes_right.data)
    data[0] ^= 0x80
    message.goes_right.data = bytes(data)


def only_to(receiver, alter):
    """Changes what one receiver gets and leaves the others alone."""
    return lambda e, payload: alter(e, payload) if e.receiver == receiver else (e, payload)


def test_a_guest_that_divides_a_hosts_node_otherwise_is_refused_by_it():
    error = outcome(only_to(HOST, changing("Frontier", flip_first_row, 1)))
    assert error.what == "the guest divided node 0 otherwise than we did"
    assert error.where["party"] == HOST


@pytest.mark.parametrize("nodes", [(), (1,), (0, 0), (-1,), (2**31 - 1,)])
def test_a_guest_that_divides_other_nodes_is_refused(nodes):
    def lie(frontier):
        frontier.divided.CopyFrom(ints(*nodes))
        frontier.goes_right.CopyFrom(wire.pack_bits(np.zeros(0, np.bool_)))

    error = outcome(only_to(HOST, changing("Frontier", lie, 1)))
    assert isinstance(error, PeerError)
    assert "divided nodes that were not open" in error.what


def choose(nodes, tied, candidates):
    def lie(won):
        won.nodes.CopyFrom(ints(*nodes))
        won.tied.CopyFrom(ints(*tied))
        won.candidates.CopyFrom(ints(*candidates))

    return lie


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (choose([0], [1], [13]), "not offered"),
        (choose([0], [1], [-1]), "not offered"),
        (choose([0], [2], [0, 2**31 - 1]), "not offered"),
        (choose([1], [1], [0]), "nodes that are not open"),
        (choose([0, 0], [1, 1], [0, 1]), "nodes that are not open"),
        (choose([0], [0], []), "nodes that are not open"),
        (choose([0], [-1], [0]), "nodes that are not open"),
        (choose([0], [2**31 - 1], [0]), "the chosen candidates must be"),
        (choose([0], [1], [0, 1]), "the chosen candidates must be"),
        (choose([0], [1, 1], [0, 1]), "the ties of the won nodes must be"),
    ],
)
def test_a_guest_that_chooses_what_was_not_offered_is_refused(lie, says):
    error = outcome(only_to(HOST, changing("WonSplits", lie)))
    assert isinstance(error, PeerError)
    assert says in error.what
    assert error.where["step"] == "divide_rows"


@pytest.mark.parametrize(
    ("place", "change", "says"),
    [
        (0, {"first_row": 1}, "gradients of row 1, expected row 0"),
        (2, {"first_row": 0}, "gradients of row 0, expected row 9"),
        (2, {"first_row": 2**64 - 1}, "expected row 9"),
        (0, {"rows": pb.Ciphertexts(count=19, data=bytes(32 * 19))}, "expected row 0"),
        (2, {"rows": pb.Ciphertexts(count=10, data=bytes(320))}, "expected row 9"),
        (0, {"rows": pb.Ciphertexts(count=2**64 - 1, data=bytes(320))}, "expected row 0"),
        (2, {"rows": pb.Ciphertexts(count=8, data=bytes(32 * 8))}, "of 17 rows, expected 18"),
        (0, {"rows": pb.Ciphertexts()}, "expected row 0"),
        (0, {"rows": pb.Ciphertexts(count=9, data=bytes(31 * 9))}, "9 ciphertexts of 32 bytes"),
    ],
)
def test_a_guest_that_sends_too_few_or_too_many_gradients_is_refused(place, change, says):
    def lie(part):
        for key, value in change.items():
            if isinstance(value, int):
                setattr(part, key, value)
            else:
                getattr(part, key).CopyFrom(value)

    # Each part goes to two hosts.
    error = outcome(changing("EncryptedGradients", lie, place))
    assert isinstance(error, PeerError)
    assert says in error.what
    assert error.where["step"] == "receive_gradients"


async def halted(step, times=1):
    return await conversations.secureboost().until(step, times)


async def test_gradients_sent_twice_for_one_tree_are_refused():
    room = await halted("open_layer")
    first = next(
        p
        for p in room.posted
        if p.envelope.receiver == HOST and p.envelope.kind.endswith("EncryptedGradients")
    )
    envelope, payload = resealed(first.envelope, first.payload)
    assert await room.sessions[HOST].accept(envelope, payload) is True  # a repetition
    envelope.number += 2
    with pytest.raises(PeerError, match="out of turn"):
        await room.sessions[HOST].accept(envelope, payload)
    await room.call("open_layer", GUEST)  # and the job goes on
    await room.call("sum_candidates", *HOSTS[:2])


async def test_a_second_frontier_for_the_same_layer_is_refused():
    room = await halted("sum_candidates")
    last = next(p for p in reversed(room.posted) if p.envelope.receiver == HOST)
    other = Frontier.FromString(last.payload)
    other.divided.CopyFrom(ints(0))
    session = room.sessions[HOST]
    forged, payload = resealed(last.envelope, wire.encode(other))
    with pytest.raises(PeerError, match="two different messages in one place"):
        await session.accept(forged, payload)
    forged.number -= 1
    await session.accept(forged, payload)
    with pytest.raises(PeerError, match=r"a second fedboost.secureboost.Frontier"):
        await room.call("sum_candidates", HOST)


async def test_a_refused_frontier_changes_nothing():
    room = await halted("sum_candidates", times=2)
    last = next(p for p in reversed(room.posted) if p.envelope.receiver == HOST)
    me, good = room.state(HOST), last.message
    before = (
        me.tree_batch.trees[0].growth.everyone.leaves(),
        list(me.tree_batch.opened),
        dict(me.tree_batch.offered),
        me.tree_batch.first,
    )
    for nodes in ((0,), (1, 3)):
        bad = Frontier()
        bad.CopyFrom(good)
        bad.open.CopyFrom(ints(*nodes))
        with pytest.raises(PeerError):
            next(host_steps.sum_candidates(me, bad))
        assert before == (
            me.tree_batch.trees[0].growth.everyone.leaves(),
            me.tree_batch.opened,
            me.tree_batch.offered,
            me.tree_batch.first,
        )
    [sums] = [out.send for out in host_steps.sum_candidates(me, good)]
    assert isinstance(sums, pb.CandidateSums)
    assert values_of(sums.candidates) == [
        len(me.tree_batch.offered[n].order) for n in me.tree_batch.opened
    ]


async def test_a_refused_choice_changes_nothing():
    room = await halted("divide_rows")
    last = next(p for p in reversed(room.posted) if p.envelope.receiver == HOST)
    me = room.state(HOST)
    for lie in (choose([0], [1], [99]), choose([7], [1], [0])):
        bad = pb.WonSplits()
        lie(bad)
        with pytest.raises(PeerError):
            host_steps.divide_rows(me, bad)
        assert (me.splits, me.divided) == ([], {})
    divided = host_steps.divide_rows(me, last.message).send
    assert isinstance(divided, pb.RowDivisions)
    assert values_of(divided.nodes) == [0]
    assert len(me.splits) == 1


# A cheating host


@pytest.mark.parametrize("row", range(24))
def test_a_host_that_divides_otherwise_than_it_offered_is_refused(row):
    held = conversations.secureboost().contexts[HOST].validation

    def flip(division):
        data = bytearray(division.goes_right.data)
        data[row // 8] ^= 0x80 >> (row % 8)
        division.goes_right.data = bytes(data)

    change = changing("RowDivisions", flip)

    def alter(envelope, payload):
        return change(envelope, payload) if envelope.sender == HOST else (envelope, payload)

    error = outcome(alter)
    if held[row]:  # where validation rows belong is the host's word, and it notices a forgery
        assert error.what == "the guest divided node 0 otherwise than we did"
    else:
        assert error.what == f"{HOST} divided the rows of node 0 otherwise than it offered"
    assert error.where["party"] == HOST


def counted(change):
    return lambda sums: sums.candidates.CopyFrom(ints(*change(values_of(sums.candidates))))


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: [-1],
        lambda counts: [2**31 - 1],
        lambda counts: [counts[0] + 5],
        lambda counts: [0],
        lambda counts: [*counts, 0],
        lambda counts: [],
    ],
)
def test_a_host_whose_counts_do_not_fit_its_sums_is_refused(change):
    error = outcome(changing("CandidateSums", counted(change)))
    assert isinstance(error, PeerError)
    assert error.where["step"] == "choose_splits"


def test_a_sum_outside_the_declared_range_is_refused():
    def overflow(sums):
        data = bytearray(sums.packages.data)
        data[-20:] = b"\x7f" * 20
        sums.packages.data = bytes(data)

    assert outcome(changing("CandidateSums", overflow)).what == (
        "a number does not unpack into the declared range"
    )


# What leaves a host


async def test_candidates_stand_in_another_order_in_every_node_and_tree():
    """Equal lists of candidates, so that equal orders would show."""
    room = await halted("divide_rows")
    orders = []
    for tree, node in ((0, 0), (0, 1), (0, 2), (1, 0)):
        secrets = room.contexts[HOST].secrets.attempt
        orders.append(tuple(secrets.permutation(13, "candidates", tree, node)))
    me = room.state(HOST)
    assert tuple(me.tree_batch.offered[0].order) == orders[0]
    assert len(set(orders)) == 4
    first = tuple(me.tree_batch.offered[0].order)
    assert sorted(first) == list(range(13))
    assert list(first) != list(range(13))


CHECKS = ("sign_rows", "commit_sums", "show_signs", "open_sums", "check_sums")


def test_orders_really_differ_along_a_whole_job():
    seen: dict[tuple[int, int], NodeCandidates] = {}

    async def watch():
        again = await conversations.secureboost().open()
        for _ in range(2):
            for number, step in enumerate(again.protocol.flow):
                # Where layers are the guest's own, the scheme derives public polynomials, or
                # gradients are checked.
                if step.name in ("grow_alone", "offer_nonce", "hear_nonces", *CHECKS):
                    continue
                if number > 3 or not seen:
                    await again.call(step.name, *again.table.of(step.roles))
                if step.name == "sum_candidates":
                    me = again.state(HOST)
                    seen.update(
                        {(me.tree_batch.first, n): o for n, o in me.tree_batch.offered.items()}
                    )
                if step.name == "close_round":
                    break
        return seen

    offers = now(watch())
    assert {tree for tree, _ in offers} == {0, 1}
    same = [o for o in offers.values() if len(o.order) == len(offers[0, 0].order)]
    assert len(same) >= 2
    assert len({tuple(o.order) for o in same}) == len(same)


def test_nothing_leaves_a_host_but_released_sums_and_divisions(monkeypatch):
    released = []
    release = residues.ResiduePublic.release

    def watched(self, *args):
        out = release(self, *args)
        assert isinstance(out, BlindedPackages)
        released.append(out.to_bytes())
        return out

    monkeypatch.setattr(residues.ResiduePublic, "release", watched)
    room = conversations.secureboost()
    now(room.walk())
    sent = [p for p in room.posted if p.envelope.sender in HOSTS]
    kinds = {p.message.DESCRIPTOR.name for p in sent}
    assert kinds == {"CandidateSums", "RowDivisions"}
    sums = [p.message.packages.data for p in sent if p.message.DESCRIPTOR.name == "CandidateSums"]
    assert sorted(sums) == sorted(released)
    assert not hasattr(Ciphertexts, "to_bytes")


def test_a_hosts_code_turns_nothing_but_released_sums_into_bytes():
    released_by = (
        packed.PackedHostRows,
        packed.PackedHost,
        lattice_host.LatticeHostRows,
        lattice_host.LatticeHost,
    )
    calls = [
        node.func.value.id if isinstance(node.func.value, ast.Name) else ast.dump(node.func.value)
        for module in (
            host_steps,
            adding,
            host_answers,
            row_cells,
            growth,
            node_cells,
            request,
            batch,
            tree_part,
            host_tree,
            *released_by,
        )
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to_bytes", "tobytes")
    ]
    assert calls == ["released"] * 4


def test_the_same_sums_are_never_sent_as_the_same_bytes():
    """Blinding is fresh from the operating system: an answer says nothing about an earlier one."""
    rooms = [conversations.secureboost() for _ in range(2)]
    for room in rooms:
        now(room.walk())
    first, again = (
        [p.message.packages.data for p in room.posted if p.envelope.kind.endswith("CandidateSums")]
        for room in rooms
    )
    assert len(first) == len(again)
    packages = lambda blobs: [b[i : i + 32] for b in blobs for i in range(0, len(b), 32)]  # noqa: E731
    assert not set(packages(first)) & set(packages(again))


# Jobs that cannot end well


def one_class_held_out():
    """The tiny tables, with label 1 in every row that is held out."""
    frames = conversations.tables()
    held = conversations.secureboost().contexts[GUEST].validation
    label = np.where(held, 1.0, frames[GUEST].label)
    frames[GUEST] = frame_of(frames[GUEST].ids, frames[GUEST].values, label)
    return frames


@pytest.mark.parametrize(
    ("frames", "held", "more", "kind", "says"),
    [
        (conversations.tables, None, {"early_stopping_rounds": 1}, ConfigError, "validation rows"),
        (one_class_held_out, 0.25, {"eval_metric": ["auc"]}, DataError, "one class only"),
    ],
)
def test_a_job_without_the_rows_it_needs_is_refused_before_anything_leaves(
    frames, held, more, kind, says
):
    room = room_for("secureboost", frames(), {**conversations.PARAMS, **more}, held=held)
    with pytest.raises(kind, match=says):
        now(room.walk())
    assert room.recorded == []
