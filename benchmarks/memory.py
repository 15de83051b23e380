"""What daemons hold of the machine's memory: idle, in a lattice job of 30,000 rows, a minute after.

In megabytes, worker processes included: resident, and of the last also what is unshared.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.question import Part, Question
from benchmarks.rows import Row
from fedboost.data.sources import SourceSpec
from fedboost.job import JobSpec
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import complete_spec

ROWS, COLUMNS = 30_000, 20
PARTIES = ("bank", "telco")
MOST = {"coordinator": 65.0, "party": 150.0}  # idle again
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Plan:
    """How long the job and the wait behind it are."""

    trees: int = 10
    wait_s: float = 60.0


def measure(_: str, plan: Plan) -> Iterator[Row]:
    """A row for each daemon, in megabytes."""
    with tempfile.TemporaryDirectory() as scratch:
        found = measured(Path(scratch), plan)
    names = ("idle", "in the job", "after it", "of it unshared")
    for daemon, own in found.items():
        most = MOST.get(daemon, MOST["party"])
        yield {"daemon": daemon, **dict(zip(names, own, strict=True)), "at most": most}


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Megabytes of each daemon after a job."""
    return {f"after.{row['daemon']}": row["after it"] for row in rows}


def measured(folder: Path, plan: Plan) -> dict[str, list[float]]:
    """Megabytes of each daemon: idle, at most in the job, some time after it, of these unshared."""
    sources = written(folder)
    params = {"n_estimators": plan.trees, "max_depth": 5, "encryption": {"scheme": "lattice"}}
    raw = {"name": "memory", "protocol": "secureboost", "params": params,
           "parties": {"guest": PARTIES[0], "hosts": list(PARTIES[1:])}}  # fmt: skip
    spec = complete_spec(raw, sources)
    with ClusterProcesses(folder / "cluster", spec, sources) as cluster:
        pids = {name: one.pid for name, one in cluster.processes.items()}
        idle = {name: held(pid, "rss") for name, pid in pids.items()}
        peaks, over = dict(idle), threading.Event()
        watching = threading.Thread(target=_watch, args=(pids, peaks, over))
        watching.start()
        try:
            asyncio.run(_run(cluster, spec))
        finally:
            over.set()
            watching.join()
        time.sleep(plan.wait_s)
        return {
            name: [idle[name], peaks[name], held(pid, "rss"), held(pid, "uss")]
            for name, pid in pids.items()
        }


def held(pid: int, kind: str) -> float:
    """Megabytes of a process and all below it: resident ("rss"), or unshared ("uss")."""
    total = 0
    with suppress(psutil.Error):
        daemon = psutil.Process(pid)
        for process in (daemon, *daemon.children(recursive=True)):
            with suppress(psutil.Error):  # it has just ended
                found = process.memory_full_info() if kind == "uss" else process.memory_info()
                total += getattr(found, kind)
    return total / (1 << 20)


def written(folder: Path) -> dict[str, SourceSpec]:
    """A table for each party, the same ids in both."""
    rng = np.random.default_rng(7)
    ids = pa.array([f"p{n:07d}" for n in range(ROWS)])
    sources = {}
    for party in PARTIES:
        values = rng.normal(size=(COLUMNS, ROWS)).astype(np.float32)
        columns = {"id": ids, **{f"{party}{k}": values[k] for k in range(COLUMNS)}}
        if party == PARTIES[0]:
            columns["y"] = pa.array((values[0] + rng.normal(size=ROWS) > 0).astype(np.int64))
        pq.write_table(pa.table(columns), folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    return sources


def _watch(pids: dict[str, int], peaks: dict[str, float], over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        for name, pid in pids.items():
            peaks[name] = max(peaks[name], held(pid, "rss"))


async def _run(cluster: ClusterProcesses, spec: JobSpec) -> None:
    async with CoordinatorClient(cluster.client) as client:
        job = await client.submit(spec.model_dump_json().encode())
        async for _ in client.watch(job):
            pass
        journal = await client.journal(job)
    assert result_of(journal), journal.status.reason.what


QUESTION = Question(
    "memory", __doc__ or "", {"daemons": Part(measure)}, Plan(), Plan(1, 1.0), figures
)

if __name__ == "__main__":
    QUESTION.main()
