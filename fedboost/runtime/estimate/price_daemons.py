"""What daemons take beside a protocol's own work: echoes between real ones on this machine.

Two parties and a coordinator run the protocol `echo`; jobs that differ in their rounds, parts and
bytes alone tell what a call, a message and a byte take.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.core import local
from fedboost.core.params import TreeParams
from fedboost.crypto import intersection
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.crypto.workers import Workers
from fedboost.data.sources import SourceSpec
from fedboost.errors import JobError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.client.client import CoordinatorClient, result_of
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR, DATASET
from fedboost.runtime.estimate.phases import ASKED
from fedboost.runtime.process.workers import ProcessWorkers
from fedboost.settings import parse

# Processor seconds: of a party that is asked for a step, of the coordinator that asks everybody, of
# sender and receiver together.
CALL, LEAD = ASKED, "call a step"
MESSAGE, BYTE = "send a message", "send a byte"
JOB = "begin and end a job"  # processor seconds of a party
MEMORY, KERNELS = "memory of a daemon", "memory of compiled kernels"  # bytes
# Of a worker that moves points, and of one that has ciphers: bytes; and processor seconds.
WORKER, CIPHERS = "memory of a worker", "memory of a worker with ciphers"
SPAWN = "start a worker"
NAMES = (CALL, LEAD, MESSAGE, BYTE, JOB, MEMORY, KERNELS, WORKER, CIPHERS, SPAWN)

PARTIES = ("bank", "telco")
ROUNDS, PARTS, NUMBERS = 21, 41, 1 << 16  # of the larger jobs; the smaller ones have 1
# Of a round of echo: steps and commits that parties are asked for, calls that are led, messages.
ASKED_EACH, LED_EACH, MESSAGES_EACH = 5.0, 4.0, 2.0
NUMBER_BYTES = 8.0
RETRY_S = 20.0
KEY_BITS, VALUE_BITS, ROWS, MANY = 2048, 20, 64, 2048  # of what workers are given
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def measure() -> dict[str, float]:
    """Return all prices of daemons; a JobError where an echo does not come back."""
    with tempfile.TemporaryDirectory() as folder:
        found = _echoes(Path(folder))
    return {**found, **_worker()}


def _echoes(folder: Path) -> dict[str, float]:
    sources = {}
    for party in PARTIES:
        pq.write_table(pa.table({"id": ["a"], "x": [1.0]}), folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    with ClusterProcesses(folder / "cluster", _job(1, 1, 1), sources) as cluster:
        _run(cluster, _job(1, 1, 1))  # loads what is loaded once
        small = _run(cluster, _job(1, 1, 1))
        rounds = _run(cluster, _job(ROUNDS, 1, 1))
        parts = _run(cluster, _job(1, PARTS, 1))
        data = _run(cluster, _job(1, PARTS, NUMBERS))
    message = max(1e-4, (parts.parties - small.parties) / (PARTS - 1))
    asked = (rounds.parties - small.parties) / (ROUNDS - 1) - MESSAGES_EACH * message
    led = (rounds.coordinator - small.coordinator) / (ROUNDS - 1)
    return {
        CALL: max(1e-4, asked / ASKED_EACH),
        LEAD: max(1e-4, led / LED_EACH),
        MESSAGE: message,
        BYTE: max(1e-10, (data.parties - parts.parties) / (PARTS * NUMBERS * NUMBER_BYTES)),
        JOB: small.parties / len(PARTIES),
        MEMORY: float(small.memory),
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


@dataclass(frozen=True)
class _Ran:
    """Processor seconds of all parties and of the coordinator, and a party's most memory."""

    parties: float
    coordinator: float
    memory: int


def _run(cluster: ClusterProcesses, spec: JobSpec) -> _Ran:
    """Return what daemons took while a job ran."""
    before = _spent(cluster)
    journal = asyncio.run(_journal(cluster, spec))
    result = result_of(journal)
    if not result:
        raise JobError(f"an echo {journal.status.state}: {journal.status.reason.what}")
    spent = {name: own - before[name] for name, own in _spent(cluster).items()}
    leading = spent.pop(COORDINATOR)
    return _Ran(sum(spent.values()), leading, max(result["memory_peak_bytes"].values()))


async def _journal(cluster: ClusterProcesses, spec: JobSpec) -> JobJournal:
    async with CoordinatorClient(cluster.client, retry_s=RETRY_S) as client:
        job = await client.submit(spec.model_dump_json().encode())
        async for _ in client.watch(job):
            pass
        return await client.journal(job)


def _spent(cluster: ClusterProcesses) -> dict[str, float]:
    """Processor seconds of each daemon so far."""
    found = {}
    for name, process in cluster.processes.items():
        text = Path(f"/proc/{process.pid}/stat").read_text()
        found[name] = TICK_S * sum(int(ticks) for ticks in text.rsplit(")", 1)[1].split()[11:13])
    return found


def _worker() -> dict[str, float]:
    """Worker processes that have done one thing each: a point, a ciphertext, a tree."""
    works = (_points, _ciphers, _tree, _no_tree)
    peaks, spent = [], []
    for work in works:
        with ProcessWorkers(1) as workers:
            work(workers)
            spent.append(workers.map(time.process_time, [()])[0])
            peaks.append(float(workers.peak_rss_bytes()))
    return {
        WORKER: peaks[0],
        CIPHERS: peaks[1],
        SPAWN: spent[0],
        KERNELS: max(0.0, peaks[2] - peaks[3]),
    }


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
    """The same before any kernel is compiled or read from its cache."""
    workers.map(local.add_to_margin, [(np.zeros((1, 1)), [np.zeros((1, 1))])])
