"""What idle daemons hold of the machine's memory, and that they start no worker without work."""

import psutil
import pytest

from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.process.memory import QUIET_S
from tests.e2e import world
from tests.support import small_jobs
from tests.support.whole_jobs import written

pytestmark = pytest.mark.e2e
MEGABYTE = 1 << 20
# Megabytes; again: after a job.
MOST = {"coordinator": 72, "party": 120, "coordinator again": 65, "party again": 150}


def resident_bytes(pid):
    """Resident memory of a process and of those it has started, which have to be none."""
    process = psutil.Process(pid)
    assert not process.children()
    return process.memory_info().rss


def test_idle_daemons_are_small(tmp_path):
    sources = written(tmp_path / "tables", small_jobs.tables("secureboost"))
    with ClusterProcesses(tmp_path, small_jobs.spec("secureboost"), sources) as cluster:
        found = {name: resident_bytes(one.pid) for name, one in cluster.processes.items()}
    for name, size in found.items():
        most = MOST["coordinator" if name == COORDINATOR else "party"]
        assert size <= most * MEGABYTE, f"{name} holds {size / MEGABYTE:.0f} MB"


def test_daemons_give_back_what_a_job_has_used(tmp_path):
    sources = written(tmp_path / "tables", small_jobs.tables("secureboost"))
    spec = small_jobs.spec("secureboost")
    with ClusterProcesses(tmp_path, spec, sources) as cluster:
        world.result(world.run(cluster, spec.model_dump(mode="json", exclude_unset=True)))

        def rests(name):
            process = psutil.Process(cluster.processes[name].pid)
            most = MOST[f"{'coordinator' if name == COORDINATOR else 'party'} again"]
            return process.memory_info().rss <= most * MEGABYTE and not process.children()

        everybody = (COORDINATOR, *cluster.names)
        world.wait_for(lambda: all(map(rests, everybody)), QUIET_S + 20.0, "memory is given back")
