"""What this machine takes for each primitive: measured when first asked for, then kept.

Processor seconds of one core, the least of a few batches, so that other work on the machine
disturbs little; but with the other cores at work, as they are in a job, since cores share caches
and memory. Kept in ~/.cache/fedboost by machine and version.
"""

from __future__ import annotations

import asyncio
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
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost import __version__
from fedboost.core import local
from fedboost.core.params import TreeParams
from fedboost.crypto import intersection
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.disk import PUBLIC_MODE, make_folder, write_file
from fedboost.ground.errors import ConfigError, JobError, StoreError
from fedboost.ground.settings import parse
from fedboost.ground.workers import Workers
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR, DATASET
from fedboost.runtime.estimate import price_ciphers
from fedboost.runtime.estimate.phases import ASKED
from fedboost.runtime.estimate.price_ciphers import Batch, Found
from fedboost.runtime.process.threads import cores
from fedboost.runtime.process.workers import ProcessWorkers

FORMAT = 3
BATCHES = 3  # of each primitive at least
LEAST_S = 0.05  # of processor time, and at most
MOST_S = 1.5  # once it takes so long, one batch is enough
NEIGHBOUR_CELLS = 1 << 21  # 16 MB, more than a core's own cache

READ_ROW, READ_CELL = "read a row", "read a cell"  # of a party's table, its ids hashed
FSYNC = "wait for the disk"  # seconds
TABLE_ROWS, TABLE_COLUMNS = 20_000, (1, 21)  # of the tables that are read

# Processor seconds: of a party that is asked for a step, of the coordinator that asks everybody, of
# sender and receiver together.
CALL, LEAD = ASKED, "call a step"
MESSAGE, BYTE = "send a message", "send a byte"
JOB = "begin and end a job"  # processor seconds of a party
MEMORY, KERNELS = "memory of a daemon", "memory of compiled kernels"  # bytes
# Of a worker that moves points, and of one that has ciphers: bytes; and processor seconds.
WORKER, CIPHERS = "memory of a worker", "memory of a worker with ciphers"
SPAWN = "start a worker"
DAEMONS = (CALL, LEAD, MESSAGE, BYTE, JOB, MEMORY, KERNELS, WORKER, CIPHERS, SPAWN)

PARTIES = ("bank", "telco")
ROUNDS, PARTS, NUMBERS = 21, 41, 1 << 16  # of the larger jobs; the smaller ones have 1
# Of a round of echo: steps and commits that parties are asked for, calls that are led, messages.
ASKED_EACH, LED_EACH, MESSAGES_EACH = 5.0, 4.0, 2.0
NUMBER_BYTES = 8.0
RETRY_S = 20.0
KEY_BITS, VALUE_BITS, ROWS, MANY = 2048, 20, 64, 2048  # of what workers are given


def fingerprint() -> str:
    """Return a hash of the machine and the programs that are measured: others have other prices."""
    facts = [__version__, str(FORMAT), platform.machine(), platform.python_version(), _model()]
    facts.append(str(cores()))
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
        with neighbours(cores() - 1 if missing else 0):
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
        prices = measure(name)
        self.known.update(prices)
        self.measured += prices
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
    if name in DAEMONS:
        return _daemons()
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
        frame, _ = load_with_ids(source, wanted, party="estimate", needs_features=True)
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
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.terminate()
            process.join()


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
        return _seconds(batch)
    seconds: list[float] = []
    begun = time.process_time()
    while len(seconds) < BATCHES or time.process_time() - begun < LEAST_S:
        seconds.append(_seconds(batch))
        if time.process_time() - begun > MOST_S:
            break
    return min(seconds)


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


# What daemons take beside a protocol's own work: two parties and a coordinator run the protocol
# `echo`; jobs that differ in their rounds, parts and bytes alone tell what a call, a message and a
# byte take.


def _daemons() -> Found:
    """Return all prices of daemons; a JobError where an echo does not come back."""
    with tempfile.TemporaryDirectory() as folder:
        prices = _echoes(Path(folder))
    # Of worker processes that have done one thing each.
    (worker, spawn), (ciphers, _), (tree, _), (no_tree, _) = (
        _worker(work) for work in (_points, _ciphers, _tree, _no_tree)
    )
    kernels = max(0.0, tree - no_tree)
    return {**prices, WORKER: worker, CIPHERS: ciphers, SPAWN: spawn, KERNELS: kernels}


