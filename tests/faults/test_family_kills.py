"""Real daemons are killed, or stopped, at each phase of a job, and it comes to the same model.

The smoke cases on each change are in tests/e2e/test_kills.py; these run with `--long`.
"""

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from fedboost import protocols
from fedboost.runtime.cluster import Cluster
from fedboost.runtime.local import COORDINATOR
from fedboost.settings import parse
from tests import drills, small_jobs
from tests.e2e import world

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

    cluster: Cluster
    raw: dict[str, Any]
    whole: str
    steps: frozenset[str]  # that such a job does


@pytest.fixture(scope="module")
def town(request, tmp_path_factory):
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    sources = small_jobs.written(folder, small_jobs.tables(name))
    raw = small_jobs.raw(name, **JOBS[name])
    with Cluster(
        folder / "c", small_jobs.spec(name), sources, timers=drills.TIMERS, workers=1
    ) as made:
        whole = world.run(made, raw)
        world.result(whole)
        id_ = whole.status.id
        steps = {e.step.step for e in world.watch(made, id_) if e.WhichOneof("what") == "step"}
        yield Town(made, raw, id_, frozenset(steps))


def phases(name):
    """The steps of a job's stages, alignment included."""
    protocol = protocols.named(small_jobs.TOYS[name].protocol)
    params = parse(protocol.params, small_jobs.spec(name).params)
    stages = [protocols.named(stage) for stage in protocol.stages(params)]
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


@pytest.mark.parametrize(("town", "name", "step"), KILLS, indirect=["town"])
def test_a_job_survives_the_kill_of_anybody_behind_any_step(town, name, step):
    struck(town, step, drills.killed(town.cluster, name))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("town", JOBS, indirect=True)
def test_a_job_survives_the_kill_of_all_at_once(town, step):
    struck(town, step, drills.killed(town.cluster, *NAMES))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("town", ["secureboost"], indirect=True)
def test_a_job_survives_a_second_kill_while_it_recovers(town, name, step):
    struck(town, step, drills.killed_twice(town.cluster, name))


@pytest.mark.parametrize("step", MOMENTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("town", ["secureboost"], indirect=True)
def test_a_job_survives_that_somebody_stands_still(town, name, step):
    struck(town, step, drills.frozen(town.cluster, name))
