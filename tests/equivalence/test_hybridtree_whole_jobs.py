"""Whole jobs of hybridtree: from files, broken off and carried on, in other attempts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data.holdout import canonical_order
from fedboost.data.ids import encode_ids
from fedboost.ground.workers import Serial
from fedboost.model.hybrid import first_number
from fedboost.protocols.hybridtree import guest as training
from fedboost.runtime.cluster.local import open_cluster
from tests.support.federated import GUEST, HOSTS, Room, job_spec, run_job, with_seed
from tests.support.hybrid_jobs import (
    Job,
    assert_same_model,
    assert_same_rounds,
    made,
    n_splits,
    twin_of,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, SEED, VECTORS
from tests.support.whole_jobs import breaking, models, resumed, written

# Interrupted and carried on


RESUMED: dict[str, dict[str, Any]] = {
    "binary": {"n_estimators": 4},
    "classes": {**CLASSES, "n_estimators": 4},
    "vectors": {**VECTORS, "n_estimators": 3},
    "samples": {**SAMPLES["both"], "n_estimators": 4},
    "goss": {**SAMPLES["goss"], "n_estimators": 4},
    "stopping": {**CLASSES, "n_estimators": 12, "early_stopping_rounds": 2, "learning_rate": 1.0},
}


async def interrupted(job, rounds):
    """What every party keeps after so many rounds; then the room stands amid the next tree."""
    room = await job.room().until("start_round", rounds + 1)
    kept = await room.snapshots()
    for step in ("start_round", "grow_top", "encrypt_gradients"):
        await room.call(step, GUEST)
    for step in ("receive_gradients", "sum_candidates"):
        await room.call(step, *job.rows)
    return kept


async def carried_on(job, kept, rounds, seed=b""):
    """The shards, and the guest, of the rounds that were left, at another attempt if seeded."""
    fresh = with_seed(job.room(), seed) if seed else job.room()
    room = Room(fresh.protocol, fresh.contexts, place=(rounds,))
    return await room.walk(kept), room.state(GUEST)


@pytest.mark.some(2)
@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("rounds", [1, 2])
async def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(params, rounds):
    job = made(params, weighted=True, held=0.4, categories=5)
    whole = job.room()
    expected = await whole.walk()
    found, guest = await carried_on(job, await interrupted(job, rounds), rounds)
    for party, shard in expected.items():
        assert repr(found[party].facts) == repr(shard.facts)
        assert {n: a.tobytes() for n, a in found[party].arrays.items()} == {
            n: a.tobytes() for n, a in shard.arrays.items()
        }
    assert guest.margin.tobytes() == whole.state(GUEST).margin.tobytes()


async def test_another_attempt_carries_on_with_the_same_numbers_and_the_same_model():
    job, seed = made({"n_estimators": 4}), b"another attempt"
    twin = twin_of(job)
    found, guest = await carried_on(job, await interrupted(job, 2), 2, seed)
    assert_same_model(found, twin, job.own.learning_rate)
    assert_same_rounds(guest, twin, job.own.learning_rate)
    once = (await job.room().walk())[GUEST].arrays
    again = found[GUEST].arrays
    assert all(
        once[name].tolist() == again[name].tolist() for name in ("below_node", "below_under")
    )


# Whole jobs: the alignment, training, a break amid a round


def arrow_tables(job):
    """The tables as parties keep them: each in its own order, hosts' with rows of others as well.

    Ids are numbers, those of the guest 0, 1, …
    """
    draw = np.random.default_rng(0)
    found: dict[str, pa.Table] = {}
    for party, values in job.columns.items():
        rows = np.arange(len(job.y)) if party == GUEST else job.rows[party]
        strangers = 0 if party == GUEST else 9
        ids = np.append(rows, len(job.y) + 10 * len(found) + np.arange(strangers))
        order = draw.permutation(len(ids))
        filled = np.concatenate([values, draw.normal(size=(strangers, values.shape[1]))])
        content = {"id": ids[order]}
        if party == GUEST:
            content["y"] = job.y[order]
        if party == GUEST and job.weight is not None:
            content["w"] = job.weight[order]
        content |= {f"c{i}": filled[order, i].astype(np.float32) for i in range(values.shape[1])}
        found[party] = pa.table(content)
    return found


def spec_of(job):
    """The job as a user would send it."""
    weight = {} if job.weight is None else {GUEST: {"weight": "w"}}
    validation = {"fraction": job.held, "seed": SEED}
    parties = tuple(job.columns)
    return job_spec("hybridtree", parties, data=weight, validation=validation, params=job.params)


def encoded(job):
    """The ids of the guest's rows, as parties read them."""
    return encode_ids([pa.chunked_array([np.arange(len(job.y))])], ["id"])


