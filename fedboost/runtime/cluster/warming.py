"""Small jobs that call every kernel like real jobs, so that each is compiled and kept on the disk.

There is no list of kernels or their types: the result names every marked kernel that these jobs did
not call, so a kernel without a job is noticed.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fedboost
from fedboost.core import objectives
from fedboost.data.loading import load_frame
from fedboost.data.sources import SourceSpec
from fedboost.ground import kernels
from fedboost.ground.errors import JobError
from fedboost.ground.kernels import Kernel
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.model import kinds, shards
from fedboost.runtime.cluster import local
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport import faults

GUEST, HOST = "warm-guest", "warm-host"
ROWS, COLUMNS = 300, 4
HOMES = ("core", "crypto", "data")  # the layers that may have kernels
SEVERAL = {"objective": objectives.class_objective(3), "num_class": 3}
TREE_PARAMS = {"n_estimators": 2, "max_depth": 3, "max_bin": 16}
HYBRID = {"n_estimators": 2, "guest_depth": 2, "host_depth": 2, "max_bin": 16}

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Warm:
    """A job that warms, and how its tables look."""

    protocol: str
    params: Params
    table: str = "dense"  # or "sparse"; "own": different rows at each party; "own sparse"
    classes: int = 2
    rows: int = ROWS
    group_rows_min: int = 1  # of the host's policy
    own_rows_min: int = 1  # of each party's
    bins_max: int | None = None  # of all parties' tables
    then: str = ""  # a protocol that predicts with its model
    split: str = ""  # hybridtree's own, which that one has to say again
    method: str = "auto"  # of its alignment


def _params_with_scheme(scheme: str, **more: Any) -> dict[str, Any]:
    scheme, _, answers = scheme.partition(", ")
    settings = {"answers": answers} if answers else {}
    return {**TREE_PARAMS, "encryption": {"scheme": scheme, **settings}, **more}


JOBS = {
    "lattice": Warm(
        "secureboost", _params_with_scheme("lattice, packed"), group_rows_min=20, bins_max=32
    ),
    "lattice, many rows": Warm(
        "secureboost", _params_with_scheme("lattice, vectors", max_bin=2), rows=2000
    ),
    "lattice, sparse": Warm(
        "secureboost", _params_with_scheme("lattice"), table="sparse", bins_max=32, then="predict"
    ),
    "lattice, classes": Warm("secureboost", _params_with_scheme("lattice", **SEVERAL), classes=3),
    "lattice, noise": Warm("secureboost", _params_with_scheme("lattice-4096", host_noise=1.0)),
    "plain": Warm("secureboost", _params_with_scheme("plain"), group_rows_min=20, then="predict"),
    "plain, sparse": Warm("secureboost", _params_with_scheme("plain"), table="sparse"),
    "plain, classes": Warm("secureboost", _params_with_scheme("plain", **SEVERAL), classes=3),
    "affine": Warm("secureboost", _params_with_scheme("iterative-affine", allow_insecure=True)),
    "numbers": Warm("secureboost", _params_with_scheme("okamoto-uchiyama")),
    "vertical": Warm("federboost-vertical", {**TREE_PARAMS, "buckets": 8}, method="oprf"),
    "horizontal": Warm(
        "federboost-horizontal",
        {**TREE_PARAMS, "quantile_tolerance": 10},
        table="own",
        own_rows_min=5,
    ),
    "networks": Warm("gbun", {"n_estimators": 3, "outputs": 4}, table="own"),
    "networks, sparse": Warm("gbun", {"n_estimators": 2, "outputs": 4}, table="own sparse"),
    "networks, bins": Warm(
        "gbun",
        {"n_estimators": 2, "outputs": 4, "columns": "bins", "quantile_tolerance": 10},
        table="own sparse",
        own_rows_min=5,
    ),
    "hybrid": Warm("hybridtree", {**HYBRID, "encryption": {"scheme": "lattice"}}),
    "hybrid, plain": Warm(
        "hybridtree",
        {**HYBRID, "encryption": {"scheme": "plain"}},
        group_rows_min=20,
        then="predict-hybrid",
        split="scored",
    ),
    "hybrid, unscored": Warm(
        "hybridtree",
        {**HYBRID, "split": "unscored", "encryption": {"scheme": "plain"}},
        then="predict-hybrid",
        split="unscored",
    ),
}


@dataclass
class Warmed:
    """Result of warming."""

    seconds: float = 0.0
    compiled: list[str] = field(default_factory=list)  # kernels, once for each of their types
    read: int = 0  # already on the disk
    cold: list[str] = field(default_factory=list)  # kernels without a call


def warm_kernels(tell: Callable[[int, str], None] = lambda _number, _job: None) -> Warmed:
    """Run the jobs; `tell` receives the number, from 1, and name of each before it runs.

    Raise JobError if one fails.
    """
    started, warmed = time.monotonic(), Warmed()
    import_kernel_modules()
    with record_compilations(warmed.compiled), tempfile.TemporaryDirectory() as scratch:
        for number, (name, job) in enumerate(JOBS.items(), start=1):
            tell(number, name)
            asyncio.run(_run_jobs(Path(scratch) / str(number), name, job))
    ready = [kernel for kernel in kernels.marked_kernels() if kernel.compiled.signatures]
    parts = {inner.name for kernel in ready for inner in kernel.parts()}
    names = {kernel.name for kernel in ready} | parts
    warmed.cold = [kernel.name for kernel in kernels.marked_kernels() if kernel.name not in names]
    warmed.read = read_from_disk(ready)
    warmed.seconds = time.monotonic() - started
    return warmed


def read_from_disk(ready: Iterable[Kernel]) -> int:
    """Return how many times kernels were read from the disk, once for each of their types."""
    return sum(len(kernel.compiled.stats.cache_hits) for kernel in ready)


def import_kernel_modules() -> None:
    """Import every module that may have kernels, so that `kernels.marked_kernels` has all."""
    for home in HOMES:
        package = importlib.import_module(f"{fedboost.__name__}.{home}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


@contextmanager
def record_compilations(compiled: list[str]) -> Iterator[None]:
    """Add the name of each kernel that numba compiles, once for each of its types."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            compiled.append(f"{function.__module__}.{function.__qualname__}")

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


