"""Every process dies at once, just before or after something is kept, and the job loses nothing.

What lies on the disks at that moment is copied; daemons that know nothing else carry the job on.
"""

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.coordinator.job_states import CoordinatorJobStates
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.party.job.files import JobFiles
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.party.node.halting import Finishing
from fedboost.runtime.store.store import Store
from fedboost.runtime.store.transcripts import Transcripts
from fedboost.runtime.transport.addresses import Timers
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables, spec_of
from tests.support.federated import now
from tests.support.secureboost_jobs import made
from tests.support.toys import layers_grown
from tests.support.whole_jobs import written

TREES, DEPTH = 3, 2
JOB = made({"n_estimators": TREES, "max_depth": DEPTH}, (2, 2, 2))
TIMERS = Timers(retry_first_s=0.01, retry_max_s=0.1, keep_s=0.0)
KEPT = {
    "a checkpoint": (JobFiles, "keep"),
    "a stage's end": (PartyJob, "close"),
    "the job's end": (Finishing, "_record_result"),
    "an attempt": (Store, "set_attempt"),
    "an event": (Journals, "add"),
    "the result": (CoordinatorJobStates, "finished"),
}


class PowerCutError(Exception):
    """Nothing more happens in the processes that died."""


@dataclass
class Cut:
    """Ends the world when a thing is kept for the n-th time, and keeps what lies on the disks."""

    what: str
    times: int
    when: str  # before, after
    folder: Path
    seen: int = 0
    happened: bool = False

    def bind(self, monkeypatch):
        """Waits for its moment."""
        owner, name = KEPT[self.what]
        real = getattr(owner, name)

        def keep(*args, **kwargs):
            self.seen += 1
            if self.seen == self.times and self.when == "before":
                self.strike()
            given = real(*args, **kwargs)
            if self.seen == self.times and self.when == "after":
                self.strike()
            return given

        async def here(work, *args, **named):  # nobody else writes while the disks are copied
            return work(*args, **named)

        monkeypatch.setattr(owner, name, keep)
        monkeypatch.setattr(asyncio, "to_thread", here)

    def strike(self):
        """Copies the disks."""
        if not self.happened:
            shutil.copytree(self.folder / "c", self.folder / "d")
            self.happened = True
        raise PowerCutError


def world(folder, place):
    """A cluster whose daemons find what lies in `place`."""
    sources = written(folder, arrow_tables(JOB))
    return local.open_cluster(folder / place, spec_of(JOB), sources, Serial(), timers=TIMERS)


async def carried_on(cluster):
    """A new coordinator goes on alone; its job, when it is over."""
    node = cluster.coordinator
    [job] = node.store.jobs()
    await node.resume_unfinished()
    async with asyncio.timeout(60):
        while (status := await node.status(cluster.user, JobId(id=job.id))).state != "finished":
            assert status.state in (
                "queued", "paused", "running", "waiting for approval",
            ), status  # fmt: skip
            await asyncio.sleep(0.01)
    return await node.journal(cluster.user, JobId(id=job.id))


def left(cluster, job):
    """What the parties hold, after a look at their ledgers."""
    for node in cluster.parties.values():
        node.ledger.verify()
        assert not [str(p) for p in node.store.folder.rglob("*.new")]
        assert not list((node.store.folder / "jobs" / job).glob("secret/*"))
    held = {
        p: shards.load_shard(n.store.folder / "models" / job) for p, n in cluster.parties.items()
    }
    for party, node in cluster.parties.items():
        held[f"{party} for its audit"] = Transcripts(node.store.folder).load(job)
    return held


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Jobs go on by themselves, which is not usual where tests run them in one process."""

    def config(**settings):
        return CoordinatorConfig(**{**settings, "auto_resume": True})

    monkeypatch.setattr(local, "CoordinatorConfig", config)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")

    async def run():
        async with world(folder, "c") as cluster:
            journal = await cluster.run(spec_of(JOB))
            return left(cluster, journal.status.id)

    return now(run())


SMOKE = [("a checkpoint", 2), ("a checkpoint", 5), ("a checkpoint", 6), ("a stage's end", 5)]
SMOKE += [("the job's end", 1), ("the job's end", 3), ("an attempt", 2), ("an event", 4)]
MORE = [("a checkpoint", times) for times in (1, 3, 4, 7, 8, 9, 14, 21, 27)]
MORE += [("a stage's end", times) for times in (1, 2, 3, 4, 6)]
MORE += [("the job's end", 2), ("an attempt", 1), ("an attempt", 3), ("the result", 1)]
MORE += [("an event", times) for times in (2, 8, 12, 20)]
CUTS = [*SMOKE, *(pytest.param(*cut, marks=pytest.mark.long) for cut in MORE)]


@pytest.mark.some(1)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("what", "times"), CUTS)
async def test_all_processes_die_at_once_and_the_model_is_the_same(
    tmp_path, monkeypatch, undisturbed, what, times, when
):
    contexts: list[tuple[str, str, int]] = []
    context = PartyJob.context

    def seated(self, stage, *args, **named):
        contexts.append((self.signed.party, stage, self.attempt))
        return context(self, stage, *args, **named)

    monkeypatch.setattr(PartyJob, "context", seated)
    cut = Cut(what, times, when, tmp_path)
    with monkeypatch.context() as patch:
        cut.bind(patch)
        try:
            async with world(tmp_path, "c") as cluster:
                await cluster.run(spec_of(JOB))
        except PowerCutError:
            pass
    assert cut.happened, "the job ended before the power was cut"
    async with world(tmp_path, "d") as cluster:
        journal = await carried_on(cluster)
        found = left(cluster, journal.status.id)
    for party, shard in undisturbed.items():
        assert found[party].arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(found[party].arrays[name], array, strict=True)
    assert len(contexts) == len(set(contexts)), "two seats drew from the same secrets"
    grown = [e.round.progress.done for e in journal.events if e.WhichOneof("what") == "round"]
    assert len(grown) <= TREES + 1, "more than one tree was lost"
    steps = [e.step for e in journal.events if e.WhichOneof("what") == "step"]
    results = [e.finished.result for e in journal.events if e.WhichOneof("what") == "finished"]
    result = json.loads(results[-1])
    assert result["exchanges"] == sum(step.exchanges for step in steps), "of all attempts"
    layers = layers_grown(journal.events)
    assert layers <= TREES * DEPTH + 1, "more than one layer was lost"
