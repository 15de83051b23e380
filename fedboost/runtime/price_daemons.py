"""What daemons take beside a protocol's own work: echoes between real ones on this machine.

Two parties and a coordinator run the protocol `echo`; jobs that differ in their rounds, parts and
bytes alone tell what a call, a message and a byte take. Processor seconds of all three together.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
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
from fedboost.runtime.client import Client
from fedboost.runtime.cluster import Cluster
from fedboost.runtime.local import DATASET
from fedboost.runtime.workers import ProcessWorkers
from fedboost.settings import parse

CALL, MESSAGE, BYTE = "call a step", "send a message", "send a byte"  # processor seconds
JOB = "begin and end a job"  # processor seconds of a party
MEMORY, KERNELS = "memory of a daemon", "memory of compiled kernels"  # bytes
# Of a worker that moves points, and of one that has ciphers: bytes; and processor seconds.
WORKER, CIPHERS = "memory of a worker", "memory of a worker with ciphers"
SPAWN = "start a worker"
NAMES = (CALL, MESSAGE, BYTE, JOB, MEMORY, KERNELS, WORKER, CIPHERS, SPAWN)

PARTIES = ("bank", "telco")
ROUNDS, PARTS, NUMBERS = 21, 41, 1 << 16  # of the larger jobs; the smaller ones have 1
STEPS_EACH, COMMITS_EACH, MESSAGES_EACH = 3.0, 2.0, 2.0  # of a round of echo
NUMBER_BYTES = 8.0
RETRY_S = 20.0
KEY_BITS, VALUE_BITS, ROWS, MANY = 2048, 20, 64, 2048  # of what workers are given
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def measure() -> dict[str, float]:
    """All prices of daemons; a JobError where an echo does not come back."""
    with tempfile.TemporaryDirectory() as folder:
        found = _echoes(Path(folder))
    return {**found, **_worker()}


def _echoes(folder: Path) -> dict[str, float]:
    sources = {}
    for party in PARTIES:
        pq.write_table(pa.table({"id": ["a"], "x": [1.0]}), folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    with Cluster(folder / "cluster", _job(1, 1, 1), sources) as cluster:
        _run(cluster, _job(1, 1, 1))  # loads what is loaded once
        small, peaks = _run(cluster, _job(1, 1, 1))
        rounds, _ = _run(cluster, _job(ROUNDS, 1, 1))
        parts, _ = _run(cluster, _job(1, PARTS, 1))
        octets, _ = _run(cluster, _job(1, PARTS, NUMBERS))
    message = max(1e-4, (parts - small) / (PARTS - 1))
    a_round = (rounds - small) / (ROUNDS - 1) - MESSAGES_EACH * message
    return {
        CALL: max(1e-4, a_round / (STEPS_EACH + COMMITS_EACH)),
        MESSAGE: message,
        BYTE: max(1e-10, (octets - parts) / (PARTS * NUMBERS * NUMBER_BYTES)),
        JOB: small / len(PARTIES),
        MEMORY: float(peaks),
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


def _run(cluster: Cluster, spec: JobSpec) -> tuple[float, int]:
    """Processor seconds of the daemons while a job ran, and the most memory that a party held."""
    before = _spent(cluster)
    journal = asyncio.run(_journal(cluster, spec))
    for event in journal.events:
        if event.WhichOneof("what") == "finished":
            result = json.loads(event.finished.result)
            return _spent(cluster) - before, max(result["memory_peak_bytes"].values())
    raise JobError(f"an echo {journal.status.state}: {journal.status.reason.what}")


async def _journal(cluster: Cluster, spec: JobSpec) -> JobJournal:
    async with Client(cluster.client, retry_s=RETRY_S) as client:
        job = await client.submit(spec.model_dump_json().encode())
        async for _ in client.watch(job):
            pass
        return await client.journal(job)


def _spent(cluster: Cluster) -> float:
    """Processor seconds of all daemons so far."""
    total = 0
    for process in cluster.processes.values():
        text = Path(f"/proc/{process.pid}/stat").read_text()
        total += sum(int(ticks) for ticks in text.rsplit(")", 1)[1].split()[11:13])
    return total * TICK_S


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
    """What an alignment's kernels load."""
    intersection.hash_to_points([b"a"], b"estimate", workers)


def _ciphers(workers: Workers) -> None:
    """What a scheme's kernels load, with the tables of a key."""
    key = SCHEMES["paillier"].generate(KEY_BITS, workers)
    layout = GhLayout(VALUE_BITS, MANY, key.plaintext_bits)
    list(key.encrypt(np.ones((MANY, 2), np.int64), layout))


def _tree(workers: Workers) -> None:
    """What trees' kernels load, as they do at every party."""
    values = np.arange(ROWS, dtype=np.float32)[:, None]
    table = local.Table(values, (values[:, 0] > 1).astype(np.float64))
    workers.map(local.train, [(table, TreeParams(n_estimators=1))])


def _no_tree(workers: Workers) -> None:
    """The same before any kernel is compiled or read from its cache."""
    workers.map(local.add_to_margin, [(np.zeros((1, 1)), [np.zeros((1, 1))])])
