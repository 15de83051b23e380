"""Jobs under the lattice schemes: carried on, continued, and whole ones from files."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedboost.core import objectives
from fedboost.data.ids import encode_ids
from fedboost.flow import StageContext
from fedboost.ground.workers import Serial
from fedboost.protocols.hybridtree import guest as hybrid_guest
from fedboost.protocols.secureboost import guest as boost_guest
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.process.threads import ThreadWorkers
from tests.equivalence import test_hybridtree_whole_jobs as hybrid
from tests.equivalence import test_secureboost_warm_start as warm
from tests.equivalence import test_secureboost_whole_jobs as boost
from tests.equivalence.test_warm_start_jobs import assert_same_model
from tests.support import hybrid_jobs, secureboost_jobs
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, Room, job_spec, now, run_jobs, with_seed
from tests.support.lattice_jobs import (
    LATTICE,
    RINGS,
    assert_plain_twin,
    assert_same_shards,
    plain_as,
    under,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS
from tests.support.whole_jobs import breaking, models, resumed, written

# Broken off and carried on


RESUMED = {
    "trees": (secureboost_jobs.made, {}),
    "forests": (secureboost_jobs.made, {"forest": {"n_trees": 2}}),
    "goss of classes": (secureboost_jobs.made, {**CLASSES, **SAMPLES["goss"]}),
    "layered vectors": (secureboost_jobs.made, {**VECTORS, "mode": "layered"}),
    "hybridtree": (hybrid_jobs.made, {}),
}


@pytest.mark.some(2)
@pytest.mark.parametrize(("make", "params"), RESUMED.values(), ids=RESUMED)
@pytest.mark.parametrize("scheme", RINGS)
async def test_a_job_that_carries_on_in_another_attempt_is_the_plain_one(make, params, scheme):
    job, rounds, seed = make({"n_estimators": 4, **params}, rows=90), 2, b"another attempt"

    first, fresh = under(job, scheme).room(), with_seed(under(job, scheme).room(), seed)
    second = Room(fresh.protocol, fresh.contexts, place=(rounds,))
    found = await second.walk(await boost.snapshots(first, rounds))
    assert first.contexts[GUEST].secrets.attempt != second.contexts[GUEST].secrets.attempt
    assert second.state(GUEST).nonces != first.state(GUEST).nonces

    whole = job.room()
    with plain_as(scheme):  # never interrupted
        assert_same_shards(found, await whole.walk())


# Continued


CONTINUED = {"trees": {}, "classes": CLASSES, "forests": {"forest": {"n_trees": 2}}}


@pytest.mark.some(2)
@pytest.mark.parametrize("params", CONTINUED.values(), ids=CONTINUED)
def test_a_job_that_continues_a_model_is_the_plain_one(params):
    job = secureboost_jobs.made({**params, "n_estimators": 2, "max_depth": 2})
    model = warm.facts_of(now(job.room().walk()), job)
    more = warm.with_params(job, n_estimators=2, warm_start=warm.MODEL_ID)
    rooms = [warm.room_behind(under(more, scheme), model) for scheme in (LATTICE, "plain")]
    done = assert_plain_twin(*rooms)
    facts = done.shards[GUEST].facts
    assert facts["trees"] == 4 * facts["trees_per_round"] * (2 if "forest" in params else 1)
    assert facts["params"]["encryption"]["scheme"] == LATTICE


# Whole jobs


def noting(monkeypatch, module):
    """What the guest of a stage had: its seats, one an attempt, and its last margins."""
    noted = SimpleNamespace(contexts=list[StageContext[Any]](), guest=None)
    begin, finish = module.begin, module.finish

    def begun(context):
        noted.contexts.append(context)
        return begin(context)

    def finished(state):
        noted.guest = state
        return finish(state)

    monkeypatch.setattr(module, "begin", begun)
    monkeypatch.setattr(module, "finish", finished)
    return noted


def plain_room(job, context):
    """The same job unencrypted, its guest with the secrets that it had at this seat."""
    room = job.room()
    own = replace(room.contexts[GUEST], secrets=context.secrets)
    return Room(room.protocol, {**room.contexts, GUEST: own})


def kinds_of(rows, direction):
    """How many messages of each kind a party's ledger has, of the encrypted stage."""
    return Counter(
        row.kind.rpartition(".")[2]
        for row in rows
        if row.direction == direction and ".encrypted." in row.kind
    )


