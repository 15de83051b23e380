"""A batch of every primitive that has a price, on made-up tables."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.runtime.estimate import price_ciphers, price_daemons
from fedboost.runtime.estimate.price_ciphers import Found, Timed

ROWS = 20_000
READ_ROW, READ_CELL = "read a row", "read a cell"  # of a party's table, its ids hashed
FSYNC = "wait for the disk"  # seconds


def measure(name: str, timed: Timed) -> Found:
    """The price of a primitive and of others that come with it; empty for an unknown one."""
    head, _, operation = name.partition(": ")
    if name in price_daemons.NAMES:
        return price_daemons.measure()
    if name in (READ_ROW, READ_CELL):
        return _reading(timed)
    if name == FSYNC:
        return _waiting()
    return price_ciphers.measure(head, timed) if operation else {}


def _table(rows: int, columns: int) -> pa.Table:
    draw = np.random.default_rng(1)
    cells = {f"x{c}": draw.normal(size=rows) for c in range(columns)}
    return pa.table({"id": [f"row {n}" for n in range(rows)], **cells})


def _reading(timed: Timed) -> Found:
    """A file with few columns and one with many tell rows and cells apart."""

    def read(file: Path) -> float:
        """Return the CPU seconds that a file takes."""
        frame, _ = load_with_ids(
            SourceSpec(path=str(file)),
            Selection(dataset="data"),
            party="estimate",
            needs_label=False,
            needs_features=True,
        )
        frame.digest()
        return 1.0

    with tempfile.TemporaryDirectory() as folder:
        took = []
        for columns in (1, 21):
            file = Path(folder) / f"{columns}.parquet"
            pq.write_table(_table(ROWS, columns), file)
            took.append(timed(partial(read, file)) / ROWS)
    cell = max(1e-10, (took[1] - took[0]) / 20)
    return {READ_CELL: cell, READ_ROW: max(1e-10, took[0] - cell)}


def _waiting() -> Found:
    waits = []
    with tempfile.TemporaryFile() as file:
        for _ in range(5):
            started, spent = time.perf_counter(), time.process_time()
            file.write(os.urandom(4096))
            file.flush()
            os.fsync(file.fileno())
            waits.append(time.perf_counter() - started - (time.process_time() - spent))
    return {FSYNC: max(0.0, min(waits))}
