"""Alignment keeps the rows that all parties share, and opens nothing else."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.crypto import intersection
from fedboost.crypto.intersection import as_keys
from fedboost.data.holdout import canonical_order
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError, FedboostError, PeerError, PolicyError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.workers import Serial
from fedboost.messages.protocol import align_pb2
from fedboost.protocols.align import guest as align_guest
from fedboost.protocols.align.ring import domain_of
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.transport import faults
from tests.support.contexts import altered
from tests.support.federated import (
    GUEST,
    HOSTS,
    Room,
    changing,
    frame_of,
    job_spec,
    now,
    room_for,
    run_job,
)
from tests.unit.crypto.test_intersection import taken_off

EVERYBODY = (GUEST, *HOSTS)


def frames_of(*ids_of_parties):
    """Tables with one column that names the row's place, guest first."""
    return {
        party: frame_of(ids, np.arange(len(ids), dtype=np.float32).reshape(-1, 1))
        for party, ids in zip(EVERYBODY, ids_of_parties, strict=False)
    }


def aligned_ids(frames, **more):
    """What each party keeps, in its order; and the room it happened in."""
    room = room_for("align", frames, **more)
    left = now(room.walk())
    return {p: [frames[p].ids[r] for r in left[p].arrays["rows"]] for p in frames}, room


def random_ids(seed, parties, count=40, of=80):
    draw = np.random.default_rng(seed)
    return [[b"%04d" % i for i in draw.permutation(of)[:count]] for _ in range(parties)]


@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_all_parties_keep_the_rows_they_all_share_in_one_order(hosts):
    ids = random_ids(hosts, hosts + 1, count=60)
    kept, room = aligned_ids(frames_of(*ids))
    common = sorted(set.intersection(*map(set, ids)))
    assert len(common) > 3
    expected = [common[i] for i in canonical_order(EncodedIds.of(common))]
    assert all(rows == expected for rows in kept.values())
    assert [(c.name, c.count) for told in room.told for c in told.counts] == [
        ("aligned", len(common))
    ]


def test_one_shared_row_is_enough():
    kept, _ = aligned_ids(frames_of([b"a", b"b"], [b"c", b"b"], [b"b"]))
    assert all(rows == [b"b"] for rows in kept.values())


def test_parties_without_a_shared_row_are_told_so():
    with pytest.raises(DataError, match="no id is held by all parties") as refused:
        aligned_ids(frames_of([b"a", b"b"], [b"b", b"c"], [b"c", b"a"]))  # each pair shares one
    assert refused.value.where["party"] == GUEST


# Whole jobs


def arrow(ids, **columns):
    return pa.table({**ids, "x": np.arange(len(next(iter(ids.values()))), dtype=float), **columns})


def test_several_id_columns_name_a_row_together(tmp_path):
    tables = {
        GUEST: arrow({"shop": ["a", "a", "b", "c"], "day": [1, 2, 1, 1]}),
        HOSTS[0]: arrow({"store": ["c", "a", "b"], "date": ["1", "2", "2"]}),
    }
    data = {GUEST: {"id": ["shop", "day"]}, HOSTS[0]: {"id": ["store", "date"]}}
    done = run_job(tmp_path / "job", tables, job_spec("align", tuple(tables), data=data))
    assert done.state == "finished", done.error.lines()
    assert done.result["rows"] == {"aligned": 2}  # (a, 2) and (c, 1)


@pytest.mark.parametrize("party", [GUEST, HOSTS[0], HOSTS[1]])
def test_a_table_with_an_id_twice_is_refused_before_anything_leaves(tmp_path, party):
    tables = {p: arrow({"id": [1, 2, 3, 4]}) for p in EVERYBODY[:3]}
    tables[party] = arrow({"id": [1, 2, 3, 2]})
    done = run_job(tmp_path / "job", tables, job_spec("align", EVERYBODY[:3]))
    assert done.state == "failed"
    assert isinstance(done.error, DataError)
    assert done.error.what.startswith("2 of 4 rows share their id")
    assert done.error.where["party"] == party
    assert all(rows == [] for rows in done.ledgers.values())


