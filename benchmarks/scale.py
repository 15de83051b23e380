"""Large tables: memory and seconds of a lattice job on rows of a fixed seed, on real daemons.

`--rows 1000000,10000000` measures other sizes than the usual one, `--workers embedded,dask` also a
host that adds up rows on two local processes of Dask, and what travels to and from these,
`--predict` predictions, by a job on daemons and by one party with a model that it holds whole,
`--model` what a tree of 100 million rows would take on 32 workers.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks import harness, part_bytes, scale_model
from benchmarks.question import Part, Question
from benchmarks.rows import Row, Shown, of
from fedboost.core import local
from fedboost.core.params import TreeParams
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.job import JobSpec
from fedboost.model import shards, whole
from fedboost.runtime.cluster.cluster import ClusterProcesses

COLUMNS = 10  # of each party
TREES, DEPTH, BINS = 3, 5, 32
GROUP_ROWS = 1 << 16  # written at once
LEARNED_ROWS = 50_000  # that the models are trained on whose predictions are timed
OWN = "own"  # the model that its party holds whole
EMBEDDED, DASK = "embedded", "dask"
WORKERS: Mapping[str, dict[str, Any]] = {
    EMBEDDED: {"workers": "embedded"},
    DASK: {"workers": {"dask": {"local": 2}}},
}


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers with commas between them."""
    return tuple(map(int, text.split(",")))


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(text.split(","))


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    rows: tuple[int, ...] = (1_000_000,)
    workers: tuple[str, ...] = (EMBEDDED,)
    predict: bool = False
    model: bool = False
    ring_rows: int = 1_000_000  # of the model
    modular_rows: int = 1024
    least_s: float = 2.0


def jobs(_: str, plan: Plan) -> Iterator[Row]:
    """One job for each size and kind of workers, on daemons that have done nothing else."""
    for rows in plan.rows:
        for kind in plan.workers:
            yield {"rows": rows, **measured(rows, kind)}


def measured(rows: int, workers: str) -> Row:
    """What a job on so many rows took; memory is each party's peak, workers included."""

    @contextmanager
    def working(cluster: ClusterProcesses) -> Iterator[None]:
        path = cluster.config("host")
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | WORKERS[workers]))
        yield

    with harness.daemons(job(), lambda folder: tables(folder, rows), working) as run_job:
        result = run_job(job()).result
    return {
        "workers": workers,
        "scheme": result["encryption"]["scheme"],
        "seconds": float(result["seconds"]["total"]),
        "per_tree": float(result["seconds"]["per_tree"]),  # without what comes before the first
        "memory": result["memory_peak_bytes"],
    }


def carried(_: str, plan: Plan) -> Iterator[Row]:
    """Bytes to and from workers, where there are some."""
    if DASK in plan.workers:
        for one in part_bytes.measure():
            yield asdict(one)


def predictions(_: str, plan: Plan) -> Iterator[Row]:
    """Predictions of so many rows, by a job and alone."""
    for rows in plan.rows:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            learned = tables(home / "small", min(rows, LEARNED_ROWS))
            scored = tables(home / "large", rows)
            yield {"rows": rows, "by": "job", **by_job(home / "cluster", learned, scored, rows)}
            spent = alone(home / "own", learned["guest"], scored["guest"], rows)
            yield {"rows": rows, "by": "alone", **spent}


