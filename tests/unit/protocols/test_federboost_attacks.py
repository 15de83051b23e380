"""What a cheating party of a vertical FederBoost job is refused, at the step that takes the lie."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedboost.core.categories import SET_BYTES
from fedboost.flow import DISCLOSURE
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError, ProtocolError
from fedboost.messages.protocol import federboost_vertical_pb2 as pb
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical import guest as guest_steps
from fedboost.protocols.federboost_vertical import host as host_steps
from tests.support import conversations
from tests.support.contexts import altered
from tests.support.conversations import ROWS
from tests.support.federated import GUEST, HOSTS, changing, now, room_for
from tests.support.federboost_jobs import frames_of, open_job, room_of

TELCO, SHOP = HOSTS[:2]  # two columns, the last one of categories with missing values; three


def ints(*values):
    return wire.pack(np.array(values, np.int32))


def bits(*values):
    return wire.pack_bits(np.array(values, np.bool_))


def values_of(array):
    return np.frombuffer(array.data, np.int32).tolist()


def outcome(alter):
    """The error that ends the tiny job when a message is changed on its way."""
    with pytest.raises(FedboostError) as ended:
        now(conversations.federboost_vertical(alter).walk())
    return ended.value


def only(party, alter):
    """Changes what goes from or to one host and leaves the others alone."""
    return lambda e, data: alter(e, data) if party in (e.sender, e.receiver) else (e, data)


# A cheating host


def ids_of(size, value=0):
    return wire.pack(np.full(size, value, np.uint8))


def flags(name, *values):
    return lambda m: getattr(m, name).CopyFrom(bits(*values))


def counted(*values):
    return lambda m: m.buckets.CopyFrom(ints(*values))


LIES = {
    "no bucket": counted(0, 5),
    "fewer than none": counted(-1, 5),
    "the least number": counted(-(2**31), 5),
    "the largest number": counted(2**31 - 1, 5),
    "more than a byte holds": counted(256, 5),
    "more than bins beside missing": counted(5, 256),
    "only a missing one": counted(1, 5),
    "wider ids": counted(17, 5),
    "narrower ids": counted(4, 5),
    "a column less": counted(5),
    "a column more": counted(5, 5, 5),
    "no columns": counted(),
    "a row more": lambda m: m.ids.CopyFrom(ids_of(ROWS * 6 // 8 + 1)),
    "a row less": lambda m: m.ids.CopyFrom(ids_of(ROWS * 6 // 8 - 1)),
    "no ids": lambda m: m.ids.CopyFrom(ids_of(0)),
    "ids beyond the buckets": lambda m: m.ids.CopyFrom(ids_of(ROWS * 6 // 8, 255)),
    "too many missing flags": flags("missing", *[True] * 9),
    "no missing flags": flags("missing"),
    "missing flags beyond the columns": flags("missing", True, True, True),
    "too many flags of categories": flags("categorical", *[False] * 9),
    "no flags of categories": flags("categorical"),
    "flags of categories beyond the columns": flags("categorical", False, True, True),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_host_that_tells_what_cannot_be_is_refused_by_the_guest(lie):
    error = outcome(only(TELCO, changing("BucketIds", lie)))
    assert isinstance(error, PeerError)
    assert error.where == {"party": GUEST, "step": "receive_buckets"}
    assert TELCO in error.what


def test_bits_behind_the_last_id_are_refused():
    def lie(message):
        data = bytearray(message.ids.data)
        data[-1] |= 1
        message.ids.data = bytes(data)

    three_rows = np.zeros((3, 1), np.uint8, order="F")
    no = np.zeros(1, np.bool_)
    message = buckets.write_message(buckets.Buckets(np.array([2], np.int32), no, no, three_rows))
    lie(message)
    with pytest.raises(PeerError, match="bits set beyond"):
        buckets.read_message(message, 3, TELCO, 1 << 30)


def test_a_refused_message_leaves_the_guest_as_it_was():
    room = now(conversations.federboost_vertical().until("receive_buckets"))
    me = room.state(GUEST)
    good = {p.envelope.sender: p.message for p in room.posted}
    bad = pb.BucketIds()
    bad.CopyFrom(good[SHOP])
    bad.buckets.CopyFrom(ints(0, 5, 5))
    with pytest.raises(PeerError):
        guest_steps.receive_buckets(me, {**good, SHOP: bad})
    assert me.told == {}
    assert not type(me).training.is_set(me)


def test_what_is_written_is_read_back_whatever_the_width():
    draw = np.random.default_rng(3)
    count = np.array([1, 2, 3, 4, 5, 16, 17, 128, 129, 254, 255], np.int32)
    missing = np.array([False] * 10 + [True])
    ids = np.asfortranarray(np.stack([draw.integers(0, n, 77) for n in count], 1).astype(np.uint8))
    told = buckets.Buckets(count, missing, draw.random(11) < 0.5, ids)
    found = buckets.read_message(buckets.write_message(told), 77, TELCO, 1 << 30)
    for name in buckets.Buckets.__dataclass_fields__:
        assert np.array_equal(getattr(found, name), getattr(told, name)), name


@pytest.mark.parametrize("q", [2, 4, 15, 16, 31])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_a_host_sends_no_more_bytes_than_its_buckets_need(q, missing):
    rows, columns = 2000, 5
    job = open_job({"buckets": q, "epsilon": 4.0, "n_estimators": 1}, (1, columns), rows,
                   missing=missing)  # fmt: skip
    room = room_of(job)
    now(room.walk())
    (sent,) = [len(p.payload) for p in room.posted if p.envelope.sender == TELCO]
    assert sent <= rows * columns * math.ceil(math.log2(q + 1)) / 8 * 1.05


# A cheating guest


def own_splits():
    """What the guest tells telco in the tiny job."""
    room = conversations.federboost_vertical()
    now(room.walk())
    (found,) = [p.message for p in room.posted if p.envelope.receiver == TELCO]
    return found


def filled(**fields):
    def lie(message):
        for name, value in fields.items():
            getattr(message, name).CopyFrom(value)

    return lie


def as_set(*categories):
    held = np.zeros(8 * SET_BYTES, np.uint8)
    held[list(categories)] = 1
    return np.packbits(held, bitorder="little")


def sets(*members):
    return wire.pack(np.array([as_set(*own) for own in members], np.uint8).reshape(-1, SET_BYTES))


def test_the_tiny_job_has_splits_to_lie_about():
    found = own_splits()
    trees, nodes, columns = (
        values_of(getattr(found, name)) for name in ("trees", "nodes", "columns")
    )
    assert len(trees) == 3
    assert sorted(columns) == [0, 0, 1]
    assert [b == -1 for b in values_of(found.buckets)] == [c == 1 for c in columns]
    assert list(zip(trees, nodes, strict=True)) == sorted(zip(trees, nodes, strict=True))


def replaced(name, place, value):
    """One number of the guest's splits changed."""

    def lie(message):
        numbers = values_of(getattr(message, name))
        numbers[place] = value
        getattr(message, name).CopyFrom(ints(*numbers))

    return lie


