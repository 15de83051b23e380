"""Training on one pooled table: the yardstick whose trees every lossless protocol must grow.

fit cuts ─► bins ─┐
labels ─► g, h ─► integers ─► histograms ─► candidate sums ─► gains ─► splits ─► next layer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedboost.core import (
    binning,
    categories,
    forest,
    histogram,
    metrics,
    objectives,
    sampling,
    split,
)
from fedboost.core.binning import Binning, Values
from fedboost.core.bins import Bins, of_rows
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, Divisions
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.metrics import METRICS
from fedboost.core.objectives import Objective, Summary
from fedboost.core.params import TreeParams
from fedboost.core.partition import ROOT, Partition, left_child, parent, right_child
from fedboost.core.tree import Node, Split, Tree, grown
from fedboost.errors import ConfigError, DataError

Rows = NDArray[np.int32]
Floats = NDArray[np.float64]
Sums = NDArray[np.int64]
History = list[dict[str, dict[str, float]]]  # per round: {"train": {"auc": 0.8}, "validation": …}


@dataclass(frozen=True)
class Table:
    """Rows of one table with their labels and weights; the unit a job trains or validates on."""

    values: Values  # float32 (n, columns), NaN where missing; dense or sparse
    y: Floats  # (n,)
    weight: Floats | None = None  # (n,), None: all 1
    categorical: tuple[int, ...] = ()  # columns whose values are codes of categories, from 0
    row_groups: tuple[int, ...] = ()  # rows of each party, one after the other; empty: all one's

    @property
    def weights(self) -> Floats:
        """(n,) weights, never None."""
        return np.ones(len(self.y)) if self.weight is None else self.weight


@dataclass(frozen=True)
class Trained:
    """The result of a job: trees by round and class, and how it got there."""

    params: TreeParams
    binning: Binning
    base_margin: Floats  # (outputs,)
    rounds: tuple[tuple[Tree, ...], ...]  # [round][tree]: class after class, a forest's in turn
    history: History
    best_round: int  # from 0; the last round unless early stopping found an earlier one better

    def margins(self, values: Values) -> Floats:
        """float64 (n, outputs) of float32 (n, columns), with the trees up to the best round."""
        bins, missing = self.binning.transform(values), self.binning.missing
        margin = np.tile(self.base_margin, (bins.shape[0], 1))
        for trees in self.rounds[: self.best_round + 1]:
            add_to_margin(margin, [tree.predict_bins(bins, missing) for tree in trees])
        return margin

    def predict(self, values: Values) -> Floats:
        """float64 (n, outputs): probabilities or means, by the objective."""
        return objectives.transform(self.params.objective, self.margins(values))


@dataclass(frozen=True)
class Rules:
    """What decides how a tree of this job grows, whatever its rows are."""

    params: TreeParams
    binning: Binning
    fixed: FixedPoint


def train(
    table: Table,
    params: TreeParams,
    validation: Table | None = None,
    column_groups: tuple[int, ...] | None = None,
    cuts: Binning | None = None,
    summary: Summary | None = None,
) -> Trained:
    """Boosted trees on one table; cut points come from its rows only, never from validation's.

    `column_groups` are the parties' column counts in canonical order, which only column sampling
    looks at, as only row sampling does at the table's `row_groups`. `cuts` and `summary` are the
    table's own unless given, as a federation found them out. A DataError says what labels, values
    or weights cannot be used; a ConfigError what settings do not fit them.
    """
    groups = column_groups or (table.values.shape[1],)
    _check(table, params, validation, groups)
    summary = summary or Summary.of(params, table.y, table.weights)
    objective = objectives.start(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    cuts = cuts or binning.fit(table.values, params.max_bin, table.categorical)
    watched = {"train": Watched.of(table, cuts, objective)}
    if validation is not None:
        watched["validation"] = Watched.of(validation, cuts, objective)
    training = Training(Rules(params, cuts, fixed), objective, watched, groups)
    while not training.is_over:
        training.advance()
    return Trained(
        *(params, cuts, objective.base_margin, tuple(training.rounds)),
        *(training.history, training.best_round),
    )


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
        `row_groups` as a Table's.
        """
        self.bins, self.y, self.weight, self.margin = bins, y, weight, margin
        self.row_groups = row_groups or (len(y),)

    @classmethod
    def of(cls, table: Table, cuts: Binning, objective: Objective) -> Watched:
        """A table before the first round."""
        margin = np.tile(objective.base_margin, (len(table.y), 1))
        bins = cuts.transform(table.values)
        return cls(bins, table.y, table.weights, margin, table.row_groups)

    def advance(self, trees: Sequence[Tree], missing: int) -> None:
        """Adds a finished round to the margins."""
        add_to_margin(self.margin, [tree.predict_bins(self.bins, missing) for tree in trees])

    def measure(self, params: TreeParams) -> dict[str, float]:
        """The job's metrics at this point, by name."""
        prediction = objectives.transform(params.objective, self.margin)
        return {
            name: metrics.evaluate(name, self.y, prediction, self.weight) for name in params.metrics
        }


