"""The walk of deploy/README.md with a real engine and its Compose: images, health, a job, kills.

`make containers`: Docker with Compose 2, or podman with podman-compose; ENGINE=docker or
ENGINE=podman names one. Without a registry, debootstrap makes the base of the images.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]
DEPLOY = ROOT / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
DAEMONS = ("coordinator", "bank", "telco", "shop")
BUILT = [name for name, service in SERVICES.items() if "build" in service]
BASE = "localhost/fedboost-base"
MEGABYTES = {"fedboost:0.2": 500, "fedboost-coordinator:0.2": 150}
ROWS = 21_000
TREES = 30  # of which the policies allow six jobs
PROJECT = "fedboost-test"
HEALTHY_S = 120.0
ENDED_S = 600.0  # a job whose party was killed, on a busy machine
CONFIG = "/etc/fedboost/{}.yaml".format
CONF = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
[containers]
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
"""


class Engine:
    """Docker with Compose, or podman with podman-compose, in a folder with compose.yaml."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.environment = {**os.environ, "FEDBOOST_UID": str(os.getuid())}
        if name == "podman":  # without systemd, and in old mixtures of control groups
            runtime = "runc" if shutil.which("runc") else "crun"
            (folder / "containers.conf").write_text(CONF.format(runtime=runtime))
            self.environment["CONTAINERS_CONF"] = str(folder / "containers.conf")
            self.environment["DISABLE_HC_SYSTEMD"] = "true"  # see is_healthy
            self._compose = [str(Path(sys.executable).parent / "podman-compose")]
        else:
            self._compose = ["docker", "compose"]
        self._compose += ["--project-name", PROJECT, "--profile", "job"]

    def __call__(self, *words, check=True):
        return self._said([self.name, *map(str, words)], check)

    def compose(self, *words, check=True):
        """Run a command of Compose; gives what it printed, or without `check` how it ended."""
        return self._said([*self._compose, *map(str, words)], check)

    def _said(self, words, check):
        done = subprocess.run(words, env=self.environment, cwd=self.folder, check=False,
                              capture_output=True, text=True)  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip() if check else done

    def fedboost(self, service, *words):
        """Run a command in a daemon's container, with its settings."""
        return self.exec(service, "fedboost", *words, "--config", CONFIG(service))

    def exec(self, service, *command):
        """Run a command in a daemon's container."""
        return self.compose("exec", "-T", service, *command)

    def up(self, *services):
        """Start services; returns once the engine's own checks say that they are healthy."""
        self.compose("up", "--detach", *services)
        self.healthy(*services)

    def healthy(self, *services):
        """Return once services are healthy."""
        until = time.monotonic() + HEALTHY_S
        while not all(self.is_healthy(one) for one in services):
            assert time.monotonic() < until, (services, self.compose("logs"))
            time.sleep(0.5)

    def is_healthy(self, service):
        """Whether the check passes. Where no systemd times checks for podman, this makes one."""
        name = self.container(service)
        if self.name == "podman":
            return self("healthcheck", "run", name, check=False).returncode == 0
        shown = self("inspect", "--format", "{{.State.Health.Status}}", name, check=False)
        return shown.stdout.strip() == "healthy"

    def container(self, service):
        """The name that Compose gives a service's container."""
        return f"{PROJECT}_{service}_1" if self.name == "podman" else f"{PROJECT}-{service}-1"

    def build(self, base):
        """Build both images as compose.yaml says, on a base."""
        build = {"context": str(ROOT), "network": "host", "args": {"BASE": base}}
        (self.folder / "compose.override.yaml").write_text(
            yaml.safe_dump({"services": {name: {"build": build} for name in BUILT}})
        )
        flags = f"--isolation chroot --format docker --ignorefile {DEPLOY}/Dockerfile.dockerignore"
        if self.name == "podman":
            self._compose.insert(1, f"--podman-build-args={flags}")
        self.compose("build")


def engine_or_skip(folder):
    """The engine that works here; a test without one says why it cannot run."""
    tried = []
    for name in [os.environ["ENGINE"]] if "ENGINE" in os.environ else ["docker", "podman"]:
        if shutil.which(name) is None:
            tried.append(f"no {name}")
            continue
        engine = Engine(name, folder)
        if engine("info", check=False).returncode != 0:
            tried.append(f"{name} does not answer")
        elif engine.compose("version", check=False).returncode != 0:
            tried.append(f"no Compose for {name}")
        else:
            return engine
    pytest.skip(f"there is no container engine: {', '.join(tried)}")


