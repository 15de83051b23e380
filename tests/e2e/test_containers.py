"""The walk of deploy/README.md in a real engine: images, health, a job, kills in mid-training.

`make containers`. Services are started as compose.yaml says, by the engine itself, since not every
engine has Compose. Without a registry, debootstrap makes the base of the images.
"""

import json
import os
import re
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
BASE = "localhost/fedboost-base"
MEGABYTES = {"fedboost:0.2": 500, "fedboost-coordinator:0.2": 150}
ROWS = 21_000
PREFIX = "fedboost-test"
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
    """podman or docker, and how it runs a service of compose.yaml."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.environment = dict(os.environ)
        if name == "podman":  # without systemd, and in old mixtures of control groups
            runtime = "runc" if shutil.which("runc") else "crun"
            (folder / "containers.conf").write_text(CONF.format(runtime=runtime))
            self.environment["CONTAINERS_CONF"] = str(folder / "containers.conf")

    def __call__(self, *words, check=True):
        done = subprocess.run([self.name, *map(str, words)], env=self.environment, check=False,
                              capture_output=True, text=True)  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip() if check else done

    def arguments(self, service):
        """The options of `run` that say what compose.yaml says of a service."""
        said = SERVICES[service]
        words = ["--network", PREFIX, "--network-alias", service, "--hostname", service]
        words += ["--read-only"] * said["read_only"] + ["--init"] * (self.name == "docker")
        for key, option in (("tmpfs", "tmpfs"), ("cap_drop", "cap-drop"),
                            ("security_opt", "security-opt")):  # fmt: skip
            words += [part for one in said[key] for part in (f"--{option}", filled(one))]
        for volume in said["volumes"]:
            source, rest = filled(volume).split(":", 1)
            place = self.folder / source if source.startswith(".") else f"{PREFIX}-{source}"
            words += ["--volume", f"{place}:{rest}"]
        for name, value in said.get("environment", {}).items():
            words += ["--env", f"{name}={value}"]
        return words

    def start(self, service):
        """Start a daemon's container."""
        name = f"{PREFIX}-{service}"
        said = SERVICES[service]
        self("run", "--detach", "--name", name, *self.arguments(service), image(said),
             *said["command"])  # fmt: skip

    def run(self, service, *command):
        """Run a one-off container of a service to its end."""
        words = ("run", "--rm", *self.arguments(service), image(SERVICES[service]))
        return self(*words, *command, check=False)

    def exec(self, service, *command, check=True):
        """Run a command in a daemon's container."""
        return self("exec", f"{PREFIX}-{service}", *command, check=check)

    def is_healthy(self, service):
        """Return whether the service's own check passes."""
        kind, *command = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.exec(service, *command, check=False).returncode == 0


def filled(text):
    """Put in what ${NAME:-default} stands for: the defaults."""
    return re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(text))


def image(said):
    return f"localhost/{said['image']}"


