"""Training on one pooled table: the reference whose trees every lossless protocol must grow.

fit cuts ─► bins ─┐ labels ─► g, h ─► integers ─► histograms ─► candidate sums ─► gains ─► splits ─►
next layer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedboost.core import binning, margins, metrics, monotone, objectives, sampling
from fedboost.core.binning import Binning, FeatureValues
from fedboost.core.bins import Bins
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.growing_trees import leaf_gradients, plant_trees
from fedboost.core.growth import GrowingTree
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.metrics import METRICS
from fedboost.core.objectives import Gradients, Objective, Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.core.threads import Threads, run_shared
from fedboost.core.tree import Tree
from fedboost.ground.arrays import Floats, Rows
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.state import Growing, state_class

GRADIENT_WORK = 8  # cells that can be added up in the time of one margin's gradients
Grow = Callable[[GrowingTree], Tree]
History = list[dict[str, dict[str, float]]]  # per round: {"train": {"auc": 0.8}, "validation": …}


@dataclass(frozen=True)
class TrainingTable:
    """Rows of one table with their labels and weights; the unit a job trains or validates on."""

    values: FeatureValues  # float32 (n, columns), NaN where missing; dense or sparse
    y: Floats  # (n,)
    weight: Floats | None = None  # (n,), None: all 1
    categorical: tuple[int, ...] = ()  # columns whose values are codes of categories, from 0
    row_groups: tuple[int, ...] = ()  # rows of each party, one after the other; empty: one party
    own_rows_min: tuple[int, ...] = ()  # of each party of row_groups, from its policy; empty: 1
    group_rows_min: tuple[int, ...] = ()  # by column, from its owner's policy; empty: 1
    monotone: tuple[int, ...] = ()  # by column 1, −1 or 0 (core.monotone); empty: all 0

    @property
    def weights(self) -> Floats:
        """Weights (n,), never None."""
        return np.ones(len(self.y)) if self.weight is None else self.weight


@dataclass(frozen=True)
class Trained:
    """Result of a job: trees by round and class, and the history of its metrics."""

    params: TreeParams
    binning: Binning
    base_margin: Floats  # (outputs,)
    rounds: tuple[tuple[Tree, ...], ...]  # [round][tree]: class after class, a forest's in turn
    history: History
    best_round: int  # from 0; the last round unless early stopping found an earlier one better

    def margins(self, values: FeatureValues) -> Floats:
        """Return margins float64 (n, outputs) of float32 (n, columns), up to the best round."""
        bins, missing = self.binning.transform(values), self.binning.missing
        margin = np.tile(self.base_margin, (bins.shape[0], 1))
        for trees in self.rounds[: self.best_round + 1]:
            add_trees(margin, trees, bins, missing)
        return margin

    def predict(self, values: FeatureValues) -> Floats:
        """Return predictions float64 (n, outputs): probabilities or means, by the objective."""
        return objectives.transform(self.params.objective, self.margins(values))


def train(
    table: TrainingTable,
    params: TreeParams,
    validation: TrainingTable | None = None,
    column_groups: tuple[int, ...] | None = None,
    cuts: Binning | None = None,
    summary: Summary | None = None,
) -> Trained:
    """Train boosted trees on one table; cut points come from its rows only, never from
    validation's.

    `column_groups` are the parties' column counts in canonical order; only column sampling uses
    them, as only row sampling uses the table's `row_groups`. `cuts` and `summary` are the table's
    unless given, as a federation found them. A DataError names labels, values or weights that
    cannot be used; a ConfigError names settings that do not fit them.
    """
    groups = column_groups or (table.values.shape[1],)
    _check_table(table, params, validation, groups)
    summary = summary or Summary.of(params, table.y, table.weights)
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    cuts = cuts or binning.fit(table.values, params.max_bin, table.categorical)
    watched = {"train": Watched.of(table, cuts, objective)}
    if validation is not None:
        watched["validation"] = Watched.of(validation, cuts, objective)
    least = np.array(table.group_rows_min, np.int32) if table.group_rows_min else None
    own_rows = table.own_rows_min, table.row_groups
    moves = monotone.directions(table.monotone)
    rules = Rules(params, cuts, fixed, least, *own_rows, moves)
    training = Training(rules, objective, watched, groups)
    while not training.is_over:
        training.advance()
    return Trained(
        params=params,
        binning=cuts,
        base_margin=objective.base_margin,
        rounds=tuple(training.rounds),
        history=training.history,
        best_round=training.best_round,
    )


def grow_tree(growing: GrowingTree) -> Tree:
    """Grow a tree from the own rows only."""
    while not growing.is_over:
        growing.take(growing.sums())
    return growing.tree()


class Watched:
    """Rows during training: their bins, and their margins after the rounds so far."""

    def __init__(
        self,
        bins: Bins,
        y: Floats,
        weight: Floats,
        margin: Floats,
        row_groups: tuple[int, ...] = (),
    ) -> None:
        """bins (n, columns), y and weight (n,), margin (n, outputs), which changes in place;
        `row_groups` as in a TrainingTable.
        """
        self.bins, self.y, self.weight, self.margin = bins, y, weight, margin
        self.row_groups = row_groups or (len(y),)

    @classmethod
    def of(cls, table: TrainingTable, cuts: Binning, objective: Objective) -> Watched:
        """Return a table before the first round."""
        margin = np.tile(objective.base_margin, (len(table.y), 1))
        bins = cuts.transform(table.values)
        return cls(bins, table.y, table.weights, margin, table.row_groups)

    def advance(self, trees: Sequence[Tree], missing: int, threads: Threads | None = None) -> None:
        """Add a finished round to the margins."""
        add_trees(self.margin, trees, self.bins, missing, threads)

    def measure(self, params: TreeParams) -> dict[str, float]:
        """Return the job's metrics at this point, by name."""
        prediction = objectives.transform(params.objective, self.margin)
        return {
            name: metrics.evaluate(name, self.y, prediction, self.weight, params)
            for name in params.metrics
        }