def based(engine, folder):
    """The image on which ours are built: Python's own where it can be had, else Debian's."""
    if engine("image", "inspect", BASE, check=False).returncode == 0:
        return BASE
    if engine("pull", "docker.io/library/python:3.12", check=False).returncode == 0:
        return "docker.io/library/python:3.12"
    if shutil.which("debootstrap") is None or os.getuid() != 0:
        pytest.skip("no base image: no registry answers, and debootstrap is not here or not root's")
    system = folder / "base"
    parts = "ca-certificates,python3,python3-venv,python3-pip,binutils"
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={parts}", "bookworm", system],
                   check=True, capture_output=True)  # fmt: skip
    trusted = Path("/etc/ssl/certs/ca-certificates.crt")  # also what this machine trusts besides
    shutil.copy(trusted, system / trusted.relative_to("/"))
    packed = subprocess.Popen(["tar", "-C", system, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run([engine.name, "import", "-", BASE], stdin=packed.stdout, check=True,
                   env=engine.environment, capture_output=True)  # fmt: skip
    return BASE


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine with both images, and a folder with compose.yaml and what it mounts."""
    folder = tmp_path_factory.mktemp("containers")
    found = engine_or_skip(folder)
    prepare(folder)
    if not os.environ.get("FEDBOOST_IMAGES_BUILT"):
        found.build(based(found, folder))
    yield found
    found.compose("down", "--volumes", check=False)


def prepare(folder):
    """Write tables, and what prepare.sh makes of them; settings as they are in deploy/."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(9, ROWS)).astype(np.float32)
    ids = [f"c{n:06d}" for n in range(ROWS)]
    (folder / "tables").mkdir()
    for place, party in enumerate(DAEMONS[1:]):
        columns = {f"{party}{k}": values[3 * place + k] for k in range(3)}
        if party == "bank":
            columns["y"] = (values[0] + values[3] + rng.normal(size=ROWS) > 0).astype(int)
        pq.write_table(pa.table({"id": ids, **columns}), folder / "tables" / f"{party}.parquet")
    shutil.copy(DEPLOY / "compose.yaml", folder)
    shutil.copytree(DEPLOY / "configs", folder / "configs")
    job = folder / "configs" / "job.yaml"
    spec = yaml.safe_load(job.read_text())
    spec["params"] |= {"n_estimators": TREES, "encryption": {"scheme": "lattice"}}
    job.write_text(yaml.safe_dump(spec))
    environment = {**os.environ, "FEDBOOST": str(Path(sys.executable).parent / "fedboost")}
    command = ["sh", DEPLOY / "prepare.sh", folder / "tables", folder]
    subprocess.run(command, env=environment, check=True, capture_output=True)


MODEL = """
import hashlib, sys
from pathlib import Path
from fedboost.model import shards
found = shards.load_shard(Path("/var/lib/fedboost/store/models") / sys.argv[1])
once = ("job", "created")
print(sorted((name, str(said)) for name, said in found.facts.items() if name not in once))
print(sorted((name, hashlib.sha256(one).hexdigest()) for name, one in found.arrays.items()))
"""


def shards(engine, job):
    """Every party's shard of a model, but for what names the job."""
    return [engine.exec(party, "python", "-c", MODEL, job) for party in DAEMONS[1:]]


def submitted(engine, *more):
    """Hand the job in; gives its id."""
    command = ("run", "--rm", "-T", "submit", "job", "submit", "/etc/fedboost/job.yaml", "--json")
    return json.loads(engine.compose(*command, *more).splitlines()[-1])["job"]


def status(engine, job):
    """What the coordinator knows of a job; empty while it is not there."""
    command = ("run", "--rm", "-T", "--no-deps", "submit", "job", "status", job, "--json")
    said = engine.compose(*command, check=False)
    return json.loads(said.stdout) if said.returncode == 0 else {}


def reached(engine, job, done):
    """Return once a job has so many trees, or has finished where it is all of them."""
    until = time.monotonic() + ENDED_S
    while (found := status(engine, job)).get("state") != "finished":
        if done < TREES and found.get("progress", {}).get("done", 0) >= done:
            assert found["state"] == "running"
            return
        assert time.monotonic() < until, found
        assert found.get("state") not in ("failed", "cancelled"), found
        time.sleep(1.0)
    assert done == TREES, "it has finished before it could be disturbed"


@pytest.fixture(scope="module")
def undisturbed(engine):
    """The shards of a job that nobody disturbs. Nothing runs: Compose starts what it needs."""
    if engine.name == "podman":  # not every podman knows the conditions of depends_on
        engine.up(*DAEMONS)
    job = submitted(engine, "--watch")
    assert all(engine.is_healthy(one) for one in DAEMONS)
    return shards(engine, job)


def test_images_are_small(engine):
    for name, most in MEGABYTES.items():
        size = int(engine("image", "inspect", name, "--format", "{{.Size}}"))
        assert size <= most * 10**6, f"{name}: {size / 10**6:.0f} MB"


def test_the_walk(engine, undisturbed):
    engine.fedboost("bank", "doctor")
    assert "credit" in engine.fedboost("bank", "model", "list")
    engine.fedboost("telco", "ledger", "verify")


@pytest.mark.parametrize("service", DAEMONS)
def test_a_container_that_is_killed_is_started_again_and_the_model_is_the_same(
    engine, undisturbed, service
):
    job = submitted(engine)
    reached(engine, job, 2)
    engine.compose("exec", "-T", service, "sh", "-c", "kill -KILL -1", check=False)
    reached(engine, job, TREES)
    assert engine.is_healthy(service)
    assert shards(engine, job) == undisturbed


def test_a_backup_of_a_running_job_is_restored_elsewhere_to_the_same_model(engine, undisturbed):
    """Nothing leaves after the backup, as the guest stands still: nothing is lost."""
    job, config = submitted(engine), ("--config", CONFIG("telco"))
    reached(engine, job, 2)
    engine.compose("pause", "bank")
    time.sleep(3.0)
    engine.fedboost("telco", "backup", "--out", "/var/lib/fedboost/telco.tar")
    engine("cp", f"{engine.container('telco')}:/var/lib/fedboost/telco.tar", engine.folder)
    engine("rm", "--force", engine.container("telco"))
    engine("volume", "rm", f"{PROJECT}_telco-store")
    mounted = ("--volume", f"{engine.folder}/telco.tar:/telco.tar:ro")
    words = ("run", "--rm", "-T", "--no-deps", *mounted, "telco", "restore", *config, "/telco.tar")
    assert "restored to /var/lib/fedboost/store" in engine.compose(*words)
    engine.up("telco")
    engine.compose("unpause", "bank")
    reached(engine, job, TREES)
    assert shards(engine, job) == undisturbed
