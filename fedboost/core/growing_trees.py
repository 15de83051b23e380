"""Trees of a round: planted, and grown side by side from one flat vector of sums a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedboost.core import forest
from fedboost.core.bins import Bins
from fedboost.core.growth import GrowingTree
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.objectives import Gradients
from fedboost.core.rules import Rules
from fedboost.core.sampling import Sample, TreeColumns
from fedboost.ground.arrays import Sums


class GrowingTrees:
    """Trees that grow side by side; all their sums of a layer are one flat vector."""

    def __init__(self, trees: Sequence[GrowingTree]) -> None:
        self.trees = list(trees)

    @property
    def is_over(self) -> bool:
        """Return whether every tree has grown to its end."""
        return all(tree.is_over for tree in self.trees)

    @property
    def sizes(self) -> list[int]:
        """Number of each tree's sums in the next layer; 0 for a finished tree."""
        return [int(np.prod(tree.shape)) for tree in self.trees]

    def sums(self) -> Sums:
        """Return the own rows' sums of every tree, tree after tree, int64 (Σ sizes,)."""
        return np.concatenate([tree.sums().ravel() for tree in self.trees])

    def take(self, sums: Sums) -> None:
        """Grow one layer of every unfinished tree from all parties' sums, int64 (Σ sizes,)."""
        assert sums.shape == (sum(self.sizes),)
        for tree, tree_sums in zip(
            self.trees, np.split(sums, np.cumsum(self.sizes)[:-1]), strict=True
        ):
            if not tree.is_over:
                tree.take(tree_sums.reshape(tree.shape))

    def close(self) -> None:
        """End all trees at their last complete layer."""
        for tree in self.trees:
            tree.close()


def plant_trees(
    rules: Rules,
    bins: Bins,
    gradients: Gradients,
    sample: Sample,
    number: int,
    groups: tuple[int, ...],
) -> Iterator[GrowingTree]:
    """Yield the trees of round `number` at their roots: a forest for each class in turn.

    bins (n, columns) and gradients (n, k) of all own training rows; `sample` selects the rows that
    the trees see, `groups` are the parties' column counts in canonical order. A JobError if
    gradients leave their bounds.
    """
    params, gh = rules.params, sample.encoded_gradients(rules.fixed, gradients, rules.threads)
    if len(gh) < len(gradients[0]):
        chosen, gh = gh, np.zeros((len(gradients[0]), gh.shape[1]), dtype=np.int64)
        gh[sample.rows] = chosen
    tree = int(forest.first_tree_numbers(params)[number])
    for tree_gh in np.split(gh, params.trees_per_round, axis=1):
        mine = np.ascontiguousarray(tree_gh)
        for inside in sample.trees:
            columns = TreeColumns.draw_columns(params, tree, groups)
            yield GrowingTree(rules, bins, mine, inside, columns)
            tree += 1


def leaf_gradients(
    rules: Rules, gradients: Gradients, sample: Sample
) -> list[LeafGradients | None]:
    """Return the gradients for leaf values of a round's trees, for each class with separate trees.

    None if the gradients of the divisions are exact enough. Arguments as in `plant_trees`.
    """
    params, (g, h) = rules.params, gradients
    if not rules.fixed.is_coarse:
        return [None] * params.trees_per_round
    at, n_rows = sample.rows, len(g)
    if len(at) < n_rows:
        factor = sample.factor[:, None]
        g, h = g[at] * factor, h[at] * factor
    classes = (np.split(part, params.trees_per_round, axis=1) for part in (g, h))
    return [
        LeafGradients.of(rules.fixed, mine, its, at, n_rows)
        for mine, its in zip(*classes, strict=True)
    ]
