"""Jobs whose parties have rows added up by workers: the models and messages of parties alone.

On a real cluster: tests/unit/runtime/party/test_dask_part_workers.py and tests/e2e/test_dask.py.
"""

from typing import Any

import pytest

from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.aggregation_pb2 import Total
from tests.support import federboost_jobs, horizontal_jobs, hybrid_jobs, secureboost_jobs
from tests.support.elsewhere import Elsewhere, spread
from tests.support.federated import now

FOREST = {"forest": {"n_trees": 2, "subsample": 0.6, "colsample_bytree": 0.7}}
JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "trees": (secureboost_jobs.made, {}),
    "forest": (secureboost_jobs.made, FOREST),
    "hybrid": (hybrid_jobs.made, {}),
}


def assert_same_models(expected, found):
    """All parties end with the same arrays."""
    for party, shard in expected.items():
        assert found[party].arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes(), (party, name)


def messages(room):
    """What hosts were sent and sent, in the order of steps."""
    envelopes = sorted(
        room.posted,
        key=lambda p: (p.envelope.number, p.envelope.part, p.envelope.sender, p.envelope.receiver),
    )
    return [posted.message for posted in envelopes]


@pytest.mark.once
@pytest.mark.parametrize("scheme", ["lattice", "plain"])
@pytest.mark.parametrize("kind", JOBS)
def test_a_job_is_the_same_however_many_workers_add_up(kind, scheme):
    make, params = JOBS[kind]
    job = make({**params, "n_estimators": 2, "encryption": {"scheme": scheme}}, rows=60)
    alone, shared = job.room(), spread(job.room(), Elsewhere(3))
    assert_same_models(now(alone.walk()), now(shared.walk()))
    sent = [messages(room) for room in (alone, shared)]
    assert [one.ByteSize() for one in sent[0]] == [one.ByteSize() for one in sent[1]]
    sums = [[one for one in own if isinstance(one, pb.CandidateSums)] for own in sent]
    assert sums[0]
    if scheme == "lattice":  # whose answers are drawn from secrets, the same in both
        assert sums[0] == sums[1]


FEDERBOOST: dict[str, dict[str, Any]] = {
    "trees": {},
    "forest": FOREST,
    "classes": {**secureboost_jobs.CLASSES, "goss": {}},
}


@pytest.mark.parametrize("params", FEDERBOOST.values(), ids=FEDERBOOST)
def test_a_guest_with_buckets_grows_the_same_trees_over_workers(params):
    job = federboost_jobs.open_job({**params, "n_estimators": 2}, categories=4)
    alone, shared = federboost_jobs.room_of(job), spread(federboost_jobs.room_of(job), Elsewhere(3))
    assert_same_models(now(alone.walk()), now(shared.walk()))
    assert messages(alone) == messages(shared)
    assert shared.state("bank").training._rules.elsewhere.ends[-1] == job.y[~job.out].size


@pytest.mark.parametrize("least", [1, 5])
@pytest.mark.parametrize("params", FEDERBOOST.values(), ids=FEDERBOOST)
def test_contributors_add_up_the_same_cells_over_workers(params, least):
    job = horizontal_jobs.made({**params, "n_estimators": 2}, own_rows_min=least, categories=4)
    alone, shared = job.room(), spread(job.room(), Elsewhere(3))
    assert_same_models(now(alone.walk()), now(shared.walk()))
    totals = [[one for one in messages(room) if isinstance(one, Total)] for room in (alone, shared)]
    assert len(totals[0]) > 10
    assert totals[0] == totals[1]
    assert shared.state("bank").training.rules.elsewhere.parts == 3