def at(column):
    """The place of a split of that column among telco's."""
    return values_of(own_splits().columns).index(column)


GUEST_LIES = {
    "a tree that is none": lambda: replaced("trees", -1, 2),
    "a tree below the first": lambda: replaced("trees", 0, -1),
    "a node of the last layer": lambda: replaced("nodes", -1, 3),
    "a node beyond all": lambda: replaced("nodes", -1, 2**31 - 1),
    "a node below the root": lambda: replaced("nodes", 0, -1),
    "a column that is none": lambda: replaced("columns", at(0), 2),
    "a column below the first": lambda: replaced("columns", at(0), -1),
    "a bucket behind the last": lambda: replaced("buckets", at(0), 4),
    "a bucket far behind": lambda: replaced("buckets", at(0), 2**31 - 1),
    "no bucket and no set": lambda: replaced("buckets", at(0), -1),
    "less than no bucket": lambda: replaced("buckets", at(0), -2),
    "a bucket beside a set": lambda: replaced("buckets", at(1), 0),
    "a set of a column of numbers": lambda: replaced("columns", at(0), 1),
    "a column of numbers in a set's place": lambda: replaced("columns", at(1), 0),
    "an empty set": lambda: filled(sets=sets([])),
    "a category beyond the others": lambda: filled(sets=sets([0, 4])),
    "the last category there could be": lambda: filled(sets=sets([255])),
    "a set more": lambda: filled(sets=sets([0], [1])),
    "a set less": lambda: filled(sets=sets()),
    "a node less": lambda: filled(nodes=ints(0, 1)),
    "a side less": lambda: filled(missing_left=bits()),
    "sides beyond the splits": lambda: filled(missing_left=bits(*[True] * 4)),
}


def test_sides_beyond_the_splits_differ_in_a_bit():
    assert bits(*[True] * 4).data != bits(*[True] * 3).data


