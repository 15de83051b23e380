"""The guest aligns with each host alone: all its rows stay, hosts learn nothing of each other."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.crypto import intersection
from fedboost.crypto.intersection import as_keys
from fedboost.crypto.set_sizes import CURVE_IDS_MAX
from fedboost.ground.errors import FedboostError, PeerError, PolicyError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.workers import Serial
from fedboost.messages.protocol import align_pairs_pb2
from fedboost.protocols.align_pairs import guest as pairs_guest
from fedboost.protocols.align_pairs import host as pairs_host
from fedboost.protocols.align_pairs.pair import points_of
from tests.support.contexts import altered
from tests.support.federated import (
    GUEST,
    HOSTS,
    Room,
    changing,
    job_spec,
    now,
    resealed,
    room_for,
    run_job,
)
from tests.unit.crypto.test_intersection import taken_off
from tests.unit.protocols.test_align import frames_of, random_ids

EVERYBODY = (GUEST, *HOSTS)
TELCO, SHOP = HOSTS[:2]


def aligned(frames, **more):
    """What each party is left with, and the room it happened in."""
    room = room_for("align-pairs", frames, **more)
    return now(room.walk()), room


def ids_left(frames, left, party):
    return [frames[party].ids[row] for row in left[party].arrays["rows"]]


def told(room):
    return {count.name: count.count for one in room.told for count in one.counts}


def check(frames, left, room):
    """Everything that the stage promises, against plain sets."""
    guest, *hosts = frames
    own = ids_left(frames, left, guest)
    assert own == sorted(frames[guest].ids)
    assert list(left[guest].arrays) == ["rows", *(f"with_{host}" for host in hosts)]
    held = set()
    for host in hosts:
        common = sorted(set(own) & set(frames[host].ids))
        assert ids_left(frames, left, host) == common
        assert left[host].arrays["rows"].dtype == np.int64
        assert list(left[host].arrays) == ["rows"]
        indices = left[guest].arrays[f"with_{host}"]
        assert indices.dtype == np.int64
        assert [own[place] for place in indices] == common
        held |= set(common)
    assert told(room) == {"aligned": len(held), "alone": len(own) - len(held)}


@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_each_host_keeps_what_it_shares_with_the_guest_which_keeps_all(hosts):
    frames = frames_of(*random_ids(hosts, hosts + 1))
    check(frames, *aligned(frames))


def test_hosts_may_have_all_rows_some_or_none():
    ids = random_ids(7, 1)[0]
    frames = frames_of(ids, ids[::-1], [b"other %d" % i for i in range(9)], [*ids[:5], b"new"])
    left, room = aligned(frames)
    check(frames, left, room)
    arrays = left[GUEST].arrays
    assert [len(arrays[f"with_{host}"]) for host in HOSTS[:3]] == [40, 0, 5]
    assert len(left[SHOP].arrays["rows"]) == 0
    assert told(room) == {"aligned": 40, "alone": 0}


def test_a_guest_that_shares_nothing_with_anybody_keeps_its_rows():
    frames = frames_of([b"a", b"b"], [b"c"], [b"c", b"d"])
    left, room = aligned(frames)
    check(frames, left, room)
    assert told(room) == {"aligned": 0, "alone": 2}


def test_what_two_hosts_share_but_the_guest_lacks_stays_out():
    frames = frames_of([b"a", b"b"], [b"b", b"x"], [b"a", b"x"])
    left, _ = aligned(frames)
    assert ids_left(frames, left, TELCO) == [b"b"]
    assert ids_left(frames, left, SHOP) == [b"a"]


def test_thousands_of_ids_meet():
    draw = np.random.default_rng(11)
    ids = [[b"%d" % i for i in draw.permutation(6000)[:n]] for n in (4000, 3000, 500)]
    frames = frames_of(*ids)
    check(frames, *aligned(frames))


# Whole jobs


def table(ids):
    return pa.table({"id": ids, "x": np.arange(len(ids), dtype=float)})


def test_a_job_tells_how_many_rows_any_host_has_and_calls_its_seconds_align(tmp_path):
    tables = {
        GUEST: table([17, 5, 4, 9]),
        TELCO: table(["5", "17", "017"]),
        SHOP: table([5.0, 3.0]),
        HOSTS[2]: table([1, 2]),
    }
    done = run_job(tmp_path / "job", tables, job_spec("align-pairs", tuple(tables)))
    assert done.state == "finished", done.error.lines()
    assert done.result["rows"] == {"aligned": 2, "alone": 2}
    assert done.result["seconds"].keys() == {"total", "align"}
    assert done.result["exchanges"] == 5


@pytest.mark.parametrize("party", [GUEST, SHOP])
def test_a_table_with_an_id_twice_is_refused_before_anything_leaves(tmp_path, party):
    tables = {p: table([1, 2, 3, 4]) for p in EVERYBODY[:3]}
    tables[party] = table([1, 2, 3, 2])
    done = run_job(tmp_path / "job", tables, job_spec("align-pairs", EVERYBODY[:3]))
    assert done.state == "failed"
    assert done.error.what.startswith("2 of 4 rows share their id")
    assert all(rows == [] for rows in done.ledgers.values())


# What a party must not do


def refused(kind, change, skip=0, ids=None):
    """The error that ends an alignment in which one message was changed on its way."""
    frames = frames_of(*(ids or random_ids(3, 3, count=20, of=24)))
    with pytest.raises(FedboostError) as ended:
        aligned(frames, alter=changing(kind, change, skip))
    assert isinstance(ended.value, PeerError), ended.value.lines()
    return ended.value


@pytest.mark.parametrize("skip", [0, 1])
def test_a_host_that_kept_other_rows_is_refused(skip):
    def lie(rows):
        rows.digest = bytes(32)

    error = refused("RowsDigest", lie, skip)
    assert "kept other rows" in error.what
    assert error.where["step"] == "compare_rows"


def test_a_host_that_shares_nothing_but_says_so_of_other_rows_is_refused():
    def lie(rows):
        rows.digest = rows.digest[::-1]

    assert "kept other rows" in refused("RowsDigest", lie, ids=[[b"a"], [b"b"]]).what


LOW_ORDER = (1).to_bytes(32, "little")
TWIST = (2).to_bytes(32, "little")  # u = 2 lies on the twist of Curve25519
BEYOND = (2**255 - 18).to_bytes(32, "little")  # 1, not canonical


@pytest.mark.parametrize("point", [bytes(32), LOW_ORDER, TWIST, BEYOND], ids=bytes.hex)
@pytest.mark.parametrize(
    ("kind", "step"), [("GuestSet", "blind_again"), ("HostSet", "blind_theirs")]
)
def test_a_point_that_is_none_is_refused(kind, step, point):
    def plant(points):
        points.data = point + points.data[32:]

    error = refused(kind, plant)
    assert "not a point of the curve" in error.what
    assert error.where["step"] == step


@pytest.mark.parametrize("kind", ["GuestSet", "HostSet", "ReturnedSet"])
@pytest.mark.parametrize("skip", [0, 1])
def test_the_same_point_twice_is_refused(kind, skip):
    def double(points):
        points.data = points.data[:32] + points.data[:32] + points.data[64:]

    assert "the same point twice" in refused(kind, double, skip).what


@pytest.mark.parametrize("kind", ["GuestSet", "HostSet", "ReturnedSet"])
@pytest.mark.parametrize("by", [-1, 1, 1 << 40])
def test_a_set_of_another_size_than_it_says_is_refused(kind, by):
    def lie(points):
        points.points += by

    assert "bytes for" in refused(kind, lie).what


def test_a_host_that_returns_fewer_points_than_it_got_is_refused():
    def shorten(points):
        points.points -= 1
        points.data = points.data[32:]

    error = refused("ReturnedSet", shorten)
    assert error.what.endswith("returned 19 points, the guest's set has 20")
    assert error.where["step"] == "meet"


def test_a_host_that_returns_more_points_than_it_got_is_refused():
    more = intersection.hash_to_points([b"more"], b"of nobody", Serial()).tobytes()

    def lengthen(points):
        points.points += 1
        points.data += more

    assert "returned 21 points, the guest's set has 20" in refused("ReturnedSet", lengthen).what


def test_a_guest_that_names_ids_that_the_host_lacks_is_refused():
    """A host that turns the returned points round makes the guest name others than both have."""

    def turn(points):
        rows = [points.data[at : at + 32] for at in range(0, len(points.data), 32)]
        points.data = b"".join(rows[::-1])

    ids = random_ids(5, 2, count=20, of=30)
    error = refused("ReturnedSet", turn, ids=ids)
    assert "common ids; " in error.what
    assert error.where["party"] == TELCO
    assert error.where["step"] == "keep_rows"


@pytest.mark.parametrize("change", ["count", "stranger", "twice", "short", "key"])
@pytest.mark.parametrize("skip", [0, 1])
def test_digests_that_do_not_name_our_rows_are_refused(change, skip):
    def lie(digests):
        if change == "count":
            digests.ids += 1
        elif change == "stranger":
            digests.data = bytes(16) + digests.data[16:]
        elif change == "twice":
            digests.data = digests.data[:16] + digests.data[:16] + digests.data[32:]
        elif change == "short":
            digests.data = digests.data[:-1]
        else:
            digests.key += b"\0"

    said = "a key of 33 bytes" if change == "key" else "common ids; "
    assert said in refused("CommonDigests", lie, skip).what


@pytest.mark.parametrize("kind", ["GuestSet", "HostSet", "CommonDigests"])
def test_a_host_may_not_send_to_another_host(kind):
    """Whatever a host sends to a host is no message of theirs; every pair has the guest in it."""

    def redirect(envelope, payload):
        if envelope.kind.endswith(f".{kind}") and TELCO in (envelope.sender, envelope.receiver):
            envelope.sender, envelope.receiver = TELCO, SHOP
        return resealed(envelope, payload)

    frames = frames_of(*random_ids(3, 3, count=20, of=24))
    with pytest.raises(PeerError, match=r"may not send|takes no"):
        aligned(frames, alter=redirect)


def test_what_is_larger_than_a_table_or_the_own_one_is_refused_by_its_envelope():
    room = room_for("align-pairs", frames_of([b"a", b"b", b"c"], [b"a"]))
    now(room.open())
    guest, host = room.state(GUEST), room.state(TELCO)
    assert pairs_guest.bytes_max(guest, "blind_theirs") == CURVE_IDS_MAX * 32 + 1024
    assert pairs_host.bytes_max(host, "blind_again") == CURVE_IDS_MAX * 32 + 1024
    assert pairs_guest.bytes_max(guest, "meet") == 3 * 32 + 1024
    assert pairs_guest.bytes_max(guest, "compare_rows") == 1024
    assert pairs_host.bytes_max(host, "keep_rows") == 16 + 1024
    whole = align_pairs_pb2.ReturnedSet(points=3, data=bytes(96))
    assert whole.ByteSize() < pairs_guest.bytes_max(guest, "meet")


# What is not opened


def points_in(message):
    return np.frombuffer(message.data, np.uint8).reshape(-1, 32)


def sets_of(room, kind, party):
    """The one set of a kind that a host sent or got."""
    found = [
        points_in(posted.message)
        for posted in room.posted
        if posted.message.DESCRIPTOR.name == kind
        and party in (posted.envelope.sender, posted.envelope.receiver)
    ]
    assert len(found) == 1
    return found[0]


def test_the_guest_can_link_nothing_of_a_host_but_what_it_shares_with_it():
    """A host's points against everything that the guest can compute from ids and exponents."""
    ids = random_ids(9, 3, count=30, of=50)
    left, room = aligned(frames_of(*ids))
    names, workers = sorted(set().union(*ids)), Serial()
    exponents = {h: m.exponent for h, m in room.state(GUEST).meetings.items()}
    for host in (TELCO, SHOP):
        bare = points_of(EncodedIds.of(names), host, room.contexts[GUEST])
        known = set(as_keys(bare))
        for exponent in exponents.values():
            known |= set(as_keys(intersection.multiply(bare, exponent, workers)))
        offered = sets_of(room, "HostSet", host)
        assert not known & set(as_keys(offered))
        # Blinded by both it meets the returned set in the common ids, and in nothing else.
        twice = intersection.multiply(offered, exponents[host], workers)
        met = set(as_keys(twice)) & set(as_keys(sets_of(room, "ReturnedSet", host)))
        assert len(met) == len(left[host].arrays["rows"])