def tables(folder: Path, rows: int) -> dict[str, SourceSpec]:
    """A guest's and a host's table of the same ids, written part by part; the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
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
    params = {"n_estimators": TREES, "max_depth": DEPTH, "max_bin": BINS}
    return harness.job("secureboost", ("guest", "host"), params)


def by_job(
    folder: Path, small: Mapping[str, SourceSpec], large: Mapping[str, SourceSpec], rows: int
) -> Row:
    """Train on small tables, then score large ones with fresh daemons on the same stores."""
    with harness.daemons(job(), lambda _: dict(small), folder=folder) as run:
        model = run(job()).result["model"]
    raw = harness.job("predict", ("guest", "host"), {"model": model})
    data = {party: one.model_copy(update={"label": None}) for party, one in raw.data.items()}
    spec = raw.model_copy(update={"data": data})
    with harness.daemons(spec, lambda _: dict(large), folder=folder) as run:
        result = run(spec).result
    assert result["rows"]["predicted"] == rows
    return {"seconds": float(result["seconds"]["total"]), "memory": result["memory_peak_bytes"]}


def alone(folder: Path, small: SourceSpec, large: SourceSpec, rows: int) -> Row:
    """The command line, with a model of the guest's columns."""
    table = pq.read_table(str(small.path))
    names = [name for name in table.column_names if name.startswith("guest")]
    values = np.column_stack([table[name].to_numpy() for name in names])
    learned = local.TrainingTable(
        np.asfortranarray(values.astype(np.float32)), table["y"].to_numpy().astype(np.float64)
    )
    left = whole.make_shard(
        local.train(learned, TreeParams(n_estimators=10, max_depth=5)), names, {}
    )
    facts = {"protocol": "federboost-horizontal", "job": OWN, "name": OWN, "party": "guest",
             "role": "guest", "guest": "guest", "hosts": [], "id": ["id"],
             "ids": {"guest": ["id"]}, "created": ""}  # fmt: skip
    shards.save_shard(
        folder / "var" / "guest" / "models" / OWN, Artefact({**facts, **left.facts}, left.arrays)
    )
    words = ["model", "predict", OWN, "--cluster", str(folder), "--data", f"guest={large.path}",
             "--out", str(folder / "scores.parquet")]  # fmt: skip
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "fedboost", *words]) as command:
        _, status, spent = os.wait4(command.pid, 0)
        command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0
    seconds = time.perf_counter() - began
    assert pq.read_metadata(folder / "scores.parquet").num_rows == rows
    return {"seconds": seconds, "memory": {"guest": spent.ru_maxrss * 1024}}


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds, memory and rows a second by size; those of the model."""
    found: dict[str, float] = {}
    embedded = {row["rows"]: row["per_tree"] for row in of(rows, "jobs")
                if row["workers"] == EMBEDDED}  # fmt: skip
    for row in of(rows, "jobs"):
        name = f"rows_{row['rows']}"
        if row["workers"] != EMBEDDED:
            name += f".{row['workers']}"
            if row["rows"] in embedded:
                found[f"{name}.over_embedded"] = row["per_tree"] / embedded[row["rows"]]
        found[f"{name}.seconds"] = row["seconds"]
        found[f"{name}.seconds_per_tree"] = row["per_tree"]
        found |= {f"{name}.{p}.memory_gb": count / 1e9 for p, count in row["memory"].items()}
    for row in of(rows, "predictions"):
        found[f"rows_{row['rows']}.{row['by']}.rows_per_second"] = row["rows"] / row["seconds"]
    for row in of(rows, "bytes"):
        own = {n: v for n, v in row.items() if n.endswith("_bytes")}
        found |= {f"{row['scheme']}.{name}": value for name, value in own.items()}
    return found | scale_model.figures(of(rows, "model"))


def shown(rows: Sequence[Row]) -> Iterator[Shown]:
    """The tables of the page."""

    def memory(row: Row) -> tuple[str, ...]:
        known = row["memory"]
        return tuple(f"{known[p] / 1e9:.2f}" if p in known else "" for p in ("guest", "host"))

    lines = [
        (f"{row['rows']:,}", row["workers"], row["scheme"], f"{row['seconds']:.1f}",
         f"{row['per_tree']:.2f}", *memory(row))
        for row in of(rows, "jobs")
    ]  # fmt: skip
    if lines:
        heads = ("rows", "workers", "scheme", "seconds", "a tree", "guest, GB", "host, GB")
        title = f"{COLUMNS} + {COLUMNS} columns, {TREES} trees of depth {DEPTH}"
        yield Shown(title, heads, lines)
    if found := of(rows, "bytes"):
        yield part_bytes.table(found)
    scored = [
        (f"{row['rows']:,}", row["by"], f"{row['seconds']:.1f}",
         f"{row['rows'] / row['seconds']:,.0f}", *memory(row))
        for row in of(rows, "predictions")
    ]  # fmt: skip
    if scored:
        of_scores = ("rows", "by", "seconds", "rows/s", "guest, GB", "host, GB")
        yield Shown("predictions", of_scores, scored)
    if found := of(rows, "model"):
        yield scale_model.table(found)


QUESTION = Question(
    *("scale", __doc__ or ""),
    {
        "jobs": Part(jobs), "bytes": Part(carried),
        "predictions": Part(predictions, option="predict"),
        "model": Part(scale_model.measure, option="model"),
    },
    full=Plan(), quick=Plan((5000,), ring_rows=10_000, modular_rows=64, least_s=0.01),
    figures=figures, tables=shown,
    options={
        "rows": {"type": numbers, "help": "of each table, for each job"},
        "workers": {"type": names, "help": f"of the host: {','.join(WORKERS)}"},
        "predict": {"action": "store_true", "help": "measure predictions instead"},
        "model": {"action": "store_true", "help": "price a tree of 10^8 rows instead"},
    },
    settings={"columns": COLUMNS, "trees": TREES, "depth": DEPTH, "bins": BINS},
)  # fmt: skip

if __name__ == "__main__":
    QUESTION.main()
