"""Vertical FederBoost: without noise it grows the trees of one table, whatever the job says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import forest
from fedboost.flow import DISCLOSURE, MODEL, Artefact
from fedboost.ground.errors import ConfigError
from fedboost.model import rounds, vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols.federboost_vertical import guest as training
from tests.equivalence.test_secureboost_categories import by_category
from tests.equivalence.test_secureboost_forests import KINDS as FORESTS
from tests.equivalence.test_secureboost_whole_jobs import MARGIN_GAP_MAX, assert_same_shards
from tests.support.federated import GUEST, HOSTS, Room, now, room_for
from tests.support.federboost_jobs import (
    assert_same,
    cuts_by_hand,
    frames_of,
    open_job,
    own_params,
    pooled,
    room_of,
    twin,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS, owners

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "medians": {"objective": "reg:absoluteerror"},
    "counts": {"objective": "count:poisson"},
    "amounts": {"objective": "reg:tweedie"},
    "positive": {"objective": "reg:gamma"},
    "far errors": {"objective": "reg:pseudohubererror", "huber_slope": 0.5},
}
TELCO = HOSTS[0]


def assert_pooled(job):
    """The federated model is the one of `core.local`."""
    return assert_same(job, pooled(job))


@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2), (1, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_buckets_without_noise_grow_the_pooled_trees(objective, widths):
    job = open_job({**objective, "n_estimators": 4}, widths)
    done = assert_pooled(job)
    assert done.shards[GUEST].facts["trees"] == sum(map(len, done.expected.rounds))
    assert owners(done.expected.rounds, job.widths) == set(job.widths)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_samples_are_those_of_one_table(sample, objective):
    assert_pooled(open_job({**sample, **objective}, weighted=True))


def test_the_guests_columns_move_predictions_as_its_constraints_say():
    assert_pooled(open_job({"monotone_constraints": {"c0": 1, "c1": -1}, "max_depth": 4}))


@pytest.mark.parametrize("held", [None, 0.4])
def test_weights_and_rows_held_out_count_as_in_one_table(held):
    assert_pooled(open_job({"n_estimators": 4}, weighted=True, held=held))


@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_the_model_ends_with_its_best_round(objective):
    stop = {"n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0}
    done = assert_pooled(open_job({**stop, **objective}, held=0.4))
    grown = len(done.room.state(GUEST).training.rounds)
    assert len(done.expected.rounds) == grown - 2 < 28
    last = int(done.shards[GUEST].arrays["tree"].max())
    for host in HOSTS[:2]:
        assert (done.shards[host].arrays["tree"] <= last).all()


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS], ids=["binary", "classes", "vectors"])
@pytest.mark.parametrize("kind", FORESTS.values(), ids=FORESTS)
def test_forests_are_those_of_one_table(kind, objective):
    job = open_job({**kind, **objective, "n_estimators": 4})
    done = assert_pooled(job)
    facts = done.shards[GUEST].facts
    assert facts["forest"] == forest.trees_each_round(own_params(job)).tolist()
    assert facts["trees"] == rounds.trees_after_rounds(facts)[-1]


@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["", "missing"])
@pytest.mark.parametrize("categories", [5, 12], ids=["few", "more than buckets"])
def test_categories_are_divided_as_in_one_table(categories, missing):
    job = open_job({"n_estimators": 4}, rows=300, categories=categories, missing=missing)
    done = assert_pooled(job)
    assert by_category(done.expected.rounds) > 2
    texts = done.shards[TELCO].facts["categories"]
    assert [len(own) for own in texts.values()] == [min(categories, 8)]


@pytest.mark.parametrize("zero", [0.5, 0.95])
@pytest.mark.parametrize("parties", [(GUEST,), HOSTS[:1], (GUEST, *HOSTS[:2])], ids=str)
def test_sparse_tables_come_to_the_same_model(parties, zero):
    job = open_job({"max_depth": 4}, zero=zero)
    frames = frames_of(job)
    for party in parties:
        frames[party] = replace(frames[party], values=csc_array(frames[party].values))
    assert_same(job, pooled(job), room_for("federboost-vertical", frames, job.params, held=0.25))


# Bins that are not everybody's


@pytest.mark.parametrize(("max_bin", "buckets"), [(4, 16), (16, 4), (255, 2), (256, 2), (2, 254)])
def test_the_guests_own_columns_have_bins_of_their_own(max_bin, buckets):
    said = {"max_bin": max_bin, "buckets": buckets, "n_estimators": 4}
    job = open_job(said, rows=400, missing=0.15, categories=6)
    done = assert_same(job, twin(job))
    assert owners(done.expected.rounds, job.widths) == set(job.widths)


def test_public_cut_points_stand_in_place_of_the_datas():
    named = {TELCO: {"c1": [-1.0, 0.25, 0.5]}, HOSTS[1]: {"c0": [0.0]}}
    job = open_job({"public_cuts": named, "n_estimators": 4}, rows=300)
    done = assert_same(job, twin(job))
    arrays = done.shards[TELCO].arrays
    used = set(arrays["threshold"][arrays["feature"] == 1].tolist())
    assert used <= {-1.0, 0.25, 0.5, float("inf")}
    assert used & {-1.0, 0.25, 0.5}
    assert cuts_by_hand(job).n_bins[2 + 1] == 4


def test_more_public_cut_points_than_buckets_are_taken_at_their_word():
    named = {TELCO: {"c0": np.linspace(-2, 2, 40).round(2).tolist()}}
    job = open_job({"public_cuts": named, "max_depth": 5}, (1, 2), rows=400)
    assert_same(job, twin(job))


@pytest.mark.parametrize(
    "named", [{GUEST: {"c0": [0.0]}}, {"nobody": {"c0": [0.0]}}, {TELCO: {"c9": [0.0]}}]
)
def test_public_cut_points_of_what_is_not_there_are_refused(named):
    room = room_of(open_job({"public_cuts": named}))
    with pytest.raises(ConfigError, match="public_cuts names"):
        now(room.walk())
    assert room.posted == []


def test_public_cut_points_of_categories_are_refused():
    job = open_job({"public_cuts": {TELCO: {"c2": [0.0]}}}, categories=4)
    with pytest.raises(ConfigError, match="public_cuts names"):
        now(room_of(job).walk())


# In batches, and carried on


RESUMED: dict[str, dict[str, Any]] = {
    "classes": {**CLASSES, "n_estimators": 5},
    "samples": {**SAMPLES["both"], "n_estimators": 5},
    "a forest": {**FORESTS["moving"], "n_estimators": 5},
    "stopping": {"n_estimators": 20, "early_stopping_rounds": 2, "learning_rate": 1.0},
    "noise": {"epsilon": 2.0, "n_estimators": 5},
}


@pytest.mark.parametrize("cells", [1, 3000, 1 << 30])
def test_rounds_may_be_grown_in_any_batches(monkeypatch, cells):
    job = open_job({"n_estimators": 5, "epsilon": 3.0})
    expected = now(room_of(job).walk())
    monkeypatch.setattr(training, "STEP_CELLS", cells)
    room = room_of(job)
    assert_same_shards(now(room.walk()), expected)
    told = [(one.done, one.of) for t in room.told for one in t.rounds]
    assert told == [(n, 5) for n in range(1, 6)]
    batches = sum(bool(t.rounds) for t in room.told)
    assert batches == {1: 5, 3000: 5, 1 << 30: 1}[cells] or 1 < batches < 5


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
async def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(
    monkeypatch, params, batches
):
    monkeypatch.setattr(training, "STEP_CELLS", 1)  # a round a step
    job = open_job(params, weighted=True, held=0.4)
    whole = room_of(job)
    expected = await whole.walk()
    first = await room_of(job).until("grow_trees", batches + 1)
    kept = await first.snapshots()
    await first.call("grow_trees", GUEST)
    fresh = room_of(job)
    room = Room(fresh.protocol, fresh.contexts, place=(batches,))
    found = await room.walk(kept)
    assert_same_shards(found, expected)
    grown, seen = (one.state(GUEST).training for one in (room, whole))
    assert grown.history == seen.history
    assert grown.watched["train"].margin.tobytes() == seen.watched["train"].margin.tobytes()


async def test_what_is_over_at_a_checkpoint_grows_no_further(monkeypatch):
    monkeypatch.setattr(training, "STEP_CELLS", 1)
    job = open_job({"n_estimators": 3})
    expected = await room_of(job).walk()
    first = await room_of(job).until("close_model")
    kept = await first.snapshots()
    room = room_of(job)
    found = await room.walk(kept)
    assert_same_shards(found, expected)
    assert not any(told.rounds for told in room.told)


# What the model is good for


def scored(job, model):
    """The margins that the protocol predict finds, in the order of the job's rows."""
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    params = {"model": "job-1", "output_margin": True, "batch_rows": 64}
    done = now(room_for("predict", frames_of(job), params, artefacts=artefacts).walk())
    return done[GUEST].arrays["prediction"]


