"""Alignment by an oblivious function comes to the curve's rows, opens nothing else, and goes on
where it was left.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.crypto import set_sizes
from fedboost.crypto.oprf import sizes
from fedboost.crypto.oprf.sizes import OprfSizes, sample_cap
from fedboost.crypto.oprf.tags import TagGuest
from fedboost.data.holdout import canonical_order
from fedboost.data.sources import SourceSpec
from fedboost.flow import START, Spent
from fedboost.ground.errors import (
    ConfigError,
    DataError,
    FedboostError,
    PeerError,
    PolicyError,
    ProtocolError,
)
from fedboost.ground.ids import EncodedIds
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import Alignment, JobSpec
from fedboost.oblivious import method, side
from fedboost.oblivious.method import OPRF_IDS_MIN, method_for
from fedboost.oblivious.side import PARTS_AT_ONCE, results_in_order
from fedboost.runtime.cluster import local
from fedboost.runtime.process.threads import ThreadWorkers
from fedboost.runtime.transport import faults
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, Room, changing, frame_of, now, room_for
from tests.support.halfway import carried_on, keeping

BOTH = ("align", "align-pairs")
PART = 64  # ids of the guest in a part, of tests that need several


def frames_of(*ids_of_parties):
    """Tables with one column, guest first."""
    parties = zip((GUEST, *HOSTS), ids_of_parties, strict=False)
    return {p: frame_of(ids, np.zeros((len(ids), 1), np.float32)) for p, ids in parties}


def random_frames(seed, parties, count=300, of=500):
    """Tables of some of the same ids, each in an order of its own."""
    draw = np.random.default_rng(seed)
    return frames_of(*[[b"%06d" % i for i in draw.permutation(of)[:count]] for _ in range(parties)])


def room(protocol, frames, *, said="oprf", alter=None, workers=None, **of_party):
    """A room in which parties have rules of their own: all of them by `everybody`, or one."""
    made = room_for(protocol, frames, {"method": said}, workers=workers)
    contexts = {}
    for party, context in made.contexts.items():
        rules = {**of_party.get("everybody", {}), **of_party.get(party, {})}
        contexts[party] = altered(context, limits=rules)
    return Room(made.protocol, contexts, alter=alter)


def arrays(left):
    """What every party is left with, to compare."""
    return {(p, name): values.tolist() for p in left for name, values in left[p].arrays.items()}


def kinds(made):
    """The names of all messages."""
    return [posted.message.DESCRIPTOR.name for posted in made.posted]


def points(made, *names):
    """The sizes of sets that went round."""
    return {p.message.points for p in made.posted if p.message.DESCRIPTOR.name in names}


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of few ids, so that small sets have several."""
    monkeypatch.setattr(sizes, "PART_IDS", PART)


# The same rows