def test_ids_are_one_whatever_type_their_column_has(tmp_path):
    tables = {
        GUEST: arrow({"id": [17, 5, 4]}),
        HOSTS[0]: arrow({"id": ["5", "17", "017"]}),
        HOSTS[1]: arrow({"id": [5.0, 17.0, 3.0]}),
    }
    done = run_job(tmp_path / "job", tables, job_spec("align", EVERYBODY[:3]))
    assert done.result["rows"] == {"aligned": 2}


# What a party must not do


def refused(kind, change, skip=0, parties=3):
    """The error that ends an alignment in which one message was changed on its way."""
    ids = random_ids(3, parties, count=20, of=24)
    with pytest.raises(FedboostError) as ended:
        aligned_ids(frames_of(*ids), alter=changing(kind, change, skip))
    assert isinstance(ended.value, PeerError), ended.value.lines()
    return ended.value


def test_a_host_that_kept_other_rows_is_refused():
    def lie(rows):
        rows.digest = bytes(32)

    error = refused("RowsDigest", lie)
    assert "kept other rows" in error.what
    assert error.where["step"] == "compare_rows"


LOW_ORDER = (1).to_bytes(32, "little")
TWIST = (2).to_bytes(32, "little")  # u = 2 lies on the twist of Curve25519
BEYOND = (2**255 - 18).to_bytes(32, "little")  # 1, not canonical


@pytest.mark.parametrize("point", [bytes(32), LOW_ORDER, TWIST, BEYOND], ids=bytes.hex)
@pytest.mark.parametrize(
    ("kind", "says"),
    [("BlindedSet", "not a point of the curve"), ("CommonSet", "not of the guest's set")],
)
def test_a_point_that_is_none_is_refused(kind, says, point):
    def plant(points):
        points.data = point + points.data[32:]

    assert says in refused(kind, plant).what


@pytest.mark.parametrize("kind", ["BlindedSet", "FullSet", "CommonSet"])
def test_the_same_point_twice_is_refused(kind):
    def double(points):
        points.data = points.data[:32] + points.data[:32] + points.data[64:]

    assert "the same point twice" in refused(kind, double).what


@pytest.mark.parametrize("kind", ["BlindedSet", "FullSet", "CommonSet"])
@pytest.mark.parametrize("by", [-1, 1, 1 << 40])
def test_a_set_of_another_size_than_it_says_is_refused(kind, by):
    def lie(points):
        points.points += by

    assert "bytes for" in refused(kind, lie).what


def test_an_opened_point_that_is_not_the_guests_is_refused():
    ids = [b"x%d" % i for i in range(2)]
    foreign = intersection.hash_to_points(ids, b"of nobody", Serial()).tobytes()

    def plant(points):
        points.data = foreign[:32] + points.data[32:]

    # CommonSet travels guest -> last host -> first host -> guest; the third is the opened one.
    assert "not the guest's" in refused("CommonSet", plant, skip=2).what


def test_a_set_from_which_a_host_has_left_points_out_is_refused():
    def drop(points):
        points.points -= 1
        points.data = points.data[32:]

    for skip in range(3):  # on its way to the last host, to the first one, to the guest
        assert "were to be opened" in refused("CommonSet", drop, skip=skip).what


@pytest.mark.parametrize("kind", ["BlindedSet", "FullSet"])
@pytest.mark.parametrize("origin", ["", "../../etc/passwd", HOSTS[3], "guest"])
def test_a_set_of_another_origin_than_the_rings_order_says_is_refused(kind, origin):
    def lie(points):
        points.origin = origin

    assert "not said to be of" in refused(kind, lie).what


@pytest.mark.parametrize("change", ["count", "stranger", "twice", "short"])
def test_digests_that_do_not_name_our_rows_are_refused(change):
    def lie(digests):
        if change == "count":
            digests.ids += 1
        elif change == "stranger":
            digests.data = bytes(16) + digests.data[16:]
        elif change == "twice":
            digests.data = digests.data[:16] + digests.data[:16] + digests.data[32:]
        else:
            digests.data = digests.data[:-1]

    says = "common ids, 15 were opened" if change == "count" else "common ids; "
    assert says in refused("CommonDigests", lie).what


