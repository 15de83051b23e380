"""The horizontal jobs of the FederBoost benchmark: rows dealt to parties, settings, daemons."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import federboost_jobs, tables
from benchmarks.federboost_jobs import SEED, TREES, Around, Params, Train
from benchmarks.tables import GUEST, HOST, Table
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

Shares = Mapping[str, Table]  # each party's rows, the guest's first

DATA = federboost_jobs.UTILITY
BUCKETS = 24  # where the paper's AUC is best: 26 of the first data set, 24 of the second
SHARED: dict[str, Any] = {"learning_rate": 0.3, "reg_lambda": 1.0, "max_bin": BUCKETS}
APART = "aggregator"  # the party that adds up and has no data, where the guest does not
PARTIES = 3
EXACT = 0  # the tolerance of the paper's own search
COMPARED = "susy_30k"  # cut to the rows and columns of Table 2
COMPARED_ROWS, COMPARED_COLUMNS, COMPARED_TREES, COMPARED_DEPTH = 8192, 11, 200, 4


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None  # of a data set at most; None: all
    seeds: tuple[int, ...]  # each a split of its own
    buckets: tuple[int, ...]
    aggregators: tuple[str, ...]  # of Table 2
    repeats: int  # timed jobs of Table 2, of which the median counts; one more goes before them
    again: int  # the same by parties; 0: the first job counts
    walked: tuple[int, ...]  # parties in one process
    daemons: tuple[int, ...]  # parties, each a daemon
    dropouts: tuple[str, ...]  # on the wide area
    wan_trees: tuple[int, int]  # of two jobs on the wide area; their difference is a tree's cost

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            return cls(
                rows=6000, seeds=(0, 1), buckets=(4, BUCKETS, 32),
                aggregators=(GUEST,), repeats=0, again=0,
                walked=(2, 8), daemons=(2,), dropouts=("wait",), wan_trees=(1, 2),
            )  # fmt: skip
        return cls(
            rows=None, seeds=tuple(range(5)), buckets=tuple(range(4, 33, 4)),
            aggregators=(GUEST, APART), repeats=5, again=1,
            walked=(2, 4, 8, 16, 32), daemons=(2, 4, 8), dropouts=("wait", "continue"),
            wan_trees=(2, 12),
        )  # fmt: skip

    def table(self, name: str) -> Table:
        """The rows of a data set that this run uses."""
        return federboost_jobs.load(name).sample(self.rows or 1 << 62, SEED)


def compared() -> Table:
    """The rows and columns of Table 2."""
    table = federboost_jobs.load(COMPARED).sample(COMPARED_ROWS, SEED)
    return federboost_jobs.first_columns(table, COMPARED_COLUMNS)


def dealt(table: Table, parties: int) -> dict[str, Table]:
    """All rows, in equal shares, each row at one party."""
    owner = np.random.default_rng(SEED).permutation(len(table.y)) % parties
    names = (GUEST, *(f"{HOST}{k}" for k in range(1, parties)))
    return {
        name: federboost_jobs.rows_of(table, owner == place) for place, name in enumerate(names)
    }


def params(name: str, **more: Any) -> dict[str, Any]:
    """The paper's trees for a data set, with the metric that takes least time, and `more`."""
    return {**SHARED, **TREES[name], "eval_metric": ["error"], **more}


def compared_params() -> dict[str, Any]:
    """The trees of Table 2."""
    return params(COMPARED, n_estimators=COMPARED_TREES, max_depth=COMPARED_DEPTH)


def job(shares: Shares, given: Params, aggregator: str) -> JobSpec:
    """A job on all rows of everybody; nothing is held out."""
    guest, *hosts = shares
    return parse(
        JobSpec,
        {
            "name": shares[guest].name.replace("_", "-"),
            "protocol": "federboost-horizontal",
            "parties": {"guest": guest, "hosts": hosts, "aggregator": aggregator},
            "data": {party: {"dataset": DATASET, "label": "y"} for party in shares},
            "params": dict(given),
        },
    )


@contextmanager
def daemons(
    shares: Shares, aggregator: str = GUEST, around: Around = nullcontext
) -> Iterator[Train]:
    """Trains with such parameters, job after job, on daemons of their own."""

    def deal(folder: Path) -> dict[str, SourceSpec]:
        return tables.deal_rows(shares, folder)

    def spec(given: Params) -> JobSpec:
        return job(shares, given, aggregator)

    with federboost_jobs.cluster(spec, params(shares[GUEST].name), deal, around) as run:
        yield run
