"""Rounds of boosted networks: metrics, checkpoints, and sums that come early or stay closed."""

from typing import Any

import numpy as np
import pytest

from fedboost.core.objectives import metrics_of
from fedboost.protocols.gbun.party import CHECKPOINT
from tests.equivalence.test_gbun import MODES, SPARSE
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, Room, now, with_seed
from tests.support.gbun_jobs import assert_pooled, made
from tests.support.horizontal_jobs import assert_same_shards
from tests.support.secureboost_jobs import CLASSES

TELCO = HOSTS[0]
STOPS: dict[str, Any] = {"n_estimators": 40, "early_stopping_rounds": 2, "learning_rate": 1.0}
RESUMED: dict[str, dict[str, Any]] = {
    "binary": {"n_estimators": 4},
    "classes": {**CLASSES, "n_estimators": 4},
    "numbers": {"objective": "reg:squarederror", "n_estimators": 4},
    "stopping": STOPS,
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("params", [{}, CLASSES], ids=["binary", "classes"])
def test_metrics_are_those_of_all_rows(params, weighted):
    names = metrics_of(params.get("objective", "binary:logistic"))
    job = made({**params, "eval_metric": names}, weighted=weighted, held=0.4)
    done = assert_pooled(job)
    for found, own in zip(done.shards[GUEST].facts["history"], done.trained.history, strict=True):
        for part, values in own.items():
            for name, value in values.items():
                assert found[part][name] == pytest.approx(value, abs=2e-2), (part, name)


def carried_on(job, rounds):
    """The shards of a job that breaks in the middle of a round and carries on behind so many;
    and the room that it carries on in."""

    async def work():
        first = await job.room().until("sum_system", rounds + 1)
        kept = await first.snapshots()
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
@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
def test_a_job_that_carries_on_is_the_one_that_was_never_stopped(params, mode, rows):
    job = made({**params, **mode}, weighted=True, held=0.4, **rows)
    whole = job.room()
    expected = now(whole.walk())
    room, found = carried_on(job, 2)
    for party in job.parties:
        assert_same_shards({"found": found[party], "expected": expected[party]})
        grown, seen = (one.state(party).training for one in (room, whole))
        assert repr(grown.measures.history) == repr(seen.measures.history)
        for part, own in seen.watched.items():
            assert grown.watched[part].margin.tobytes() == own.margin.tobytes()
    steps = {posted.envelope.step for posted in room.posted}
    assert steps.isdisjoint({"count_rows", "sum_columns", "show_reach"})


@pytest.mark.parametrize("params", [{"n_estimators": 3}, STOPS], ids=["all", "stopped"])
async def test_what_is_over_at_a_checkpoint_goes_on_no_further(params):
    job = made(params)
    expected = await job.room().walk()
    first = await job.room().until("close_model")
    kept = await first.snapshots()
    fresh = job.room()
    room = Room(fresh.protocol, fresh.contexts, place=(1,))
    found = await room.walk(kept)
    assert_same_shards({"found": found[GUEST], "expected": expected[GUEST]})
    assert {posted.envelope.step for posted in room.posted} == {
        "show_inputs", "tell_standing", "offer_keys",
    }  # fmt: skip


async def test_the_margins_of_a_checkpoint_are_those_that_its_rounds_come_to():
    job = made({"n_estimators": 3}, held=None)
    room = await job.room().until("close_model")
    kept = await room.snapshots()
    state = room.state(TELCO)
    margin = np.tile(state.training.objective.base_margin, (job.sizes[1], 1))
    for one in state.training.rounds:
        margin += one.added(state.training.inputs["train"])
    assert kept[TELCO].state(CHECKPOINT).training.margins["train"].tobytes() == margin.tobytes()