def test_hosts_cannot_tell_that_they_got_the_same_ids():
    """Both get the guest's whole table, and have nothing of it to compare: not even together."""
    ids = random_ids(4, 3, count=30, of=30)
    _, room = aligned(frames_of(*ids))
    meetings = room.state(GUEST).meetings.values()
    assert len({meeting.exponent.seal() for meeting in meetings}) == 2
    sets = [sets_of(room, "GuestSet", host) for host in (TELCO, SHOP)]
    assert not set(as_keys(sets[0])) & set(as_keys(sets[1]))
    # Even with the other's own exponent taken into it they have no point in common.
    with_own = [
        intersection.multiply(one, room.state(host).exponent, Serial())
        for one, host in zip(sets, (SHOP, TELCO), strict=True)
    ]
    assert not set(as_keys(with_own[0])) & set(as_keys(with_own[1]))


def test_a_guest_that_has_hosts_blind_each_others_points_cannot_compare_them():
    """Both hosts' sets under both hosts' exponents: points of one id would meet, if they could."""
    ids = random_ids(4, 3, count=30, of=30)
    _, room = aligned(frames_of(*ids))
    hosts, workers = (TELCO, SHOP), Serial()
    crossed = [
        set(as_keys(intersection.multiply(sets_of(room, "HostSet", one),
                                          room.state(other).exponent, workers)))
        for one, other in (hosts, hosts[::-1])
    ]  # fmt: skip
    assert not crossed[0] & crossed[1]
    # The same sets of points hashed for one pair would show all thirty ids.
    bare = points_of(ids[0], TELCO, room.contexts[GUEST])
    one, other = (room.state(host).exponent for host in hosts)
    there = intersection.multiply(intersection.multiply(bare, one, workers), other, workers)
    back = intersection.multiply(intersection.multiply(bare, other, workers), one, workers)
    assert set(as_keys(there)) == set(as_keys(back))