@pytest.mark.parametrize("least", [1, 20])
@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.usefixtures("small_parts")
def test_all_keep_the_rows_that_they_keep_by_the_curve_in_the_same_order(protocol, hosts, least):
    frames = random_frames(hosts, 1 + hosts)
    rules = {"everybody": {"intersection_min": least}}
    by_curve, by_parts = (room(protocol, frames, said=said, **rules) for said in ("ecdh", "oprf"))
    assert arrays(now(by_parts.walk())) == arrays(now(by_curve.walk()))
    assert kinds(by_parts).count("Part") == hosts * OprfSizes(300, 300).bins > PARTS_AT_ONCE
    assert by_parts.told[-1] == by_curve.told[-1]  # rows, and ids of each party
    assert [t.alignment for made in (by_curve, by_parts) for t in made.told if t.alignment] == [
        "ecdh", "oprf",
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("who", [GUEST, *HOSTS[:2]])
@pytest.mark.usefixtures("small_parts")
def test_a_padded_set_shows_its_padded_size_and_has_the_same_rows(protocol, who):
    frames = random_frames(2, 3)
    rules = {"everybody": {"intersection_min": 9}, who: {"ids_padded_to": 800}}
    made = room(protocol, frames, **rules)
    assert arrays(now(made.walk())) == arrays(now(room(protocol, frames, said="ecdh").walk()))
    said = {p.envelope.sender: p.message.ids for p in made.posted
            if p.message.DESCRIPTOR.name in ("Greeting", "Start")}  # fmt: skip
    assert said == {p: 800 if p == who else 300 for p in frames}
    of_all = OprfSizes(said[GUEST], 300)
    asked = [p.message for p in made.posted if p.message.DESCRIPTOR.name == "Part"]
    assert {(one.ids, len(one.data)) for one in asked} == {(of_all.guest_cap, of_all.part_bytes)}


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("least", [1, 9])
def test_parts_and_samples_are_cut_by_a_host_with_many_more_ids(protocol, least, monkeypatch):
    """Samples are no larger than fits the curve."""
    monkeypatch.setattr(sizes, "HOST_PART_IDS", 100)
    monkeypatch.setattr(sizes, "FEW_IDS", 7)
    monkeypatch.setattr(side, "CURVE_IDS_MAX", 1000)
    monkeypatch.setattr(side, "SAMPLED_IDS_MAX", 900)
    few, many, some = ([b"%06d" % i for i in range(n)] for n in (150, 1500, 250))
    frames = frames_of(few, many, some)
    rules = {"everybody": {"intersection_min": least}}
    made = room(protocol, frames, **rules)
    by_curve = room(protocol, frames, said="ecdh", **rules)
    assert arrays(now(made.walk())) == arrays(now(by_curve.walk()))
    starts = [p.message for p in made.posted if p.message.DESCRIPTOR.name == "Start"]
    assert {start.largest for start in starts} == {2048}
    assert kinds(made).count("Part") == 2 * (2048 // 100)
    of = points(made, "BlindedSet", "GuestSet", "HostSet")
    assert max(of, default=0) <= sample_cap(1500, 900 / 2048) < 1000


@pytest.mark.parametrize("protocol", BOTH)
def test_a_guest_of_few_ids_refuses_a_host_whose_part_no_message_holds(protocol, monkeypatch):
    monkeypatch.setattr(sizes, "HOST_CAP_MAX", 299)
    with pytest.raises(ConfigError, match="too large beside the guest's") as refused:
        now(room(protocol, random_frames(3, 2)).walk())
    assert refused.value.where["party"] == GUEST


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("count", [0, 3])
def test_none_of_the_largest_sample_are_too_few_where_it_has_not_all(protocol, count, monkeypatch):
    monkeypatch.setattr(side, "CURVE_IDS_MAX", 150)
    monkeypatch.setattr(side, "SAMPLED_IDS_MAX", 100)
    ours = [b"%06d" % i for i in range(200)]
    frames = frames_of(ours, [*ours[:count], *(b"x%d" % i for i in range(150))])
    made = room(protocol, frames, everybody={"intersection_min": 9})
    with pytest.raises(PolicyError, match="fewer ids are in common"):
        now(made.walk())
    assert "Part" not in kinds(made)


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("who", [GUEST, HOSTS[0]])
def test_more_ids_than_the_curve_takes_are_refused_by_their_owner(protocol, who, monkeypatch):
    monkeypatch.setattr(set_sizes, "CURVE_IDS_MAX", 5)
    few, many = ([b"%06d" % i for i in range(n)] for n in (5, 6))
    frames = frames_of(*((many, few) if who == GUEST else (few, many)))
    with pytest.raises(ConfigError, match="on the curve at most 5") as refused:
        now(room(protocol, frames, said="ecdh").walk())
    assert refused.value.where["party"] == who


@pytest.mark.usefixtures("small_parts")
def test_threads_come_to_the_same():
    frames = random_frames(4, 3)
    with ThreadWorkers(3) as workers:
        threaded = room("align", frames, workers=workers)
        left = now(threaded.walk())
    alone = room("align", frames)
    assert arrays(left) == arrays(now(alone.walk()))
    first, second = (
        sorted(p.payload for p in made.posted if p.message.DESCRIPTOR.name in ("Part", "Hint"))
        for made in (threaded, alone)
    )
    assert first == second  # a retry has the same bytes


def test_tasks_are_done_in_turn_and_only_as_many_at_once_as_there_are_threads():
    begun, most = [], []

    def tasks():
        for number in range(20):
            begun.append(number)
            yield lambda number=number: number * number

    for done, found in enumerate(results_in_order(Serial(), tasks())):
        assert found == done * done
        most.append(len(begun) - done)
    assert max(most) <= 2


# The method


@pytest.mark.parametrize(
    ("said", "ids", "expected"),
    [
        ("auto", OPRF_IDS_MIN, "oprf"), ("auto", OPRF_IDS_MIN - 1, "ecdh"),
        ("oprf", 1, "oprf"), ("ecdh", 1 << 24, "ecdh"),
    ],
)  # fmt: skip
def test_the_method_follows_from_the_job_and_the_guests_size(said, ids, expected):
    assert method_for(Alignment(method=said), ids) == expected


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("party", [GUEST, *HOSTS[:2]])
def test_by_size_the_guests_padded_set_decides(protocol, party, monkeypatch):
    monkeypatch.setattr(method, "OPRF_IDS_MIN", 400)
    frames = random_frames(3, 3)
    made = room(protocol, frames, said="auto", **{party: {"ids_padded_to": 400}})
    now(made.walk())
    assert ("Part" in kinds(made)) == (party == GUEST)


@pytest.mark.parametrize(("guests", "hosts"), [("ecdh", "oprf"), ("oprf", "ecdh")])
@pytest.mark.parametrize("protocol", BOTH)
def test_a_guest_that_takes_another_method_than_the_job_says_is_refused(protocol, guests, hosts):
    made = room(protocol, random_frames(3, 3), said=hosts)
    contexts = dict(made.contexts)
    contexts[GUEST] = replace(contexts[GUEST], params=Alignment(method=guests))
    with pytest.raises(PeerError, match=f"aligns 300 ids by {guests}"):
        now(Room(made.protocol, contexts).walk())


# Too few in common


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("who", [GUEST, *HOSTS[:2]])
@pytest.mark.usefixtures("small_parts")
def test_of_too_few_ids_no_party_opens_one_and_nobody_hears_how_many(protocol, who):
    frames = random_frames(6, 3, of=900)
    pairs = [len(set(frames[GUEST].ids) & set(frames[h].ids)) for h in HOSTS[:2]]
    together = len(set.intersection(*(set(frame.ids) for frame in frames.values())))
    count = together if protocol == "align" else min(pairs)
    now(room(protocol, frames, everybody={"intersection_min": count}).walk())  # the control
    made = room(protocol, frames, **{who: {"intersection_min": max(pairs) + 1}})
    with pytest.raises(PolicyError) as refused:
        now(made.walk())
    assert refused.value.where["key"] == "policy.intersection_min"
    assert not any(f" {n} " in line for n in (*pairs, together) for line in refused.value.lines())
    assert not {"Part", "Tags", "Hint", "CommonSet"} & set(kinds(made))


@pytest.mark.parametrize("protocol", BOTH)
def test_samples_grow_until_enough_ids_are_in_common(protocol, monkeypatch):
    for place in ("fedboost.oblivious.side", "fedboost.oblivious.method"):
        monkeypatch.setattr(f"{place}.SAMPLE_IDS", 30)
    frames = random_frames(7, 3, count=2000, of=2500)
    sampled = {30: 9, 240: 35}  # ids about, by what is asked for
    for most, least in sampled.items():
        made = room(protocol, frames, everybody={"intersection_min": least})
        left = now(made.walk())
        of = points(made, "BlindedSet", "GuestSet", "HostSet")
        shares = [0.015, 0.12] if most == 240 else [0.015]
        assert of == {sample_cap(2000, share) for share in shares}
        counts = [p.message for p in made.posted if p.message.DESCRIPTOR.name == "SampleCount"]
        assert [one.is_last for one in counts[-2:]] == [True, True]
        assert len(counts) == 2 * len(shares)
        assert left[GUEST].arrays["rows"].size


def test_a_pair_with_enough_in_common_is_not_counted_again(monkeypatch):
    monkeypatch.setattr("fedboost.oblivious.side.SAMPLE_IDS", 30)
    draw = [b"%06d" % i for i in range(2000)]
    frames = frames_of(draw, draw[::-1], [b"x%d" % i for i in range(1990)] + draw[:10])
    made = room("align-pairs", frames, everybody={"intersection_min": 5})
    left = now(made.walk())
    assert len(left[GUEST].arrays["with_shop"]) == 10
    offered = [p.message.points for p in made.posted if p.message.DESCRIPTOR.name == "HostSet"
               and p.envelope.sender == HOSTS[0]]  # fmt: skip
    assert offered[0] == sample_cap(2000, 0.015)
    assert len(offered) > 1
    assert not any(offered[1:])


def test_a_host_with_no_row_of_the_guests_is_not_one_with_too_few():
    frames = frames_of([b"a", b"b", b"c"], [b"a", b"b"], [b"x"])
    left = now(room("align-pairs", frames, everybody={"intersection_min": 2}).walk())
    assert (left[HOSTS[0]].arrays["rows"].size, left[HOSTS[1]].arrays["rows"].size) == (2, 0)


@pytest.mark.parametrize("least", [1, 2])
def test_parties_without_a_shared_row_are_told_so(least):
    frames = frames_of([b"a", b"b"], [b"b", b"c"], [b"c", b"a"])  # each pair shares one
    with pytest.raises(DataError, match="no id is held by all parties") as refused:
        now(room("align", frames, everybody={"intersection_min": least}).walk())
    assert refused.value.where["party"] == GUEST


@pytest.mark.parametrize("protocol", BOTH)
def test_the_points_of_a_sample_come_back_in_another_order_and_are_never_opened(protocol):
    frames = random_frames(8, 2)
    made = room(protocol, frames, everybody={"intersection_min": 9})
    now(made.walk())
    assert not {"CommonSet", "CommonDigests"} & set(kinds(made))
    assert made.state(GUEST).side.passed
    with pytest.raises(ProtocolError, match="never opened"):
        now(opened(protocol, frames))


async def opened(protocol, frames):
    """A coordinator that wants a sample opened: it asks for the curve's step behind it."""
    made = room(protocol, frames, everybody={"intersection_min": 9})
    await made.until("count_common")
    await made.call("intersect" if protocol == "align" else "meet", GUEST)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_coordinator_that_leaves_the_sample_out_gets_no_answer(protocol):
    async def work():
        made = room(protocol, random_frames(8, 2), everybody={"intersection_min": 9})
        await made.until("blind_ids")
        await made.call("choose_seeds", HOSTS[0])
        await made.call("open_transfers", GUEST)
        await made.call("ask_parts", GUEST)
        await made.call("answer_with_tags", HOSTS[0])

    with pytest.raises(ProtocolError, match="none was counted"):
        now(work())


def test_a_guest_that_lies_about_the_count_is_refused_when_it_names_too_few():
    frames = random_frames(9, 2, of=1200)
    count = len(set(frames[GUEST].ids) & set(frames[HOSTS[0]].ids))

    def lie(counted):
        counted.ids, counted.is_last = 300, True

    def unheard(greeting):
        greeting.least = 2

    lies = (changing("SampleCount", lie), changing("Greeting", unheard))
    made = room("align", frames, alter=lambda e, p: lies[1](*lies[0](e, p)),
                **{HOSTS[0]: {"intersection_min": count + 1}})  # fmt: skip
    with pytest.raises(PolicyError) as refused:
        now(made.walk())
    assert refused.value.where["party"] == HOSTS[0]
    assert "RowsDigest" not in kinds(made)


# What a party must not do


def refused(protocol, kind, change, skip=0, parties=3, **rules):
    """The error that ends an alignment in which one message was changed on its way."""
    made = room(protocol, random_frames(3, parties), alter=changing(kind, change, skip), **rules)
    with pytest.raises(FedboostError) as ended:
        now(made.walk())
    assert isinstance(ended.value, PeerError), ended.value.lines()
    return ended.value.what


def set_to(**values):
    """A change of a message's fields."""

    def change(message):
        for name, value in values.items():
            setattr(message, name, value)

    return change


def shorter(message):
    message.data = message.data[:-1]


def flipped(message):
    message.data = bytes([message.data[0] ^ 1]) + message.data[1:]


def other_nonces(message):
    message.nonces[1] = bytes(32)


def fewer_nonces(message):
    del message.nonces[-1]


CHANGES = [
    ("Greeting", set_to(ids=0), "a set of 0 ids"),
    ("Greeting", set_to(ids=(1 << 30) + 1), "is the most"),
    ("Greeting", set_to(nonce=bytes(31)), "has 32 bytes"),
    ("Start", set_to(ids=0), "a set of 0 ids"),
    ("Start", other_nonces, "nonces of all hosts"),
    ("Start", fewer_nonces, "nonces of all hosts"),
    ("Start", set_to(point=bytes(32)), ""),
    ("Start", set_to(largest=1 << 19), "wrong size"),
    ("Start", set_to(largest=(1 << 20) + 1), "wrong size"),
    ("Start", set_to(largest=1 << 31), "wrong size"),
    ("Choice", set_to(points=bytes(64 * 472)), ""),
    ("Choice", set_to(points=b""), ""),
    ("Part", set_to(number=1), "expected part 0"),
    ("Part", set_to(ids=299), "expected part 0"),
    ("Part", shorter, "bytes"),
    ("Part", flipped, "check"),
    ("Named", set_to(number=1), "expected part 0"),
    ("Named", set_to(ids=1), "but only"),
    ("Named", flipped, ""),
    ("RowsDigest", set_to(digest=bytes(32)), "kept other rows"),
]


@pytest.mark.parametrize(("kind", "change", "says"), CHANGES)
@pytest.mark.parametrize("protocol", BOTH)
def test_a_message_that_says_what_it_must_not_is_refused(protocol, kind, change, says):
    assert says in refused(protocol, kind, change)


@pytest.mark.parametrize(("kind", "parties"), [("Tags", 2), ("Hint", 3)])
@pytest.mark.parametrize(
    ("change", "says"),
    [(set_to(number=1), "expected part 0"), (set_to(ids=1), "expected part 0"), (shorter, "bytes")],
)
def test_an_answer_to_another_part_or_of_another_size_is_refused(kind, parties, change, says):
    assert says in refused("align", kind, change, parties=parties)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("align", "BlindedSet"), ("align", "FullSet"), ("align-pairs", "GuestSet"),
     ("align-pairs", "HostSet")],
)  # fmt: skip
def test_a_sample_of_another_size_than_the_sets_say_is_refused(protocol, kind):
    def fewer(sent):
        sent.points -= 1
        sent.data = sent.data[32:]

    assert "ids of a sample of" in refused(protocol, kind, fewer, everybody={"intersection_min": 9})


