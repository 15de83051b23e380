"""What a curious or cheating guest of a hybridtree job cannot do, and what refusals leave alone."""

import numpy as np
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows, ChosenSplits
from fedboost.protocols.hybridtree import host as host_steps
from tests.support import conversations
from tests.support.federated import HOSTS, changing, now, resealed
from tests.unit.protocols.test_secureboost_attacks import ints, only_to, values_of

TELCO, SHOP = HOSTS[:2]
ROWS, TRAINING = 27, 20  # of the second host in the tiny job; they come in two parts of ten
BITS = 53  # of a gradient, as the guest's rows allow


def outcome(alter):
    """The error that ends the tiny job when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.hybridtree(alter).walk())
    return ended.value


def refused(alter, says, step, host=SHOP):
    error = outcome(alter)
    assert isinstance(error, PeerError)
    assert says in error.what
    assert error.where == {"party": host, "step": step}


async def halted(step, times=1, **params):
    return await conversations.hybridtree(**params).until(step, times)


def sent_to(room, host, kind):
    """The messages of a type that a host got."""
    own = [posted.message for posted in room.posted if posted.envelope.receiver == host]
    return [message for message in own if isinstance(message, kind)]


def parts_to(room, host):
    """The parts of gradients that a host got."""
    return sent_to(room, host, BottomRows)


# Where the rows stand: 27 numbers, each 3 or 4 in the first tree


def set_at(*numbers):
    return lambda part: part.at.CopyFrom(ints(*numbers))


def stand(changes):
    """Lies about some rows."""

    def lie(part):
        at = values_of(part.at)
        for row, number in changes.items():
            at[row] = number
        part.at.CopyFrom(ints(*at))

    return lie


@pytest.mark.parametrize("number", [2, 7, 0, -2, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("row", [0, 3, 26])  # row 3 is held out
def test_a_guest_that_puts_rows_below_nodes_that_are_none_is_refused(row, number):
    lie = only_to(SHOP, changing("BottomRows", stand({row: number})))
    refused(lie, "below nodes that no tree of the job has", "receive_gradients")


@pytest.mark.parametrize("count", [0, 1, 20, 26, 28])
def test_a_guest_that_does_not_place_every_row_is_refused(count):
    lie = only_to(SHOP, changing("BottomRows", set_at(*[3] * count)))
    refused(lie, "where our rows stand must be", "receive_gradients")


def test_gradients_before_their_places_are_refused():
    def late(first, second):
        second.at.CopyFrom(first.at)
        second.open.CopyFrom(first.open)
        first.ClearField("at")
        first.ClearField("open")

    kept = []

    def alter(envelope, payload):
        if envelope.receiver != SHOP or not envelope.kind.endswith(".BottomRows"):
            return envelope, payload
        part = BottomRows.FromString(payload)
        kept.append(part)
        late(kept[0], part if len(kept) > 1 else BottomRows())
        return resealed(envelope, wire.encode(part))

    refused(alter, "where our rows stand", "receive_gradients")


@pytest.mark.parametrize(
    "lie",
    [set_at(*[3] * ROWS), lambda part: part.open.CopyFrom(ints(3))],
    ids=["places", "open nodes"],
)
def test_a_guest_that_says_twice_where_rows_stand_is_refused(lie):
    again = only_to(SHOP, changing("BottomRows", lie, skip=1))
    refused(again, "said twice where our rows stand", "receive_gradients")


OPEN = {
    "none of its numbers": (2,),
    "a number of another tree": (5,),
    "a child": (7,),
    "twice": (3, 3),
    "out of order": (4, 3),
    "more than there are": (3, 4, 5),
    "negative": (-1,),
    "endless": (3, 2**31 - 1),
}


@pytest.mark.parametrize("nodes", OPEN.values(), ids=OPEN)
def test_a_guest_that_opens_other_bottom_nodes_is_refused(nodes):
    lie = changing("BottomRows", lambda part: part.open.CopyFrom(ints(*nodes)))
    refused(only_to(SHOP, lie), "opened nodes that are not below", "receive_gradients")


# Gradients


@pytest.mark.parametrize("tree", [1, 2, 2**32 - 1])
@pytest.mark.parametrize("part", [0, 1])
def test_a_tree_out_of_turn_is_refused(part, tree):
    def lie(message):
        message.gradients.tree = tree

    says = f"began tree {tree}, expected tree 0" if part == 0 else "expected row 10"
    refused(only_to(SHOP, changing("BottomRows", lie, part)), says, "receive_gradients")


async def test_more_trees_than_the_job_has_are_refused():
    room = await halted("close_model")
    me, more = room.state(SHOP), BottomRows()
    more.CopyFrom(parts_to(room, SHOP)[-2])
    more.gradients.tree = 2
    with pytest.raises(PeerError, match="began tree 2"):
        host_steps.receive_gradients(me, iter([more]))
    assert me.tree_batch.first == 1


@pytest.mark.parametrize(
    ("part", "change", "says"),
    [
        (0, {"first_row": 1}, "gradients of row 1, expected row 0"),
        (1, {"first_row": 0}, "gradients of row 0, expected row 10"),
        (1, {"first_row": 2**64 - 1}, "expected row 10"),
        (0, {"rows": pb.Ciphertexts(count=21, data=bytes(32 * 21))}, "expected row 0"),
        (1, {"rows": pb.Ciphertexts(count=11, data=bytes(32 * 11))}, "expected row 10"),
        (0, {"rows": pb.Ciphertexts(count=2**64 - 1, data=bytes(320))}, "expected row 0"),
        (1, {"rows": pb.Ciphertexts(count=9, data=bytes(32 * 9))}, "of 19 rows, expected 20"),
        (0, {"rows": pb.Ciphertexts()}, "expected row 0"),
        (0, {"rows": pb.Ciphertexts(count=10, data=bytes(31 * 10))}, "10 ciphertexts of 32 bytes"),
        (
            0,
            {"trees": wire.pack_bits(np.ones(TRAINING, np.bool_))},
            "which tree each row belongs to",
        ),
        (1, {"trees": wire.pack_bits(np.ones(TRAINING, np.bool_))}, "expected row 10"),
        (1, {"taking_part": wire.pack_bits(np.ones(TRAINING, np.bool_))}, "expected row 10"),
        (0, {"taking_part": wire.pack_bits(np.zeros(TRAINING, np.bool_))}, "job's seed draws"),
        (0, {"taking_part": wire.pack_bits(np.ones(16, np.bool_))}, "that take part"),
        (0, {"taking_part": wire.pack_bits(np.ones(ROWS, np.bool_))}, "that take part"),
    ],
)
def test_a_guest_that_sends_too_few_or_too_many_gradients_is_refused(part, change, says):
    def lie(message):
        for key, value in change.items():
            if isinstance(value, int):
                setattr(message.gradients, key, value)
            else:
                getattr(message.gradients, key).CopyFrom(value)

    refused(only_to(SHOP, changing("BottomRows", lie, part)), says, "receive_gradients")


def test_gradients_behind_the_last_row_are_refused():
    """A stream to another host may go on; this one's parts are empty then."""

    def lie(message):
        message.gradients.rows.CopyFrom(pb.Ciphertexts(count=1, data=bytes(32)))

    alter = only_to(TELCO, changing("BottomRows", lie, skip=1))
    refused(alter, "gradients of row 9, expected row 9", "receive_gradients", TELCO)


