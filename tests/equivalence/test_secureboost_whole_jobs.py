"""Do jobs in every mode survive a break, and do their models predict what training had?"""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core import objectives
from fedboost.data.ids import encode_ids
from fedboost.ground.workers import Serial
from fedboost.model import vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols.secureboost import guest as training
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.transport.addresses import Timers
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.support.federated import (
    GUEST,
    HOSTS,
    Room,
    job_spec,
    now,
    run_job,
    run_jobs,
)
from tests.support.secureboost_jobs import (
    CLASSES,
    SAMPLES,
    SEED,
    VECTORS,
    flat,
    grown_naively,
    in_canonical_order,
    made,
)
from tests.support.whole_jobs import breaking, models, resumed, written

MARGIN_GAP_MAX = 1e-5  # XGBoost's leaves and sums are 32-bit floats


# Interrupted and carried on


RESUMED: dict[str, dict[str, Any]] = {
    "classes": {**CLASSES, "n_estimators": 4},
    "classes in turns": {**CLASSES, "mode": "mix", "n_estimators": 5},
    "layered vectors": {**VECTORS, "mode": "layered", "n_estimators": 3},
    "samples": {**SAMPLES["both"], "n_estimators": 4},
    "goss in turns": {**SAMPLES["goss"], "mode": "mix", "trees_per_party": 2, "n_estimators": 7},
    "stopping": {**CLASSES, "n_estimators": 12, "early_stopping_rounds": 2, "learning_rate": 1.0},
}


async def snapshots(room, rounds):
    """What every party keeps after so many rounds; then the room stands amid the next one."""
    await room.until("start_round", rounds + 1)
    kept = await room.snapshots()
    await room.call("start_round", GUEST)
    return kept


async def carried_on(job, kept, rounds):
    """The shards, and the guest, of the rounds that were left."""
    fresh = job.room()
    room = Room(fresh.protocol, fresh.contexts, place=(rounds,))
    return await room.walk(kept), room.state(GUEST)


def assert_same_shards(found, expected):
    for party, shard in expected.items():
        assert set(found[party].arrays) == set(shard.arrays)
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes()
        assert repr(found[party].facts) == repr(shard.facts)


@pytest.mark.some(2)
@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("rounds", [2])
async def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(params, rounds):
    job = made(params, (2, 2, 2), 80, weighted=True, held=0.4)
    whole = job.room()
    shards = await whole.walk()
    found, guest = await carried_on(job, await snapshots(job.room(), rounds), rounds)
    assert_same_shards(found, shards)
    assert guest.margin.tobytes() == whole.state(GUEST).margin.tobytes()


# Whole jobs: training, a break amid a round, predictions, exports


def arrow_tables(job):
    """The job's table as its parties keep it; ids are numbers, rows in each one's own order."""
    draw, given = np.random.default_rng(0), {}
    for party, values in job.columns.items():
        order = draw.permutation(len(values))
        content = {"id": order}
        if party == GUEST:
            content["y"] = job.y[order]
        if party == GUEST and job.weight is not None:
            content["w"] = job.weight[order]
        content |= {f"c{i}": values[order, i] for i in range(values.shape[1])}
        given[party] = pa.table(content)
    return given


def spec_of(job):
    """The job as a user would send it."""
    weight = {} if job.weight is None else {GUEST: {"weight": "w"}}
    validation = {"fraction": job.held, "seed": SEED}
    parties = tuple(job.columns)
    return job_spec("secureboost", parties, data=weight, validation=validation, params=job.params)


def trained_and_scored(folder, job):
    """The training and its prediction on the same rows; the guest's ids and margins at its end."""
    noted: dict[str, Any] = {}
    parties = tuple(job.columns)
    with pytest.MonkeyPatch.context() as patch:
        finish = training.finish

        def noting(state):
            noted.update(ids=list(state.context.frame.ids), margin=state.margin.copy())
            return finish(state)

        patch.setattr(training, "finish", noting)
        done, scored = now(
            run_jobs(
                folder,
                arrow_tables(job),
                [
                    spec_of(job),
                    lambda d: job_spec("predict", parties, params={"model": d.result["model"]}),
                ],
            )
        )
    assert done.state == "finished", done.error.lines()
    assert scored.state == "finished", scored.error.lines()
    return done, scored.predictions, noted


