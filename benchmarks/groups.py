"""What a bound on the groups that jobs may tell apart (`bins_max`) costs in AUC.

All columns are coarsened, as if every one were a host's: the most that it can cost. Each figure is
a mean over splits into 70 % training rows and 30 % held out; cut points come from all rows, as an
owner's do. Several classes: the mean AUC of each against the rest. Jobs have 32 bins, or 256 where
the rows say so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.question import Part, Question
from benchmarks.rows import Row, Shown
from benchmarks.tables import Table
from fedboost.core import binning, local, metrics
from fedboost.core.local import TrainingTable
from fedboost.core.params import TreeParams
from fedboost.runtime.party.job.value_groups import NumberGroups

DATA = ("default_credit", "give_credit", "susy_30k", "higgs_11k", "breast", "vehicle")
BOUNDS = (8, 16, 32, 64, 256)
HELD_OUT = 0.3
JOBS: Mapping[str, dict[str, Any]] = {
    "25 trees of depth 3": {"n_estimators": 25, "max_depth": 3},
    "25 trees of depth 5": {"n_estimators": 25, "max_depth": 5},
    "25 trees of depth 5, 256 bins": {"n_estimators": 25, "max_depth": 5, "max_bin": 256},
}


def coarse(table: Table, most: int | None) -> tuple[NDArray[np.float32], dict[int, Any]]:
    """The values with those of groups in their place, and the cut points of every column."""
    values, cuts = np.asfortranarray(table.values.copy()), dict[int, Any]()
    if most is None:
        return values, cuts
    for column in range(values.shape[1]):
        groups = NumberGroups.fixed(*binning.distinct_values(values, column), most)
        groups.coarsen(values[:, column])
        cuts[column] = groups.cuts
    return values, cuts


def auc(table: Table, most: int | None, job: Mapping[str, Any], splits: int) -> list[float]:
    """AUC of held-out rows of each split, under a bound of `most` groups."""
    values, group_cuts = coarse(table, most)
    classes, scores = len(np.unique(table.y)), []
    kind: dict[str, Any] = {}
    if classes > 2:
        kind = {"objective": "multi:softprob", "num_class": classes}
    params = TreeParams(**kind, **job)
    for seed in range(splits):
        held = np.random.default_rng(seed).random(len(table.y)) < HELD_OUT
        rows = TrainingTable(np.asfortranarray(values[~held]), table.y[~held].astype(np.float64))
        cuts = binning.fit(rows.values, params.max_bin, group_cuts=group_cuts)
        trained = local.train(rows, params, cuts=cuts)
        scores.append(ranked(trained.margins(np.asfortranarray(values[held])), table.y[held]))
    return scores


def ranked(margins: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """AUC of margins (n, outputs), of several outputs the mean over classes against the rest."""
    classes = [*enumerate(margins.T)] if margins.shape[1] > 1 else [(1, margins[:, 0])]
    scores = [metrics.evaluate("auc", (y == k).astype(np.float64), of_k) for k, of_k in classes]
    return float(np.mean(scores))


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    splits: int = 10
    rows: int | None = None  # of a table at most; None: all


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each job: the change of AUC by bound."""
    table = tables.load(name).sample(plan.rows)
    for job, settings in JOBS.items():
        free = np.array(auc(table, None, settings, plan.splits))
        found = {most: np.array(auc(table, most, settings, plan.splits)) for most in BOUNDS}
        changes = {str(most): float((x - free).mean()) for most, x in found.items()}
        yield {"job": job, "rows": len(table.y), "free": float(free.mean())} | changes


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The worst change of each bound."""
    return {f"{most} groups, worst": min(row[str(most)] for row in rows) for most in BOUNDS}


def shown(rows: Sequence[Row]) -> list[Shown]:
    """One table."""
    cells = [
        (row["data"], row["job"], f"{row['free']:.4f}", *(f"{row[str(m)]:+.4f}" for m in BOUNDS))
        for row in rows
    ]
    heads = ("data", "job", "AUC without a bound", *(f"bins_max {most}" for most in BOUNDS))
    return [Shown("AUC beside bins_max", heads, cells)]


QUESTION = Question(
    *(
        "groups",
        __doc__ or "",
        {"bounds": Part(measure, DATA)},
        Plan(),
        Plan(1, 800),
        figures,
        shown,
    ),
    settings={"held out": HELD_OUT},
)

if __name__ == "__main__":
    QUESTION.main()