def test_a_forged_pair_key_is_refused():
    assert "signature" in refused("align", "PairKey", set_to(signature=bytes(32)))
    assert "signature" in refused("align", "PairKey", set_to(key=bytes(32)))


# What is charged


@pytest.mark.parametrize(("protocol", "parties"), [("align", 2), ("align", 3), ("align-pairs", 3)])
@pytest.mark.usefixtures("small_parts")
def test_a_host_is_charged_for_all_ids_that_the_guest_can_find(protocol, parties):
    frames = random_frames(5, parties)
    made = room(protocol, frames)
    charged, brought = dict.fromkeys(frames, 0.0), {}
    for party, session in made.sessions.items():

        def record(coming, leaving, party=party):
            assert not any(one.about.charges for one in coming)
            for charge in (charge for one in leaving for charge in one.about.charges):
                if charge.kind == Spent.PEER_IDS:
                    brought[party, charge.peer] = charge.amount
                    continue
                assert charge.kind == Spent.IDS
                charged[party] += charge.amount

        session._notes._record = record
    now(made.walk())
    assert charged == {p: 0 if p == GUEST else 300 for p in frames}
    asked = OprfSizes(300, 300).guest_room  # in padded parts there is room for more
    with_guest = {pair for p in frames if p != GUEST for pair in ((GUEST, p), (p, GUEST))}
    assert {pair: brought[pair] for pair in with_guest} == dict.fromkeys(with_guest, asked)
    assert asked > 300