# What the guest chooses: in the first tree SHOP offers 13 candidates of 3 and of 4, both divide


def choose(nodes, tied, candidates, opened=None):
    def lie(chosen):
        chosen.won.nodes.CopyFrom(ints(*nodes))
        chosen.won.tied.CopyFrom(ints(*tied))
        chosen.won.candidates.CopyFrom(ints(*candidates))
        if opened is not None:
            chosen.open.CopyFrom(ints(*opened))

    return lie


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (choose([3], [1], [13]), "not offered"),
        (choose([3], [1], [-1]), "not offered"),
        (choose([3], [2], [0, 2**31 - 1]), "not offered"),
        (choose([5], [1], [0]), "nodes that are not open"),
        (choose([0], [1], [0]), "nodes that are not open"),
        (choose([7], [1], [0]), "nodes that are not open"),
        (choose([3, 3], [1, 1], [0, 1]), "nodes that are not open"),
        (choose([3], [0], []), "nodes that are not open"),
        (choose([3], [2**31 - 1], [0]), "the chosen candidates must be"),
        (choose([3], [1], [0, 1]), "the chosen candidates must be"),
        (choose([3], [1, 1], [0, 1]), "the ties of the won nodes must be"),
    ],
)
def test_a_guest_that_chooses_what_was_not_offered_is_refused(lie, says):
    refused(only_to(SHOP, changing("ChosenSplits", lie)), says, "divide_rows")


@pytest.mark.parametrize("candidates", [[3, 7], [4, 4], [3, 4, 5, 6], [0, 3], [7]])
def test_a_guest_that_chooses_categories_that_were_not_offered_is_refused(candidates):
    """Of node 4 TELCO offers three candidates, then four categories of which no row lacks one."""

    def lie(chosen):
        choose([4], [1], candidates)(chosen)
        chosen.won.sizes.CopyFrom(ints(len(candidates)))

    refused(only_to(TELCO, changing("ChosenSplits", lie)), "not offered", "divide_rows", TELCO)