@pytest.mark.parametrize("lie", GUEST_LIES.values(), ids=GUEST_LIES)
def test_a_guest_whose_splits_cannot_be_is_refused_by_the_host(lie):
    error = outcome(only(TELCO, changing("OwnSplits", lie())))
    assert isinstance(error, PeerError), error
    assert error.where == {"party": TELCO, "step": "keep_splits"}


def assert_refused_unchanged(message):
    """Telco refuses the message and keeps what it had before."""

    me = now(conversations.federboost_vertical().until("keep_splits")).state(TELCO)
    me.splits = ["before"]
    with pytest.raises(PeerError, match="twice, or not in order"):
        host_steps.keep_splits(me, message)
    assert me.splits == ["before"]


@pytest.mark.parametrize("order", [(0, 0, 1), (1, 0, 2), (0, 2, 1), (0, 1, 2, 2)])
def test_splits_twice_or_out_of_order_are_refused_and_nothing_changes(order):
    message = own_splits()
    for name in ("trees", "nodes", "columns", "buckets"):
        numbers = values_of(getattr(message, name))
        getattr(message, name).CopyFrom(ints(*(numbers[i] for i in order)))
    columns = values_of(message.columns)
    held = np.frombuffer(own_splits().sets.data, np.uint8).reshape(1, SET_BYTES)
    message.sets.CopyFrom(wire.pack(np.repeat(held, columns.count(1), axis=0)))
    message.missing_left.CopyFrom(bits(*[True] * len(order)))
    assert_refused_unchanged(message)


# A coordinator that calls what the walk does not


async def test_trees_do_not_grow_before_there_are_buckets():
    room = await conversations.federboost_vertical().open()
    with pytest.raises(ProtocolError, match="buckets to train on, which"):
        await room.call("grow_trees", GUEST)


def reusing():
    """A room whose parties have disclosed before."""
    job = open_job({"n_estimators": 1})
    first = now(room_of(job).walk())
    told = {party: {DISCLOSURE: shard.disclosure} for party, shard in first.items()}
    params = {"reuse": "job-1", "n_estimators": 1}
    return room_for("federboost-vertical", frames_of(job), params, held=0.25, artefacts=told)


def test_a_host_whose_disclosure_is_reused_tells_nothing_new_whoever_asks():
    asked = reusing()

    async def work():
        room = await asked.open()
        with pytest.raises(ProtocolError, match="tells no new ones"):
            await room.call("send_buckets", TELCO)
        return room

    assert now(work()).posted == []


def test_a_guest_that_reuses_buckets_takes_no_new_ones():
    room = reusing()
    contexts = {p: s if p == GUEST else replace(s, artefacts={}) for p, s in room.contexts.items()}
    room = type(room)(room.protocol, contexts)

    async def work():
        await room.open()
        await room.call("send_buckets", *HOSTS[:2])
        with pytest.raises(ProtocolError, match="takes no new ones"):
            await room.call("receive_buckets", GUEST)

    now(work())


# Told again


def told_by(attempt_secret=None, **params):
    """Telco's message of a job, with secrets of another attempt."""
    room = room_of(open_job({"epsilon": 1.0, "n_estimators": 1, **params}))
    if attempt_secret is not None:
        contexts = {p: attempt_secret(context) for p, context in room.contexts.items()}
        room = type(room)(room.protocol, contexts)
    now(room.walk())
    return next(p.payload for p in room.posted if p.envelope.sender == TELCO)


def test_another_attempt_of_a_job_tells_the_same_and_another_job_does_not():
    first = told_by()
    assert told_by() == first
    again = told_by(
        lambda context: altered(
            context, secrets={"attempt": context.secrets.attempt.child("again")}
        )
    )
    assert again == first
    other = told_by(lambda context: replace(context, job="job-2"))
    assert other != first
    assert len(other) == len(first)


def test_columns_of_the_same_values_are_told_apart_only_by_their_noise():
    job = open_job({"epsilon": 1.0, "n_estimators": 1}, (1, 2), rows=400, missing=0.0)
    job.columns[TELCO][:, 1] = job.columns[TELCO][:, 0]
    room = room_of(job)
    now(room.walk())
    (message,) = [p.message for p in room.posted if p.envelope.sender == TELCO]
    ids = buckets.read_message(message, 400, TELCO, 1 << 30).ids
    assert 0.1 < (ids[:, 0] == ids[:, 1]).mean() < 0.5
