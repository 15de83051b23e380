"""Jobs of benchmarks on daemons or in this process, what they took, and facts of the machine."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import mean, median
from typing import Any, Self

import psutil

from benchmarks.rows import Row
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.errors import JobError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial, Workers
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, JobJournal
from fedboost.model import shards
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.process import threads
from fedboost.runtime.transport.addresses import Timers

PACKAGES = (
    *("fedboost", "numpy", "gmpy2", "numba", "grpcio", "pyarrow"),
    *("xgboost", "xgboost-cpu", "lightgbm", "scikit-learn"),
)
TREE_ENDS = ("close_trees", "close_tree")  # the steps after which a tree is finished
# Steps that are done once a job: the key or what takes its place, and keys for masks.
ONCE = frozenset({"offer_nonce", "share_key", "offer_answer_key", "share_rows"})
Around = Callable[[ClusterProcesses], AbstractContextManager[object]]
Deal = Callable[[Path], dict[str, SourceSpec]]  # writes everybody's files into a folder
Run = Callable[[JobSpec], "JobRun"]
cores = threads.count_cores  # that this process may use


def machine() -> dict[str, Any]:
    """Cores, model, memory in bytes, system, and how busy it is; what is unknown is absent."""
    facts: dict[str, Any] = {
        "cores": cores(),
        "memory": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
    }
    try:
        described = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in described if "model name" in line]
        facts["model"] = models[0] if models else platform.machine()
    except OSError:
        facts["model"] = platform.processor() or platform.machine()
    return {**facts, "load_average": load_average()}


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes."""
    return [round(one, 2) for one in os.getloadavg()]


def versions() -> dict[str, str]:
    """Python and the packages that matter; those not installed are absent."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Busy:
    """Processor seconds up to a moment: of our process and all below it, and of the machine."""

    at: float
    ours: float
    machine: float
    stolen: float
    by_daemon: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def now(cls, cluster: ClusterProcesses | None = None) -> Busy:
        """As the kernel counts."""
        machine = psutil.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)  # macOS knows neither of these
        stolen = getattr(machine, "steal", 0.0)
        guests = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)
        busy = sum(machine) - idle - stolen - guests  # guests' time is counted as user time too
        daemons = {} if cluster is None else cluster.processes
        spent = _tree_seconds(os.getpid(), *(daemon.pid for daemon in daemons.values()))
        by_daemon = {name: spent[daemon.pid] for name, daemon in daemons.items()}
        return cls(time.monotonic(), spent[os.getpid()], busy, stolen, by_daemon)


def _tree_seconds(*roots: int) -> dict[int, float]:
    """Processor seconds of processes, their descendants, and those that they have waited for."""
    spent: dict[int, tuple[int, float]] = {}  # parent and seconds by process
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it may be gone by now
            used = process.cpu_times()
            spent[process.pid] = process.ppid(), sum(used[:4])
    totals = dict.fromkeys(roots, 0.0)
    for pid, (_, seconds) in spent.items():
        above = pid
        while above in spent:
            if above in totals:
                totals[above] += seconds
            above = spent[above][0]
    return totals


@dataclass
class StepTotal:
    """All calls of one step: wall seconds until the slowest party was done, CPU by party, bytes."""

    stage: str
    step: str
    calls: int = 0
    seconds: float = 0.0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Lap:
    """From one tree's end to the next, the first from when training began."""

    seconds: float  # of wall time
    ours: float | None  # processor seconds of all our processes; None where unknown
    others: float | None  # of all other processes of the machine
    by_daemon: dict[str, float] = field(default_factory=dict)  # processor seconds of each


@dataclass(frozen=True)
class JobRun:
    """A finished job: its result, its steps, and what the machine did while it trained."""

    result: dict[str, Any]
    steps: list[StepTotal]
    rounds: list[dict[str, Any]]  # seconds and metrics of each
    shards: dict[str, Artefact]  # each party's part of the model, if the job has trained one
    load_before: list[float]
    load_after: list[float]
    training: dict[str, float]  # processor seconds while training; empty where unknown
    trees: list[Lap] = field(default_factory=list)  # in the order in which they were closed
    ends: dict[str, float] = field(default_factory=dict)  # of stages and steps, each's last time

    def step(self, name: str) -> StepTotal:
        """The totals of one step; a KeyError where it was never done."""
        return next((s for s in self.steps if s.step == name), None) or _no_step(name)

    @property
    def others(self) -> float | None:
        """Cores that others kept busy while the job trained."""
        spent = self.training
        return spent["others"] / spent["seconds"] if spent else None

    def of_stage(self, stage: str = "") -> list[StepTotal]:
        """Return the steps of a stage; of the job's own if none is named."""
        return [one for one in self.steps if one.stage == (stage or self.result["protocol"])]

    def by_party(self) -> dict[str, float]:
        """Return processor seconds of a tree by party, the making of keys included."""
        spent: dict[str, float] = {}
        for step in self.of_stage():
            for party, seconds in step.cpu_seconds.items():
                spent[party] = spent.get(party, 0.0) + seconds / len(self.trees)
        return spent