# What is not opened


def points_of(posted):
    data = np.frombuffer(posted.message.data, np.uint8).reshape(-1, 32)
    return as_keys(data)


def test_the_guest_can_link_nothing_but_the_intersection_of_all_to_its_ids():
    """Every point the guest sees, against every point it can compute from its ids and exponent."""
    ids = random_ids(9, 3, count=30, of=50)
    frames = frames_of(*ids)
    kept, room = aligned_ids(frames)
    me, workers = room.state(GUEST), Serial()
    names = sorted(set().union(*ids))
    bare = intersection.hash_to_points(names, domain_of(me.context), workers)
    own = intersection.multiply(bare, me.exponent, workers)
    twice = intersection.multiply(own, me.exponent, workers)
    known = {*as_keys(bare), *as_keys(own), *as_keys(twice)}
    arrived = [p for p in room.posted if p.envelope.receiver == GUEST]
    kinds = [p.message.DESCRIPTOR.name for p in arrived]
    assert sorted(set(kinds)) == ["BlindedSet", "CommonSet", "FullSet", "RowsDigest"]
    for posted in arrived:
        kind = posted.message.DESCRIPTOR.name
        if kind == "RowsDigest":
            continue
        seen = np.frombuffer(posted.message.data, np.uint8).reshape(-1, 32)
        with_own = intersection.multiply(seen, me.exponent, workers)
        without = taken_off(seen, me.exponent)
        linked = known & {*as_keys(seen), *as_keys(with_own), *as_keys(without)}
        if kind != "CommonSet":
            assert not linked
            continue
        place = dict(zip(as_keys(own), names, strict=True))
        assert sorted(place[point] for point in points_of(posted)) == sorted(kept[GUEST])


def test_every_party_shuffles_what_it_passes_on():
    """Whoever knew all exponents could undo the blinding, and finds another order each time."""
    ids = random_ids(4, 3, count=30, of=30)
    frames = frames_of(*ids)
    _, room = aligned_ids(frames)
    bare = intersection.hash_to_points(sorted(ids[0]), domain_of(room.contexts[GUEST]), Serial())
    name = dict(zip(as_keys(bare), sorted(ids[0]), strict=True))
    orders: dict[str, list[tuple[bytes, ...]]] = {}
    for posted in room.posted:
        if posted.message.DESCRIPTOR.name not in ("BlindedSet", "FullSet"):
            continue
        origin, sender = posted.message.origin, posted.envelope.sender
        ring = EVERYBODY[:3]
        passed = ring.index(sender) - ring.index(origin)
        points = np.frombuffer(posted.message.data, np.uint8).reshape(-1, 32)
        for step in range(passed % 3 + 1):
            exponent = room.state(ring[(ring.index(origin) + step) % 3]).exponent
            points = taken_off(points, exponent)
        order = tuple(name[point] for point in as_keys(points))
        orders.setdefault(origin, [tuple(frames[origin].ids)]).append(order)
    assert set(orders) == set(EVERYBODY[:3])
    assert all(len(set(seen)) == len(seen) >= 3 for seen in orders.values())


def test_a_set_larger_than_any_table_is_refused_by_its_envelope():
    room = room_for("align", frames_of([b"a"], [b"a"]))
    now(room.open())
    most = align_guest.bytes_max(room.state(GUEST), "close_ring")
    assert most == (1 << 24) * 32 + 1024
    assert align_pb2.BlindedSet(points=1, data=bytes(32)).ByteSize() < most


# What the sizes of sets tell


def padded(frames, host=HOSTS[0], size=50, **more):
    """An alignment in which one party pads its set, and the sizes of the sets that travelled."""
    room = room_for("align", frames, **more)
    own = room.contexts[host]
    contexts = {**room.contexts, host: altered(own, limits={"ids_padded_to": size})}
    room = Room(room.protocol, contexts)
    left = now(room.walk())
    sizes = {
        (p.message.origin, p.message.points)
        for p in room.posted
        if p.message.DESCRIPTOR.name in ("BlindedSet", "FullSet")
    }
    return {p: [frames[p].ids[r] for r in left[p].arrays["rows"]] for p in frames}, sizes


