"""What parties refuse of trees that grow at once: other trees' rows and nodes, and trees amid."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.encrypted.tree.batch import STRIDE
from fedboost.flow import MODEL, Artefact
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.secureboost import guest as guest_steps
from fedboost.protocols.secureboost import host as host_steps
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.unit.protocols.test_secureboost_attacks import (
    choose,
    flip_first_row,
    ints,
    only_to,
    values_of,
)
from tests.unit.protocols.test_secureboost_attacks import outcome as outcome_of_single_trees

TELCO, SHOP = HOSTS[:2]
TREES, ROWS = 3, 15  # of the first round: trees, and training rows that some tree learns from
# In it telco's splits divide the roots of the second and the third tree, the guest's the first's.
ROOTS = [0, STRIDE, 2 * STRIDE]
DIVIDED = [STRIDE, 2 * STRIDE]
OPENED = [STRIDE + 2, 2 * STRIDE + 2]
NOWHERE = [-1, -STRIDE, TREES * STRIDE, TREES * STRIDE + 1, 2**31 - 1, -(2**31)]


def outcome(alter):
    """The error that ends the tiny job with a forest when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.forest(alter).walk())
    return ended.value


def halted(step, times=1):
    return conversations.forest().until(step, times)


def last_to(room, receiver):
    """A copy of what the receiver got last."""
    found = next(p for p in reversed(room.posted) if p.envelope.receiver == receiver)
    return type(found.message).FromString(found.payload)


