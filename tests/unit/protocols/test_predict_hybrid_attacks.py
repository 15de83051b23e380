"""What a cheating party of a prediction with trees of two parts cannot do."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from fedboost.crypto.masking import Pair
from fedboost.flow import Artefact
from fedboost.ground import wire
from fedboost.ground.errors import ConfigError, FedboostError, PeerError, ProtocolError
from fedboost.ground.settings import parse_settings
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces, LeafPlaces
from fedboost.model import hybrid
from fedboost.model.hybrid import NO_BOTTOM
from fedboost.protocols.predict.params import PredictParams
from fedboost.protocols.predict.params import check_model as layers_fit
from fedboost.protocols.predict_hybrid import guest as guest_steps
from fedboost.protocols.predict_hybrid import host as host_steps
from fedboost.protocols.predict_hybrid import indices
from fedboost.protocols.predict_hybrid.params import PredictHybridParams, check_model
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, changing, now
from tests.support.hybrid_unscored import reseeded

TELCO, SHOP = HOSTS[:2]
MODELS = ("hybridtree", "hybridtree_unscored")
ROWS, BATCH = 27, 15  # of SHOP's, in all and in the first batch


@functools.cache
def model(name):
    """The shards of a tiny job."""
    return now(getattr(conversations, name)().walk())


@pytest.fixture(autouse=True)
def _trained():
    """Models are there before a test runs a loop of its own."""
    for name in MODELS:
        model(name)


def room_of(name, alter=None, **more):
    return conversations.predict_hybrid(model(name), alter, **more)


def outcome(name, alter):
    """The error that ends a prediction when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(room_of(name, alter).walk())
    return ended.value


def only_to(receiver, alter):
    return lambda e, payload: alter(e, payload) if e.receiver == receiver else (e, payload)


def only_from(sender, alter):
    return lambda e, payload: alter(e, payload) if e.sender == sender else (e, payload)


# A cheating guest


def setting(**fields):
    """A change of a message's fields."""

    def change(message):
        for name, value in fields.items():
            if isinstance(value, Array):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)

    return change


def slots(rows=BATCH, trees=2, value=0, kind=np.uint8):
    return wire.pack(np.full((rows, trees), value, kind))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (setting(first_row=1), "from row 1 on, expected row 0"),
        (setting(first_row=2**64 - 1), "expected row 0"),
        (setting(rows=BATCH + 1), "the bottom nodes of our rows"),
        (setting(rows=BATCH - 1), "the bottom nodes of our rows"),
        (setting(rows=ROWS + 1, slots=slots(ROWS + 1)), "places 28 rows"),
        (setting(rows=2**64 - 1), "expected row 0 of 27"),
        (setting(slots=slots(trees=0)), "asks for 0 trees of 2"),
        (setting(slots=slots(trees=3)), "asks for 3 trees of 2"),
        (setting(slots=slots(value=4)), "nodes that no tree of the model has"),
        (setting(slots=slots(value=254)), "nodes that no tree of the model has"),
        (setting(slots=slots(kind=np.int32)), "the bottom nodes of our rows"),
        (setting(slots=wire.pack(np.zeros(2 * BATCH, np.uint8))), "asks for 0 trees"),
        (setting(slots=wire.pack(np.zeros((BATCH, 2, 1), np.uint8))), "asks for 0 trees"),
    ],
)
def test_a_guest_that_places_rows_otherwise_is_refused(name, change, says):
    error = outcome(name, only_to(SHOP, changing("BottomPlaces", change)))
    assert isinstance(error, PeerError), error.lines()
    assert says in error.what
    step = "find_leaves" if name == "hybridtree" else "answer_rows"
    assert error.where == {"party": SHOP, "step": step}


@pytest.mark.parametrize("name", MODELS)
def test_a_guest_that_scores_a_row_twice_is_refused(name):
    change = changing("BottomPlaces", setting(first_row=0), skip=1)
    error = outcome(name, only_to(SHOP, change))
    assert "from row 0 on, expected row 15 of 27" in error.what


