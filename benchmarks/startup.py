"""What starting costs: commands, idle daemons, a small job on a cluster, kernels in a first job.

Beside each figure stands what it must not exceed; seconds of the wall and of all processors.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.harness import arguments
from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import complete

ROWS, COLUMNS = 1000, 4
PARTIES = ("bank", "telco")
REFUSED = "127.0.0.1:1"  # nobody listens there
KERNELS = """
import asyncio, json, sys, tempfile, time
from pathlib import Path
from numba.core import event
from fedboost.data.sources import SourceSpec
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import complete
from fedboost.runtime.process.workers import ProcessWorkers

class Listener(event.Listener):
    seconds, began = 0.0, 0.0
    def on_start(self, event): self.began = time.process_time()
    def on_end(self, event): self.seconds += time.process_time() - self.began

raw, tables = json.loads(sys.argv[1])
sources = {name: SourceSpec(path=path) for name, path in tables.items()}
spec, listener = complete(raw, sources), Listener()

async def run(folder):
    with ProcessWorkers(2) as workers:
        async with local.cluster(folder, spec, sources, workers) as cluster:
            assert (await cluster.run(spec)).status.state == "finished"

with event.install_listener("numba:compile", listener), tempfile.TemporaryDirectory() as scratch:
    asyncio.run(run(Path(scratch)))
print(listener.seconds)
"""


@dataclass(frozen=True)
class Figure:
    """What was measured, and the most that it may be."""

    what: str
    wall_s: float | None
    cpu_s: float | None
    megabytes: float | None
    most: float


def main(given: Sequence[str] | None = None) -> None:
    """Prints the table."""
    args = arguments("startup", __doc__ or "", ("toy",), given)
    repeats = 2 if args.quick else 5
    with tempfile.TemporaryDirectory() as scratch:
        figures = measured(Path(scratch), repeats)
    table = Table("what", "wall s", "CPU s", "MB", "at most")
    for one in figures:
        cells = (one.wall_s, one.cpu_s, one.megabytes, one.most)
        table.add_row(one.what, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in figures], indent=1))


def measured(folder: Path, repeats: int) -> list[Figure]:
    """All figures, the best of some repetitions where they are short."""
    timed("warm")  # kernels are there, as after an installation
    tables = written(folder)
    spec = job("plain")
    (folder / "job.yaml").write_text(yaml.safe_dump(spec))
    data = [word for name, path in tables.items() for word in ("--data", f"{name}={path}")]
    run = ("cluster", "run", str(folder / "job.yaml"), *data, "--dir", str(folder / "cluster"))
    listed = ("job", "list", "--coordinator", REFUSED, "--tls", str(folder / "cluster" / "certs"))
    timed(*run)
    best = {
        "fedboost --help": (min(timed("--help") for _ in range(repeats)), 0.25),
        "fedboost job list": (min(timed(*listed) for _ in range(repeats)), 0.25),
        "cluster run, 1,000 rows": (min(timed(*run) for _ in range(repeats)), 3.0),
    }
    figures = [Figure(what, *spent, None, most) for what, (spent, most) in best.items()]
    for name, size in idle(folder / "idle", spec, tables).items():
        most = 70.0 if name == "coordinator" else 120.0
        figures.append(Figure(f"idle {name}", None, None, size, most))
    words = [sys.executable, "-c", KERNELS, json.dumps([job("lattice"), tables])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    spent = float(done.stdout.splitlines()[-1])
    return [*figures, Figure("compiling in a first lattice job", None, spent, None, 0.0)]


def timed(*words: str) -> tuple[float, float]:
    """Seconds of a command, of the wall and of the processors, its daemons' among them."""
    before, started = _spent(), time.monotonic()
    subprocess.run([sys.executable, "-m", "fedboost", *words], capture_output=True, check=False)
    return time.monotonic() - started, _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def idle(folder: Path, raw: dict[str, object], tables: dict[str, str]) -> dict[str, float]:
    """Megabytes that daemons hold before their first job."""
    sources = {name: SourceSpec(path=path) for name, path in tables.items()}
    with ClusterProcesses(folder, complete(raw, sources), sources) as cluster:
        return {
            name: psutil.Process(one.pid).memory_info().rss / (1 << 20)
            for name, one in cluster.processes.items()
        }


def job(scheme: str) -> dict[str, object]:
    """Three trees of two parties."""
    params = {"n_estimators": 3, "encryption": {"scheme": scheme}}
    parties = {"guest": PARTIES[0], "hosts": list(PARTIES[1:])}
    return {"name": "small", "protocol": "secureboost", "parties": parties, "params": params}


def written(folder: Path) -> dict[str, str]:
    """Their tables."""
    draw, found = np.random.default_rng(1), {}
    for party in PARTIES:
        values = draw.normal(size=(ROWS, COLUMNS))
        columns = {f"{party}{n}": values[:, n] for n in range(COLUMNS)}
        if party == PARTIES[0]:
            columns["y"] = (values[:, 0] > 0).astype(float)
        ids = [f"c{n}" for n in range(ROWS)]
        found[party] = str(folder / f"{party}.parquet")
        pq.write_table(pa.table({"id": ids, **columns}), found[party])
    return found


if __name__ == "__main__":
    main()
