"""A guest's job that can be replayed: one host, small tables, and what the replay says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data.sources import SourceSpec
from fedboost.ground.workers import Serial, Workers
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import LocalCluster, open_cluster
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.party.owner import replays
from fedboost.runtime.party.owner.replay_results import ReplayResult
from fedboost.runtime.transport.addresses import Timers
from tests.support.federated import job_spec
from tests.support.whole_jobs import written

GUEST, HOST = "bank", "telco"
ROWS = 240
LATTICE = {"encryption": {"scheme": "lattice"}}
TREES: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "max_bin": 8, **LATTICE}

Run = Callable[[LocalCluster, JobSpec], Any]


def host_values(rows: int = ROWS) -> np.ndarray:
    """What the host alone knows, float64 (rows, 2)."""
    return np.random.default_rng(5).normal(size=(rows, 2))


def tables(rows: int = ROWS, **columns: Any) -> dict[str, pa.Table]:
    """A guest's labels, which hang on the host's columns, and the host's; ids in two orders.

    `columns` are more of the guest's, or stand in place of its own.
    """
    draw, values = np.random.default_rng(4), host_values(rows)
    ids = np.array([f"p{row:04d}" for row in range(rows)])
    own = draw.normal(size=rows)
    label = (values[:, 0] + own + 0.5 * draw.normal(size=rows) > 0).astype(float)
    order = draw.permutation(rows)
    bank = {"id": ids, "y": label, "z": own, **columns}
    telco = {"id": ids[order], "c0": values[order, 0], "c1": values[order, 1]}
    return {GUEST: pa.table(bank), HOST: pa.table(telco)}


def spec(
    *, replayable: bool = True, data: Mapping[str, Any] | None = None, **params: Any
) -> JobSpec:
    """A job that its guest can replay."""
    made = job_spec(
        "secureboost", (GUEST, HOST), params={**TREES, **params}, data={GUEST: data or {}}
    )
    return made.model_copy(update={"replayable": replayable})


class Trained:
    """A job that has run: where its parties' settings are, and the job's id."""

    def __init__(self, configs: Mapping[str, PartyConfig], job: str, state: str) -> None:
        self.configs, self.job, self.state = dict(configs), job, state

    @property
    def store(self) -> Path:
        """The guest's store."""
        return self.configs[GUEST].store

    def replay(self, workers: Workers | None = None) -> ReplayResult:
        """What the guest's machine says now."""
        return replays.replay_job(self.configs[GUEST], self.job, workers or Serial())


def trained(
    folder: Path,
    job: JobSpec,
    given: Mapping[str, pa.Table] | None = None,
    *,
    change: Callable[[pytest.MonkeyPatch], None] | None = None,
    run: Run = LocalCluster.run,
    timers: Timers | None = None,
) -> Trained:
    """Run a job; `change` is what the guest's program does otherwise meanwhile."""
    sources = written(folder, given or tables())
    weight = job.data[GUEST].weight
    if weight is not None:
        path = sources[GUEST].path
        sources[GUEST] = SourceSpec(path=path, labels=["y"], weights=[weight])

    async def work() -> Trained:
        async with open_cluster(folder / "c", job, sources, Serial(), timers=timers) as made:
            status = (await run(made, job)).status
            configs = {name: node.config for name, node in made.parties.items()}
            return Trained(configs, status.id, status.state)

    with pytest.MonkeyPatch.context() as patch:
        if change is not None:
            change(patch)
        return asyncio.run(work())
