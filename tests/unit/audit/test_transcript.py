"""What a party keeps for its audit: enough to attack itself with, bounded, whole after a break."""

import json

import numpy as np
import pytest

from fedboost.audit import attacks, transcript
from fedboost.audit.attacks import AttackPlan
from fedboost.audit.findings import SUMS, Finding
from fedboost.encrypted import record
from fedboost.flow import START, Artefact
from fedboost.ground.errors import ConfigError, StoreError
from fedboost.runtime.store import transcripts
from fedboost.runtime.store.transcripts import END, FINDINGS, Transcripts
from tests.equivalence.test_secureboost_whole_jobs import snapshots
from tests.support import hybrid_jobs, hybrid_unscored
from tests.support.federated import GUEST, HOSTS, Room, now
from tests.support.secureboost_jobs import CLASSES, SAMPLES, made

JOB = "job-1"
TELCO, SHOP = HOSTS[:2]


def handed_over(room):
    """What all parties have recorded by the end."""
    kept = {}
    for party in room.sessions:
        state = room.state(party)
        module = room.protocol.module(room.contexts[party].role)
        kept[party] = module.snapshot(state, START).transcript
        if party == GUEST:
            end = module.finish(state).transcript
            kept[party] = Artefact(end.facts, {**kept[party].arrays, **end.arrays})
    return kept


def transcripts_of(job):
    room = job.room()

    async def work():
        await room.open()
        await room.protocol.walk(room)
        return handed_over(room)

    return room, now(work())


def assert_same(found, expected):
    assert found.facts == expected.facts
    assert set(found.arrays) == set(expected.arrays)
    for name, array in expected.arrays.items():
        assert found.arrays[name].tobytes() == array.tobytes(), name


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "params",
    [{}, CLASSES, {"mode": "mix"}, {**SAMPLES["both"]}, {"mode": "layered", "host_depth": 2,
     "guest_depth": 1}],
    ids=["default", "classes", "mix", "samples", "layered"],
)  # fmt: skip
def test_a_job_that_carries_on_has_the_transcript_of_one_that_never_stopped(params):
    job = made({"n_estimators": 5, **params}, (2, 2, 2), 80, held=0.3)
    _, whole = transcripts_of(job)

    async def work():
        kept = await snapshots(job.room(), 2)
        fresh = job.room()
        room = Room(fresh.protocol, fresh.contexts, place=(2,))
        await room.open(kept)
        await room.protocol.walk(room)
        return kept, handed_over(room)

    before, after = now(work())
    for party, expected in whole.items():
        first = before[party].transcript
        joined = {**first.arrays, **after[party].arrays}
        assert not set(first.arrays) & set(after[party].arrays)
        assert_same(Artefact(after[party].facts, joined), expected)


def test_a_host_knows_its_cells_and_every_node_whose_sums_left():
    room, kept = transcripts_of(made({"max_depth": 3}, (2, 3, 2), 300))
    host = room.state(TELCO)
    given = transcript.known_releases(kept[TELCO])
    rows = room.contexts[TELCO].parts["train"]
    assert np.array_equal(given.cells, host.bins[rows])
    assert given.values == 2
    assert len(given.trees) == 3
    asked = [posted.message for posted in room.posted if posted.envelope.step == "open_layer"]
    opened = [np.frombuffer(one.open.data, np.int32) for one in asked[::2]]
    for number, tree in enumerate(given.trees):
        layers = opened[number * 3 : number * 3 + 3]
        assert tree.nodes.tolist() == sorted(np.concatenate(layers).tolist())
        assert set(tree.at.tolist()) <= set(range(15))


def test_sums_of_many_trees_on_few_rows_tell_a_hosts_bins_and_of_few_trees_they_do_not():
    job = made({"n_estimators": 30, "max_depth": 4, "learning_rate": 0.1}, (2, 2), 300, held=None)
    _, kept = transcripts_of(job)
    (many,) = transcript.run_audit(kept[TELCO], AttackPlan(("all",))).findings
    assert many.value > 0.95
    assert many.chance < 0.25
    first = {n: a for n, a in kept[TELCO].arrays.items() if n[:6] in (record.CELLS, "000000")}
    (few,) = transcript.run_audit(Artefact(kept[TELCO].facts, first), AttackPlan(("all",))).findings
    assert few.value < 0.6


def test_a_guest_sees_what_hosts_could_tell_of_its_labels_and_members():
    job = made({"n_estimators": 15, "max_depth": 4}, (2, 2, 2), 400, held=0.3)
    _, kept = transcripts_of(job)
    found = transcript.run_audit(kept[GUEST], AttackPlan()).findings
    assert [one.about for one in found] == [TELCO, SHOP, ""]
    assert all(one.value > 0.8 for one in found[:2])
    assert found[2].value > 0.55


