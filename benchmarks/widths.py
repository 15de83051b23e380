"""How many bits a gradient needs: scores of pooled trees by width, and a lattice tree's cost.

The pooled trainer sums the integers that hosts would, and takes leaves from exact gradients as a
guest does. Scores are of rows that were held out: AUC, of several classes the mean of each against
the rest. Small tables are cut in five, each part predicted by the others' trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import boosting, hybridtree_data, tables
from benchmarks.boosting import LATTICE
from benchmarks.harness import Cost
from benchmarks.question import Part, Question
from benchmarks.rows import Row, Shown, number, of
from fedboost.core import local, metrics
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.params import TreeParams

DATA = ("default_credit", "give_credit", "susy_30k", "breast", "vehicle", "adult")
FOLDS = 5  # of tables of so few rows
FEW_ROWS = 1000
TEST, SEED = 0.3, 0
WIDTHS = (4, 6, 7, 8, 10, 12)
SHAPES = ((25, 3), (25, 5), (100, 6))  # trees and layers; the first is the default
SEEDS = 4  # of rounding
COSTED, COSTED_WIDTHS = (
    "give_credit",
    (4, BITS_ENCRYPTED, 11),
)  # as many as lattice has for so many rows
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    seeds: int = SEEDS
    widths: tuple[int, ...] = WIDTHS
    shapes: tuple[tuple[int, int], ...] = SHAPES
    rows: int | None = None  # of a table at most; None: all
    trees: int = 4  # of the jobs on daemons


QUICK = Plan(1, (BITS_ENCRYPTED,), SHAPES[:1], 800, 2)


@dataclass(frozen=True)
class Labelled:
    """A table, and the parts that are predicted from the rest."""

    table: local.TrainingTable
    held: Sequence[Bits]

    @property
    def classes(self) -> int:
        """Return how many labels there are."""
        return int(self.table.y.max()) + 1

    def taken(self, rows: Bits) -> local.TrainingTable:
        """Return some rows."""
        values = np.asfortranarray(self.table.values[rows])
        return local.TrainingTable(values, self.table.y[rows], None, self.table.categorical)

    def score(self, params: TreeParams) -> float:
        """Return the score of all predicted rows together."""
        found = np.zeros((len(self.table.y), params.n_outputs))
        for held in self.held:
            trained = local.train(self.taken(~held), params)
            found[held] = trained.predict(np.asfortranarray(self.table.values[held]))
        seen = np.any(self.held, axis=0)
        y, predicted = self.table.y[seen], found[seen]
        if params.n_outputs == 1:
            return _auc(y, predicted)
        each = [_auc(y == k, predicted[:, [k]]) for k in range(params.n_outputs)]
        return float(np.mean(each))


def _auc(y: NDArray[Any], predicted: NDArray[np.float64]) -> float:
    return metrics.evaluate("auc", y.astype(np.float64), predicted, np.ones(len(y)))


def loaded(name: str, rows: int | None) -> Labelled:
    """A table by its name, and so many of its rows at most."""
    if name == "adult":
        own = hybridtree_data.load(name).sample(rows or 1 << 62, rows or 1 << 62)
        assert own.frame.label is not None
        values = np.asarray(own.frame.values)
        table = local.TrainingTable(values, own.frame.label, None, own.frame.categorical)
        return Labelled(table, [own.test])
    found = tables.load(name).sample(rows)
    order = np.random.default_rng(SEED).permutation(len(found.y))
    parts = [order[: int(TEST * len(order))]]
    if len(order) < FEW_ROWS:
        parts = np.array_split(order, FOLDS)
    held = [np.isin(np.arange(len(order)), part) for part in parts]
    return Labelled(local.TrainingTable(found.values, found.y.astype(np.float64)), held)


def measure_scores(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each shape and width: by how much scores differ from those of the widest."""
    table = loaded(name, plan.rows)
    said: dict[str, Any] = {"objective": "binary:logistic"}
    if table.classes > 2:
        said = {"objective": "multi:softprob", "num_class": table.classes}
    for trees, depth in plan.shapes:
        shape = {**said, "n_estimators": trees, "max_depth": depth}
        whole = table.score(TreeParams(**shape))
        for bits in plan.widths:
            scores = [
                table.score(TreeParams(**shape, precision_bits=bits, seed=seed))
                for seed in range(plan.seeds)
            ]
            gaps = np.array(scores) - whole
            yield {
                "trees": trees, "depth": depth, "bits": bits,
                "widest": whole, "mean": float(gaps.mean()), "worst": float(gaps.min()),
            }  # fmt: skip