NEXT = {
    "a node itself": (3,),
    "a node of the guest": (1,),
    "a grandchild": (15,),
    "a child's twin": (7, 7),
    "out of order": (8, 7),
    "more than there are": (7, 8, 9, 10, 11),
    "negative": (-8,),
    "endless": (2**31 - 1,),
}


@pytest.mark.parametrize("nodes", NEXT.values(), ids=NEXT)
def test_a_guest_that_opens_other_children_is_refused(nodes):
    lie = changing("ChosenSplits", lambda chosen: chosen.open.CopyFrom(ints(*nodes)))
    refused(only_to(SHOP, lie), "opened nodes that are not below divided ones", "divide_rows")


@pytest.mark.parametrize(
    "lie",
    [
        choose([4], [1], [0], opened=[7, 8]),  # of node 3, which did not divide
        choose([], [], [], opened=[7]),
        choose([], [], [], opened=[3]),
    ],
)
def test_a_guest_that_opens_children_of_nodes_that_did_not_divide_is_refused(lie):
    refused(only_to(SHOP, changing("ChosenSplits", lie)), "not below divided ones", "divide_rows")


@pytest.mark.parametrize("nodes", [(19,), (20,), (21, 22), (9,)])
def test_a_guest_that_asks_for_more_layers_than_the_job_has_is_refused(nodes):
    """In the second of two layers nodes 9 and 10 divide, into 19, 20, 21 and 22."""
    lie = changing("ChosenSplits", lambda chosen: chosen.open.CopyFrom(ints(*nodes)), skip=1)
    refused(only_to(SHOP, lie), "not below divided ones", "divide_rows")


# What a refusal leaves alone


def remembered(state):
    """What a host would go on with."""
    tree = state.tree_batch.trees[0] if state.tree_batch.trees else None
    return (
        *(
            state.tree_batch.first,
            id(state.tree_batch),
            id(vars(state).get("gradients")),
            list(state.splits),
            list(state.tree_batch.offered),
        ),
        tree and (list(tree.opened), tree.growth.everyone.leaves(), tree.growth.layers),
    )


def test_refused_rows_change_nothing():
    room = conversations.hybridtree()
    now(room.walk())
    parts, me = parts_to(room, SHOP), host_steps.begin(conversations.hybridtree().contexts[SHOP])
    host_steps.accept_key(me, *sent_to(room, SHOP, pb.EncryptionKey))
    for tree, (first, second) in enumerate((parts[:2], parts[2:])):
        before = remembered(me)
        for lie in (set_at(*[2] * ROWS), lambda part: part.open.CopyFrom(ints(9))):
            bad = BottomRows()
            bad.CopyFrom(first)
            lie(bad)
            with pytest.raises(PeerError):
                host_steps.receive_gradients(me, iter([bad, second]))
            assert remembered(me) == before
        for stream in ([], [first], [second], [first, first], [first, second, second]):
            with pytest.raises(PeerError):
                host_steps.receive_gradients(me, iter(stream))
            assert remembered(me) == before
        host_steps.receive_gradients(me, iter([first, second]))
        assert me.tree_batch.first == tree
        assert me.tree_batch.opened == values_of(first.open)


@pytest.mark.parametrize("layer", [1, 2, 3])
async def test_a_refused_choice_changes_nothing(layer):
    room = await halted("divide_rows", layer)
    me, good = room.state(SHOP), sent_to(room, SHOP, ChosenSplits)[-1]
    before = remembered(me)
    for lie in (
        choose(values_of(good.won.nodes)[:1], [1], [99]),
        choose([6], [1], [0]),
        lambda chosen: chosen.open.CopyFrom(ints(6)),
        lambda chosen: chosen.ClearField("open"),
        lambda chosen: chosen.ClearField("won"),
    ):
        bad = ChosenSplits()
        bad.CopyFrom(good)
        lie(bad)
        with pytest.raises(PeerError):
            host_steps.divide_rows(me, bad)
        assert remembered(me) == before
    divided = host_steps.divide_rows(me, good).send
    assert isinstance(divided, pb.RowDivisions)
    assert values_of(divided.nodes) == values_of(good.won.nodes)
    assert len(me.splits) == len(before[3]) + len(values_of(good.won.nodes))
    with pytest.raises(PeerError, match="nodes that are not open"):
        host_steps.divide_rows(me, good)  # once more
    assert len(me.splits) == len(before[3]) + len(values_of(good.won.nodes))
