"""Split rules that several trees of a model share.

HybridTree, section 3.2 and figure 3a: "the proportion of trees that have the same meta-rules". What
is counted here, and where the paper leaves it open:

- A *split rule* is what the path from a tree's root to one of its leaves asks. Conditions on one
  column are merged into one (an interval, a set of categories, with or without missing values), so
  their order does not count; thresholds are compared as they are, or by the bins of coarser cut
  points. A tree that is a single leaf has no rule.
- A rule *determines the prediction* of a tree where it is one of its leaves: rows that satisfy it
  get one value, whatever else they hold. The values of different trees need not be equal, as each
  tree corrects the ones before it. `found` counts the trees of which a rule is a leaf.

`benchmarks/rule_shares.py` reads the paper in other ways, too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from fedboost.core.binning import Binning
from fedboost.core.categories import NO_THRESHOLD
from fedboost.core.tree import LEAF, Tree
from fedboost.model.conditions import Condition, Known, Question, questions, ways

Rule = tuple[tuple[int, Condition], ...]  # by rising column, each column once


@dataclass(frozen=True)
class RuleMatch:
    """A rule and the numbers of the trees, from 0, of which it is a leaf."""

    rule: Rule
    trees: tuple[int, ...]

    def asks(self, columns: Container[int]) -> bool:
        """Whether it has a condition on one of the columns, as of a host's."""
        return any(column in columns for column, _ in self.rule)


def node_rules(tree: Tree, cuts: Binning | None = None) -> dict[int, Rule]:
    """What the path to each node asks, leaves and others, by the node's position in the arrays.

    Without nodes that no row can reach; the root's rule asks nothing. With `cuts`, thresholds
    between the same two cut points of their column are one.
    """
    asked, left, feature = asked_by(tree, cuts), tree.left.tolist(), tree.feature.tolist()
    reached: dict[int, Known] = {0: {}}
    for node, below in enumerate(left):  # children come after their parents
        if below == LEAF or node not in reached:
            continue
        for child, more in enumerate(ways(reached[node], feature[node], asked[node]), start=below):
            if more is not None:
                reached[child] = more
    return {node: tuple(sorted(known.items(), key=_column)) for node, known in reached.items()}


def found(
    trees: Sequence[Tree], cuts: Binning | None = None, inner: bool = False
) -> list[RuleMatch]:
    """All rules of the trees, those of most trees first, then those with fewest conditions.

    `cuts` as `node_rules`. With `inner` a tree counts, too, where the rule leads to a node that is
    divided further.
    """
    holders: dict[Rule, list[int]] = {}
    for number, tree in enumerate(trees):
        of_nodes = node_rules(tree, cuts).items()
        own = (rule for node, rule in of_nodes if inner or tree.is_leaf[node])
        for rule in dict.fromkeys(own):
            if rule:
                holders.setdefault(rule, []).append(number)
    listed = [RuleMatch(rule, tuple(numbers)) for rule, numbers in holders.items()]
    return sorted(listed, key=lambda one: (-len(one.trees), len(one.rule)))


def asked_by(tree: Tree, cuts: Binning | None) -> list[Question]:
    """What the nodes ask; with `cuts` each threshold moved up to the next of its column's."""
    arrays = tree.to_arrays()
    if cuts is not None:
        moved = tree.threshold.copy()
        for node in np.flatnonzero(~tree.is_leaf & (tree.threshold != NO_THRESHOLD)):
            own = cuts.cuts[tree.feature[node]]
            place = int(np.searchsorted(own, moved[node]))
            moved[node] = own[place] if place < len(own) else np.float32(np.inf)
        arrays = {**arrays, "threshold": moved}
    return questions(arrays)


def _column(asked: tuple[int, Condition]) -> int:
    return asked[0]
