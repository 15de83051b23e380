"""A party is gone for five minutes, with the timers that a daemon has by itself.

The same for an hour, on a clock of the test's own, is in the family of waits.
"""

import sys
import time

import pytest

from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.support import drills

pytestmark = [pytest.mark.e2e, pytest.mark.long]
OUTAGE_S = 300.0
SETTLED_S = 5.0  # after which a paused job has nothing left to do
IDLE = 0.02  # of a processor
JOB = world.job(params={"n_estimators": 12})


def test_a_job_whose_host_is_gone_for_five_minutes_idles_and_goes_on_by_itself(tmp_path, data_file):
    sources = world.shares(data_file("breast.parquet"), tmp_path, ["bank", "telco", "shop"])
    with ClusterProcesses(tmp_path / "c", world.spec(JOB), sources, workers=2) as cluster:
        whole = world.run(cluster, JOB)
        id_ = world.submit(cluster, JOB)
        last = world.watch(cluster, id_, world.in_round(2, "open_layer"))[-1].number
        cluster.kill("telco")
        struck = time.monotonic()
        events = world.watch(cluster, id_, after=last)
        detect_s = time.monotonic() - struck
        assert events[-1].state.state == "paused"
        assert detect_s < drills.DETECT_S

        time.sleep(SETTLED_S)
        alive = {name: cluster.processes[name].pid for name in (COORDINATOR, "bank", "shop")}
        before = {name: world.cpu_seconds(world.processes(pid)) for name, pid in alive.items()}
        time.sleep(OUTAGE_S)
        for name, pid in alive.items():
            share = (world.cpu_seconds(world.processes(pid)) - before[name]) / OUTAGE_S
            sys.stdout.write(f"\n{name} uses {share:.2%} of a processor while the job waits")
            assert share < IDLE

        cluster.start("telco")
        cluster.wait("telco")
        back = time.time()
        journal = world.gone_on(cluster, id_)
        running = [e.at for e in journal.events if e.state.state == "running"]
        sys.stdout.write(
            f"\ndetect {detect_s:.1f} s, resume {max(0.0, running[-1] - back):.1f} s\n"
        )
        world.result(journal)
        world.assert_same_model(cluster, id_, whole.status.id)
        assert world.tracebacks(cluster) == []