@state_class
class TrainingState:
    """Rounds so far, their metrics, and the state of early stopping."""

    rounds: Growing[tuple[Tree, ...]]
    history: Growing[dict[str, dict[str, float]]]
    stopping: EarlyStopping


class Training(TrainingState):
    """Training of rounds, one after the other, on rows with known bins."""

    def __init__(
        self,
        rules: Rules,
        objective: Objective,
        watched: Mapping[str, Watched],
        groups: tuple[int, ...],
        grower: Grow = grow_tree,
    ) -> None:
        """`watched` holds the rows to learn from as "train", perhaps others as "validation";
        `groups` are the parties' column counts in canonical order; `grower` makes trees of planted
        ones.
        """
        params = rules.params
        decisive = METRICS[params.metrics[-1]]
        self.rounds, self.history = [], []
        self.stopping = EarlyStopping(params.early_stopping_rounds, decisive.bigger_is_better)
        self._rules, self._objective, self._groups = rules, objective, groups
        self.watched, self._grower = watched, grower

    @property
    def is_over(self) -> bool:
        """Return whether all rounds are done, or early stopping ends them."""
        return len(self.rounds) == self._rules.params.n_estimators or self.stopping.stop

    @property
    def best_round(self) -> int:
        """Number of the best round from 0; without early stopping the last one."""
        return len(self.rounds) - 1 if self.stopping.best is None else self.stopping.best_round

    def advance(self) -> None:
        """Train one more round: its trees, the margins of all rows, and the metrics."""
        params, rules = self._rules.params, self._rules
        number = len(self.rounds)
        seen = self.watched["train"]
        self.rounds.append(
            grow_round(rules, self._objective, seen, number, self._groups, self._grower)
        )
        for part in self.watched.values():
            part.advance(self.rounds[-1], rules.binning.missing, rules.threads)
            margins.check_finite(params, part.margin, number + 1)
        self.history.append({name: part.measure(params) for name, part in self.watched.items()})
        if params.early_stopping_rounds is not None:
            self.stopping = self.stopping.after(self.history[-1]["validation"][params.metrics[-1]])