def test_rows_below_a_node_that_the_training_never_came_to_have_no_value():
    room = room_of("hybridtree_unscored")
    context = room.contexts[TELCO]
    shard = context.artefacts["model"]
    lost = np.isin(shard.arrays["leaf_node"], below(hybrid.first_number(2), 2))
    assert lost.any()
    names = ("leaf_tree", "leaf_node", "leaf_value")
    kept = shard.arrays | {name: shard.arrays[name][~lost] for name in names}
    me = host_steps.begin(replace(context, artefacts={"model": Artefact(shard.facts, kept)}))
    with pytest.raises(PeerError, match="rows below nodes that the tree does not have"):
        host_steps.answer_rows(me, BottomPlaces(rows=BATCH, slots=slots()))


def below(node, depth):
    """A node and those below it."""
    found = [node]
    for one in found:
        if len(found) < 2 ** (depth + 1) - 1:
            found += [2 * one + 1, 2 * one + 2]
    return found


def test_a_guest_that_tells_hosts_different_shared_rows_gets_noise_and_stops():
    def lie(message):
        message.rows.data = bytes(len(message.rows.data))

    error = outcome("hybridtree_unscored", only_to(TELCO, changing("SharedRows", lie)))
    assert error.what == "the hosts' answers do not add up to leaf values"
    assert error.where == {"party": GUEST, "step": "add_values"}


# A cheating host


def leaves_of(value, rows=BATCH, kind=np.uint8):
    return setting(leaves=wire.pack(np.full((rows, 2), value, kind)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (leaves_of(7), "names leaves that are too deep"),
        (leaves_of(255), "names leaves that are too deep"),
        (leaves_of(0), "names leaves that tree 0 does not have"),
        (leaves_of(0, kind=np.int32), "the leaves that shop's rows reach"),
        (leaves_of(0, rows=BATCH - 1), "the leaves that shop's rows reach"),
        (setting(leaves=Array()), "the leaves that shop's rows reach"),
    ],
)
def test_a_host_that_names_other_leaves_is_refused(change, says):
    error = outcome("hybridtree", only_from(SHOP, changing("LeafPlaces", change)))
    assert isinstance(error, PeerError)
    assert says in error.what
    assert error.where["step"] == "follow_leaves"


async def test_a_refused_answer_leaves_the_batch_as_it_was():
    room = await room_of("hybridtree").until("follow_leaves")
    me = room.state(GUEST)
    got = {p.envelope.sender: p.message for p in room.posted if p.envelope.receiver == GUEST}
    bad = {**got, SHOP: LeafPlaces(leaves=wire.pack(np.full((BATCH, 2), 7, np.uint8)))}
    with pytest.raises(PeerError):
        guest_steps.follow_leaves(me, bad)
    assert not type(me).added.is_set(me)
    assert me.first == 0
    guest_steps.follow_leaves(me, got)
    assert np.asarray(me.added).shape == (20, 2, 1)


async def test_a_refused_batch_leaves_the_host_as_it_was():
    room = await room_of("hybridtree").until("find_leaves")
    me = room.state(SHOP)
    with pytest.raises(PeerError):
        host_steps.find_leaves(me, BottomPlaces(rows=BATCH, slots=slots(value=9)))
    assert (me.scored, me.batches) == (0, 0)


@pytest.mark.parametrize("packages", [0, 1, 9])
def test_a_host_with_too_few_or_too_many_answers_is_refused(packages):
    def lie(message):
        message.packages.CopyFrom(pb.Ciphertexts(count=packages, data=bytes(32 * packages)))

    change = only_from(SHOP, changing("LeafAnswers", lie))
    error = outcome("hybridtree_unscored", change)
    assert isinstance(error, PeerError)
    assert f"{SHOP} sent {packages} packages of answers, expected 8" in error.what


# What leaves a host


