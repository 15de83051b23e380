"""What every benchmark needs: arguments, machine facts, a job on a local cluster, its figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.errors import JobError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, JobJournal
from fedboost.model import shards
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.process import threads
from fedboost.runtime.transport.addresses import Timers

PACKAGES = (
    *("fedboost", "numpy", "gmpy2", "numba", "grpcio", "pyarrow"),
    *("xgboost", "xgboost-cpu", "lightgbm", "scikit-learn"),
)
cores = threads.cores  # that this process may use
TREE_ENDS = ("close_trees", "close_tree")  # the steps after which a tree is finished
say = Console(stderr=True)


def arguments(
    name: str, about: str, data: Sequence[str], given: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the command line: quick, json, record, data."""
    return parse(parser(name, about, data), data, given)


def parser(name: str, about: str, data: Sequence[str]) -> argparse.ArgumentParser:
    """What every benchmark's command line takes; one may take more."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help="at most four minutes on two cores")
    parser.add_argument("--json", type=Path, metavar="F", help="write everything measured to F")
    parser.add_argument("--record", type=Path, metavar="F", help="write figures and tables to F")
    parser.add_argument("--data", action="append", choices=data, help="only this data set")
    return parser


def parse(
    parser: argparse.ArgumentParser, data: Sequence[str], given: Sequence[str] | None
) -> argparse.Namespace:
    """What the command line says; all data sets where it names none."""
    found = parser.parse_args(given)
    found.data = found.data or list(data)
    return found


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

    def facts(self) -> dict[str, Any]:
        """Everything measured, as JSON can say it."""
        return {
            "result": self.result,
            "steps": [asdict(step) for step in self.steps],
            "rounds": self.rounds,
            "load_average": {"before": self.load_before, "after": self.load_after},
            "training_cpu": self.training,
            "trees": [asdict(tree) for tree in self.trees],
        }


def _no_step(name: str) -> StepTotal:
    raise KeyError(f"the job has no step {name}")


def run_job(spec: JobSpec, sources: Mapping[str, SourceSpec], folder: Path) -> JobRun:
    """Runs a job on daemons of its own, all on this machine; a JobError unless it finishes."""
    with daemons(spec, sources, folder) as run:
        return run(spec)


@contextmanager
def daemons(
    spec: JobSpec,
    sources: Mapping[str, SourceSpec],
    folder: Path,
    around: Callable[[ClusterProcesses], AbstractContextManager[object]] = nullcontext,
    timers: Timers | None = None,
) -> Iterator[Callable[[JobSpec], JobRun]]:
    """Daemons on this machine that run one job after the other, of any settings that ask nothing
    else of their policies than `spec`; a JobError unless a job finishes. `around` is entered with
    the cluster before its daemons start.
    """
    made = ClusterProcesses(folder, spec, sources, timers=timers)
    with around(made), made as cluster:

        def run(job: JobSpec) -> JobRun:
            before = load_average()
            watched = asyncio.run(_follow(cluster, job))
            result = _result(watched.journal)
            kept = {name: cluster.store(name) / "models" for name in sources if result["model"]}
            return JobRun(
                result=result,
                steps=step_totals(watched.journal.events),
                rounds=_rounds(watched.journal.events),
                shards={
                    name: shards.load(shards.folder_of(kept[name], result["model"]))
                    for name in kept
                },
                load_before=before,
                load_after=load_average(),
                training=_between(watched.begun, watched.ended),
                trees=watched.trees,
                ends=watched.ends,
            )

        yield run


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
            elif what == "round":
                done = event.round.progress
                say.print(
                    f"  round {done.done} of {done.of}: {event.round.seconds:.2f} s", style="dim"
                )
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


@dataclass(frozen=True)
class Shown:
    """A table for people: printed, and written as Markdown."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def print(self) -> None:
        """To standard error, so that standard output stays for machines."""
        drawn = Table(title=self.title, title_justify="left", caption=self.note or None)
        drawn.caption_justify = "left"
        for place, head in enumerate(self.heads):
            drawn.add_column(head, justify="right" if place else "left")
        for row in self.rows:
            drawn.add_row(*row)
        say.print(drawn)

    def markdown(self) -> str:
        """The same, as Markdown."""
        lines = [f"### {self.title}", "", f"| {' | '.join(self.heads)} |"]
        lines.append(f"| --- |{' ---: |' * (len(self.heads) - 1)}")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


@dataclass
class Report:
    """What a benchmark found; the keys of its JSON object are INTERFACE.md's."""

    name: str
    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=machine)
    versions: dict[str, str] = field(default_factory=versions)
    rows: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def write(self, options: argparse.Namespace, shown: Sequence[Shown]) -> None:
        """Print tables and figures; write the files that the command line asked for.

        `--record` has what a page of docs/benchmarks/ stands on (`benchmarks.pages`).
        """
        facts = [self._facts("Machine", {**self.machine, **self.versions})]
        facts += [self._facts("Settings", self.settings)]
        figures = Shown(
            "Figures", ("figure", "value"), [(k, f"{v:.4f}") for k, v in self.figures.items()]
        )
        tables = [figures, *facts, *shown]
        for one in tables:
            one.print()
        if options.json is not None:
            options.json.write_text(json.dumps(asdict(self), indent=1) + "\n")
        if options.record is not None:
            record = {k: v for k, v in asdict(self).items() if k != "rows"}
            record["machine"] = self.machine | record.pop("versions")
            record["tables"] = [asdict(one) for one in shown]
            options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def _facts(title: str, facts: Mapping[str, Any]) -> Shown:
        rows = [
            (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in facts.items()
        ]
        return Shown(title, (title.lower(), ""), rows)
