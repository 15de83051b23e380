"""Rounds of horizontal FederBoost: what is measured, when they end, and that they carry on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core.objectives import metrics_of
from fedboost.core.quantiles import Search
from tests.equivalence.test_federboost_horizontal import MODES
from tests.equivalence.test_secureboost_forests import KINDS as FORESTS
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, Room, now, with_seed
from tests.support.horizontal_jobs import (
    assert_pooled,
    assert_same_shards,
    made,
    measured,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS

TELCO = HOSTS[0]
# With `dropout: continue` sums may not repeat, as those of hessians over all rows would.
NUMBERS: dict[str, Any] = {"objective": "reg:squarederror", "subsample": 0.8}
STOPS: dict[str, Any] = {"n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0}


# Metrics


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(
    "params",
    [{}, CLASSES, {"objective": "reg:squarederror"}, {"objective": "count:poisson"}],
    ids=["binary", "classes", "numbers", "counts"],
)
def test_metrics_are_those_of_all_rows(params, weighted):
    names = metrics_of(params.get("objective", "binary:logistic"))
    job = made({**params, "eval_metric": names}, weighted=weighted, held=0.4)
    done = assert_pooled(job)  # exact ones to 1e-9, rankings to their resolution
    assert all(set(one) == {"train", "validation"} for one in done.history)
    assert all(set(part) == set(names) for one in done.history for part in one.values())


def test_without_rows_held_out_there_are_metrics_of_training_only():
    done = assert_pooled(made(held=None, weighted=True))
    assert [set(one) for one in done.history] == [{"train"}] * 3


def test_rows_without_weight_count_in_no_metric_and_no_tree():
    job = made(weighted=True, held=0.4)
    heavy = np.where(np.arange(len(job.y)) % 3 == 0, 0.0, 1.0)
    done = assert_pooled(replace(job, weight=heavy))
    counts = done.room.state(GUEST).counts
    found = measured(replace(job, weight=heavy), done.trained, counts)[0]
    other = measured(replace(job, weight=None), done.trained, counts)[0]
    assert found != other


def test_the_coordinator_hears_every_metric_from_the_guest_alone():
    job = made({"n_estimators": 2})
    room = job.room()
    now(room.walk())
    told = [one for one in room.told if one.metrics]
    assert len(told) == 2
    seen = [{(m.split, m.name): m.value for m in one.metrics} for one in told]
    expected = [
        {(part, name): value for part, own in one.items() for name, value in own.items()}
        for one in room.state(GUEST).training.measures.history
    ]
    assert seen == expected


@pytest.mark.parametrize(
    "params", [{}, CLASSES, FORESTS["moving"]], ids=["binary", "classes", "a forest"]
)
def test_metrics_that_travel_with_the_next_trees_root_are_the_same(params, monkeypatch):
    async def at_once(run, _, most, *steps, slowly, around):
        assert slowly is not None
        await run(*around[0], *steps * most, *around[1])

    monkeypatch.setattr(Room, "loop", at_once)
    done = assert_pooled(made({**params, "n_estimators": 4}, held=0.4))
    assert [bool(one.metrics) for one in done.room.told].count(True) == 4
    sent = [post.envelope.sender for post in done.room.posted if post.envelope.step == "measure"]
    assert sent
    assert len(sent) == len(set(sent))  # once a party


# Early stopping


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    "params",
    [{}, {"eval_metric": "auc"}, CLASSES, VECTORS, NUMBERS],
    ids=["logloss", "auc", "classes", "vectors", "numbers"],
)
def test_the_best_round_is_that_of_all_rows_held_out(params, mode):
    done = assert_pooled(made({**STOPS, **params, **mode}, held=0.4))
    grown = len(done.room.state(GUEST).training.rounds)
    assert grown == done.best + 3 < 30
    assert len(done.shards[GUEST].facts["forest"]) == done.best + 1


def test_a_party_without_validation_rows_stops_with_the_others():
    done = assert_pooled(made(STOPS, (100, 1, 90), held=0.3))
    assert len({len(done.room.state(p).training.rounds) for p in (GUEST, TELCO)}) == 1


# Carried on


RESUMED: dict[str, dict[str, Any]] = {
    "classes": {**CLASSES, "n_estimators": 4},
    "vectors": {**VECTORS, "n_estimators": 3},
    "samples": {**SAMPLES["both"], "n_estimators": 4},
    "goss": {**SAMPLES["goss"], "n_estimators": 4},
    "a forest": {**FORESTS["moving"], "n_estimators": 5},
    "stopping": STOPS,
}


def carried_on(job, rounds, layers):
    """The shards of a job that breaks in its next round, and carries on behind so many; and the
    room that it carries on in.
    """

    async def work():
        waits = job.params.get("dropout", "wait") == "wait"
        step = "sum_histograms"
        first = await job.room().until(step, rounds * job.own.max_depth + 1)
        kept = await first.snapshots()
        await first.call(step, *job.parties)
        if waits:
            await first.call("add_up", GUEST)
            await first.call("split_nodes", *job.parties)
        fresh = with_seed(job.room(), b"again")
        contexts = {
            name: altered(
                context,
                attempt={"digest": b"\1" * 32},
                services={"notebook": first.contexts[name].services.notebook},
            )
            for name, context in fresh.contexts.items()
        }
        room = Room(fresh.protocol, contexts, place=(rounds,))
        return room, await room.walk(kept)

    return now(work())


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(params, mode):
    job = made({**params, **mode}, weighted=True, held=0.4, categories=4)
    whole = job.room()
    expected = now(whole.walk())
    room, found = carried_on(job, 2, 1)
    for party in job.parties:
        assert_same_shards({"found": found[party], "expected": expected[party]})
        cuts = [shard.disclosure.facts for shard in (found[party], expected[party])]
        assert repr(cuts[0]) == repr(cuts[1])
        grown, seen = (one.state(party).training for one in (room, whole))
        assert repr(grown.measures.history) == repr(seen.measures.history)
        for part, rows in seen.watched.items():
            assert grown.watched[part].margin.tobytes() == rows.margin.tobytes()
    steps = {posted.envelope.step for posted in room.posted}
    assert steps.isdisjoint({"count_rows", "sum_labels", "count_below"})


async def test_what_is_over_at_a_checkpoint_grows_no_further():
    job = made({**STOPS, "n_estimators": 3})
    expected = await job.room().walk()
    first = await job.room().until("close_model")
    kept = await first.snapshots()
    fresh = job.room()
    room = Room(fresh.protocol, fresh.contexts, place=(3,))
    found = await room.walk(kept)
    assert_same_shards({"found": found[GUEST], "expected": expected[GUEST]})
    assert {posted.envelope.step for posted in room.posted} == {
        "show_columns", "tell_standing", "offer_keys",
    }  # fmt: skip


def test_a_sum_may_come_before_the_coordinator_asks_for_the_step_that_reads_it():
    job = made(MODES["continue"], held=None)

    async def work():
        for step in ("split_nodes", "read_metrics"):
            room = await job.room(aggregator=TELCO).until(step)
            assert type(room.posted[-1].message).__name__ == "Total"
            await room.call(step, *job.parties)
        return room.state(GUEST).training.measures.history

    assert len(now(work())) == 1


# Cut points used again


def test_a_job_on_the_same_cut_points_is_what_a_fresh_one_would_be():
    job = made({"n_estimators": 2}, categories=4, steps=True, weighted=True)
    first = now(job.room().walk())
    told = {party: {"disclosure": first[party].disclosure} for party in job.parties}
    more = {**CLASSES, "n_estimators": 4, "max_depth": 4, "learning_rate": 0.5}
    other = made({**more, "seed": 3}, categories=4, steps=True, weighted=True)
    settled = {"max_bin", "quantile_tolerance", "domains"}
    params = {k: v for k, v in other.params.items() if k not in settled}
    again = replace(other, params={**params, "reuse": "job-1"})
    room = again.room(artefacts=told)
    done = assert_pooled(again, room)
    fresh = assert_pooled(other)
    for name, array in fresh.shards[GUEST].arrays.items():
        assert done.shards[GUEST].arrays[name].tobytes() == array.tobytes()
    assert done.shards[GUEST].disclosure is None
    assert not any(posted.envelope.step == "count_below" for posted in room.posted)
    assert isinstance(fresh.room.state(GUEST).search, Search)
    assert not type(room.state(GUEST)).search.is_set(room.state(GUEST))


def test_cut_points_stay_with_their_columns_wherever_these_stand_now():
    job = made({"n_estimators": 2}, categories=4, steps=True)
    told = {
        party: {"disclosure": shard.disclosure} for party, shard in now(job.room().walk()).items()
    }
    settled = {"max_bin", "quantile_tolerance", "domains"}
    params = {k: v for k, v in job.params.items() if k not in settled}
    again = replace(job, params={**params, "reuse": "job-1"})
    room = again.room(artefacts=told)
    order = [3, 1, 0, 2]
    for party in (GUEST, TELCO):
        frame = room.contexts[party].frame
        moved = replace(
            frame,
            values=np.asfortranarray(frame.values[:, order]),
            columns=tuple(frame.columns[place] for place in order),
        )
        room.contexts[party] = replace(room.contexts[party], frame=moved)
    assert_pooled(again, type(room)(room.protocol, room.contexts))
