"""Predictions over large tables: rows a second and peak memory, by a job on real daemons and by one
party with a model that it holds whole. `python -m benchmarks.scale --predict` runs it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import Shown, run_job
from fedboost.core import local
from fedboost.core.params import TreeParams
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.model import shards, whole

LEARNED_ROWS = 50_000  # that the models are trained on
OWN = "own"  # the model that its party holds whole


@dataclass(frozen=True)
class Predicted:
    """What scoring so many rows took; memory is each process tree's peak."""

    rows: int
    by: str
    seconds: float
    memory: Mapping[str, int]


def by_job(folder: Path, training: JobSpec, small: Mapping[str, SourceSpec],
           large: Mapping[str, SourceSpec], rows: int) -> Predicted:  # fmt: skip
    """Train on small tables, then score large ones with fresh daemons on the same stores."""
    model = run_job(training, small, folder).result["model"]
    raw = {
        "name": "scale-predict",
        "protocol": "predict",
        "parties": {"guest": "guest", "hosts": ["host"]},
        "data": {"guest": {"dataset": "data"}, "host": {"dataset": "data"}},
        "params": {"model": model},
    }
    result = run_job(parse(JobSpec, raw), large, folder).result
    assert result["rows"]["predicted"] == rows
    return Predicted(rows, "job", float(result["seconds"]["total"]), result["memory_peak_bytes"])


def alone(folder: Path, small: SourceSpec, large: SourceSpec, rows: int) -> Predicted:
    """The command line, with a model of the guest's columns."""
    table = pq.read_table(str(small.path))
    names = [name for name in table.column_names if name.startswith("guest")]
    values = np.column_stack([table[name].to_numpy() for name in names])
    learned = local.TrainingTable(
        np.asfortranarray(values.astype(np.float32)), table["y"].to_numpy().astype(np.float64)
    )
    left = whole.shard(local.train(learned, TreeParams(n_estimators=10, max_depth=5)), names, {})
    facts = {"protocol": "federboost-horizontal", "job": OWN, "name": OWN, "party": "guest",
             "role": "guest", "guest": "guest", "hosts": [], "id": ["id"],
             "ids": {"guest": ["id"]}, "created": ""}  # fmt: skip
    shards.save(
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
    return Predicted(rows, "alone", seconds, {"guest": spent.ru_maxrss * 1024})


def table(found: Sequence[Predicted]) -> Shown:
    """One row for each size and way."""
    heads = ("rows", "by", "seconds", "rows/s", "guest, GB", "host, GB")
    rows = [
        (
            f"{one.rows:,}",
            one.by,
            f"{one.seconds:.1f}",
            f"{one.rows / one.seconds:,.0f}",
            *(f"{one.memory[p] / 1e9:.2f}" if p in one.memory else "" for p in ("guest", "host")),
        )
        for one in found
    ]
    return Shown("predictions", heads, rows)
