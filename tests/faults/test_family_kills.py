"""Real daemons are killed, or stopped, at each phase of a job, and it comes to the same model.

The smoke cases on each change are in tests/e2e/test_kills.py; these run with `--long`.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedboost import protocols
from fedboost.ground.settings import parse_settings
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.support import drills, small_jobs
from tests.support.whole_jobs import written

pytestmark = [pytest.mark.e2e, pytest.mark.long]

NAMES = (COORDINATOR, *small_jobs.PARTIES)
# The protocols whose jobs are struck, and the parameters that make them long enough.
JOBS = {
    "secureboost": {"n_estimators": 6},
    "federboost-horizontal": {"n_estimators": 4},
    "hybridtree": {"n_estimators": 6},
    "gbun": {"n_estimators": 4},
}
MOMENTS = (
    "blind_ids",
    "share_key",
    "encrypt_gradients",
    "open_layer",
    "choose_splits",
    "count_rows",
)


@dataclass(frozen=True)
class Town:
    """Daemons of the parties of one protocol's jobs, and a job that nobody has disturbed."""

    cluster: ClusterProcesses
    raw: dict[str, Any]
    whole: str
    steps: frozenset[str]  # that such a job does

    @classmethod
    def built(cls, name: str, folder: Path, stack: ExitStack) -> Town:
        """For a toy's jobs; it stands until `stack` closes."""
        sources = written(folder, small_jobs.tables(name))
        raw, spec = small_jobs.raw(name, **JOBS[name]), small_jobs.spec(name)
        cluster = ClusterProcesses(folder / "c", spec, sources, timers=drills.TIMERS, workers=1)
        stack.enter_context(cluster)
        whole = world.run(cluster, raw)
        world.result(whole)
        events = world.watch(cluster, whole.status.id)
        steps = {e.step.step for e in events if e.WhichOneof("what") == "step"}
        return cls(cluster, raw, whole.status.id, frozenset(steps))


@pytest.fixture(scope="module")
def towns(tmp_path_factory):
    """From a toy's name to its town, built when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda name: Town.built(name, tmp_path_factory.mktemp(name), stack))


def phases(name):
    """The steps of a job's stages, alignment included."""
    protocol = protocols.load_protocol(small_jobs.TOYS[name].protocol)
    params = parse_settings(protocol.params, small_jobs.spec(name).params)
    stages = [protocols.load_protocol(stage) for stage in protocol.stages(params)]
    return [step for stage in stages for step in stage.flow]


def struck(town, step, fault):
    """The fault after a step is done; the promises of time and of lost work hold."""
    if step not in town.steps:
        pytest.skip(f"such a job never does {step}")
    done = drills.drill(town.cluster, town.raw, world.in_round(0, step), fault, town.whole)
    sys.stdout.write(f"\n{town.raw['name']}, {step}: {done}\n")
    assert done.detect_s is None or done.detect_s < drills.DETECT_S
    assert done.resume_s is None or done.resume_s < drills.RESUME_S
    assert done.lost_layers <= drills.LOST_LAYERS


KILLS = [
    (job, name, step.name)
    for job in JOBS
    for step in phases(job)
    for name in (NAMES if job == "secureboost" else small_jobs.PARTIES[:2])
    if job == "secureboost" or step.gives is not None
]


@pytest.mark.parametrize(("job", "name", "step"), KILLS)
def test_a_job_survives_the_kill_of_anybody_behind_any_step(towns, job, name, step):
    town = towns(job)
    struck(town, step, drills.killed(town.cluster, name))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("job", JOBS)
def test_a_job_survives_the_kill_of_all_at_once(towns, job, step):
    town = towns(job)
    struck(town, step, drills.killed(town.cluster, *NAMES))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_job_survives_a_second_kill_while_it_recovers(towns, name, step):
    town = towns("secureboost")
    struck(town, step, drills.killed_twice(town.cluster, name))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_job_survives_that_somebody_stands_still(towns, name, step):
    town = towns("secureboost")
    struck(town, step, drills.frozen(town.cluster, name))