def in_canonical_order(job: Job) -> Job:
    """The same job with rows as its parties keep them after the alignment."""
    ids = encoded(job)
    order = canonical_order(ids)
    place = np.argsort(order)  # of each row, in the new order
    columns, rows = {GUEST: job.columns[GUEST][order]}, {}
    for host, own in job.rows.items():
        own_order = np.argsort(place[own])
        columns[host] = job.columns[host][own_order]
        rows[host] = place[own][own_order].astype(np.int32)
    weight = None if job.weight is None else job.weight[order]
    named = [ids[i] for i in order]
    return replace(job, columns=columns, rows=rows, y=job.y[order], weight=weight, ids=named)


JOBS: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": {**VECTORS, **SAMPLES["rows"]},
    "stopping": {"n_estimators": 10, "early_stopping_rounds": 2, "learning_rate": 1.0},
}


@pytest.mark.parametrize("params", JOBS.values(), ids=JOBS)
def test_a_whole_job_grows_the_pooled_trees(tmp_path, params):
    job = made(params, (2, 3, 2), weighted=True, held=0.3)
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert done.state == "finished", done.error.lines()
    twin = twin_of(in_canonical_order(job))
    assert all(n_splits(twin))
    assert_same_model(done.shards, twin, job.own.learning_rate)
    best = len(twin.trees) // job.own.trees_per_round - 1
    assert done.result["metrics"] == twin.history[best]
    assert done.result["trees"] == len(twin.trees)
    held = np.unique(np.concatenate(list(job.rows.values())))
    assert done.result["rows"]["aligned"] == len(held)
    assert done.result["rows"]["alone"] == len(job.y) - len(held)


def test_a_host_of_a_whole_job_may_share_few_rows_with_the_guest(tmp_path):
    few = [range(60), [3, 41, 42, 80], range(55, 120)]
    job = made({"min_child_weight": 0.0}, (2, 2, 3, 1), held=0.2, shares=few)
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert done.state == "finished", done.error.lines()
    assert_same_model(done.shards, twin_of(in_canonical_order(job)), job.own.learning_rate)


def test_a_host_without_rows_to_learn_from_is_named_and_the_job_ends(tmp_path):
    anyone = made({}, (2, 2, 2))
    held_out = canonical_order(encoded(anyone))[in_canonical_order(anyone).out]
    job = made({}, (2, 2, 2), shares=[range(60), held_out[:2]])
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert done.state == "failed"
    assert done.error.what.startswith(f"{HOSTS[1]} has none of the ")
    assert "rows to learn from" in done.error.what
    assert done.shards == {}


@pytest.mark.parametrize("params", [{}, CLASSES], ids=["", "classes"])
async def test_a_break_amid_a_round_loses_nothing(tmp_path, monkeypatch, params):
    job = made({**params, "n_estimators": 3}, (2, 2, 2), weighted=True)
    per_round = job.own.trees_per_round
    times = per_round + 1  # the first tree of the second round
    closed = breaking(monkeypatch, training, "close_tree", times, lambda state: state.trees_closed)
    spec = spec_of(job)
    sources = written(tmp_path, arrow_tables(job))
    async with open_cluster(tmp_path / "cluster", spec, sources, Serial()) as made_of:
        journal = await resumed(made_of, spec)
        found = models(made_of, journal.status.id)
    assert journal.status.state == "finished"
    again = list(range(per_round, 3 * per_round))
    assert closed == [*range(per_round + 1), *again]
    assert_same_model(found, twin_of(in_canonical_order(job)), job.own.learning_rate)
    least = first_number(job.own.guest_depth)
    assert (found[GUEST].arrays["below_node"] >= least).all()
