"""Whole jobs on a cluster in this process: their tables as files, and jobs that break off once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobId, JobJournal
from fedboost.model import shards
from fedboost.runtime.cluster.local import LocalCluster
from tests.support.federated import GUEST


def written(folder: Path, tables: Mapping[str, pa.Table]) -> dict[str, SourceSpec]:
    """The tables as files in a folder, by party."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {}
    for party, table in tables.items():
        pq.write_table(table, folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
    return sources


async def resumed(cluster: LocalCluster, spec: JobSpec) -> JobJournal:
    """Run a job that pauses, resume it, and give its journal once it rests again."""
    paused = await cluster.run(spec)
    assert paused.status.state == "paused"
    return await again(cluster, JobId(id=paused.status.id))


async def again(cluster: LocalCluster, job: JobId) -> JobJournal:
    """Resume a job, and give its journal once it rests again."""
    await cluster.coordinator.resume(cluster.user, job)
    async for _ in cluster.events(job.id):
        pass
    return await cluster.coordinator.journal(cluster.user, job)


def models(cluster: LocalCluster, job: str) -> dict[str, Any]:
    """The shards that a job has left, by party."""
    folders = {party: node.store.folder / "models" for party, node in cluster.parties.items()}
    return {party: shards.load_shard(folder / job) for party, folder in folders.items()}


def breaking(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    step: str,
    times: int,
    note: Callable[[Any], Any] = lambda state: None,
    error: FedboostError | None = None,
) -> list[Any]:
    """Have a step fail when it comes for the n-th time, as where the guest has lost its memory;
    gives a list that grows by what `note` finds in the state each time.
    """
    noted: list[Any] = []
    real = getattr(module, step)

    def failing(state: Any, *received: Any) -> Any:
        noted.append(note(state))
        if len(noted) == times:
            raise error or UnreachableError("the guest's memory is gone", party=GUEST)
        return real(state, *received)

    monkeypatch.setattr(module, step, failing)
    return noted