def test_a_whole_secureboost_job_is_the_plain_one_and_predicts_its_margins(tmp_path, monkeypatch):
    job = secureboost_jobs.made({"n_estimators": 2}, (2, 2, 2), weighted=True)
    noted = noting(monkeypatch, boost_guest)
    parties = tuple(job.columns)
    done, scored = now(
        run_jobs(
            tmp_path / "job",
            boost.arrow_tables(job),
            [
                boost.spec_of(under(job, LATTICE)),
                lambda d: job_spec("predict", parties, params={"model": d.result["model"]}),
            ],
        )
    )
    assert done.state == "finished", done.error.lines()
    assert scored.state == "finished", scored.error.lines()
    twin = plain_room(secureboost_jobs.in_canonical_order(job), noted.contexts[0])
    with plain_as(LATTICE):
        expected = now(twin.walk())
    assert_same_model(done.shards, expected)
    margin = twin.state(GUEST).margin
    assert noted.guest.margin.tobytes() == margin.tobytes()
    assert repr(done.result["metrics"]) == repr(twin.state(GUEST).history[-1])
    predictions = scored.predictions
    assert predictions is not None
    at = {row: k for k, row in enumerate(encode_ids([predictions["id"]], ["id"]))}
    order = [at[row] for row in noted.contexts[0].frame.ids]
    [name] = [name for name in predictions.column_names if name != "id"]
    found = predictions[name].to_numpy()[order]
    assert found.tobytes() == objectives.transform(job.own.objective, margin)[:, 0].tobytes()
    for host in HOSTS[:2]:
        heard = kinds_of(done.ledgers[host], "in")
        told = kinds_of(done.ledgers[host], "out")
        assert heard["EncryptionKey"] == told["Nonce"] == 1
        assert heard["EncryptedGradients"] == 2
        assert heard["Frontier"] == 0  # of secureboost's own package
        assert told["CandidateSums"] >= told["RowDivisions"] >= 2
        [row] = [row for row in done.ledgers[host] if row.kind.endswith(".Nonce")]
        assert "that the host takes part" in row.reveals


def test_a_whole_hybridtree_job_is_the_plain_one(tmp_path, monkeypatch):
    job = hybrid_jobs.made({"n_estimators": 2}, (2, 3, 2), weighted=True, held=0.3)
    noted = noting(monkeypatch, hybrid_guest)
    spec = hybrid.spec_of(under(job, LATTICE))
    [done] = now(run_jobs(tmp_path / "job", hybrid.arrow_tables(job), [spec]))
    assert done.state == "finished", done.error.lines()
    twin = plain_room(hybrid.in_canonical_order(job), noted.contexts[0])
    with plain_as(LATTICE):
        expected = now(twin.walk())
    assert_same_model(done.shards, expected)
    assert repr(done.result["metrics"]) == repr(twin.state(GUEST).history[-1])
    assert kinds_of(done.ledgers[GUEST], "in")["Nonce"] == 2
    assert kinds_of(done.ledgers[GUEST], "out")["EncryptionKey"] == 2


async def test_a_whole_job_broken_amid_a_round_draws_new_nonces_and_loses_nothing(
    tmp_path, monkeypatch
):
    job = secureboost_jobs.made({"n_estimators": 3, "max_depth": 2}, (2, 2), weighted=True)
    noted = noting(monkeypatch, boost_guest)
    closed = breaking(monkeypatch, boost_guest, "close_trees", 2, lambda state: state.trees_closed)
    spec = boost.spec_of(under(job, LATTICE))
    sources = written(tmp_path, boost.arrow_tables(job))
    async with open_cluster(tmp_path / "cluster", spec, sources, Serial()) as made_of:
        journal = await resumed(made_of, spec)
        ledgers = {p: n.ledger.rows(journal.status.id) for p, n in made_of.parties.items()}
        found = models(made_of, journal.status.id)
    assert journal.status.state == "finished"
    assert closed == [0, 1, 1, 2]
    nonces = [row.sha256 for row in ledgers[GUEST] if row.kind.endswith(".Nonce")]
    assert len(set(nonces)) == 2
    first, second = noted.contexts
    assert first.secrets.attempt.seal() != second.secrets.attempt.seal()
    with plain_as(LATTICE):  # never interrupted
        expected = await plain_room(secureboost_jobs.in_canonical_order(job), first).walk()
    assert_same_model(found, expected)


def test_more_threads_grow_the_same_trees():
    job = under(secureboost_jobs.made({"n_estimators": 2}, rows=3000), LATTICE)
    with ThreadWorkers(3) as workers:
        rooms = [job.room()]
        again = job.room()
        contexts = {
            party: altered(context, services={"workers": workers})
            for party, context in again.contexts.items()
        }
        rooms.append(Room(again.protocol, contexts))
        one, several = [now(room.walk()) for room in rooms]
        assert workers.busy_seconds() > 0.0
    assert_same_shards(several, one)
    margins = [room.state(GUEST).margin for room in rooms]
    assert np.array_equal(*margins)