# Going on


@pytest.mark.parametrize(("protocol", "parties"), [("align", 2), ("align", 3), ("align-pairs", 3)])
@pytest.mark.usefixtures("small_parts")
def test_an_attempt_goes_on_behind_the_parts_that_are_done(protocol, parties):
    frames = random_frames(5, parties, count=900, of=1200)

    def make():
        return room(protocol, frames, everybody={"intersection_min": 9})

    whole, left = keeping(make())
    assert list(whole.kept) == [(0, rounds) for rounds in range(1, len(whole.kept) + 1)]
    assert len(whole.kept) == -(-OprfSizes(900, 900).bins // PARTS_AT_ONCE) > 2
    assert min(whole.kept) > START
    for place, kept in whole.kept.items():
        again, also_left = carried_on(make, place, kept)
        assert arrays(also_left) == arrays(left)
        assert "SampleCount" not in kinds(again)
        parts = {p.message.number for p in again.posted if p.message.DESCRIPTOR.name == "Part"}
        assert parts == set(range(place[1] * PARTS_AT_ONCE, OprfSizes(900, 900).bins))
        before = {p.payload for p in whole.posted if p.message.DESCRIPTOR.name == "Part"}
        assert not before & {p.payload for p in again.posted}  # under transfers of its own
        assert again.told[-1] == whole.told[-1]


@pytest.mark.usefixtures("small_parts")
def test_a_party_that_goes_on_with_another_nonce_is_refused():
    frames = random_frames(5, 2, count=900, of=1200)
    whole, _ = keeping(room("align", frames))
    kept = dict(whole.kept[0, 1])
    facts = {**kept[HOSTS[0]].facts, "nonce": bytes(32).hex()}
    kept[HOSTS[0]] = replace(kept[HOSTS[0]], facts=facts)
    with pytest.raises(PeerError, match="another nonce"):
        carried_on(lambda: room("align", frames), (0, 1), kept)


def test_rows_are_in_canonical_order():
    frames = random_frames(5, 3)
    left = now(room("align", frames).walk())
    common = sorted(set.intersection(*(set(frame.ids) for frame in frames.values())))
    expected = [common[place] for place in canonical_order(EncodedIds.of(common))]
    for party, frame in frames.items():
        assert [frame.ids[row] for row in left[party].arrays["rows"]] == expected


async def test_a_part_that_fails_the_check_is_counted_as_an_alignment(tmp_path, monkeypatch):
    """Each guess at a host's secret is an attempt, of which there are so many a day."""
    names = (GUEST, HOSTS[0])
    said = {"name": "guess", "protocol": "align", "alignment": {"method": "oprf"}}
    said["parties"] = {"guest": GUEST, "hosts": [HOSTS[0]]}
    spec = parse_settings(
        JobSpec, {**said, "data": {name: {"dataset": local.DATASET} for name in names}}
    )
    sources = {}
    for name in names:
        pq.write_table(
            pa.table({"id": [1, 2, 3], "x": [0.0, 1.0, 2.0]}), tmp_path / f"{name}.parquet"
        )
        sources[name] = SourceSpec(path=str(tmp_path / f"{name}.parquet"))
    honest = TagGuest.part
    monkeypatch.setattr(TagGuest, "part", lambda own, b: bytes([1]) + honest(own, b)[1:])
    async with local.open_cluster(tmp_path / "c", spec, sources, Serial()) as made:
        host = made.parties[HOSTS[0]]
        policy = host.config.policy.model_copy(update={"alignments_per_day": 2})
        host.config = host.config.model_copy(update={"policy": policy})
        host.judge.config = host.config
        first, second, third = [
            faults.error_of_fault((await made.run(spec)).status.reason) for _ in range(3)
        ]
    assert "does not pass the check" in first.what
    assert "does not pass the check" in second.what
    assert third.where["key"] == "policy.alignments_per_day"
