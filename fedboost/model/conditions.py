"""Conditions on one column from the splits of a path, combined; also as text."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning
from fedboost.core.categories import NO_THRESHOLD, SET_BYTES, set_members
from fedboost.core.tree import LEAF, Tree
from fedboost.model.export import shortest_float

# A bit for each category that a split can send left, and a last one for all others.
OTHER_CATEGORIES = 1 << (8 * SET_BYTES)
CATEGORIES = OTHER_CATEGORIES * 2 - 1


@dataclass(frozen=True)
class Question:
    """Question of a split about its column, for any column."""

    threshold: float  # values below go left
    missing_left: bool
    categories: int | None = None  # bits of categories that go left; None: a threshold divides


@dataclass(frozen=True)
class Condition:
    """Values of one column: numbers from `low` to below `high`, categories, and missing ones.

    Equal conditions accept the same values, in any order of the splits that have narrowed them.
    """

    low: float = -math.inf
    high: float | None = None  # None: no limit, even infinity
    categories: int = CATEGORIES
    missing: bool = True

    def divided(self, question: Question) -> tuple[Condition | None, Condition | None]:
        """Return the part that goes left and the part that goes right; None for an empty one."""
        if question.categories is not None:
            left = replace(self, categories=self.categories & question.categories)
            right = replace(self, categories=self.categories & ~question.categories)
        else:
            most = question.threshold if self.high is None else min(self.high, question.threshold)
            left = replace(self, high=most)
            right = replace(self, low=max(self.low, question.threshold))
        return (
            replace(left, missing=self.missing and question.missing_left)._normal_form(),
            replace(right, missing=self.missing and not question.missing_left)._normal_form(),
        )

    def _normal_form(self) -> Condition | None:
        """Return the condition; NOTHING_PRESENT if it accepts only missing values, None if none."""
        if self.categories and (self.high is None or self.low < self.high):
            return self
        return NOTHING_PRESENT if self.missing else None


ANYTHING = Condition()
NOTHING_PRESENT = Condition(high=-math.inf, categories=0)

KnownConditions = Mapping[int, Condition]  # by column; a column that is absent may be ANYTHING


def narrowed_sides(
    known: KnownConditions, column: int, question: Question
) -> tuple[KnownConditions | None, KnownConditions | None]:
    """Return the conditions left and right of a split, given those above it; None: no row goes
    there.

    If one of them is None, the split adds nothing to the conditions above it.
    """
    left, right = known.get(column, ANYTHING).divided(question)
    return (
        None if left is None else {**known, column: left},
        None if right is None else {**known, column: right},
    )


def questions(arrays: Mapping[str, NDArray[np.generic]]) -> list[Question]:
    """Return the question of each node's split; a leaf's is meaningless."""
    thresholds = arrays["threshold"].astype(np.float32)
    missing = arrays["missing_left"].tolist()
    rules = []
    for threshold, left, held in zip(thresholds, missing, arrays["left_bins"], strict=True):
        by_category = threshold == NO_THRESHOLD
        bits = int.from_bytes(held.tobytes(), "little") if by_category else None
        rules.append(Question(float(threshold), left, bits))
    return rules


def condition_text(column: str, condition: Condition, categories: Sequence[str] = ()) -> str:
    """Return ``age < 41.5 (or missing)``; `categories` are a column's texts by index."""
    text = _present(column, condition, categories)
    if text is None:
        return f"{column} is {'missing' if condition.missing else 'infinite'}"
    return f"{text} (or missing)" if condition.missing else text


def _present(column: str, condition: Condition, categories: Sequence[str]) -> str | None:
    """Return the condition on present values as text; None if it accepts none."""
    low, high = condition.low, condition.high
    if condition.categories != CATEGORIES:
        return _of_categories(column, condition.categories, categories)
    if low == math.inf or (high is not None and low >= high):
        return None
    upper = None if high is None or math.isinf(high) else shortest_float(np.float32(high))
    if math.isinf(low):
        return f"{column} is present" if upper is None else f"{column} < {upper}"
    lower = shortest_float(np.float32(low))
    return f"{column} >= {lower}" if upper is None else f"{lower} <= {column} < {upper}"


def _of_categories(column: str, bits: int, known: Sequence[str]) -> str | None:
    if not bits:
        return None
    inside = not bits & OTHER_CATEGORIES
    listed = bits if inside else CATEGORIES & ~bits
    indices = set_members(listed.to_bytes(SET_BYTES + 1, "little"))
    texts = ", ".join(repr(known[k]) if k < len(known) else f"number {k}" for k in indices)
    return f"{column} {'in' if inside else 'not in'} {{{texts}}}"


Rule = tuple[tuple[int, Condition], ...]  # in rising order of columns, each column once


@dataclass(frozen=True)
class RuleMatch:
    """A rule, and the numbers from 0 of the trees with a leaf of this rule."""

    rule: Rule
    trees: tuple[int, ...]

    def has_condition_on(self, columns: Container[int]) -> bool:
        """Return whether it has a condition on one of the columns, for example a host's."""
        return any(column in columns for column, _ in self.rule)


def node_rules(tree: Tree, cuts: Binning | None = None) -> dict[int, Rule]:
    """Return the rule of the path to each node, leaves and others, by position in the arrays.

    Nodes that no row can reach are left out; the root's rule is empty. With `cuts`, thresholds
    between the same two cut points of their column are one.
    """
    asks, left, feature = questions_of_tree(tree, cuts), tree.left.tolist(), tree.feature.tolist()
    reached: dict[int, KnownConditions] = {0: {}}
    for node, below in enumerate(left):  # children come after their parents
        if below == LEAF or node not in reached:
            continue
        for child, more in enumerate(
            narrowed_sides(reached[node], feature[node], asks[node]), start=below
        ):
            if more is not None:
                reached[child] = more
    return {
        node: tuple(sorted(known.items(), key=itemgetter(0))) for node, known in reached.items()
    }


def find_rules(
    trees: Sequence[Tree], cuts: Binning | None = None, inner: bool = False
) -> list[RuleMatch]:
    """Return all rules of the trees, in falling order of trees, then rising order of conditions.

    `cuts` as in `node_rules`. With `inner` a tree counts, too, if the rule leads to a node that is
    divided further.
    """
    holders: dict[Rule, list[int]] = {}
    for number, tree in enumerate(trees):
        by_node = node_rules(tree, cuts).items()
        rules = (rule for node, rule in by_node if inner or tree.is_leaf[node])
        for rule in dict.fromkeys(rules):
            if rule:
                holders.setdefault(rule, []).append(number)
    listed = [RuleMatch(rule, tuple(numbers)) for rule, numbers in holders.items()]
    return sorted(listed, key=lambda match: (-len(match.trees), len(match.rule)))


def questions_of_tree(tree: Tree, cuts: Binning | None) -> list[Question]:
    """Return the nodes' questions; with `cuts` each threshold is its column's next cut."""
    arrays = tree.to_arrays()
    if cuts is not None:
        moved = tree.threshold.copy()
        for node in np.flatnonzero(~tree.is_leaf & (tree.threshold != NO_THRESHOLD)):
            column_cuts = cuts.cuts[tree.feature[node]]
            place = int(np.searchsorted(column_cuts, moved[node]))
            moved[node] = column_cuts[place] if place < len(column_cuts) else np.float32(np.inf)
        arrays = {**arrays, "threshold": moved}
    return questions(arrays)
