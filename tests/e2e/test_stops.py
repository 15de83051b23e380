"""Ends: cancelled jobs, stopped daemons, daemons whose starter is gone; nothing stays behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world

pytestmark = pytest.mark.e2e
LONG = world.job(params={"n_estimators": 500, "encryption": {"scheme": "paillier"}})
QUIET_S = 5.0  # what runs when a job is stopped may take this to see it
ENDED_S = 15.0

STARTER = """
import sys, time
from pathlib import Path
from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses
from tests.e2e import world
folder = Path(sys.argv[1])
sources = {n: SourceSpec(path=str(folder / f"{n}.parquet")) for n in ("bank", "telco", "shop")}
raw = world.job(params={"n_estimators": 500, "encryption": {"scheme": "paillier"}})
made = ClusterProcesses(folder / "c", world.spec(raw), sources, timers=world.TIMERS, workers=1)
with made as cluster:
    id_ = world.submit(cluster, raw)
    world.watch(cluster, id_, world.in_round(1, "open_layer"))
    print(*(process.pid for process in cluster.processes.values()), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("bank", "telco", "shop"):
        world.write(tmp_path / f"{name}.parquet", world.toy(rows=100, label=name == "bank"))
    return tmp_path


@pytest.fixture
def cluster(folder):
    tables = {n: SourceSpec(path=str(folder / f"{n}.parquet")) for n in LONG["data"]}
    with world.WarmCluster(
        folder / "c", world.spec(LONG), tables, timers=world.TIMERS, workers=1
    ) as made:
        yield made


def in_the_second_tree(cluster):
    id_ = world.submit(cluster, LONG)
    events = world.watch(cluster, id_, world.in_round(1, "open_layer"))
    assert events[-1].WhichOneof("what") == "step"
    return id_


def assert_stops(cluster):
    """Every daemon ends when it is asked to, in time and with its workers; nothing has crashed."""
    cluster.stop()
    assert [p.returncode for p in cluster.processes.values()] == [0] * 4
    world.wait_for(
        lambda: not any(world.processes(p.pid) for p in cluster.processes.values()),
        2,
        "workers, and what multiprocessing keeps beside them, are gone",
    )
    assert world.tracebacks(cluster) == []


@world.KILLS
def test_a_cancelled_job_ends_on_every_party_and_nothing_works_on(cluster):
    id_ = in_the_second_tree(cluster)
    began = time.monotonic()
    said = world.ask(cluster, "job", "cancel", id_)
    assert (said.code, said.out) == (0, f"{id_} was cancelled\n")
    assert time.monotonic() - began < world.SHOWN_S
    assert world.call(cluster, "status", id_).reason.what == "cancelled by user"
    for party in cluster.names:
        jobs = world.owner(cluster, party, "jobs", "--json").last["jobs"]
        assert [(j["state"], j["reason"]) for j in jobs] == [("cancelled", "cancelled by user")]
        secret = cluster.store(party) / "jobs" / id_ / "secret"
        assert not secret.exists() or not list(secret.iterdir())
    pids = [pid for p in cluster.processes.values() for pid in world.processes(p.pid)]

    def quiet():
        before = world.cpu_seconds(pids)
        time.sleep(1.0)
        return world.cpu_seconds(pids) - before < 0.1

    world.wait_for(quiet, QUIET_S + 2, "the daemons are quiet after the cancellation")
    number = world.journalled(cluster, id_)
    assert world.watch(cluster, id_, after=number) == []
    again = world.ask(cluster, "job", "cancel", id_)
    assert (again.code, "the job is cancelled already" in again.err) == (1, True)
    assert world.ask(cluster, "job", "resume", id_).code == 1
    watched = world.ask(cluster, "job", "watch", id_, "--json")
    assert (watched.code, watched.last["state"]) == (1, "cancelled")
    assert_stops(cluster)


@world.KILLS
@pytest.mark.parametrize("name", ["telco", "bank", COORDINATOR])
def test_a_daemon_asked_to_stop_in_mid_work_ends_well_and_its_job_can_go_on(cluster, name):
    id_ = in_the_second_tree(cluster)
    process = cluster.processes[name]
    assert len(world.processes(process.pid)) >= 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(ENDED_S) == 0
    world.wait_for(lambda: not world.processes(process.pid), 2, "its workers are gone")
    cluster.start(name)
    cluster.wait(name)
    world.wait_for(
        lambda: world.call(cluster, "status", id_).attempt > 1,
        ENDED_S + world.RESUMED_S,
        "the job goes on by itself",
    )
    paused = [e.state for e in world.call(cluster, "journal", id_).events if e.state.goes_on]
    assert paused
    assert name in paused[0].reason.what
    after = world.journalled(cluster, id_)
    events = world.watch(cluster, id_, world.in_round(2, "open_layer"), after=after)
    assert events[-1].WhichOneof("what") == "step"
    assert world.ask(cluster, "job", "cancel", id_).code == 0
    assert_stops(cluster)


@world.KILLS
def test_a_whole_cluster_stops_in_mid_work(cluster):
    in_the_second_tree(cluster)
    assert_stops(cluster)


@world.KILLS
def test_daemons_whose_starter_is_killed_end_with_their_workers(folder):
    command = [sys.executable, "-c", STARTER, str(folder)]
    env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=world.ROOT) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        assert len(pids) == 4
        assert all(world.processes(pid) for pid in pids)
        starter.kill()
    world.wait_for(
        lambda: not any(world.processes(pid) for pid in pids), ENDED_S, "the daemons are gone"
    )


HANGS = """
import threading, time
from fedboost.runtime.process.deadline import end_within
threading.Thread(target=time.sleep, args=(600,)).start()
print("told to stop", flush=True)
end_within(0.5)
"""


def test_a_thread_that_hangs_does_not_keep_a_process_alive():
    command, began = [sys.executable, "-c", HANGS], time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, timeout=ENDED_S, check=False)
    assert (done.returncode, done.stdout) == (0, b"told to stop\n")
    assert time.monotonic() - began < ENDED_S