class Training:
    """Rounds on rows whose bins are known, one after the other."""

    def __init__(
        self,
        rules: Rules,
        objective: Objective,
        watched: Mapping[str, Watched],
        groups: tuple[int, ...],
    ) -> None:
        """`watched` holds the rows to learn from as "train", perhaps others as "validation";
        `groups` are the parties' column counts in canonical order.
        """
        params = rules.params
        decisive = METRICS[params.metrics[-1]]
        self.rounds: list[tuple[Tree, ...]] = []
        self.history: History = []
        self.stopping = EarlyStopping(params.early_stopping_rounds, decisive.bigger_is_better)
        self._rules, self._objective, self._groups = rules, objective, groups
        self.watched = watched

    @property
    def is_over(self) -> bool:
        """Whether all rounds are done, or early stopping ends them."""
        return len(self.rounds) == self._rules.params.n_estimators or self.stopping.stop

    @property
    def best_round(self) -> int:
        """From 0; the last round unless early stopping found an earlier one better."""
        return len(self.rounds) - 1 if self.stopping.best is None else self.stopping.best_round

    def advance(self) -> None:
        """One more round: its trees, everybody's margins and metrics."""
        params, rules = self._rules.params, self._rules
        number = len(self.rounds)
        seen = self.watched["train"]
        self.rounds.append(grow_round(rules, self._objective, seen, number, self._groups))
        for part in self.watched.values():
            part.advance(self.rounds[-1], rules.binning.missing)
        self.history.append({name: part.measure(params) for name, part in self.watched.items()})
        if params.early_stopping_rounds is not None:
            self.stopping = self.stopping.after(self.history[-1]["validation"][params.metrics[-1]])


def grow_round(
    rules: Rules, objective: Objective, rows: Watched, number: int, groups: tuple[int, ...]
) -> tuple[Tree, ...]:
    """The trees of round `number` on sampled rows: one or a forest, with vector leaves or for each
    class in turn. A forest's leaves are divided by its trees, so that their sum is its average.
    """
    params = rules.params
    g, h = objective.gradients(rows.margin, rows.y, rows.weight)
    sample = sampling.of_groups(params, g, number, rows.row_groups)
    chosen, factor = sample.rows, sample.factor[:, None]
    gh = np.zeros((len(g), 2 * g.shape[1]), dtype=np.int64)
    gh[chosen] = rules.fixed.encode(g[chosen] * factor, h[chosen] * factor)
    tree_number = int(forest.starts(params)[number])
    trees: list[Tree] = []
    for own in np.split(gh, params.trees_per_round, axis=1):
        mine = np.ascontiguousarray(own)
        for inside in sample.trees:
            columns = sampling.columns(params.seed, tree_number, groups, params.column_rate)
            tree = grow(rules, rows.bins, mine, inside, columns)
            tree = renewed(tree, rules, rows, inside) if objective.renews_leaves else tree
            trees.append(replace(tree, value=tree.value / len(sample.trees)))
            tree_number += 1
    return tuple(trees)


def grow(
    rules: Rules,
    bins: Bins,
    gh: Sums,
    rows: Rows,
    columns: Rows,
    layers: Sequence[Rows] | None = None,
) -> Tree:
    """One tree, layer by layer.

    bins (n, columns), dense or sparse; gh int64 (n, 2·outputs) in units of rules.fixed; rows
    int32 ascending, the ones the tree learns from; columns int32 ascending, the ones it may use;
    `layers` the ones among them for each layer from the root down, all of them if absent.
    """
    layers = layers or [columns] * rules.params.max_depth
    partition = Partition(rows)
    totals = {ROOT: gh[rows].sum(axis=0)}
    splits: dict[int, Split] = {}
    divided: dict[int, Sums] = {}
    lacking: dict[int, NDArray[np.bool_]] = {}  # of the layer above: its columns with missing rows
    for depth, usable in enumerate(layers):
        if depth == 0:
            opened = {ROOT: histogram.build(bins, [rows], gh, rules.binning.n_cells, columns)[0]}
        else:
            opened = histogram.children(bins, partition, gh, divided, columns)
        divided = {}
        own = [partition.rows(node) for node in opened]
        may = None if depth == 0 else np.array([lacking[parent(node)] for node in opened])
        lacks = histogram.has_missing(bins, own, rules.binning.missing, may)
        lacking = dict(zip(opened, lacks, strict=True))
        for (node, cells), inside, missing in zip(opened.items(), own, lacks, strict=True):
            won = choose(rules, cells, totals[node], missing, usable)
            if won is None:
                continue
            splits[node], left = won
            totals[left_child(node)], totals[right_child(node)] = left, totals[node] - left
            partition.divide(node, _goes_right(bins, inside, splits[node], rules.binning.missing))
            divided[node] = cells
        if not divided:
            break
    return grown({node: _node(rules, totals[node], splits.get(node)) for node in totals})