async def _run_jobs(folder: Path, name: str, job: Warm) -> None:
    spec, sources = _training_or_prediction(job), _write_tables(folder / "tables", job)
    async with local.open_cluster(folder, spec, sources, Serial()) as cluster:
        for node in cluster.parties.values():
            keys = {"group_rows_min": job.group_rows_min, "own_rows_min": job.own_rows_min}
            policy = node.config.policy.model_copy(update=keys)
            tables = {
                name: table.model_copy(update={"bins_max": job.bins_max})
                for name, table in node.config.datasets.items()
            }
            update = {"policy": policy, "datasets": tables}
            node.config = node.config.model_copy(update=update)
        trained = await _run_to_end(cluster, spec, name)
        if job.then:
            await _run_to_end(cluster, _training_or_prediction(job, model=trained), name)
        if job.table.startswith("own"):
            shard = shards.load_shard(folder / "var" / GUEST / "models" / trained)
            guest_data = spec.data[GUEST]
            frame = load_frame(sources[GUEST], guest_data, party=GUEST, needs_label=True)
            kinds.kind_of(shard.facts).predict_alone(shard, frame)
            frame.ids.find(frame.ids)  # as alignments with several hosts do


async def _run_to_end(cluster: local.LocalCluster, spec: JobSpec, name: str) -> str:
    """Run a job; return its id."""
    ended = (await cluster.run(spec)).status
    if ended.state != JobState.FINISHED:
        why = "; ".join(faults.error_of_fault(ended.reason).lines())
        raise JobError(
            f"the job {name!r}, which warms kernels, failed: {why}",
            todo="fedboost warm -v shows its log",
        )
    return ended.id


def _training_or_prediction(job: Warm, model: str = "") -> JobSpec:
    """Return the job, or the job that predicts with a model of it."""
    parties: dict[str, Any] = {"guest": GUEST, "hosts": [HOST]}
    data: dict[str, Any] = {party: {"dataset": local.DATASET} for party in (GUEST, HOST)}
    is_own = job.table.startswith("own")
    for party in (GUEST, HOST) if is_own else (GUEST,):
        data[party]["label"] = "y"
    if not is_own and "sparse" in job.table:
        data[HOST]["ignore"] = ["y"]
    if job.table == "dense" and job.protocol == "secureboost":
        data[GUEST]["categorical"] = data[HOST]["categorical"] = ["kind"]
    if is_own:
        parties["aggregator"] = GUEST
    raw: dict[str, Any] = {"name": "warm", "parties": parties, "data": data}
    if model:
        data[GUEST].pop("label")
        if "sparse" in job.table:
            data[GUEST]["ignore"] = ["y"]
        params = {"model": model} | ({"split": job.split} if job.split else {})
        return parse_settings(JobSpec, {**raw, "protocol": job.then, "params": params})
    held = {"fraction": 0.2, "seed": 7}
    more = {"protocol": job.protocol, "validation": held, "params": dict(job.params)}
    if job.method != "auto":
        more["alignment"] = {"method": job.method}
    return parse_settings(JobSpec, {**raw, **more})


def _write_tables(folder: Path, job: Warm) -> dict[str, SourceSpec]:
    """Write the parties' tables to files; the labels follow the columns of both."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(1)
    tables_made = {}
    for party in (GUEST, HOST):
        values = np.round(draw.normal(size=(job.rows, COLUMNS)), 2)
        label = np.clip(np.round(values[:, 0] + 1), 0, job.classes - 1).astype(int)
        values[draw.random(values.shape) < 0.1] = 0.0 if "sparse" in job.table else np.nan
        is_sparse = "sparse" in job.table
        path = folder / f"{party}.{'svmlight' if is_sparse else 'parquet'}"
        if is_sparse:
            _write_sparse(path, values, label)
        else:
            columns: dict[str, Any] = {f"x{n}": values[:, n] for n in range(COLUMNS)}
            ids = [f"{party}{n}" if job.table == "own" else f"p{n}" for n in range(job.rows)]
            if job.table == "dense" and job.protocol == "secureboost":
                columns["kind"] = [("a", "b", "c")[n % 3] for n in range(job.rows)]
            if party == GUEST or job.table == "own":
                columns["y"] = label
            pq.write_table(pa.table({"id": ids, **columns}), path)
        tables_made[party] = SourceSpec(path=str(path))
    return tables_made


def _write_sparse(path: Path, values: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> None:
    with path.open("w", encoding="ascii") as file:
        for row, y in zip(values, label, strict=True):
            cells = " ".join(f"{n + 1}:{value}" for n, value in enumerate(row) if value)
            file.write(f"{y} {cells}\n")