def order_of(points, exponent, ids, context, host):
    """The ids of blinded points, in their order, for whoever knows the exponent."""
    bare = points_of(ids, host, context)
    name = dict(zip(as_keys(bare), ids, strict=True))
    return [name[key] for key in as_keys(taken_off(points, exponent))]


def test_sets_leave_in_secret_orders_and_return_as_they_came():
    ids = random_ids(4, 3, count=30, of=30)
    frames = frames_of(*ids)
    _, room = aligned(frames)
    orders, context = [], room.contexts[GUEST]
    for host in (TELCO, SHOP):
        own = room.state(GUEST).meetings[host].exponent
        theirs = room.state(host).exponent
        sent = order_of(sets_of(room, "GuestSet", host), own, ids[0], context, host)
        offered = order_of(sets_of(room, "HostSet", host), theirs, frames[host].ids, context, host)
        unblinded = taken_off(sets_of(room, "ReturnedSet", host), theirs)
        assert order_of(unblinded, own, ids[0], context, host) == sent
        orders += [sent, offered, frames[host].ids]
    seen = [tuple(order) for order in (*orders, ids[0], sorted(ids[0]))]
    assert len(set(seen)) == len(seen)


# What the sizes of sets tell, and too few in common


def limited(frames, alter=None, **of_party):
    """A room in which some parties have rules of their own."""
    room = room_for("align-pairs", frames)
    contexts = {
        party: altered(context, limits=of_party.get(party, {}))
        for party, context in room.contexts.items()
    }
    return Room(room.protocol, contexts, alter=alter)


