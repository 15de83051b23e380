"""Jobs whose hosts have rows added up by shards: the models and messages of hosts that do it alone.

On a real cluster: tests/unit/runtime/party/test_dask_shards.py and tests/e2e/test_dask.py.
"""

from typing import Any

import pytest

from fedboost.messages.protocol import encrypted_pb2 as pb
from tests.support import hybrid_jobs, secureboost_jobs
from tests.support.elsewhere import spread
from tests.support.federated import now

FOREST = {"forest": {"n_trees": 2, "subsample": 0.6, "colsample_bytree": 0.7}}
JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "trees": (secureboost_jobs.made, {}),
    "forest": (secureboost_jobs.made, FOREST),
    "hybrid": (hybrid_jobs.made, {}),
}


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
def test_a_job_is_the_same_however_many_shards_add_up(kind, scheme):
    make, params = JOBS[kind]
    job = make({**params, "n_estimators": 2, "encryption": {"scheme": scheme}}, rows=60)
    alone, shared = job.room(), spread(job.room(), 3)
    expected, found = now(alone.walk()), now(shared.walk())
    for party, shard in expected.items():
        assert found[party].arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes(), (party, name)
    sent = [messages(room) for room in (alone, shared)]
    assert [one.ByteSize() for one in sent[0]] == [one.ByteSize() for one in sent[1]]
    sums = [[one for one in own if isinstance(one, pb.CandidateSums)] for own in sent]
    assert sums[0]
    if scheme == "lattice":  # whose answers are drawn from secrets, the same in both
        assert sums[0] == sums[1]
