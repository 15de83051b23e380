"""Large tables: memory and seconds of a lattice job on rows of a fixed seed, on real daemons.

`--rows 1000000 --rows 10000000` measures other sizes than the usual one, `--workers embedded,dask`
also a host that adds up rows on two local processes of Dask, and what travels to and from these,
`--predict` predictions, `--model` what a tree of 100 million rows would take on 32 workers.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks import harness, scale_model, scale_predict, shard_bytes
from benchmarks.encryption_plan import Plan
from benchmarks.harness import Report, Shown
from benchmarks.scale_predict import LEARNED_ROWS, Predicted
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses

ABOUT = "memory and seconds of large tables"
ROWS, QUICK_ROWS = (1_000_000,), (50_000,)
COLUMNS = 10  # of each party
TREES, DEPTH, BINS = 3, 5, 32
GROUP_ROWS = 1 << 16  # written at once
WORKERS: Mapping[str, dict[str, Any]] = {
    "embedded": {"workers": "embedded"},
    "dask": {"workers": {"dask": {"local": 2}}},
}


@dataclass(frozen=True)
class Scaled:
    """What a job on so many rows took; memory is each party's peak, workers included."""

    rows: int
    workers: str
    scheme: str
    seconds: float
    per_tree: float  # seconds, without what comes before the first
    memory: Mapping[str, int]


def measure(sizes: Sequence[int], workers: Sequence[str]) -> list[Scaled]:
    """One job for each size and kind of workers, on daemons that have done nothing else."""
    found = []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            sources = tables(Path(folder), rows)
            found += [measured(rows, kind, Path(folder) / kind, sources) for kind in workers]
    return found


def measured(rows: int, workers: str, folder: Path, sources: Mapping[str, SourceSpec]) -> Scaled:
    """One job, on daemons whose cluster lies in `folder`."""

    @contextmanager
    def working(cluster: ClusterProcesses) -> Iterator[None]:
        path = cluster.config("host")
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | WORKERS[workers]))
        yield

    with harness.daemons(job(), sources, folder, working) as run_job:
        run = run_job(job())
    seconds, memory = run.result["seconds"], run.result["memory_peak_bytes"]
    scheme = run.result["encryption"]["scheme"]
    return Scaled(
        rows, workers, scheme, float(seconds["total"]), float(seconds["per_tree"]), memory
    )


def predicted(rows: int) -> list[Predicted]:
    """Predictions of so many rows, by a job and alone."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        small, large = (home / name for name in ("small", "large"))
        for one in (small, large):
            one.mkdir()
        learned, scored = tables(small, min(rows, LEARNED_ROWS)), tables(large, rows)
        return [
            scale_predict.by_job(home / "cluster", job(), learned, scored, rows),
            scale_predict.alone(home / "own", learned["guest"], scored["guest"], rows),
        ]


def tables(folder: Path, rows: int) -> dict[str, SourceSpec]:
    """A guest's and a host's table of the same ids, written part by part; the same every time."""
    draw = np.random.default_rng(7)
    paths = {party: folder / f"{party}.parquet" for party in ("guest", "host")}
    writers: dict[str, pq.ParquetWriter] = {}
    for first in range(0, rows, GROUP_ROWS):
        count = min(GROUP_ROWS, rows - first)
        ids = [f"customer-{number:012d}" for number in range(first, first + count)]
        for party, path in paths.items():
            values = draw.normal(size=(count, COLUMNS))
            columns: dict[str, object] = {"id": ids}
            if party == "guest":
                columns["y"] = (values[:, 0] + draw.normal(size=count) > 0).astype(np.int8)
            columns |= {f"{party}{n}": values[:, n] for n in range(COLUMNS)}
            table = pa.table(columns)
            if party not in writers:
                writers[party] = pq.ParquetWriter(path, table.schema)
            writers[party].write_table(table)
    for writer in writers.values():
        writer.close()
    return {party: SourceSpec(path=str(path)) for party, path in paths.items()}


def job() -> JobSpec:
    """The job of every size."""
    raw = {
        "name": "scale",
        "protocol": "secureboost",
        "parties": {"guest": "guest", "hosts": ["host"]},
        "data": {"guest": {"dataset": "data", "label": "y"}, "host": {"dataset": "data"}},
        "params": {
            "n_estimators": TREES,
            "max_depth": DEPTH,
            "max_bin": BINS,
        },
    }
    return parse(JobSpec, raw)


def table(sizes: Sequence[Scaled]) -> Shown:
    """One row for each size."""
    heads = ("rows", "workers", "scheme", "seconds", "a tree", "guest, GB", "host, GB")
    rows = [
        (
            f"{one.rows:,}",
            one.workers,
            one.scheme,
            f"{one.seconds:.1f}",
            f"{one.per_tree:.2f}",
            *(f"{one.memory[party] / 1e9:.2f}" for party in ("guest", "host")),
        )
        for one in sizes
    ]
    return Shown(f"{COLUMNS} + {COLUMNS} columns, {TREES} trees of depth {DEPTH}", heads, rows)


def worked(sizes: Sequence[Scaled]) -> Report:
    """The report of jobs."""
    settings = {"columns": COLUMNS, "trees": TREES, "depth": DEPTH, "bins": BINS}
    report = Report("scale", settings, rows=[asdict(one) for one in sizes])
    alone = {one.rows: one.per_tree for one in sizes if one.workers == "embedded"}
    for one in sizes:
        name = f"rows_{one.rows}" + ("" if one.workers == "embedded" else f".{one.workers}")
        report.figures[f"{name}.seconds"] = one.seconds
        report.figures[f"{name}.seconds_per_tree"] = one.per_tree
        if one.workers != "embedded" and one.rows in alone:
            report.figures[f"{name}.over_embedded"] = one.per_tree / alone[one.rows]
        for party, count in one.memory.items():
            report.figures[f"{name}.{party}.memory_gb"] = count / 1e9
    return report


def scored(found: Sequence[Predicted]) -> Report:
    """The report of predictions."""
    report = Report("scale-predict", {"columns": COLUMNS}, rows=[asdict(one) for one in found])
    for one in found:
        report.figures[f"rows_{one.rows}.{one.by}.rows_per_second"] = one.rows / one.seconds
    return report


def main(given: Sequence[str] | None = None) -> None:
    """Measures and prints; see the harness for the options."""
    more = harness.parser("scale", ABOUT, ())
    more.add_argument("--rows", action="append", type=int, help="of each table, for each job")
    more.add_argument("--workers", default="embedded", help=f"of the host: {','.join(WORKERS)}")
    more.add_argument("--predict", action="store_true", help="measure predictions instead")
    more.add_argument("--model", action="store_true", help="price a tree of 10^8 rows instead")
    options: argparse.Namespace = harness.parse(more, (), given)
    wanted = options.rows or (QUICK_ROWS if options.quick else ROWS)
    kinds = options.workers.split(",")
    if options.predict:
        found = [one for rows in wanted for one in predicted(rows)]
        scored(found).write(options, [scale_predict.table(found)])
        return
    if options.model:
        scale_model.report(Plan.of(quick=options.quick), scale_model.Size(), options)
        return
    sizes = measure(wanted, kinds)
    report, shown = worked(sizes), [table(sizes)]
    if "dask" in kinds:
        carried = shard_bytes.measure()
        report.figures |= {f"{one.scheme}.{key}": value for one in carried for key, value in one}
        shown.append(shard_bytes.table(carried))
    report.write(options, shown)


if __name__ == "__main__":
    main()
