"""How many trees of a pooled model share a split rule: figure 3a of HybridTree.

The paper's AD, DEV-AD and Cod-rna are not to be had; its Adult is a9a, the same rows in 123 binary
columns. It does not say how the model of figure 3a was trained: the settings are section 5.1's.
Where the paper leaves it open:

- It does not say whether a tree counts in which other conditions stand on the path, although
  the rule alone decides; `determined` counts those too: every tree in which rows that satisfy the
  rule can end in one leaf only. The narrower a rule, the more trees it determines.
- "The same meta-rule" of figure 3a may be one for all trees, or any that two trees share:
  `largest_share` takes the one rule that most trees have, `repeated_share` any.
- That the rule is a meta-rule, P(y | S) = P(y | S ∩ F) for every further condition F (Definition
  1), no tree can show: it stops at its depth, too. `further_gains` asks the rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import hybridtree_data, plots, tables
from benchmarks.plots import Group, Picture
from benchmarks.rows import Row, of
from fedboost.core import binning, fixed_point, growth, histogram, local
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.local import Trained
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.core.tree import LEAF, Positions, Tree
from fedboost.model import conditions
from fedboost.model.conditions import (
    KnownConditions,
    Question,
    Rule,
    RuleMatch,
    condition_text,
    narrowed_sides,
    questions_of_tree,
)
from fedboost.report.charts import Bar

DATA = ("a9a", "adult", "covtype", "default_credit", "give_credit")
TREES, ROWS_MAX = 40, 50_000  # of a data set, sampled
COARSE = 8  # bins of a column between whose cut points thresholds are taken for one
PARAMS = TreeParams(n_estimators=TREES, learning_rate=0.1, max_depth=7, reg_lambda=1.0)
ROWS_TOLD_MIN = 100  # of a rule, to say that it is a meta-rule
READINGS = {
    "leaf": "a leaf's",
    "coarse": "a leaf's, coarse",
    "determined": "determines the leaf",
    "held": "held",
}
CHILD_ROWS_MIN = 5  # of either side of a condition, and of the rarer class so many to expect
SPREAD_MIN = 1e-12  # of y itself: a deviation below it is rounding
LEVEL = 0.05  # chance that a meta-rule is taken for none

Gains = dict[Rule, tuple[int, float]]  # rows, and the gain of the best further condition
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A data set, and the words for its rules."""

    table: local.TrainingTable
    columns: tuple[str, ...]
    texts: dict[int, list[str]]  # of categorical columns, by their codes

    def words(self, rule: Rule, cuts: Binning) -> str:
        """The rule of trees that know categories by the bins of `cuts`."""
        said = []
        for column, asked in rule:
            known = self.texts.get(column, [])
            codes = cuts.categories.get(column, np.empty(0, np.int32)).tolist()
            said.append(
                condition_text(self.columns[column], asked, [known[code] for code in codes])
            )
        return " and ".join(said)


def measured(name: str, params: TreeParams, rows: int) -> Row:
    """The shares of a data set, in four readings of the paper, and of rules with a host column.

    `leaf`: trees of which the rule is a leaf; `coarse`: the same with thresholds by COARSE bins;
    `determined`: in which all its rows end in one leaf; `held`: in which it leads to any node, of
    rules that are meta-rules as far as the training rows tell. `share` is the largest over all
    rules, of all trees, with its rule in words; `repeated` the share of trees that have any rule of
    which another tree has the same; `hosts` the same over rules that ask for a host's column.
    """
    data = load(name, rows)
    hosts = host_columns(name, data.columns)
    trained = local.train(data.table, params)
    trees = [tree for one in trained.rounds for tree in one]
    told, limit = gains_of(trained, trees, data.table), chance(trained.binning)
    leaves = conditions.find_rules(trees)
    ended = determined([one.rule for one in leaves], trees)
    coarse = binning.fit(data.table.values, COARSE, data.table.categorical)
    readings = {
        "leaf": leaves,
        "coarse": conditions.find_rules(trees, coarse),
        "determined": [RuleMatch(one.rule, own) for one, own in zip(leaves, ended, strict=True)],
        "held": [
            one
            for one in conditions.find_rules(trees, inner=True)
            if _held(told.get(one.rule), limit)
        ],
    }

    def shares(found: Sequence[RuleMatch]) -> dict[str, Any]:
        best = max(found, key=lambda one: len(one.trees), default=None)
        return {
            "share": largest_share(found, len(trees)),
            "repeated": repeated_share(found, len(trees)),
            "rule": data.words(best.rule, trained.binning) if best else "",
        }

    return {
        "rows": len(data.table.y),
        "columns": len(data.columns),
        "trees": len(trees),
        "max_depth": params.max_depth,
        "learning_rate": params.learning_rate,
        "train": trained.history[-1]["train"],
        "rules": len(leaves),
        "held_leaves": _share_held([told[one.rule] for one in leaves if one.rule in told], limit),
        **{what: shares(found) for what, found in readings.items()},
        "hosts": {
            what: shares([one for one in found if one.has_condition_on(hosts)])
            for what, found in readings.items()
        },
    }