def _echoes(folder: Path) -> dict[str, float]:
    sources = {}
    for party in PARTIES:
        pq.write_table(pa.table({"id": ["a"], "x": [1.0]}), folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    with ClusterProcesses(folder / "cluster", _job(1, 1, 1), sources) as cluster:
        _run(cluster, _job(1, 1, 1))  # loads what is loaded once
        small, leading, memory = _run(cluster, _job(1, 1, 1))
        rounds, leading_rounds, _ = _run(cluster, _job(ROUNDS, 1, 1))
        parts, _, _ = _run(cluster, _job(1, PARTS, 1))
        data, _, _ = _run(cluster, _job(1, PARTS, NUMBERS))
    message = max(1e-4, (parts - small) / (PARTS - 1))
    call = (rounds - small) / (ROUNDS - 1) - MESSAGES_EACH * message
    led = (leading_rounds - leading) / (ROUNDS - 1)
    return {
        CALL: max(1e-4, call / ASKED_EACH),
        LEAD: max(1e-4, led / LED_EACH),
        MESSAGE: message,
        BYTE: max(1e-10, (data - parts) / (PARTS * NUMBERS * NUMBER_BYTES)),
        JOB: small / len(PARTIES),
        MEMORY: memory,
    }


def _job(rounds: int, parts: int, numbers: int) -> JobSpec:
    raw = {
        "name": "estimate",
        "protocol": "echo",
        "parties": {"guest": PARTIES[0], "hosts": [PARTIES[1]]},
        "data": {party: {"dataset": DATASET} for party in PARTIES},
        "params": {"rounds": rounds, "parts": parts, "numbers": numbers},
    }
    return parse(JobSpec, raw)


def _run(cluster: ClusterProcesses, spec: JobSpec) -> tuple[float, float, float]:
    """Return a job's processor seconds, of parties and of the coordinator, and a party's memory."""
    before = _spent(cluster)
    journal = asyncio.run(_journal(cluster, spec))
    result = result_of(journal)
    if not result:
        raise JobError(f"an echo {journal.status.state}: {journal.status.reason.what}")
    spent = {name: seconds - before[name] for name, seconds in _spent(cluster).items()}
    leading = spent.pop(COORDINATOR)
    return sum(spent.values()), leading, float(max(result["memory_peak_bytes"].values()))


async def _journal(cluster: ClusterProcesses, spec: JobSpec) -> JobJournal:
    async with CoordinatorClient(cluster.client, retry_s=RETRY_S) as client:
        job = await client.submit(spec.model_dump_json().encode())
        async for _ in client.watch(job):
            pass
        return await client.journal(job)


def _spent(cluster: ClusterProcesses) -> dict[str, float]:
    """Processor seconds of each daemon so far."""
    processes = {name: psutil.Process(it.pid) for name, it in cluster.processes.items()}
    spent = {name: process.cpu_times() for name, process in processes.items()}
    return {name: times.user + times.system for name, times in spent.items()}


def _worker(work: Callable[[Workers], object]) -> tuple[float, float]:
    """Return the bytes and the processor seconds of a worker process that has done some work."""
    with ProcessWorkers(1) as workers:
        work(workers)
        spent = workers.map(time.process_time, [()])[0]
        return float(workers.peak_rss_bytes()), spent


def _points(workers: Workers) -> None:
    """Load an alignment's kernels."""
    intersection.hash_to_points([b"a"], b"estimate", workers)


def _ciphers(workers: Workers) -> None:
    """Load a scheme's kernels, with the tables of a key."""
    key = SCHEMES["paillier"].generate(KEY_BITS, workers)
    layout = GhLayout(VALUE_BITS, MANY, key.plaintext_bits)
    list(key.encrypt(np.ones((MANY, 2), np.int64), layout))


def _tree(workers: Workers) -> None:
    """Load trees' kernels, as every party does."""
    values = np.arange(ROWS, dtype=np.float32)[:, None]
    table = local.TrainingTable(values, (values[:, 0] > 1).astype(np.float64))
    workers.map(local.train, [(table, TreeParams(n_estimators=1))])


def _no_tree(workers: Workers) -> None:
    """Load what trees need, without any kernel."""
    workers.map(local.add_to_margin, [(np.zeros((1, 1)), [np.zeros((1, 1))])])
