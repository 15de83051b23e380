"""`fedboost health` as a probe runs it: a new process, against real daemons that serve or hang."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster.local import COORDINATOR
from tests.e2e import world
from tests.support.servers import free_port

pytestmark = pytest.mark.e2e
PROBE_S = 5.0  # after so long a probe is ended from outside, and counts as failed
LONG = world.job(params={"n_estimators": 500, "encryption": {"scheme": "paillier"}})
PARTIES = ("bank", "telco", "shop")

# A coordinator's daemon whose event loop stands still for a minute after SIGUSR1.
HANGS = """
import asyncio, signal, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from fedboost.ground.settings import load_settings
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.daemons.daemon import serve_coordinator

@asynccontextmanager
async def hangs_at_usr1(_):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, time.sleep, 60)
    yield

config = load_settings(CoordinatorConfig, Path(sys.argv[1]))
asyncio.run(serve_coordinator(config, beside=hangs_at_usr1, until_stdin_closes=True))
"""


def probe(config, *more):
    """The exit code and the error of `fedboost health`; fails where it takes too long."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FEDBOOST_")}
    env |= {"PYTHONPATH": str(world.ROOT), "FEDBOOST_CONFIG": str(config)}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "fedboost", "health", *more],
        env=env, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert time.monotonic() - began < PROBE_S
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("health")
    for name in PARTIES:
        world.write(folder / f"{name}.parquet", world.toy(rows=2000, label=name == "bank"))
    tables = {name: SourceSpec(path=str(folder / f"{name}.parquet")) for name in PARTIES}
    with world.WarmCluster(
        folder / "c", world.spec(LONG), tables, timers=world.TIMERS, workers=1
    ) as made:
        yield made


def test_a_busy_daemon_is_healthy(cluster):
    id_ = world.submit(cluster, LONG)
    world.watch(cluster, id_, world.in_round(1, "open_layer"))
    for _ in range(3):
        for name in (*PARTIES, COORDINATOR):
            assert probe(cluster.config(name)) == (0, ""), name
    assert world.call(cluster, "status", id_).state == "running"
    world.call(cluster, "cancel", id_)


@pytest.mark.parametrize("name", ["telco", COORDINATOR])
def test_a_stopped_process_is_not_healthy_until_it_goes_on(cluster, name):
    process = cluster.processes[name]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        for more in ((), ("--live",)):
            code, said = probe(cluster.config(name), *more)
            assert code == 1
            assert f"{name} did not answer in time" in said
    finally:
        os.kill(process.pid, signal.SIGCONT)
    world.wait_for(lambda: probe(cluster.config(name))[0] == 0, 15, "it is healthy again")


def test_a_daemon_whose_event_loop_is_blocked_is_not_healthy(cluster, tmp_path):
    config = tmp_path / "coordinator.yaml"
    raw = yaml.safe_load(cluster.config(COORDINATOR).read_text())
    port = free_port()
    config.write_text(
        yaml.safe_dump({**raw, "listen": f"127.0.0.1:{port}", "store": str(tmp_path / "store")})
    )
    env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
    command = [sys.executable, "-c", HANGS, str(config)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE) as process:
        try:
            world.wait_for(lambda: probe(config)[0] == 0, 30, "it serves")
            process.send_signal(signal.SIGUSR1)
            code, said = probe(config)
            assert (code, process.poll()) == (1, None)
            assert f"{COORDINATOR} did not answer in time" in said
        finally:
            process.kill()


def test_a_daemon_that_is_not_there_is_not_healthy(cluster, tmp_path):
    config = tmp_path / "telco.yaml"
    raw = yaml.safe_load(cluster.config("telco").read_text())
    config.write_text(yaml.safe_dump({**raw, "listen": f"0.0.0.0:{free_port()}"}))
    code, said = probe(config)
    assert code == 1
    assert "telco is not there" in said
    assert probe(tmp_path / "nowhere.yaml")[0] == 1


def test_an_ended_certificate_is_named_and_restarts_nothing(cluster, tmp_path):
    certs = tmp_path / "certs"
    certs.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(cluster.folder / "certs" / name, certs / name)
    world.issue(certs, [("party", "telco")], days_ago=30, days=7)
    config = tmp_path / "telco.yaml"
    text = cluster.config("telco").read_text()
    config.write_text(text.replace(str(cluster.folder / "certs"), str(certs)))
    code, said = probe(config)
    assert (code, "the certificate of telco expired on" in said) == (1, True)
    assert probe(config, "--live")[0] == 0