async def test_the_tiny_job_is_what_these_tests_take_it_for():
    room = await halted("sum_candidates", 2)
    first = next(p.message for p in room.posted if p.envelope.kind.endswith("Gradients"))
    assert (first.rows.count, len(first.trees.data)) == (ROWS, (TREES * ROWS + 7) // 8)
    frontier = last_to(room, TELCO)
    assert (values_of(frontier.divided), values_of(frontier.open)) == (DIVIDED, OPENED)
    assert list(room.state(TELCO).divided) == DIVIDED


# Which rows are each tree's


def bits(inside):
    return lambda part: part.trees.CopyFrom(wire.pack_bits(np.array(inside, np.bool_).ravel()))


def without_trees(part):
    part.ClearField("trees")


def rows_of(*left_out):
    """All rows in every tree, but for (tree, row) or a whole tree or row."""
    inside = np.ones((TREES, ROWS), np.bool_)
    for place in left_out:
        inside[place] = False
    return inside


ONE_ROW = (slice(None), 5)  # in no tree
LIES = {
    "absent": without_trees,
    "of one tree": bits(np.ones(ROWS)),
    "of two trees": bits(np.ones((2, ROWS))),
    "of four trees": bits(np.ones((4, ROWS))),
    "of all training rows": bits(np.ones((TREES, 18))),
    "none": bits(np.empty(0)),
    "set beyond the last": lambda part: part.trees.CopyFrom(wire.pack(np.full(6, 255, np.uint8))),
    "of another type": lambda part: part.trees.CopyFrom(ints(*[1] * 6)),
    "a tree without rows": bits(rows_of(1)),
    "a row without a tree": bits(rows_of(ONE_ROW)),
    "neither": bits(rows_of(slice(None))),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_rows_that_do_not_fit_the_trees_are_refused(lie):
    error = outcome(only_to(SHOP, changing("EncryptedGradients", lie)))
    assert isinstance(error, PeerError)
    assert error.where == {"party": SHOP, "step": "receive_gradients"}


async def test_refused_gradients_of_a_forest_change_nothing():
    room = await halted("open_layer")
    key, good, *_ = (p.message for p in room.posted if p.envelope.receiver == TELCO)
    me = host_steps.begin(room.contexts[TELCO])
    host_steps.accept_key(me, key)
    for lie in LIES.values():
        bad = pb.EncryptedGradients()
        bad.CopyFrom(good)
        lie(bad)
        with pytest.raises(PeerError):
            host_steps.receive_gradients(me, iter([bad]))
        assert (me.tree_batch.first, me.tree_batch.trees) == (-1, [])
        assert not type(me).gradients.is_set(me)
    host_steps.receive_gradients(me, iter([good]))
    assert (me.tree_batch.first, len(me.tree_batch.trees)) == (0, TREES)


@pytest.mark.parametrize("inside", [1, 0])
def test_rows_of_trees_in_a_job_without_a_forest_are_refused(inside):
    lie = bits(np.full(18, inside))
    error = outcome_of_single_trees(changing("EncryptedGradients", lie))
    assert isinstance(error, PeerError)
    assert error.what == "the guest says which tree each row belongs to; growing trees: 1"
    assert error.where["step"] == "receive_gradients"


def test_rows_of_trees_in_a_round_of_one_tree_are_refused():
    error = outcome(only_to(SHOP, changing("EncryptedGradients", bits(np.ones(18)), 1)))
    assert error.what == "the guest says which tree each row belongs to; growing trees: 1"
    assert error.where == {"party": SHOP, "step": "receive_gradients"}


def test_rows_of_trees_are_said_once():
    # The second round's gradients come in two parts for each host.
    error = outcome(changing("EncryptedGradients", bits(np.ones(18)), 4))
    assert isinstance(error, PeerError)
    assert error.what == "the guest sent gradients of row 9, expected row 9"
    assert error.where["step"] == "receive_gradients"


# Trees out of turn


@pytest.mark.parametrize("tree", [0, 1, 2, 4, 2**32 - 1])
def test_a_round_that_begins_amid_a_forest_is_refused(tree):
    def lie(part):
        part.tree = tree

    error = outcome(changing("EncryptedGradients", lie, 2))
    assert isinstance(error, PeerError)
    assert error.what == f"the guest began tree {tree}, expected tree {TREES}"
    assert error.where["step"] == "receive_gradients"


@pytest.mark.parametrize("first_tree", [1, 2, 5, 2**32 - 1])
def test_a_model_continued_amid_a_forest_is_refused(first_tree):
    context = conversations.warm_start().contexts[TELCO]
    facts = {**context.artefacts[MODEL].facts, "trees": 4, "trees_per_round": 1, "forest": [3, 1]}
    me = host_steps.begin(replace(context, artefacts={MODEL: Artefact(facts, {})}))
    key = next(
        p.message
        for p in now(conversations.secureboost().until("accept_key")).posted
        if p.envelope.receiver == TELCO
    )
    lie = pb.EncryptionKey()
    lie.CopyFrom(key)
    lie.first_tree = first_tree
    with pytest.raises(PeerError, match="whole rounds of the model"):
        host_steps.accept_key(me, lie)
    assert not type(me).side.is_set(me)
    assert not type(me).first_tree.is_set(me)
    assert me.tree_batch.first == -1
    lie.first_tree = 3
    host_steps.accept_key(me, lie)
    assert (me.first_tree, me.tree_batch.first) == (3, 2)


# Nodes of other trees, and of none


def frontier(divided=None, opened=None):
    def lie(message):
        if divided is not None:
            message.divided.CopyFrom(ints(*divided))
        if opened is not None:
            message.open.CopyFrom(ints(*opened))

    return lie


FIRST_LAYER = {
    "one root": [0],
    "another root": [STRIDE],
    "two roots": ROOTS[:2],
    "roots in another order": ROOTS[::-1],
    "a root twice": [0, 0, *ROOTS[1:]],
    **{f"node {node}": sorted([*ROOTS, node]) for node in NOWHERE},
    **{f"node {node} alone": [node] for node in NOWHERE},
    "a fourth root": [*ROOTS, TREES * STRIDE],
    "a child": [0, 1, *ROOTS[1:]],
    "none": [],
}


@pytest.mark.parametrize("opened", FIRST_LAYER.values(), ids=FIRST_LAYER)
def test_all_trees_of_a_forest_begin_at_once_and_no_others(opened):
    error = outcome(only_to(SHOP, changing("Frontier", frontier(opened=opened))))
    assert isinstance(error, PeerError)
    assert "opened nodes that are not children" in error.what
    assert error.where == {"party": SHOP, "step": "sum_candidates"}


SECOND_LAYER = {
    "another tree's child": [1, *OPENED],
    "the same node of another tree": [2, OPENED[1]],
    "a root": [0, *OPENED],
    "a divided root": [STRIDE, *OPENED],
    "a grandchild": [OPENED[0], STRIDE + 3, OPENED[1]],
    **{f"node {node}": sorted([*OPENED, node]) for node in NOWHERE},
    "the fourth tree's child": [*OPENED, TREES * STRIDE + 2],
}


@pytest.mark.parametrize("opened", SECOND_LAYER.values(), ids=SECOND_LAYER)
def test_nodes_open_below_divided_nodes_of_their_own_tree_only(opened):
    error = outcome(only_to(SHOP, changing("Frontier", frontier(opened=opened), 1)))
    assert isinstance(error, PeerError)
    assert "opened nodes that are not children" in error.what
    assert error.where == {"party": SHOP, "step": "sum_candidates"}


WRONGLY_DIVIDED = {
    **{f"node {node}": [*DIVIDED, node] for node in NOWHERE},
    "a node that is not open": [STRIDE, STRIDE + 1],
    "a root twice": [STRIDE, STRIDE],
    "one of ours left out": DIVIDED[:1],
    "another tree's in its place": [0, DIVIDED[1]],
}


@pytest.mark.parametrize("divided", WRONGLY_DIVIDED.values(), ids=WRONGLY_DIVIDED)
def test_only_open_nodes_of_growing_trees_divide(divided):
    error = outcome(only_to(TELCO, changing("Frontier", frontier(divided), 1)))
    assert isinstance(error, PeerError)
    assert "divided nodes that were not open" in error.what
    assert error.where == {"party": TELCO, "step": "sum_candidates"}


def test_a_host_finds_its_own_division_of_any_tree_again():
    error = outcome(only_to(TELCO, changing("Frontier", flip_first_row, 1)))
    assert error.what == f"the guest divided node {STRIDE} otherwise than we did"
    assert error.where["party"] == TELCO


async def test_a_refused_frontier_changes_no_tree():
    room = await halted("sum_candidates", 2)
    me, good = room.state(TELCO), last_to(room, TELCO)

    def state():
        trees = me.tree_batch.trees
        leaves = [tree.growth.everyone.leaves() for tree in trees]
        return (
            leaves,
            me.tree_batch.opened,
            dict(me.tree_batch.offered),
            dict(me.divided),
            me.tree_batch.first,
        )

    before = state()
    lies = [frontier(opened=opened) for opened in SECOND_LAYER.values()]
    lies += [frontier(divided) for divided in WRONGLY_DIVIDED.values()]
    for lie in (*lies, flip_first_row):
        bad = Frontier()
        bad.CopyFrom(good)
        lie(bad)
        with pytest.raises(PeerError):
            next(host_steps.sum_candidates(me, bad))
        assert state() == before
    [sums] = [out.send for out in host_steps.sum_candidates(me, good)]
    assert isinstance(sums, pb.CandidateSums)
    assert me.tree_batch.opened == OPENED


@pytest.mark.parametrize("node", [*NOWHERE, STRIDE - 1, 1, STRIDE + 1])
def test_a_choice_for_a_node_of_no_tree_is_refused(node):
    lie = choose([STRIDE, node], [1, 1], [0, 0])
    error = outcome(only_to(SHOP, changing("WonSplits", lie)))
    assert isinstance(error, PeerError)
    assert error.what == "the guest chose splits of nodes that are not open"
    assert error.where == {"party": SHOP, "step": "divide_rows"}


async def test_a_candidate_of_another_trees_node_is_refused_and_changes_nothing():
    room = await halted("divide_rows")
    me, good = room.state(TELCO), last_to(room, TELCO)
    counts = [me.tree_batch.offered[root].shape.n_sums for root in ROOTS]
    fewest = min(counts)
    assert fewest < max(counts)
    lies = [choose([ROOTS[counts.index(fewest)]], [1], [fewest])]  # which another tree's root has
    lies += [choose([node], [1], [0]) for node in NOWHERE]
    for lie in lies:
        bad = pb.WonSplits()
        lie(bad)
        with pytest.raises(PeerError):
            host_steps.divide_rows(me, bad)
        assert (me.splits, me.divided) == ([], {})
    divided = host_steps.divide_rows(me, good).send
    assert isinstance(divided, pb.RowDivisions)
    assert values_of(divided.nodes) == DIVIDED
    assert [(split.tree, split.node) for split in me.splits] == [(1, 0), (2, 0)]


# A cheating host


DIVISIONS = {
    **{f"node {node}": [STRIDE, node] for node in NOWHERE},
    "another tree's node": [0, 2 * STRIDE],
    "a node that did not win": [*ROOTS],
    "another order": DIVIDED[::-1],
    "one left out": DIVIDED[:1],
    "one twice": [STRIDE, STRIDE],
    "none": [],
}


def divides(nodes):
    return lambda division: division.nodes.CopyFrom(ints(*nodes))


def from_telco(alter):
    return lambda e, payload: alter(e, payload) if e.sender == TELCO else (e, payload)


@pytest.mark.parametrize("nodes", DIVISIONS.values(), ids=DIVISIONS)
def test_a_host_that_divides_other_trees_nodes_is_refused(nodes):
    error = outcome(from_telco(changing("RowDivisions", divides(nodes))))
    assert isinstance(error, PeerError)
    assert TELCO in error.what
    assert error.where["step"] == "grow_nodes"


async def test_a_refused_division_moves_no_row_of_any_tree():
    room = await halted("grow_nodes")
    me = room.state(GUEST)
    got = {
        p.envelope.sender: p.message
        for p in room.posted
        if p.envelope.kind.endswith(".RowDivisions")
    }

    def state():
        trees = me.growing.tree_batch.trees
        leaves = [tree.growth.everyone.leaves() for tree in trees]
        return leaves, [tree.layers for tree in trees], [len(tree.totals) for tree in trees]

    before = state()
    for nodes in DIVISIONS.values():
        bad = pb.RowDivisions()
        bad.CopyFrom(got[TELCO])
        divides(nodes)(bad)
        with pytest.raises(PeerError):
            guest_steps.grow_nodes(me, {**got, TELCO: bad})
        assert state() == before
    guest_steps.grow_nodes(me, got)
    assert [len(tree.totals) for tree in me.growing.tree_batch.trees] == [3, 3, 3]


@pytest.mark.parametrize("row", range(24))
def test_a_host_that_divides_one_tree_otherwise_than_it_offered_is_refused(row):
    room = now(halted("grow_nodes"))
    last = room.state(GUEST).growing.tree_batch.trees[2].growth.training
    learnt_from = row in last.rows(0)

    def flip(division):
        data = bytearray(division.goes_right.data)
        data[3 + row // 8] ^= 0x80 >> (row % 8)  # behind the 24 rows of the tree before
        division.goes_right.data = bytes(data)

    error = outcome(from_telco(changing("RowDivisions", flip)))
    if learnt_from:
        assert error.what == f"{TELCO} divided the rows of node 0 otherwise than it offered"
    else:  # where other rows belong is the host's word, and it notices a forgery
        assert error.what == f"the guest divided node {2 * STRIDE} otherwise than we did"
    assert error.where["party"] == TELCO
