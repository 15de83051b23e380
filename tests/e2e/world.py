"""What the end-to-end tests drive: a town of daemons, jobs in it, and the command line as typed."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event
from fedboost.model import shards
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.identity import CertificateRole
from tests import warm

ROOT = Path(__file__).resolve().parents[2]
# A death is survived by what all protocols share; the simulator kills at every write of each.
KILLS = pytest.mark.some(3, of="deaths of real daemons")
# What a job comes to, equivalence shows without daemons; each change sees some of it with them.
JOBS = pytest.mark.some(10, of="jobs on real daemons")
TIMERS = Timers(peer_lost_s=4.0, call_s=5.0, retry_first_s=0.1, retry_max_s=1.0)
RELAY = "relay"  # a relay as a process of its own
LOST_S = TIMERS.peer_lost_s  # a dead party is noticed in this time
SHOWN_S = LOST_S + 5.0  # and everybody knows in this time
RESUMED_S = 10.0  # within so much of a return a job goes on
ENDS = ("failed", "cancelled", "finished")
RESTS = ("paused", "failed", "cancelled", "finished")


@dataclass(frozen=True)
class Said:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> dict[str, Any]:
        """The JSON object on the last line of stdout."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found

    @property
    def lines(self) -> list[str]:
        """stderr, without the log's lines."""
        return self.err.splitlines()