KINDS = {"classes": CLASSES, "vectors": VECTORS, "forest": FORESTS["moving"]}


@pytest.mark.parametrize("categories", [0, 5], ids=["", "categories"])
@pytest.mark.parametrize("objective", [{}, *KINDS.values()], ids=["binary", *KINDS])
def test_predictions_are_the_margins_of_the_training(objective, categories):
    job = open_job({"n_estimators": 4, **objective}, categories=categories, missing=0.15)
    room = room_of(job)
    model = now(room.walk())
    margin = scored(job, model)
    for part, seen in room.state(GUEST).training.watched.items():
        rows = ~job.out if part == "train" else job.out
        assert margin[rows].tobytes() == seen.margin.tobytes()


@pytest.mark.parametrize("objective", [{}, *KINDS.values()], ids=["binary", *KINDS])
def test_xgboost_reads_the_exported_model(objective):
    xgb = pytest.importorskip("xgboost")
    job = open_job({"n_estimators": 3, **objective})
    room = room_of(job)
    shards = now(room.walk())
    who = {"job": "m", "guest": GUEST, "hosts": list(HOSTS[:2])}
    named = {
        party: Artefact({**shard.facts, **who, "party": party}, shard.arrays)
        for party, shard in shards.items()
    }
    model = vertical.join_shards(named[GUEST], {host: named[host] for host in HOSTS[:2]})
    cells = [job.columns[party][:, int(name[1:])] for party, name in model.columns]
    booster = xgb.Booster(model_file=bytearray(xgboost_json(model).encode()))
    rows = xgb.DMatrix(np.column_stack(cells), feature_names=feature_names(model))
    ours = scored(job, shards)
    theirs = booster.predict(rows, output_margin=True).reshape(ours.shape)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=MARGIN_GAP_MAX)


def test_a_disclosure_trains_again_to_what_a_fresh_job_would():
    job = open_job({"n_estimators": 2}, categories=5)
    first = now(room_of(job).walk())
    more = {"n_estimators": 5, "max_depth": 4, "learning_rate": 0.5, "max_bin": 32}
    told = {party: {DISCLOSURE: shard.disclosure} for party, shard in first.items()}
    params = {"reuse": "job-1", **more}
    room = room_for("federboost-vertical", frames_of(job), params, held=0.25, artefacts=told)
    found = now(room.walk())
    assert {posted.envelope.sender for posted in room.posted} == {GUEST}
    other = replace(job, params={**job.params, **more})
    assert_same(other, twin(other), Room(room.protocol, room.contexts))
    expected = now(room_of(other).walk())
    for party, shard in expected.items():
        assert found[party].disclosure is None
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes()