def set_sizes(room, kind):
    return {
        (p.envelope.sender, p.envelope.receiver): p.message.points
        for p in room.posted
        if p.message.DESCRIPTOR.name == kind
    }


def test_padded_sets_show_their_padded_size_and_the_same_rows_are_kept():
    frames = frames_of(*random_ids(5, 3, count=30, of=40))
    room = limited(frames, **{GUEST: {"ids_padded_to": 50}, SHOP: {"ids_padded_to": 37}})
    check(frames, now(room.walk()), room)
    assert set_sizes(room, "GuestSet") == {(GUEST, TELCO): 50, (GUEST, SHOP): 50}
    assert set_sizes(room, "HostSet") == {(TELCO, GUEST): 30, (SHOP, GUEST): 37}
    assert set_sizes(room, "ReturnedSet") == {(TELCO, GUEST): 50, (SHOP, GUEST): 50}


def test_a_host_that_finds_ids_in_the_padding_is_refused():
    """It returns the points in another order: those in common stand where the padding was."""
    frames = frames_of(*random_ids(5, 2, count=30, of=40))

    def lie(returned):
        returned.data = returned.data[32:] + returned.data[:32]

    with pytest.raises(PeerError, match="no id of both"):
        now(limited(frames, changing("ReturnedSet", lie), **{GUEST: {"ids_padded_to": 50}}).walk())


@pytest.mark.parametrize("who", [GUEST, SHOP])
def test_any_party_may_refuse_to_go_on_with_too_few_ids(who):
    frames = frames_of(*random_ids(6, 3, count=30, of=80))
    count = len(set(frames[GUEST].ids) & set(frames[SHOP].ids))
    assert 3 < count < len(set(frames[GUEST].ids) & set(frames[TELCO].ids)) + count
    now(limited(frames, **{who: {"intersection_min": 1}}).walk())  # the control
    room = limited(frames, **{who: {"intersection_min": 31}})
    with pytest.raises(PolicyError) as refused:
        now(room.walk())
    assert refused.value.where["party"] == who
    assert refused.value.where["key"] == "policy.intersection_min"
    assert f" {count} " not in " ".join(refused.value.lines())
    assert not any(p.message.DESCRIPTOR.name == "RowsDigest" for p in room.posted
                   if p.envelope.sender == who)  # fmt: skip


def test_a_host_with_no_row_of_the_guests_is_not_one_with_too_few():
    frames = frames_of([b"a", b"b"], [b"a", b"b"], [b"x"])
    room = limited(frames, **{SHOP: {"intersection_min": 2}, GUEST: {"intersection_min": 2}})
    check(frames, now(room.walk()), room)