def fedboost(*args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Said:
    """Runs `fedboost ARGS` as a user would; `env` adds variables."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FEDBOOST_")}
    clean |= {"PYTHONPATH": str(ROOT), "COLUMNS": "300", **(env or {})}
    done = warm.server().run("-m", "fedboost", *args, cwd=cwd, env=clean, timeout=120)
    return Said(done.returncode, done.stdout, done.stderr)


class WarmCluster(ClusterProcesses):
    """A cluster whose daemons are forks of a Python that has imported what they need."""

    def start(self, name: str) -> None:
        """Starts one daemon, again if it has died."""
        kind = {COORDINATOR: "coordinator", RELAY: "relay"}.get(name, "party")
        words = ["-m", "fedboost", kind, "serve", "--config", str(self.config(name))]
        theirs, ours = os.pipe()
        self.log(name).parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            self._logged[name] = log.tell()
            fds = {0: theirs, 1: log.fileno(), 2: log.fileno()}
            process = warm.server().begin([*words, "--until-stdin-closes"], fds, new_session=True)
        os.close(theirs)
        process.stdin = os.fdopen(ours, "wb")
        self.processes[name] = process


def client_env(cluster: ClusterProcesses, user: str = USER) -> dict[str, str]:
    """The variables with which a user's commands reach the cluster's coordinator."""
    return {
        "FEDBOOST_COORDINATOR": f"{COORDINATOR}@{cluster.addresses[COORDINATOR]}",
        "FEDBOOST_TLS": str(cluster.folder / "certs"),
        "FEDBOOST_USER": user,
    }


def ask(cluster: ClusterProcesses, *args: object, user: str = USER) -> Said:
    """Runs a command of a user of the cluster."""
    return fedboost(*args, env=client_env(cluster, user))


def owner(cluster: ClusterProcesses, party: str, *args: object, user: str = USER) -> Said:
    """Runs `fedboost party ARGS` at a party of the cluster."""
    tls = ("--config", cluster.config(party), "--tls", cluster.folder / "certs")
    return fedboost("party", *args, *tls, env={"FEDBOOST_USER": user})


def edit(cluster: ClusterProcesses, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a daemon's settings file."""
    path = cluster.config(name)
    raw = yaml.safe_load(path.read_text())
    change(raw)
    path.write_text(yaml.safe_dump(raw))


# Tables and jobs


def shares(pooled: Path, folder: Path, parties: list[str]) -> dict[str, SourceSpec]:
    """A pooled table dealt by columns; the first party gets the label."""
    table = pq.read_table(pooled)
    columns = [name for name in table.column_names if name not in ("id", "y")]
    sources = {}
    for place, party in enumerate(parties):
        names = ["id", *(["y"] if place == 0 else []), *columns[place :: len(parties)]]
        sources[party] = write(folder / f"{party}.parquet", table.select(names))
    return sources


def write(path: Path, table: pa.Table) -> SourceSpec:
    """The table as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return SourceSpec(path=str(path))


def toy(columns: int = 2, rows: int = 60, *, label: bool = False, first: int = 0) -> pa.Table:
    """A small table with ids from `first` on."""
    rng = np.random.default_rng(columns)
    values: dict[str, Any] = {"id": [f"p{n}" for n in range(first, first + rows)]}
    if label:
        values["y"] = [n % 2 for n in range(rows)]
    values |= {f"x{n}": rng.normal(size=rows) for n in range(columns)}
    return pa.table(values)


def job(
    guest: str = "bank", hosts: tuple[str, ...] = ("telco", "shop"), **more: Any
) -> dict[str, Any]:
    """A small secureboost job without encryption; `params` and `datasets` (by party) are merged."""
    datasets = more.pop("datasets", {})
    params = {
        "n_estimators": 2,
        "max_depth": 3,
        "max_bin": 16,
        "encryption": {"scheme": "plain"},
        **more.pop("params", {}),
    }
    data: dict[str, Any] = {p: {"dataset": datasets.get(p, "data")} for p in (guest, *hosts)}
    data[guest]["label"] = "y"
    parties = {"guest": guest, "hosts": list(hosts)}
    base = {"name": "e2e", "protocol": "secureboost", "parties": parties, "data": data}
    return {**base, "params": params, **more}


def echo(hosts: tuple[str, ...] = ("telco", "shop"), **params: int) -> dict[str, Any]:
    """An echo job, which needs no label."""
    raw = job(hosts=hosts, protocol="echo")
    del raw["data"]["bank"]["label"]
    return {**raw, "params": params}


def spec(raw: dict[str, Any]) -> JobSpec:
    """A job as the program has it."""
    return parse_settings(JobSpec, raw)


def job_file(folder: Path, raw: dict[str, Any]) -> Path:
    """A job as a file."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


# Jobs in a cluster


def submit(cluster: ClusterProcesses, raw: dict[str, Any]) -> str:
    """Hands in a job; gives its id."""

    async def work() -> str:
        async with CoordinatorClient(cluster.client, retry_s=5.0) as client:
            return await client.submit(spec(raw).model_dump_json().encode())

    return asyncio.run(work())


def journalled(cluster, id_):
    """The number of the last event in a job's journal, which travels condensed."""
    return max(event.number for event in call(cluster, "journal", id_).events)


def watch(
    cluster: ClusterProcesses,
    id_: str,
    until: Callable[[Event], bool] = lambda _: False,
    after: int = 0,
) -> list[Event]:
    """The job's events behind `after`, up to the first that fits, or until the job rests."""

    async def work() -> list[Event]:
        events = []
        async with CoordinatorClient(cluster.client, retry_s=5.0) as client:
            async with asyncio.timeout(90):
                async for event in client.watch(id_, after):
                    events.append(event)
                    if until(event):
                        break
        return events

    return asyncio.run(work())


def call(cluster: ClusterProcesses, method: str, id_: str) -> Any:
    """One of the client's questions about a job: status, journal, cancel, resume."""

    async def work() -> Any:
        async with CoordinatorClient(cluster.client, retry_s=5.0) as client:
            return await getattr(client, method)(id_)

    return asyncio.run(work())


def gone_on(cluster: ClusterProcesses, id_: str) -> job_pb2.JobJournal:
    """Waits until a paused job, whose parties are all there now, has gone on by itself to its end.

    Its journal; fails where it did not run again within RESUMED_S.
    """
    back = time.time()
    wait_for(lambda: call(cluster, "status", id_).state in ENDS, 90, "the job ends by itself")
    journal: job_pb2.JobJournal = call(cluster, "journal", id_)
    ran = [e.at for e in journal.events if e.state.state == "running"]
    assert len(ran) >= 2, "the job has not gone on"
    assert ran[-1] - back < RESUMED_S
    return journal


def run(cluster: ClusterProcesses, raw: dict[str, Any]) -> job_pb2.JobJournal:
    """Submits a job and waits until it rests."""
    id_ = submit(cluster, raw)
    watch(cluster, id_)
    journal: job_pb2.JobJournal = call(cluster, "journal", id_)
    return journal


def result(journal: job_pb2.JobJournal) -> dict[str, Any]:
    """The result in a finished job's journal."""
    assert journal.status.state == "finished", journal.status
    found: dict[str, Any] = json.loads(
        next(e for e in journal.events if e.WhichOneof("what") == "finished").finished.result
    )
    return found


def in_round(number: int, step: str) -> Callable[[Event], bool]:
    """True once `step` is done after `number` finished rounds of a tree loop."""
    done = 0

    def check(event: Event) -> bool:
        nonlocal done
        if event.WhichOneof("what") == "round":
            done = event.round.progress.done
        return event.WhichOneof("what") == "step" and done >= number and event.step.step == step

    return check


def model(cluster: ClusterProcesses, party: str, id_: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A party's shard of a model: facts without its id and date, and arrays."""
    store = Path(yaml.safe_load(cluster.config(party).read_text())["store"])
    found = shards.load_shard(store / "models" / id_)
    once = ("job", "created")
    return {k: v for k, v in found.facts.items() if k not in once}, dict(found.arrays)


def assert_same_model(cluster: ClusterProcesses, one: str, other: str) -> None:
    """Every party's shard of two models is the same, bit for bit."""
    for party in cluster.names:
        facts, arrays = model(cluster, party, one)
        other_facts, other_arrays = model(cluster, party, other)
        assert facts == other_facts
        assert arrays.keys() == other_arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, other_arrays[name], strict=True)


def wait_for(true: Callable[[], Any], limit_s: float, what: str) -> Any:
    """The first truthy answer; fails when it takes too long."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = true()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s:g} s")


def processes(session: int) -> list[int]:
    """The living processes of a session: a daemon and its workers."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it may be gone by now
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes, in seconds."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def tracebacks(cluster: ClusterProcesses) -> list[str]:
    """The daemons whose log holds a traceback."""
    return [name for name in cluster.processes if "Traceback" in cluster.log(name).read_text()]


def issue(
    certs: Path, leaves: list[tuple[CertificateRole, str]], *, days_ago: int = 0, days: int = 365
) -> None:
    """Certificates of a folder's CA (a new one where there is none), from `days_ago` on."""
    term = Term(datetime.now(UTC) - timedelta(days=days_ago), days=days)
    authority.create_certificates(certs, [Leaf(role, name) for role, name in leaves], term)
