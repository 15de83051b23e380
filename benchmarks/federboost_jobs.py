"""The jobs of the FederBoost benchmark: data, parties, settings, and daemons that run them."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import harness, tables
from benchmarks.harness import JobRun
from benchmarks.tables import GUEST, HOST, Table
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import DATASET

Params = Mapping[str, Any]
Parts = dict[str, tuple[str, ...]]

UTILITY = ("give_credit", "default_credit", "susy_30k")  # of Figure 5
DATA = (*UTILITY, "covtype")
POSITIVE = {"covtype": 1}  # the class that stands against the rest: the second one
SEED = 7
BEST = 16  # buckets with which the paper's noise is measured
HELD = 1 / 3  # of the rows, for testing
SHARED: dict[str, Any] = {
    **{"learning_rate": 0.3, "reg_lambda": 1.0, "max_bin": 32},
    **{"buckets": BEST, "epsilon": None},
}
OF_XGBOOST = ("n_estimators", "max_depth", "learning_rate", "reg_lambda")
TREES: dict[str, dict[str, Any]] = {  # section 6 of the paper
    "give_credit": {"n_estimators": 20, "max_depth": 3},
    "default_credit": {"n_estimators": 20, "max_depth": 3},
    "susy_30k": {"n_estimators": 60, "max_depth": 4},
    "covtype": {"n_estimators": 32, "max_depth": 4},
}


@dataclass(frozen=True)
class Compared:
    """A row of Table 2 or 3 of the paper."""

    title: str
    data: str
    rows: int
    columns: int
    trees: int
    paper_s: float
    parties: int = 3

    @property
    def params(self) -> dict[str, Any]:
        """So many trees of four layers, at the settings that all jobs share."""
        return {**timed(self.data), "n_estimators": self.trees, "max_depth": 4}

    def table(self) -> Table:
        """Some rows and the first columns."""
        return first_columns(load(self.data).sample(self.rows, SEED), self.columns)


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None  # of a data set at most; None: all
    seeds: tuple[int, ...]  # each a split of its own, and noise of its own
    buckets: tuple[int, ...]
    epsilons: tuple[float, ...]
    compared: tuple[Compared, ...]
    repeats: int  # timed jobs, of which the median counts; one more goes before them
    daemons: tuple[int, ...]  # parties, each a daemon
    walked: tuple[int, ...]  # parties in one process

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        second = Compared("Table 2", "susy_30k", 8192, 11, trees=200, paper_s=1.213)
        third = Compared("Table 3", "covtype", 50_000, 15, trees=32, paper_s=32.4)
        if quick:
            return cls(
                rows=6000, seeds=(0, 1), buckets=(4, 16, 32), epsilons=(1.0, 4.0, 8.0),
                compared=(second, replace(third, rows=6000)), repeats=2,
                daemons=(2,), walked=(2, 8, 32),
            )  # fmt: skip
        return cls(
            rows=None, seeds=tuple(range(5)), buckets=tuple(range(4, 33, 4)),
            epsilons=tuple(map(float, range(1, 9))), compared=(second, third), repeats=5,
            daemons=(2, 4), walked=(2, 4, 8, 16, 32),
        )  # fmt: skip

    def table(self, name: str) -> Table:
        """The rows of a data set that this run uses."""
        most = 50_000 if name == "covtype" else 1 << 62
        return load(name).sample(min(most, self.rows or most), SEED)


def load(name: str) -> Table:
    """A table with two classes."""
    table = tables.load(name)
    positive = POSITIVE.get(name)
    return table if positive is None else replace(table, y=(table.y == positive).astype(np.int64))


def first_columns(table: Table, count: int) -> Table:
    """The table without the columns behind the first ones."""
    values = np.asfortranarray(table.values[:, :count])
    return replace(table, values=values, columns=table.columns[:count])


def rows_of(table: Table, kept: Any) -> Table:
    """The table's rows where bool (n,) `kept` says so."""
    values = np.asfortranarray(table.values[kept])
    return replace(table, id=table.id[kept], y=table.y[kept], values=values)


def parts(table: Table, parties: int) -> Parts:
    """Who has which columns, the guest first.

    Two parties as in the papers' code where that is known; else equal shares, in order.
    """
    if parties == 2 and table.name in tables.HOST_COLUMNS:
        return tables.vertical(table)
    hosts = [HOST] if parties == 2 else [f"{HOST}{k}" for k in range(1, parties)]
    shares = np.array_split(np.arange(len(table.columns)), parties)
    return {
        party: tuple(table.columns[i] for i in share)
        for party, share in zip((GUEST, *hosts), shares, strict=True)
    }


def params(name: str, **more: Any) -> dict[str, Any]:
    """The paper's trees for a data set, at the settings that all jobs share, and `more`."""
    return {**SHARED, **TREES[name], "eval_metric": ["auc"], **more}


def timed(name: str) -> dict[str, Any]:
    """The same with the metric that takes least time: XGBoost, beside it, measures nothing."""
    return params(name, eval_metric=["error"])


def xgboost_params(given: Params) -> dict[str, Any]:
    """What XGBoost is told of the same; its own bins are its default's."""
    return {name: given[name] for name in OF_XGBOOST}


def job(table: Table, dealt: Parts, given: Params) -> JobSpec:
    """A job on all rows of a table; nothing is held out."""
    guest, *hosts = dealt
    data: dict[str, dict[str, str]] = {party: {"dataset": DATASET} for party in dealt}
    data[guest]["label"] = "y"
    return parse(
        JobSpec,
        {
            "name": table.name.replace("_", "-"),
            "protocol": "federboost-vertical",
            "parties": {"guest": guest, "hosts": hosts},
            "data": data,
            "params": dict(given),
        },
    )


Around = Callable[[ClusterProcesses], AbstractContextManager[object]]
Train = Callable[[Params], JobRun]
Deal = Callable[[Path], dict[str, SourceSpec]]


@contextmanager
def daemons(table: Table, parties: int, around: Around = nullcontext) -> Iterator[Train]:
    """Trains with such parameters, job after job, on daemons of their own."""
    dealt = parts(table, parties)

    def deal(folder: Path) -> dict[str, SourceSpec]:
        return tables.deal(table, dealt, folder)

    def spec(given: Params) -> JobSpec:
        return job(table, dealt, given)

    with cluster(spec, params(table.name), deal, around) as run:
        yield run


@contextmanager
def cluster(
    spec: Callable[[Params], JobSpec], first: Params, deal: Deal, around: Around
) -> Iterator[Train]:
    """Daemons for jobs of some parameters, made for those of the `first` one and its data."""
    with tempfile.TemporaryDirectory() as folder:
        sources = deal(Path(folder) / "data")
        where = Path(folder) / "cluster"
        with harness.daemons(spec(first), sources, where, around) as run:
            yield lambda given: run(spec(given))