def test_a_host_sees_only_what_it_is_told_and_its_own_last_splits():
    room, kept = transcripts_of(made({"max_depth": 2}, (2, 2, 2), 200, held=0.3))
    nodes = [node for node in room.state(GUEST).nodes if node.tree == 0]
    for host in (1, 2):
        at = kept[GUEST].arrays[record.of_tree(0, record.AT, host)]
        own = {node.node for node in nodes if node.owner == host}
        deep = {int(node) for node in np.unique(at) if node > 2}
        assert {(node - 1) // 2 for node in deep} <= own
        assert own - {0} <= {(node - 1) // 2 for node in deep}


def test_numbers_and_classes_are_asked_about_by_one_side():
    y = np.array([0.0, 1.0, 1.0, 2.0])
    assert transcript.binary_labels(y, "multi:softprob").tolist() == [False, True, True, False]
    assert transcript.binary_labels(y, "binary:logistic").tolist() == [False, True, True, True]
    assert transcript.binary_labels(y, "reg:squarederror").tolist() == [False, False, False, True]


# Hosts that have some of the rows


@pytest.mark.parametrize("split", ["scored", "unscored"])
def test_parties_of_a_hybrid_job_know_what_their_layers_told(split):
    hybrid = hybrid_jobs.made if split == "scored" else hybrid_unscored.made
    job = hybrid({"n_estimators": 8, "split": split}, (2, 3, 2), rows=300)
    room, kept = transcripts_of(job)
    for place, host in enumerate((TELCO, SHOP), start=1):
        assert kept[GUEST].arrays[f"rows.{place}"].tolist() == job.rows[host].tolist()
        seen = kept[GUEST].arrays[record.of_tree(0, record.AT, place)]
        own = kept[host].arrays[record.of_tree(0, record.AT)]
        training = room.contexts[host].parts["train"]
        if split == "scored":
            assert seen[training][own >= 0].tolist() == own[own >= 0].tolist()
        else:
            assert set(seen.tolist()) <= set(range(3, 7)), "more than bottom nodes"
    found = transcript.run_audit(kept[GUEST], AttackPlan()).findings
    assert {one.about for one in found} == {TELCO, SHOP, ""}
    if split == "unscored":
        with pytest.raises(ConfigError, match="no tree with released sums"):
            transcript.run_audit(kept[TELCO], AttackPlan())
    else:
        (sums,) = transcript.run_audit(kept[TELCO], AttackPlan(("all",))).findings
        assert sums.value > sums.chance


# On the disk


@pytest.fixture
def kept(tmp_path):
    found = Transcripts(tmp_path)
    for number in (1, 2, 3):
        found.add(JOB, (number,), Artefact({"kind": "host"}, {f"{number}": np.arange(number)}))
    return found


def test_parts_are_put_together_and_later_ones_can_be_taken_back(kept):
    kept.add(JOB, END, Artefact({"more": 1}, {"end": np.ones(1)}))
    kept.add(JOB, (4,), None)
    whole = kept.load(JOB)
    assert whole.facts == {"kind": "host", "more": 1}
    assert sorted(whole.arrays) == ["1", "2", "3", "end"]
    kept.discard_after(JOB, (1,))
    assert list(kept.load(JOB).arrays) == ["1"]
    kept.delete(JOB)
    with pytest.raises(ConfigError, match="no job job-1"):
        kept.load(JOB)


def test_parts_inside_a_round_are_taken_back_with_what_follows_them(kept):
    for place in [(2, 1, 1), (2, 2, 1)]:
        kept.add(JOB, place, Artefact({}, {repr(place): np.zeros(1)}))
    kept.discard_after(JOB, (2, 1, 3))
    assert list(kept.load(JOB).arrays) == ["1", "2", "(2, 1, 1)"]
    kept.discard_after(JOB, (2,))
    assert list(kept.load(JOB).arrays) == ["1", "2"]


def test_a_transcript_is_bounded_and_keeps_the_first_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "BYTES_MAX", 40_000)
    found = Transcripts(tmp_path)
    draw = np.random.default_rng(1)
    for number in range(1, 9):
        noise = draw.integers(0, 256, 9000).astype(np.uint8)
        found.add(JOB, (number,), Artefact({"kind": "host"}, {f"{number}": noise}))
    assert sorted(found.load(JOB).arrays) == ["1", "2", "3", "4"]
    found.add(JOB, (4,), Artefact({}, {"4": np.zeros(1)}))  # the same round again takes its place
    assert found.load(JOB).arrays["4"].tolist() == [0.0]


@pytest.mark.parametrize("left", [0, 10, -30])
def test_a_damaged_part_is_named(kept, left):
    path = kept.folder(JOB) / "part-00000002.npz"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(StoreError) as caught:
        kept.load(JOB)
    assert caught.value.where["file"] == path.name


def test_findings_are_kept_for_the_report(kept):
    assert kept.findings(JOB) == []
    found = Finding(SUMS, "all", "precision", value=0.5, chance=0.1, worst=1.0, tried=3)
    kept.keep_findings(JOB, [found])
    assert kept.findings(JOB) == [found]
    (kept.folder(JOB) / FINDINGS).write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        kept.findings(JOB)
    (kept.folder(JOB) / FINDINGS).write_text('[{"attack": "of old"}]')
    with pytest.raises(ConfigError, match="another version"):
        kept.findings(JOB)


def test_a_transcript_without_a_tree_is_refused(kept):
    empty = Artefact({"kind": "host"}, {"cells": np.zeros((3, 1), np.uint8)})
    with pytest.raises(ConfigError, match="no tree"):
        transcript.run_audit(empty, AttackPlan())
    running = Artefact({"kind": "guest", "hosts": []}, {"000000.at.1": np.zeros(3, np.int16)})
    with pytest.raises(ConfigError, match="not over"):
        transcript.run_audit(running, AttackPlan())


def test_wide_tables_are_kept_in_part():
    _, kept = transcripts_of(made({"max_depth": 2, "n_estimators": 1}, (1, 70), 60, held=None))
    names = kept[TELCO].facts["columns"]
    assert len(names) == record.COLUMNS_KEPT_MAX == kept[TELCO].arrays["cells"].shape[1]
    assert (names[0], names[-1]) == ("c0", "c69")
    assert json.dumps(kept[TELCO].facts)
    found = attacks.draw_targets(transcript.known_releases(kept[TELCO]), 5)
    assert len({one.column for one in found}) == 5