def grow_round(
    rules: Rules,
    objective: Objective,
    rows: Watched,
    number: int,
    groups: tuple[int, ...],
    grower: Grow = grow_tree,
) -> tuple[Tree, ...]:
    """Return the trees of round `number` on sampled rows: one or a forest, with vector leaves or
    for each class in turn. A forest's leaves are divided by its trees, so that their sum is its
    average.
    """
    g, h = _gradients(rules, objective, rows)
    sample = sampling.sample_of_parties(rules.params, g, number, rows.row_groups)
    trees: list[Tree] = []
    exact: Sequence[LeafGradients | None] = [None]
    if len(rows.row_groups) == 1:  # with several parties only the sums are known
        exact = leaf_gradients(rules, (g, h), sample)
    for place, growing in enumerate(plant_trees(rules, rows.bins, (g, h), sample, number, groups)):
        growing.leaf_gradients = exact[place // len(sample.trees) % len(exact)]
        tree = grower(growing)
        tree = (
            with_median_leaves(tree, rules, rows, growing.rows)
            if rules.params.record.has_median_leaves
            else tree
        )
        trees.append(replace(tree, value=tree.value / len(sample.trees)))
    return tuple(trees)


def _gradients(rules: Rules, objective: Objective, rows: Watched) -> Gradients:
    """Return the gradients of all rows; each thread computes some."""

    def task(part: slice) -> tuple[Floats, Floats, Floats]:
        return rows.margin[part], rows.y[part], rows.weight[part]

    work = GRADIENT_WORK * rows.margin.size
    parts = run_shared(rules.threads, objective.gradients, task, len(rows.y), work)
    if len(parts) == 1:
        return parts[0]
    g, h = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    return g, h


def with_median_leaves(tree: Tree, rules: Rules, rows: Watched, chosen: Rows) -> Tree:
    """Return the tree with leaf values of learning_rate times their rows' median residual."""
    leaves = tree.leaf_of_bins(rows.bins, rules.binning.missing)[chosen]
    residual, weight = (rows.y - rows.margin[:, 0])[chosen], rows.weight[chosen]
    value = np.zeros_like(tree.value)
    for leaf in np.flatnonzero(tree.is_leaf):
        in_leaf = leaves == leaf
        value[leaf] = rules.params.learning_rate * objectives.median(
            residual[in_leaf], weight[in_leaf]
        )
    return replace(tree, value=value)


def add_trees(
    margin: Floats, trees: Sequence[Tree], bins: Bins, missing: int, threads: Threads | None = None
) -> None:
    """Add a round's trees to margins (n, outputs) in place: vector leaves to all margins of rows
    with these bins, other trees class after class.
    """
    per_class = len(trees) // margin.shape[1]
    for i, tree in enumerate(trees):
        is_wide = tree.value.shape[1] == margin.shape[1]
        columns = slice(None) if is_wide else slice(i // per_class, i // per_class + 1)
        tree.add_to_margin(margin[:, columns], bins, missing, threads)


def add_to_margin(margin: Floats, added: Sequence[Floats]) -> None:
    """Add a round's trees in place, float64 (n, outputs) each, or (n, 1) class after class."""
    per_class = len(added) // margin.shape[1]
    for i, values in enumerate(added):
        if values.shape[1] == margin.shape[1]:
            margin += values
        else:
            margin[:, i // per_class] += values[:, 0]


def _check_table(
    table: TrainingTable,
    params: TreeParams,
    validation: TrainingTable | None,
    groups: tuple[int, ...],
) -> None:
    n_columns = table.values.shape[1]
    if sum(groups) != n_columns or min(groups) < 0 or n_columns == 0:
        raise ConfigError(f"column groups {groups} do not make up {n_columns} columns")
    if table.group_rows_min and len(table.group_rows_min) != n_columns:
        raise ConfigError(f"group_rows_min is said of {len(table.group_rows_min)} columns")
    if table.own_rows_min and len(table.own_rows_min) != len(table.row_groups or (0,)):
        raise ConfigError(f"own_rows_min is said of {len(table.own_rows_min)} parties")
    group_sizes = table.row_groups
    if group_sizes and (sum(group_sizes) != len(table.y) or min(group_sizes) < 0):
        raise ConfigError(f"row groups {group_sizes} do not make up {len(table.y)} rows")
    if params.early_stopping_rounds is not None and validation is None:
        raise ConfigError(
            "early_stopping_rounds needs validation rows and there are none",
            todo="hold rows out for validation, or leave early_stopping_rounds out",
        )
    for name, part in (("training", table), ("validation", validation)):
        if part is None:
            continue
        if part.values.shape != (len(part.y), n_columns):
            raise DataError(
                f"{name} values have the shape {part.values.shape}, expected "
                f"{(len(part.y), n_columns)}"
            )
        objectives.check_labels(params, part.y, learn=name == "training")