def _no_step(name: str) -> StepTotal:
    raise KeyError(f"the job has no step {name}")


def sent(steps: Sequence[StepTotal]) -> int:
    """Return the bytes of all parties."""
    return sum(sum(step.bytes.values()) for step in steps)


@dataclass(frozen=True)
class Cost:
    """What one tree takes."""

    wall_s: float  # median of cycles, their mean each; the first cycle warms up
    cpu_s: float | None  # of all our processes, mean of the same trees; None where unknown
    sent: float  # bytes on the data plane, mean of all trees
    others: float | None  # cores that other processes kept busy meanwhile; None where unknown
    load: list[float]  # average before

    @classmethod
    def of(cls, run: JobRun, cycle: int = 1) -> Self:
        """Of a job's trees, `cycle` of which give every party its turn.

        What is done once, the key's making and sharing above all, is left out.
        """
        counted = run.trees[cycle:] or run.trees
        seconds = [tree.seconds for tree in counted]
        cycles = [seconds[i : i + cycle] for i in range(0, len(seconds), cycle)]
        own = [step for step in run.of_stage() if step.step not in ONCE]
        ours, others = spent(counted)
        return cls(
            wall_s=median(mean(each) for each in cycles),
            cpu_s=None if ours is None else ours / len(counted),
            sent=sent(own) / len(run.trees),
            others=None if others is None else others / sum(seconds),
            load=run.load_before,
        )


def repeated(run: Callable[[], JobRun], repeats: int) -> tuple[JobRun, list[JobRun]]:
    """Run a first job, which loads what the daemons have not yet used, and those that count.

    Without repeats it is the first one itself that counts.
    """
    first, *runs = [run() for _ in range(1 + repeats)]
    return first, runs or [first]