PREDICTED = {
    "classes": CLASSES,
    "vectors": VECTORS,
    "mix": {"mode": "mix", "n_estimators": 4},
    "mix with classes": {**CLASSES, "mode": "mix"},
    "layered": {"mode": "layered", "host_depth": 2, "guest_depth": 2, "objective": "reg:tweedie"},
}


@pytest.mark.parametrize("params", PREDICTED.values(), ids=PREDICTED)
def test_predictions_and_exports_are_the_margins_of_the_training(tmp_path, params):
    job = made({"n_estimators": 2, **params}, (2, 2, 2), 90, weighted=True)
    done, predictions, noted = trained_and_scored(tmp_path / "job", job)
    twin = grown_naively(in_canonical_order(job))
    assert_same_trees(done.shards, flat(twin.rounds), job.widths)
    assert noted["margin"].tobytes() == twin.margin.tobytes()
    at = {row: k for k, row in enumerate(encode_ids([predictions["id"]], ["id"]))}
    order = [at[row] for row in noted["ids"]]
    names = [name for name in predictions.column_names if name != "id"]
    found = np.column_stack([predictions[name].to_numpy() for name in names])[order]
    expected = objectives.transform(job.own.objective, noted["margin"])
    assert found.tobytes() == expected.tobytes()

    xgb = pytest.importorskip("xgboost")
    model = vertical.join_shards(
        done.shards[GUEST], {h: done.shards[h] for h in list(job.columns)[1:]}
    )
    ids = predictions["id"].to_numpy()[order]
    cells = [job.columns[party][ids, int(name[1:])] for party, name in model.columns]
    booster = xgb.Booster(model_file=bytearray(xgboost_json(model).encode()))
    rows = xgb.DMatrix(np.column_stack(cells), feature_names=feature_names(model))
    assert booster.num_boosted_rounds() == job.own.n_estimators
    theirs = booster.predict(rows, output_margin=True).reshape(noted["margin"].shape)
    np.testing.assert_allclose(theirs, noted["margin"], rtol=0, atol=MARGIN_GAP_MAX)


def carried(rows):
    """How many messages of each kind a party's ledger has."""
    own = (".secureboost.", ".encrypted.")
    return Counter(r.kind.rpartition(".")[2] for r in rows if any(part in r.kind for part in own))


def test_in_mix_an_idle_host_has_nothing_in_its_ledger(tmp_path):
    job = made({"mode": "mix", "n_estimators": 2, "max_depth": 2}, (2, 2, 2))
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert done.state == "finished", done.error.lines()
    busy, idle = carried(done.ledgers[HOSTS[0]]), carried(done.ledgers[HOSTS[1]])
    assert idle == {"EncryptionKey": 1}
    assert busy["EncryptionKey"] == 1
    assert busy["Frontier"] == busy["CandidateSums"] == busy["RowDivisions"] == 2
    assert not len(done.shards[HOSTS[1]].arrays["tree"])


@pytest.mark.parametrize(("keep_s", "again"), [(60.0, [3, 4]), (0.0, [4])], ids=["quick", "slow"])
@pytest.mark.parametrize("mode", ["default", "mix"])
async def test_a_break_amid_the_classes_of_a_round_loses_nothing(
    tmp_path, monkeypatch, mode, keep_s, again
):
    job = made({**CLASSES, "mode": mode, "max_depth": 2}, (2, 2), weighted=True)
    nodes: dict[str, Any] = {}

    def note(state):
        assert not hasattr(state.context.frame, "values")  # bins are all that trees need
        assert nodes[GUEST].under_way[state.context.job].table.frame is None
        return state.trees_closed

    times = 5  # the second of three classes, in the second round
    closed = breaking(monkeypatch, training, "close_trees", times, note)
    spec = spec_of(job)
    sources = written(tmp_path, arrow_tables(job))
    timers = Timers(keep_s=keep_s)
    folder = tmp_path / "cluster"
    async with open_cluster(folder, spec, sources, Serial(), timers=timers) as made_of:
        nodes.update(made_of.parties)
        journal = await resumed(made_of, spec)
        found = models(made_of, journal.status.id)
    assert journal.status.state == "finished"
    assert closed == [0, 1, 2, 3, 4, *again, 5, 6, 7, 8]
    twin = grown_naively(in_canonical_order(job))
    assert_same_trees(found, flat(twin.rounds), job.widths)
