"""Runner of a job with every party in this process, on its own event loop and thread.

So it works in a notebook with a running loop, and in several threads at once. Parties write to a
temporary folder that is deleted when the job ends.
"""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.reading import TableInMemory
from fedboost.data.sheet import Sheet
from fedboost.flow import Artefact
from fedboost.ground.workers import Serial, Workers
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, JobJournal
from fedboost.model import shards
from fedboost.report.story import read_story
from fedboost.runtime.cluster import local
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.process.bridge import run_to_end
from fedboost.runtime.process.workers import ProcessWorkers
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults

T = TypeVar("T")
Hear = Callable[[Event], None]
TABLE_NAME = "X"  # name of a party's table in errors
MEMORY_FOLDER = "/dev/shm"  # noqa: S108  the folder made in it has a name of its own and is only ours
MEMORY_MIN = 1 << 29  # free bytes without which it is left alone
CELL_BYTES = 64  # of checkpoints, alignments and ledgers, for each cell of the tables


@dataclass(frozen=True, repr=False)
class Ended:
    """The outputs of a finished job at its parties."""

    journal: bytes  # a JobJournal
    result: dict[str, Any]
    shards: dict[str, Artefact]  # of the model that it trained, by party
    sent: dict[str, list[Row]]  # by party, the ledger's rows of messages to peers
    predictions: pa.Table | None  # of the guest, where it has scored rows


def run(
    spec: JobSpec,
    sheets: Mapping[str, Sheet],
    hear: Hear,
    *,
    workers: int | None = None,
    model: Mapping[str, Artefact] | None = None,
) -> Ended:
    """Run a job to its end; `hear` gets its events in the calling thread.

    `workers` processes do arithmetic on large numbers (1: this process does, None: one for each
    core); `model` are the shards of an earlier job's model that this one uses. Raise the error of a
    job that did not finish. Ctrl-C stops it.
    """
    sources = {party: TableInMemory.of(sheet, TABLE_NAME) for party, sheet in sheets.items()}
    heard: queue.SimpleQueue[Event | None] = queue.SimpleQueue()

    async def run_in_folder(folder: Path) -> Ended:
        try:
            with _workers(workers) as pool:
                async with local.open_cluster(folder, spec, sources, pool) as cluster:
                    return _collect_outputs(await cluster.rehearse().run(spec, heard.put), cluster)
        finally:
            heard.put(None)

    with tempfile.TemporaryDirectory(prefix="fedboost-", dir=_memory_folder(sheets)) as scratch:
        for party, shard in (model or {}).items():
            folder = Path(scratch) / "var" / party / "models"
            shards.save_shard(shards.folder_of(folder, shard.facts["job"]), shard)
        return _run_in_thread(run_in_folder(Path(scratch)), heard, hear)


def _memory_folder(sheets: Mapping[str, Sheet]) -> str | None:
    """Return a folder in memory with enough space, or None for the default temporary folder.

    A party waits for the disk with every message that it sends, so that a crash cannot lose its
    record. Files here need not outlive the process, so memory is enough.
    """
    if os.environ.get("TMPDIR") or not os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
        return None
    cells = sum(sheet.n_rows * (len(sheet.columns.columns) + 8) for sheet in sheets.values())
    free = shutil.disk_usage(MEMORY_FOLDER).free
    return MEMORY_FOLDER if free > MEMORY_MIN + cells * CELL_BYTES else None


@contextmanager
def _workers(count: int | None) -> Iterator[Workers]:
    if count == 1:
        yield Serial()
        return
    with ProcessWorkers(count or len(os.sched_getaffinity(0))) as pool:
        yield pool


def _collect_outputs(journal: JobJournal, cluster: local.LocalCluster) -> Ended:
    """Collect a finished job's outputs from its parties; raise the error of any other job."""
    status = journal.status
    if status.state != JobState.FINISHED:
        raise faults.error_of_fault(status.reason)
    story = read_story(journal)
    trained, written = {}, None
    for name, node in cluster.parties.items():
        folder = shards.folder_of(node.store.folder / "models", status.id)
        if (folder / shards.FACTS).is_file():
            trained[name] = shards.load_shard(folder)
        file = node.store.folder / "predictions" / f"{status.id}.parquet"
        if name == story.guest and file.is_file():
            written = pq.ParquetFile(file).read()
    sent = {
        name: [row for row in node.ledger.rows(status.id) if row.direction == "out"]
        for name, node in cluster.parties.items()
    }
    result = {**(cluster.coordinator.store.job(status.id).result or {}), "report": ""}
    return Ended(journal.SerializeToString(), result, trained, sent, written)


def _run_in_thread(
    work: Coroutine[Any, Any, T], heard: queue.SimpleQueue[Event | None], hear: Hear
) -> T:
    """Run a coroutine in a thread, on its own loop, and handle its events here.

    An interrupt of the caller cancels it, and is raised after all its work has ended.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    ended: Future[T] = Future()

    async def run_cancellably() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await run_to_end(work)

    def run_thread() -> None:
        try:
            ended.set_result(asyncio.run(run_cancellably()))
        except BaseException as error:  # it is raised in the caller's thread
            ended.set_exception(error)

    thread = threading.Thread(target=run_thread, name="fedboost-job", daemon=True)
    thread.start()
    try:
        while (event := heard.get()) is not None:
            hear(event)
        return ended.result()
    except BaseException:
        if not ended.done():
            loop, task = begun.result()
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