def took(first: JobRun, runs: Sequence[JobRun]) -> Row:
    """Return what jobs took, after a first one."""
    return {
        "seconds": [one.result["seconds"]["train"] for one in runs],
        "first": first.result["seconds"]["train"],
        "align": _median([one.result["seconds"].get("align") for one in runs]),
        "cpu_s": _median([one.training.get("ours") for one in runs]),
        "others": _median([one.others for one in runs]),
        "sent": sent(runs[-1].of_stage()),
        "load": runs[0].load_before,
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def job(
    protocol: str,
    parties: Sequence[str],
    params: Mapping[str, Any],
    labelled: Sequence[str] = (),
    aggregator: str | None = None,
    **more: Any,
) -> JobSpec:
    """Return a job of a guest and hosts, of which the guest or all `labelled` have labels."""
    guest, *hosts = parties
    data = {party: {"dataset": local.DATASET} for party in parties}
    for party in labelled or [guest]:
        data[party]["label"] = "y"
    who = {"guest": guest, "hosts": hosts, **({"aggregator": aggregator} if aggregator else {})}
    raw = {"name": protocol, "protocol": protocol, "parties": who, "data": data}
    return parse_settings(JobSpec, {**raw, "params": dict(params), **more})


@contextmanager
def daemons(
    spec: JobSpec,
    deal: Deal,
    around: Around = nullcontext,
    timers: Timers | None = None,
    folder: Path | None = None,
) -> Iterator[Run]:
    """Daemons on this machine that run one job after the other, of any settings that ask nothing
    else of their policies than `spec`; a JobError unless a job finishes.

    `around` is entered with the cluster before its daemons start. A folder keeps their stores.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sources = deal(Path(scratch) / "data")
        made = ClusterProcesses(folder or Path(scratch) / "cluster", spec, sources, timers=timers)
        with around(made), made as cluster:

            def run(job: JobSpec) -> JobRun:
                before = load_average()
                watched = asyncio.run(_follow(cluster, job))
                kept = {name: cluster.store(name) / "models" for name in sources}
                return JobRun(
                    **_told(watched.journal, kept),
                    load_before=before,
                    load_after=load_average(),
                    training=_between(watched.begun, watched.ended),
                    trees=watched.trees,
                    ends=watched.ends,
                )

            yield run


def run_here(
    spec: JobSpec,
    deal: Deal,
    hear: Callable[[Event], None] = lambda _: None,
    workers: Workers | None = None,
) -> JobRun:
    """Run a job whose coordinator and parties are all in this process."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, before = Path(scratch) / "cluster", load_average()
        sources = deal(Path(scratch) / "data")

        async def whole() -> JobJournal:
            async with local.open_cluster(folder, spec, sources, workers or Serial()) as cluster:
                return await cluster.run(spec, hear)

        journal = asyncio.run(whole())
        kept = {name: folder / "var" / name / "models" for name in sources}
        return JobRun(
            **_told(journal, kept), load_before=before, load_after=load_average(), training={}
        )


def _told(journal: JobJournal, kept: Mapping[str, Path]) -> dict[str, Any]:
    result = _result(journal)
    model = result.get("model")
    parts = {name: shards.load_shard(shards.folder_of(kept[name], model)) for name in kept if model}
    steps, rounds = step_totals(journal.events), _rounds(journal.events)
    return {"result": result, "steps": steps, "rounds": rounds, "shards": parts}


@dataclass(frozen=True)
class _Watched:
    """A job's journal, and the machine's state when training began and ended."""

    journal: JobJournal
    begun: Busy | None
    ended: Busy | None
    trees: list[Lap]
    ends: dict[str, float]


async def _follow(cluster: ClusterProcesses, spec: JobSpec) -> _Watched:
    """Runs a job and looks at the clocks as it goes."""
    begun = last = Busy.now(cluster)
    at, trees, ends = time.time(), list[Lap](), dict[str, float]()
    async with CoordinatorClient(cluster.client, retry_s=10) as client:
        job = await client.submit(spec.model_dump_json().encode())
        async for event in client.watch(job):
            what = event.WhichOneof("what")
            if what in ("stage", "step"):
                ends[event.stage.stage or event.step.step] = event.at
            if what == "stage" and event.stage.stage != spec.protocol:
                begun = last = Busy.now(cluster)
                at = event.at
            elif what == "step" and event.step.step in TREE_ENDS:
                now = Busy.now(cluster)
                trees.append(_lap(event.at - at, last, now))
                last, at = now, event.at
        return _Watched(await client.journal(job), begun, Busy.now(), trees, ends)


def _lap(seconds: float, first: Busy | None, last: Busy | None) -> Lap:
    spent = _between(first, last)
    by_daemon: dict[str, float] = {}
    if first is not None and last is not None:
        by_daemon = {name: own - first.by_daemon[name] for name, own in last.by_daemon.items()}
    return Lap(seconds, spent.get("ours"), spent.get("others"), by_daemon)


def spent(trees: Sequence[Lap]) -> tuple[float | None, float | None]:
    """Processor seconds of our processes and of others; None where the machine does not say."""
    ours = [tree.ours for tree in trees if tree.ours is not None]
    others = [tree.others for tree in trees if tree.others is not None]
    known = len(ours) == len(others) == len(trees)
    return (sum(ours), sum(others)) if known else (None, None)


def _result(journal: JobJournal) -> dict[str, Any]:
    for event in journal.events:
        if event.WhichOneof("what") == "finished":
            found: dict[str, Any] = json.loads(event.finished.result)
            return found
    reason = journal.status.reason
    raise JobError(f"the job {journal.status.state}: {reason.what or 'no reason given'}")


def step_totals(events: Sequence[Event]) -> list[StepTotal]:
    """The steps of a journal in the order of their first call."""
    totals: dict[tuple[str, str], StepTotal] = {}
    for event in events:
        if event.WhichOneof("what") != "step":
            continue
        done = event.step
        total = totals.setdefault((done.stage, done.step), StepTotal(done.stage, done.step))
        total.calls += event.step.calls or 1
        total.seconds += done.seconds
        for cost in done.costs:
            spent = total.cpu_seconds.get(cost.party, 0.0)
            total.cpu_seconds[cost.party] = spent + cost.cpu_seconds
            for link in cost.sent:
                name = f"{cost.party}->{link.peer}"
                total.bytes[name] = total.bytes.get(name, 0) + link.bytes
    return list(totals.values())


def _rounds(events: Sequence[Event]) -> list[dict[str, Any]]:
    rounds = []
    for event in events:
        if event.WhichOneof("what") == "round":
            metrics = {f"{m.split}.{m.name}": m.value for m in event.round.metrics}
            rounds.append({"seconds": event.round.seconds, "metrics": metrics})
    return rounds


def _between(first: Busy | None, last: Busy | None) -> dict[str, float]:
    if first is None or last is None:
        return {}
    ours, everything = last.ours - first.ours, last.machine - first.machine
    return {
        "seconds": last.at - first.at,
        "ours": ours,
        "others": max(0.0, everything - ours),
        "stolen": last.stolen - first.stolen,
    }
