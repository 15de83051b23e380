"""What this machine takes for each primitive: measured when first asked for, then kept.

Processor seconds of one core, the least of a few batches, so that other work on the machine
disturbs little; but with the other cores at work, as they are in a job, since cores share caches
and memory. Kept in ~/.cache/fedboost by machine and version.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost import __version__
from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.disk import PUBLIC_MODE, make_folder, write_file
from fedboost.errors import ConfigError, StoreError
from fedboost.runtime.estimate import price_ciphers, price_daemons
from fedboost.runtime.estimate.price_ciphers import Batch, Found

FORMAT = 3
BATCHES = 3  # of each primitive at least
LEAST_S = 0.05  # of processor time, and at most
MOST_S = 1.5  # once it takes so long, one batch is enough
NEIGHBOUR_CELLS = 1 << 21  # 16 MB, more than a core's own cache

READ_ROW, READ_CELL = "read a row", "read a cell"  # of a party's table, its ids hashed
FSYNC = "wait for the disk"  # seconds
TABLE_ROWS, TABLE_COLUMNS = 20_000, (1, 21)  # of the tables that are read


def fingerprint() -> str:
    """Return a hash of the machine and the programs that are measured: others have other prices."""
    facts = [__version__, str(FORMAT), platform.machine(), platform.python_version(), _model()]
    facts.append(str(len(os.sched_getaffinity(0))))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def cache_file(home: Path) -> Path:
    """Return where this machine's prices are kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "fedboost" / f"prices-{fingerprint()}.json"


@dataclass
class Prices:
    """Seconds by primitive; `of` measures what is not known yet and keeps it."""

    file: Path | None = None  # None: nothing is kept
    known: dict[str, float] = field(default_factory=dict)
    measured: list[str] = field(default_factory=list)  # by this object, not found in the file

    @classmethod
    def load(cls, file: Path | None, *, anew: bool = False) -> Prices:
        """Read the prices in a file; none where it is absent, damaged or to be measured `anew`."""
        if file is None or anew:
            return cls(file)
        try:
            raw = json.loads(file.read_text())
            known = {str(name): float(price) for name, price in raw.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            known = {}
        return cls(file, known)

    def of(
        self, names: Iterable[str], say: Callable[[str], None] | None = None
    ) -> Mapping[str, float]:
        """Seconds for one of each; a ConfigError for a primitive that nobody can measure."""
        missing = sorted(set(names) - self.known.keys())
        with neighbours(len(os.sched_getaffinity(0)) - 1 if missing else 0):
            for name in missing:
                self._measure(name, say)
        if self.measured and self.file is not None:
            self._keep(self.file)
        return self.known

    def _measure(self, name: str, say: Callable[[str], None] | None) -> None:
        if name in self.known:  # it has come with another one
            return
        if say is not None:
            say(name)
        found = measure(name)
        self.known.update(found)
        self.measured += found
        if name not in self.known:
            raise ConfigError(f"nobody knows what it takes to {name!r}")

    def _keep(self, file: Path) -> None:
        try:
            make_folder(file.parent)
            write_file(file, json.dumps(self.known, indent=1).encode(), PUBLIC_MODE)
        except StoreError:  # a home that cannot be written to: measured again next time
            return


def measure(name: str) -> Found:
    """The price of a primitive and of others that come with it; empty for an unknown one."""
    if name in price_daemons.NAMES:
        return price_daemons.measure()
    if name in (READ_ROW, READ_CELL):
        return _reading()
    if name == FSYNC:
        return _waiting()
    cipher, _, operation = name.partition(": ")
    return price_ciphers.measure(cipher, timed) if operation else {}


def _reading() -> Found:
    """A file with few columns and one with many tell rows and cells apart."""

    def read(file: Path) -> float:
        """Return how many files have been read."""
        source, wanted = SourceSpec(path=str(file)), Selection(dataset="data")
        frame, _ = load_with_ids(
            source, wanted, party="estimate", needs_label=False, needs_features=True
        )
        frame.digest()
        return 1.0

    draw, took = np.random.default_rng(1), []
    with tempfile.TemporaryDirectory() as folder:
        for columns in TABLE_COLUMNS:
            cells = {f"x{column}": draw.normal(size=TABLE_ROWS) for column in range(columns)}
            ids = [f"row {row}" for row in range(TABLE_ROWS)]
            file = Path(folder) / f"{columns}.parquet"
            pq.write_table(pa.table({"id": ids, **cells}), file)
            took.append(timed(partial(read, file)) / TABLE_ROWS)
    few, many = TABLE_COLUMNS
    cell = max(1e-10, (took[1] - took[0]) / (many - few))
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


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keeps so many cores at work meanwhile."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=_work, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.terminate()
            one.join()


def _work(parent: int) -> None:
    """Moves numbers through memory, as the parties of a job do, until the parent is gone."""
    cells = np.ones(NEIGHBOUR_CELLS)
    others = np.zeros(NEIGHBOUR_CELLS)
    while os.getppid() == parent:
        np.add(cells, others, out=others)
        np.multiply(cells, 0.5, out=others)


def timed(batch: Batch) -> float:
    """Processor seconds of one, the least of several batches; the first fills tables and caches."""
    started = time.process_time()
    batch()
    if time.process_time() - started > MOST_S:
        started = time.process_time()
        return _seconds(batch)
    found: list[float] = []
    begun = time.process_time()
    while len(found) < BATCHES or time.process_time() - begun < LEAST_S:
        found.append(_seconds(batch))
        if time.process_time() - begun > MOST_S:
            break
    return min(found)


def _seconds(batch: Batch) -> float:
    started = time.process_time()
    done = batch()
    return (time.process_time() - started) / max(done, 1e-12)


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")