@pytest.mark.parametrize("who", [GUEST, *HOSTS[:2]])
def test_a_padded_set_shows_its_padded_size_and_has_the_same_rows_in_common(who):
    ids = random_ids(5, 3, count=30, of=40)
    frames = frames_of(*ids)
    kept, room = aligned_ids(frames)
    same, sizes = padded(frames, who)
    assert same == kept
    assert sizes == {(p, 50 if p == who else 30) for p in EVERYBODY[:3]}
    bare = {p.message.points for p in room.posted if p.message.DESCRIPTOR.name == "BlindedSet"}
    assert bare == {30}  # the control


def test_a_table_larger_than_its_padding_is_refused_before_anything_leaves():
    frames = frames_of(*random_ids(5, 3, count=30, of=40))
    with pytest.raises(PolicyError) as refused:
        padded(frames, GUEST, size=29)
    assert refused.value.where["party"] == GUEST
    assert refused.value.where["key"] == "policy.ids_padded_to"


# Too few in common


def least(frames, **of_party):
    """A room in which some parties ask for so many ids in common."""
    room = room_for("align", frames)
    contexts = {
        party: altered(context, limits={"intersection_min": of_party.get(party, 1)})
        for party, context in room.contexts.items()
    }
    return Room(room.protocol, contexts)


@pytest.mark.parametrize("who", EVERYBODY[:3])
def test_any_party_may_refuse_to_open_too_few_ids_and_nobody_learns_which(who):
    frames = frames_of(*random_ids(6, 3, count=30, of=50))
    count = len(set.intersection(*(set(frame.ids) for frame in frames.values())))
    assert 3 < count < 20
    now(least(frames, **{who: count}).walk())  # the control: as many are enough
    room = least(frames, **{who: count + 1})
    with pytest.raises(PolicyError) as refused:
        now(room.walk())
    error = refused.value
    assert (error.where["party"], error.where["key"]) == (who, "policy.intersection_min")
    assert str(count + 1) in error.what
    assert f" {count} " not in " ".join(error.lines())
    assert not any(p.message.DESCRIPTOR.name == "CommonDigests" for p in room.posted)
    last = [p for p in room.posted if p.envelope.receiver == GUEST]
    assert not any(p.message.DESCRIPTOR.name == "CommonSet" for p in last)  # still blinded


def test_a_guest_that_names_other_ids_than_were_opened_is_refused():
    """It had more opened, so that no host counts too few, than it wants anybody to keep."""

    def lie(common):
        common.points += 1
        common.data += common.data[-32:]

    ids = random_ids(3, 3, count=20, of=24)
    with pytest.raises(FedboostError) as ended:
        aligned_ids(frames_of(*ids), alter=changing("CommonSet", lie))
    assert isinstance(ended.value, PeerError)


# How often


def allowing(node, **rules):
    policy = node.config.policy.model_copy(update=rules)
    node.config = node.config.model_copy(update={"policy": policy})
    node.judge.config = node.config


@pytest.mark.parametrize("who", EVERYBODY[:2])
async def test_more_alignments_a_day_than_a_party_allows_are_refused(tmp_path, who):
    names = EVERYBODY[:2]
    spec, sources = job_spec("align", names), {}
    for name in names:
        pq.write_table(arrow({"id": [1, 2, 3]}), tmp_path / f"{name}.parquet")
        sources[name] = SourceSpec(path=str(tmp_path / f"{name}.parquet"))
    async with open_cluster(tmp_path / "cluster", spec, sources, Serial()) as made:
        allowing(made.parties[who], alignments_per_day=2)
        first, second, third = [await made.run(spec) for _ in range(3)]
    assert (first.status.state, second.status.state) == ("finished", "finished")
    assert third.status.state == "failed"
    error = faults.error_of_fault(third.status.reason)
    assert isinstance(error, PolicyError)
    assert (error.where["party"], error.where["key"]) == (who, "policy.alignments_per_day")