def engine_or_skip(folder):
    """The engine that works here; a test without one says why it cannot run."""
    tried = []
    for name in ("podman", "docker"):
        if shutil.which(name) is None:
            tried.append(f"no {name}")
            continue
        engine = Engine(name, folder)
        if engine("info", check=False).returncode == 0:
            return engine
        tried.append(f"{name} does not answer")
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
    packed = subprocess.Popen(["tar", "-C", system, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run([engine.name, "import", "-", BASE], stdin=packed.stdout, check=True,
                   env=engine.environment, capture_output=True)  # fmt: skip
    return BASE


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine with both images, tables, certificates, and a network of our own."""
    folder = tmp_path_factory.mktemp("containers")
    found = engine_or_skip(folder)
    if not os.environ.get("FEDBOOST_IMAGES_BUILT"):
        build(found, based(found, folder))
    prepare(folder)
    found("network", "create", "--internal", PREFIX)
    yield found
    for service in DAEMONS:
        found("rm", "--force", f"{PREFIX}-{service}", check=False)
        found("volume", "rm", f"{PREFIX}-{service}-store", check=False)
    found("network", "rm", PREFIX, check=False)


def build(engine, base):
    """Build both images as deploy/Dockerfile says, on a base."""
    shared = ["--network", "host", "--build-arg", f"BASE={base}", "--file", "deploy/Dockerfile",
              "--build-arg", f"UID={os.getuid()}"]  # fmt: skip
    if engine.name == "podman":
        shared += ["--isolation", "chroot", "--format", "docker",
                   "--ignorefile", "deploy/Dockerfile.dockerignore",
                   "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro"]  # fmt: skip
    for service in ("coordinator", "bank"):
        target = ["--target", "coordinator"] if service == "coordinator" else []
        engine("build", *shared, *target, "--tag", image(SERVICES[service]), ROOT)


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
    shutil.copytree(DEPLOY / "configs", folder / "configs")
    job = folder / "configs" / "job.yaml"
    spec = yaml.safe_load(job.read_text())
    spec["params"] |= {"n_estimators": 40, "encryption": {"scheme": "lattice"}}
    job.write_text(yaml.safe_dump(spec))
    environment = {**os.environ, "FEDBOOST": str(Path(sys.executable).parent / "fedboost")}
    command = ["sh", DEPLOY / "prepare.sh", folder / "tables", folder]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def healthy(engine, *services):
    until = time.monotonic() + 60
    while not all(engine.is_healthy(one) for one in services):
        assert time.monotonic() < until, services
        time.sleep(0.5)


MODEL = """
import hashlib, sys
from pathlib import Path
from fedboost.model import shards
found = shards.load(Path("/var/lib/fedboost/models") / sys.argv[1])
once = ("job", "created")
print(sorted((name, str(said)) for name, said in found.facts.items() if name not in once))
print(sorted((name, hashlib.sha256(one).hexdigest()) for name, one in found.arrays.items()))
"""


def shards(engine, job):
    """Every party's shard of a model, but for what names the job."""
    return [engine.exec(party, "python", "-c", MODEL, job) for party in DAEMONS[1:]]


def submitted(engine, *more):
    """Hand the job in; gives its id."""
    said = engine.run("submit", "job", "submit", "/etc/fedboost/job.yaml", "--json", *more)
    assert said.returncode == 0, said.stdout + said.stderr
    return json.loads(said.stdout.splitlines()[-1])["job"]


def test_images_are_small(engine):
    for name, most in MEGABYTES.items():
        size = int(engine("image", "inspect", f"localhost/{name}", "--format", "{{.Size}}"))
        assert size <= most * 10**6, f"{name}: {size / 10**6:.0f} MB"


def test_the_walk_and_a_kill_of_each_container(engine):
    for service in DAEMONS:
        engine.start(service)
    healthy(engine, *DAEMONS)
    config = "/etc/fedboost/{}.yaml".format
    engine.exec("bank", "fedboost", "doctor", "--config", config("bank"))
    undisturbed = shards(engine, submitted(engine, "--watch"))
    assert engine.exec("bank", "fedboost", "model", "list", "--config", config("bank"))
    engine.exec("telco", "fedboost", "ledger", "verify", "--config", config("telco"))
    backup = ("backup", "--out", "/tmp/telco.tar", "--config", config("telco"))
    engine.exec("telco", "fedboost", *backup)
    for service in DAEMONS:
        assert shards(engine, killed(engine, service)) == undisturbed, service


def killed(engine, service):
    """The id of a job in which a container was killed in mid-training, and which has finished."""
    job = submitted(engine)
    until = time.monotonic() + 240
    while status(engine, job).get("progress", {}).get("done", 0) < 2:
        assert time.monotonic() < until, status(engine, job)
    assert status(engine, job)["state"] == "running"
    engine("kill", "--signal", "KILL", f"{PREFIX}-{service}")
    engine("start", f"{PREFIX}-{service}")
    healthy(engine, service)
    while status(engine, job).get("state") != "finished":
        assert time.monotonic() < until, status(engine, job)
    return job


def status(engine, job):
    """What the coordinator says of a job; empty while it is not there."""
    command = ("fedboost", "job", "status", job, "--json")
    said = engine.run("submit", *command[1:])
    return json.loads(said.stdout) if said.returncode == 0 else {"error": said.stderr}
