"""What figure 3a of HybridTree may count of rules that trees share, and what rows say of a rule.

Beside `fedboost.model.conditions`, where the paper leaves it open:

- It does not say whether a tree counts in which other conditions stand on the path, although
  the rule alone decides; `determined` counts those too: every tree in which rows that satisfy the
  rule can end in one leaf only. The narrower a rule, the more trees it determines.
- "The same meta-rule" of figure 3a may be one for all trees, or any that two trees share:
  `largest_share` takes the one rule that most trees have, `repeated_share` any.
- That the rule is a meta-rule, P(y | S) = P(y | S ∩ F) for every further condition F (Definition
  1), no tree can show: it stops at its depth, too. `further_gains` asks the rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point, growth, histogram
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.core.tree import LEAF, Positions, Tree
from fedboost.model.conditions import Known, Question, Rule, RuleMatch, asked_by, ways

Floats = NDArray[np.float64]

CHILD_ROWS_MIN = 5  # of either side of a condition, and of the rarer class so many to expect
SPREAD_MIN = 1e-12  # of y itself: a deviation below it is rounding
LEVEL = 0.05  # chance that a meta-rule is taken for none


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
    asked = [(tree, asked_by(tree, cuts)) for tree in trees]
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
    fixed = fixed_point.for_rows(len(y), None, max(1.0, float(np.abs(scaled).max())), 1.0)
    gh = fixed.encode(scaled, np.ones_like(scaled))
    gains: dict[int, tuple[int, float]] = {}
    for node in np.unique(nodes).tolist():
        rows = np.flatnonzero(nodes == node).astype(np.int32)
        cells = histogram.build(bins, [rows], gh, cuts.n_cells)
        total = gh[rows].sum(axis=0)[None]
        least = CHILD_ROWS_MIN * max(1.0, float(np.square(scaled[rows]).max()))
        own = params.model_copy(update={"min_child_weight": least})
        (won,) = growth.choose(Rules(own, cuts, fixed), cells, total, columns)
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


def _ends_in_one(tree: Tree, known: Known, asked: Sequence[Question]) -> bool:
    ends = _ends(tree, known, asked)
    return next(ends, None) is not None and next(ends, None) is None


def _ends(tree: Tree, known: Known, asked: Sequence[Question]) -> Iterator[int]:
    """The leaves that rows of which so much is known can reach."""
    opened: list[tuple[int, Known]] = [(0, known)]
    while opened:
        at, seen = opened.pop()
        below = int(tree.left[at])
        if below == LEAF:
            yield at
            continue
        found = enumerate(ways(seen, int(tree.feature[at]), asked[at]), start=below)
        opened += [(child, more) for child, more in found if more is not None]