def choose(
    rules: Rules, cells: Sums, total: Sums, missing: NDArray[np.bool_], usable: Rows
) -> tuple[Split, Sums] | None:
    """The best split of a node and the sums on its left, or None where no split is worth it.

    cells int64 (columns, n_cells, 2·outputs); total int64 (2·outputs,); missing bool (columns,):
    where rows of the node have no value; usable int32, ascending: the columns that may divide it.
    """
    by_category = rules.binning.is_categorical[usable]
    listed = split.candidates(rules.binning.n_bins, missing, usable[~by_category])
    grouped = {int(c): _divisions(rules, cells[c], missing[c]) for c in usable[by_category]}
    left = np.concatenate([split.left_sums(cells, listed), *(d.left for d in grouped.values())])
    own = [np.full(len(found), c, np.int32) for c, found in grouped.items()]
    columns = np.concatenate([listed.column, *own])
    # Each column's candidates stand in order; this puts the columns in order, too.
    order = np.argsort(columns, kind="stable") if grouped else np.arange(len(columns))
    gain = split.gains(
        *(left[order, 0::2], left[order, 1::2], total[0::2], total[1::2]),
        *(rules.params, rules.fixed),
    )
    won = split.best(gain, rules.params)
    if won < 0:
        return None
    place, best = int(order[won]), float(gain[won])
    column = int(columns[place])
    if column in grouped:
        number = place - int(np.flatnonzero(columns == column)[0])
        return by_categories(column, grouped[column], number, best), left[place]
    bin_number, missing_left = int(listed.bin[place]), bool(listed.missing_left[place])
    threshold = rules.binning.threshold(column, bin_number)
    return Split(column, bin_number, threshold, missing_left, best), left[place]


def by_categories(column: int, found: Divisions, number: int, gain: float) -> Split:
    """Candidate `number` of a categorical column as a split."""
    left_bins = categories.as_set(found.bins(number))
    missing_left = bool(found.missing_left[number])
    return Split(column, BY_CATEGORY, NO_THRESHOLD, missing_left, gain, left_bins)


def _divisions(rules: Rules, cells: Sums, missing: bool) -> Divisions:
    absent = cells[-1] if missing else None
    return categories.divisions(cells[:-1], absent, rules.params, rules.fixed)


def renewed(tree: Tree, rules: Rules, rows: Watched, chosen: Rows) -> Tree:
    """The tree with the median residual of each leaf's rows, times learning_rate, as its value."""
    leaves = tree.leaf_of_bins(rows.bins, rules.binning.missing)[chosen]
    residual, weight = (rows.y - rows.margin[:, 0])[chosen], rows.weight[chosen]
    value = np.zeros_like(tree.value)
    for leaf in np.flatnonzero(tree.is_leaf):
        own = leaves == leaf
        value[leaf] = rules.params.learning_rate * objectives.median(residual[own], weight[own])
    return replace(tree, value=value)


def add_to_margin(margin: Floats, added: Sequence[Floats]) -> None:
    """Adds a round's trees in place, float64 (n, outputs) each, or (n, 1) class after class."""
    per_class = len(added) // margin.shape[1]
    for i, one in enumerate(added):
        if one.shape[1] == margin.shape[1]:
            margin += one
        else:
            margin[:, i // per_class] += one[:, 0]


def _node(rules: Rules, total: Sums, won: Split | None) -> Node:
    G, H = total[0::2], total[1::2]
    value = split.leaf_value(G, H, rules.params, rules.fixed)
    return Node(value, float(split.cover(H, rules.fixed)), won)


def _goes_right(bins: Bins, rows: Rows, won: Split, missing: int) -> NDArray[np.bool_]:
    own = of_rows(bins, won.column, rows)
    return split.goes_right(own, won.bin, won.missing_left, missing, won.left_bins)


def _check(
    table: Table, params: TreeParams, validation: Table | None, groups: tuple[int, ...]
) -> None:
    n_columns = table.values.shape[1]
    if sum(groups) != n_columns or min(groups) < 0 or n_columns == 0:
        raise ConfigError(f"column groups {groups} do not make up {n_columns} columns")
    own = table.row_groups
    if own and (sum(own) != len(table.y) or min(own) < 1):
        raise ConfigError(f"row groups {own} do not make up {len(table.y)} rows")
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