def load(name: str, rows: int) -> Loaded:
    """At most so many rows of a data set; of adult with its texts, which are categories."""
    if name == "adult":
        frame = hybridtree_data.load(name).sample(rows, 0).frame
        assert frame.label is not None
        values, kinds = np.asarray(frame.values), frame.categorical
        texts = {frame.columns.index(n): list(found) for n, found in frame.categories.items()}
        table = local.TrainingTable(values, frame.label, categorical=kinds)
        return Loaded(table, frame.columns, texts)
    known = tables.load("a9a_train") if name == "a9a" else tables.binary(name)
    found = known.sample(rows)
    table = local.TrainingTable(found.values, found.y.astype(np.float64))
    return Loaded(table, found.columns, {})


def host_columns(name: str, columns: Sequence[str]) -> frozenset[int]:
    """Those that the papers' code gives to a host; where it says nothing, the second half."""
    host = tables.HOST_COLUMNS.get(name, tuple(columns[len(columns) // 2 :]))
    return frozenset(columns.index(column) for column in host)


def gains_of(trained: Trained, trees: Sequence[Tree], table: local.TrainingTable) -> Gains:
    """What the training rows say of the rule of every node, layer by layer."""
    cuts = trained.binning
    bins = cuts.transform(table.values)
    gains: Gains = {}
    for tree in trees:
        rules = conditions.node_rules(tree)
        leaves = tree.leaf_of_bins(bins, cuts.missing)
        for nodes in _layers(tree, leaves):
            found = further_gains(nodes, bins, table.y, cuts)
            gains |= {rules[node]: told for node, told in found.items()}
    return gains


def _layers(tree: Tree, leaves: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Where each row stands after the first layer, the second, and so on to its leaf."""
    numbers = tree.node[leaves].astype(np.int64) + 1  # from 1, so that half of it is the parent's
    depth = np.frexp(numbers)[1] - 1
    for layer in range(1, int(depth.max()) + 1):
        above = (numbers >> np.maximum(0, depth - layer)) - 1
        yield np.searchsorted(tree.node, above).astype(np.int32)


def _held(told: tuple[int, float] | None, limit: float) -> bool:
    """Whether enough rows satisfy a rule, and nothing further tells about their labels."""
    return told is not None and told[0] >= ROWS_TOLD_MIN and told[1] <= limit


def _share_held(told: Sequence[tuple[int, float]], limit: float) -> float | None:
    """Of the rules with enough rows; None where there are none."""
    enough = [one for one in told if one[0] >= ROWS_TOLD_MIN]
    return sum(_held(one, limit) for one in enough) / len(enough) if enough else None


def largest_share(rules: Sequence[RuleMatch], trees: int) -> float:
    """Figure 3a: the largest share of so many trees of which one of the rules is a leaf, or 0."""
    return max((len(one.trees) for one in rules), default=0) / max(1, trees)


def repeated_share(rules: Sequence[RuleMatch], trees: int) -> float:
    """The share of so many trees that have any of the rules together with another tree, or 0."""
    having = {number for one in rules if len(one.trees) > 1 for number in one.trees}
    return len(having) / max(1, trees)


def determined(
    rules: Sequence[Rule], trees: Sequence[Tree], cuts: Binning | None = None
) -> list[tuple[int, ...]]:
    """For each rule the numbers of the trees in which all rows that satisfy it end in one leaf.

    `cuts` are those the rules were found with. A tree that is a single leaf determines nothing.
    """
    asked = [(tree, questions_of_tree(tree, cuts)) for tree in trees]
    return [
        tuple(
            number
            for number, (tree, own) in enumerate(asked)
            if tree.n_nodes > 1 and _ends_in_one(tree, dict(rule), own)
        )
        for rule in rules
    ]


def further_gains(
    nodes: Positions, bins: Bins, y: Floats, cuts: Binning
) -> dict[int, tuple[int, float]]:
    """Of each node with rows: how many, and how much its best further condition tells about y.

    nodes int32 (n,): the leaf of each row, or a node above it; bins (n, columns), by `cuts`; y
    float64 (n,), two classes as 0 and 1, or numbers. The gain of a condition is the sum of squares
    of y that it explains over the variance of y in the node (of two classes Pearson's statistic):
    if Definition 1 holds, it is chi-squared with one degree of freedom, as long as no single row
    weighs much; so both sides have CHILD_ROWS_MIN rows times the greatest squared distance of a y
    from the mean, over the variance (of two classes: that many expected of the rarer). 0 where no
    condition can divide the node so, or where y does not vary. A rule is a meta-rule, as far as
    these rows tell, where its gain is not above `chance(cuts)`; of few rows they tell little.
    """
    params = TreeParams(objective="reg:squarederror", reg_lambda=0.0)
    columns = np.arange(cuts.n_columns, dtype=np.int32)
    scaled = _standardised(nodes, y)[:, None]
    fixed = fixed_point.encoding_for_rows(len(y), None, max(1.0, float(np.abs(scaled).max())), 1.0)
    gh = fixed.encode(scaled, np.ones_like(scaled))
    gains: dict[int, tuple[int, float]] = {}
    for node in np.unique(nodes).tolist():
        rows = np.flatnonzero(nodes == node).astype(np.int32)
        cells = histogram.build(bins, [rows], gh, cuts.n_cells)
        total = gh[rows].sum(axis=0)[None]
        least = CHILD_ROWS_MIN * max(1.0, float(np.square(scaled[rows]).max()))
        own = params.model_copy(update={"min_child_weight": least})
        (won,) = growth.best_splits(Rules(own, cuts, fixed), cells, total, columns)
        gains[node] = (len(rows), 0.0 if won is None else won[0].gain)
    return gains


def chance(cuts: Binning, level: float = LEVEL) -> float:
    """The gain that `level` of all meta-rules may exceed by chance (Bonferroni, so at most).

    Among so many conditions: of a column with b bins b − 1 thresholds, of one with k categories
    2^(k−1) − 1 divisions, each with missing values on either side, and present against missing.
    """
    from scipy.special import chdtri

    bins = cuts.n_bins.astype(np.float64)
    each = np.where(cuts.is_categorical, np.exp2(bins - 1.0) - 1.0, bins - 1.0)
    return float(chdtri(1, level / (2.0 * each + 1.0).sum()))


def _standardised(nodes: Positions, y: Floats) -> Floats:
    """(n,): y less its node's mean, over its node's deviation; 0 where y does not vary."""
    rows = np.maximum(1, np.bincount(nodes))
    centred = y - (np.bincount(nodes, y) / rows)[nodes]
    spread = np.sqrt(np.bincount(nodes, centred**2) / rows)[nodes]
    return np.divide(centred, spread, out=np.zeros_like(y), where=spread > SPREAD_MIN * np.abs(y))


def _ends_in_one(tree: Tree, known: KnownConditions, asked: Sequence[Question]) -> bool:
    ends = _ends(tree, known, asked)
    return next(ends, None) is not None and next(ends, None) is None


def _ends(tree: Tree, known: KnownConditions, asked: Sequence[Question]) -> Iterator[int]:
    """The leaves that rows of which so much is known can reach."""
    opened: list[tuple[int, KnownConditions]] = [(0, known)]
    while opened:
        at, seen = opened.pop()
        below = int(tree.left[at])
        if below == LEAF:
            yield at
            continue
        found = enumerate(narrowed_sides(seen, int(tree.feature[at]), asked[at]), start=below)
        opened += [(child, more) for child, more in found if more is not None]


def drawn(rows: Sequence[Row]) -> Picture | None:
    """The largest shares, in each reading."""
    groups = [
        Group(
            f"{row['data']}: {row['trees']} trees, {row['rows']:,} rows",
            {said: Bar(row[what]["share"], 1, f"{row[what]['share']:.1%}")
             for what, said in READINGS.items()},
        )
        for row in of(rows, "rules")
    ]  # fmt: skip
    return plots.bars("Share of the trees that have the same rule", groups)
