"""Lower layers that a host cuts at random, without label information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedboost.core import categories
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, bins_of_rows
from fedboost.core.categories import BY_CATEGORY
from fedboost.core.partition import left_child, right_child
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.candidates import Named
from fedboost.encrypted.host import answers as host_answers
from fedboost.encrypted.host.tree import HostTree
from fedboost.encrypted.tree.batch import TreeBatch
from fedboost.ground.arrays import Indices, Rows


@dataclass(frozen=True)
class Cutter:
    """Random cuts without labels, from a host's secret choice of columns and thresholds."""

    binning: Binning
    bins: Bins
    usable: Rows  # columns that the tree may use
    secrets: Secrets  # of this tree, the same in every attempt
    least: int  # rows on either side of a cut

    def cut_layers(self, tree: HostTree, layers: int) -> dict[int, Named]:
        """Divide every bottom node that has rows to learn from, layer after layer."""
        won: dict[int, Named] = {}
        opened = tree.growth.training.leaves()
        for _ in range(layers):
            cuts = {
                node: self._cut_of_node(node, tree.growth.training.rows(node)) for node in opened
            }
            chosen = {node: named for node, named in cuts.items() if named is not None}
            divided = host_answers.divisions(TreeBatch([tree]), chosen, self.binning, self.bins)
            tree.divide(list(divided.items()))
            won |= chosen
            opened = [child for node in chosen for child in (left_child(node), right_child(node))]
        return won

    def _cut_of_node(self, node: int, rows: Rows) -> Named | None:
        """Return a random cut of a node with enough rows on either side; None if there is none."""
        if len(rows) < 2 * self.least:
            return None
        for place in self.secrets.permutation(len(self.usable), "columns", node).tolist():
            column = int(self.usable[place])
            n_bins = int(self.binning.n_bins[column])
            bins = np.minimum(bins_of_rows(self.bins, column, rows), n_bins)
            counts = np.bincount(bins, minlength=n_bins + 1)
            named = self._cut_of_column(node, column, counts[:n_bins], int(counts[n_bins]))
            if named is not None:
                return named
        return None

    def _cut_of_column(self, node: int, column: int, counts: Indices, missing: int) -> Named | None:
        """Return one of a column's allowed cuts, each with the same chance."""
        by_category = bool(self.binning.is_categorical[column])
        order = np.arange(len(counts))
        if by_category:
            order = self.secrets.permutation(len(counts), "categories", node, column)
        left = np.cumsum(counts[order])[:, None] + np.array([0, missing])
        right = int(counts.sum()) + missing - left
        fits = (left >= self.least) & (right >= self.least)
        fits[:, 1] &= missing > 0  # without missing rows it would be the same cut again
        allowed = np.argwhere(fits)
        if not len(allowed):
            return None
        drawn = int.from_bytes(self.secrets.bytes(8, "cut", node, column), "little")
        last, missing_left = allowed[drawn % len(allowed)].tolist()
        if not by_category:
            return column, last, bool(missing_left), b""
        held = categories.as_set(order[: last + 1])
        return column, BY_CATEGORY, bool(missing_left), held