def measure_costs(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each width: what a tree under `lattice` takes on daemons."""
    table = tables.load(name).sample(plan.rows)
    with boosting.daemons(table) as train:
        for bits in COSTED_WIDTHS:
            given = {"max_depth": 3, "precision_bits": bits}
            cost = Cost.of(train(plan.trees, LATTICE, given, held_out=False))
            facts = {"bits": bits, "rows": len(table.y), "wall_s": cost.wall_s}
            yield {**facts, "cpu_s": cost.cpu_s, "sent": cost.sent}


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The default width by table: the mean of seeds, worst of shapes; the default shape's worst
    seed.
    """
    found = {}
    for name in dict.fromkeys(row["data"] for row in rows if row["what"] == "scores"):
        own = [row for row in rows if row["data"] == name and row.get("bits") == BITS_ENCRYPTED]
        scores = [row for row in own if row["what"] == "scores"]
        found[f"mean_gap.{name}"] = min(row["mean"] for row in scores)
        found[f"worst_gap.{name}"] = next(
            row["worst"] for row in scores if (row["trees"], row["depth"]) == SHAPES[0]
        )
    costs = {row["bits"]: row for row in rows if row["what"] == "costs"}
    if costs:
        narrow, wide = costs[BITS_ENCRYPTED], costs[max(costs)]
        found["bytes_ratio"] = narrow["sent"] / wide["sent"]
        found["time_ratio"] = narrow["wall_s"] / wide["wall_s"]
    return found


def shown(rows: Sequence[Row]) -> Iterator[Shown]:
    """A table for each shape, and that of the costs."""
    scores = of(rows, "scores")
    for trees, depth in dict.fromkeys((row["trees"], row["depth"]) for row in scores):
        own = [row for row in scores if (row["trees"], row["depth"]) == (trees, depth)]
        widths = list(dict.fromkeys(row["bits"] for row in own))
        lines = []
        for name in dict.fromkeys(row["data"] for row in own):
            by = {row["bits"]: row for row in own if row["data"] == name}
            cells = [f"{by[bits]['mean']:+.4f} ({by[bits]['worst']:+.4f})" for bits in widths]
            lines.append((name, number(by[widths[0]]["widest"], 4), *cells))
        heads = ("table", "widest", *(f"{bits} bits" for bits in widths))
        title = f"{trees} trees of depth {depth}: AUC − that of the widest, mean (worst seed)"
        yield Shown(title, heads, lines)
    lines = [
        (str(row["bits"]), number(row["wall_s"], 2), f"{row['sent'] / 1e6:.3f}")
        for row in rows
        if row["what"] == "costs"
    ]
    if lines:
        rows_each = next(row["rows"] for row in rows if row["what"] == "costs")
        title = f"A tree of depth 3 under lattice, {COSTED}, {rows_each:,} rows"
        yield Shown(title, ("bits", "seconds", "MB"), lines)


PARTS = {"scores": Part(measure_scores, DATA), "costs": Part(measure_costs, (COSTED,))}
QUESTION = Question("widths", __doc__ or "", PARTS, Plan(), QUICK, figures, shown)

if __name__ == "__main__":
    QUESTION.main()