def test_answers_of_shared_rows_do_not_show_a_hosts_values():
    """Another attempt's answers for the same rows differ, host by host; their sums do not."""

    def answers(room):
        now(room.walk())
        sent = [p for p in room.posted if p.message.DESCRIPTOR.name == "LeafAnswers"]
        return room, {p.envelope.sender: p.message.packages.data for p in sent if p.envelope}

    one, first = answers(room_of("hybridtree_unscored", batch_rows=36))
    other, again = answers(reseeded(room_of("hybridtree_unscored", batch_rows=36), attempt=b"2"))
    assert one.state(GUEST).margin.tobytes() == other.state(GUEST).margin.tobytes()
    assert all(first[host] != again[host] for host in (TELCO, SHOP))


@pytest.mark.parametrize("name", [*MODELS[1:], "predict_unscored"])
def test_no_pair_of_hosts_draws_a_stream_twice(monkeypatch, name):
    """Two answers under one stream would tell their difference."""
    drawn, stream_key = [], Pair.stream_key

    def noting(self, context):
        drawn.append(stream_key(self, context))
        return drawn[-1]

    monkeypatch.setattr(Pair, "stream_key", noting)
    room = conversations.hybridtree_unscored() if name in MODELS else room_of(MODELS[1])
    now(room.walk())
    assert len(drawn) == 4  # two trees or batches, on either side
    assert sorted(drawn.count(key) for key in set(drawn)) == [2, 2]


@pytest.mark.parametrize(
    ("name", "step", "says"),
    [
        ("hybridtree", "answer_rows", "splits are scored"),
        ("hybridtree_unscored", "find_leaves", "splits are unscored"),
    ],
)
async def test_a_coordinator_that_asks_for_the_other_kind_of_answer_is_refused(name, step, says):
    room = await room_of(name).open()
    with pytest.raises(ProtocolError, match=says):
        getattr(host_steps, step)(room.state(SHOP), BottomPlaces(rows=BATCH, slots=slots()))


# Models of another kind


def facts(**more):
    return {"protocol": "hybridtree", "kind": hybrid.HYBRID_KIND, "split": "scored", **more}


def params(split="scored"):
    return parse_settings(PredictHybridParams, {"model": "credit-0a1b2c3d", "split": split})


def test_a_model_of_other_trees_is_refused_and_told_which_protocol_scores_it():
    with pytest.raises(ConfigError, match="a model of secureboost is scored by predict") as caught:
        check_model(params(), {"protocol": "secureboost"})
    assert caught.value.todo == "protocol: predict"
    own = parse_settings(PredictParams, {"model": "credit-0a1b2c3d"})
    with pytest.raises(ConfigError) as caught:
        layers_fit(own, facts())
    assert caught.value.todo == "protocol: predict-hybrid"


@pytest.mark.parametrize(("said", "trained"), [("scored", "unscored"), ("unscored", "scored")])
def test_a_model_with_other_splits_is_refused(said, trained):
    with pytest.raises(ConfigError, match=f"split: {trained}, the job says {said}"):
        check_model(params(said), facts(split=trained))
    check_model(params(said), facts(split=said))


# Numbers on their way


@pytest.mark.parametrize(("guest_depth", "host_depth"), [(1, 1), (7, 7), (8, 6), (2, 12), (13, 1)])
def test_slots_and_leaves_come_back_as_they_went(guest_depth, host_depth):
    draw, own = np.random.default_rng(3), {"guest_depth": guest_depth, "host_depth": host_depth}
    least = hybrid.first_number(guest_depth)
    at = least + draw.integers(0, 1 << guest_depth, (200, 3))
    at[0] = least + np.array([0, (1 << guest_depth) - 1, 0])
    at[draw.random(at.shape) < 0.2] = NO_BOTTOM
    packed = indices.write_slots(at, own)
    assert packed.dtype == ("u1" if guest_depth <= 7 else "i4")
    assert np.array_equal(indices.read_slots(packed, at.shape, own), at)
    leaves = at.copy()
    for _ in range(host_depth):
        deeper = (at != NO_BOTTOM) & (draw.random(at.shape) < 0.9)
        leaves = np.where(deeper, 2 * leaves + draw.integers(1, 3, at.shape), leaves)
    packed = indices.write_leaves(leaves, at, own)
    assert packed.dtype == ("u1" if host_depth <= 7 else "i4")
    assert np.array_equal(indices.read_leaves(packed, at, host_depth, "telco"), leaves)
