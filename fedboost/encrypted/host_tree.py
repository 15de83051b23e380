"""A tree while it grows, as a host sees it: encrypted histograms and the candidates in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.partition import parent, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.api import Ciphertexts, PublicKey
from fedboost.crypto.sparse import fill_skipped
from fedboost.encrypted.cells import Cells
from fedboost.encrypted.growth import Growth

Bits = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """One node's candidates, with their places among the sums of its layer."""

    listed: Candidates
    sums: Places  # (candidates,)
    grouped: tuple[tuple[int, Places, bool], ...]  # categorical column, its bins' sums and, last,
    # that of missing rows if the node has any, which the bool says


class HostTree:
    """One tree. Every layer: divide as the guest says, then `candidate_sums` of the open nodes."""

    def __init__(self, cells: Cells, growth: Growth, place: Places, *, subtraction: bool) -> None:
        """Cells of the columns that the tree may use; `growth`: where rows begin, and which of
        them it learns from; place int64 (n,): where each row's gradients are among the encrypted
        ones; `subtraction`: whether a node's sums may be its parent's minus its sibling's
        (SecureBoost+, section 4.3).
        """
        self.growth = growth
        self.opened: list[int] = []
        self._cells_of, self._place, self._subtraction = cells, place, subtraction
        self._columns, self._by_category = cells.columns, cells.by_category
        self._n_bins, self._starts = cells.n_bins, cells.starts
        self._ordered = np.where(self._by_category, 0, self._n_bins)  # bins that thresholds divide
        self._cells: dict[int, Ciphertexts] = {}  # of the open nodes

    def candidate_sums(
        self, key: PublicKey, gradients: Ciphertexts
    ) -> tuple[Ciphertexts, dict[int, Found]]:
        """Sums, and for each open node its candidates with their places among them.

        [ prefix sums | those with missing rows added | the cells, where a column is categorical ]
        """
        self._cells = self._histograms(key, gradients)
        nodes = Ciphertexts.concat([self._cells[node] for node in self.opened])
        prefix = self._prefix_sums(key, nodes)
        rows = [self.growth.training.rows(node) for node in self.opened]
        missing = [self._cells_of.missing(own) for own in rows]
        listed = [self._listed(lacks) for lacks in missing]
        with_missing = len(prefix)
        cells = with_missing + sum(int(own.missing_left.sum()) for own in listed)
        width, per_node = int(self._ordered.sum()), int(self._starts[-1])
        first_bin = np.cumsum(self._ordered) - self._ordered
        found: dict[int, Found] = {}
        base, absent = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, (node, own, lacks) in enumerate(zip(self.opened, listed, missing, strict=True)):
            sums = i * width + first_bin[own.column] + own.bin.astype(np.int64)
            left = np.flatnonzero(own.missing_left)
            base.append(sums[left])
            absent.append(i * per_node + self._starts[own.column[left] + 1] - 1)
            sums[left] = with_missing + np.arange(len(left))
            with_missing += len(left)
            named = Candidates(self._columns[own.column], own.bin, own.missing_left)
            found[node] = Found(named, sums, self._grouped(cells + i * per_node, lacks))
        missing_left = key.add(prefix[np.concatenate(base)], nodes[np.concatenate(absent)])
        rest = [nodes] if self._by_category.any() else []
        return Ciphertexts.concat([prefix, missing_left, *rest]), found

    def _prefix_sums(self, key: PublicKey, nodes: Ciphertexts) -> Ciphertexts:
        """Of each column that thresholds divide, node after node, the sums up to each bin.

        They run within a column's bins; the cell of missing rows stays outside.
        """
        is_bin = np.repeat(~self._by_category, self._n_bins + 1)
        is_bin[self._starts[1:] - 1] = False
        present = np.flatnonzero(np.tile(is_bin, len(self.opened)))
        lengths = np.tile(self._ordered, len(self.opened))
        return key.prefix_sums(nodes[present], np.concatenate(([0], np.cumsum(lengths))))

    def _listed(self, missing: Bits) -> Candidates:
        """A node's candidates at thresholds, columns counted among those that the tree may use."""
        ordered = np.flatnonzero(~self._by_category).astype(np.int32)
        return split.candidates(self._n_bins.astype(np.int32), missing, ordered)

    def _grouped(self, cells: int, missing: Bits) -> tuple[tuple[int, Places, bool], ...]:
        """A node's categorical columns; `cells` is where its cells begin among the sums."""
        return tuple(
            (
                int(self._columns[c]),
                cells + np.arange(self._starts[c], self._starts[c + 1] - (not missing[c])),
                bool(missing[c]),
            )
            for c in np.flatnonzero(self._by_category)
        )

    def _histograms(self, key: PublicKey, gradients: Ciphertexts) -> dict[int, Ciphertexts]:
        """The encrypted histogram of every open node: added up, or its parent's minus its
        sibling's.
        """
        added = self._to_add()
        n_cells = int(self._starts[-1])
        sums = self._added_up(key, gradients, added)
        found = {node: sums[i * n_cells : (i + 1) * n_cells] for i, node in enumerate(added)}
        rest = [node for node in self.opened if node not in found]
        if rest:
            parents = Ciphertexts.concat([self._cells[parent(node)] for node in rest])
            siblings = Ciphertexts.concat([found[sibling(node)] for node in rest])
            minus = key.subtract(parents, siblings)
            for i, node in enumerate(rest):
                found[node] = minus[i * n_cells : (i + 1) * n_cells]
        return {node: found[node] for node in self.opened}

    def _to_add(self) -> list[int]:
        """Of two siblings the one with fewer rows, whether or not it is open itself."""
        if not self._subtraction or not self._cells:
            return list(self.opened)
        training = self.growth.training
        size = {node: len(training.rows(node)) for node in training.leaves()}
        smaller = {
            min(node, sibling(node), key=lambda child: (size[child], child)) for node in self.opened
        }
        return sorted(smaller)

    def _added_up(self, key: PublicKey, gradients: Ciphertexts, added: list[int]) -> Ciphertexts:
        """The cells of these nodes, node after node, from their rows."""
        rows = [self.growth.training.rows(node) for node in added]
        asked, n_cells = self._cells_of.additions(rows), int(self._starts[-1])
        place, skipped = self._place[asked.rows], asked.skipped
        sums = key.segment_sum(gradients, place, asked.cells, n_cells * len(added))
        if (skipped < 0).all():
            return sums
        joined = self._place[np.concatenate([np.empty(0, np.int32), *rows])]
        node = np.repeat(np.arange(len(added), dtype=np.int32), [len(own) for own in rows])
        totals = key.segment_sum(gradients, joined, node[:, None], len(added))
        base = (n_cells * np.arange(len(added))[:, None] + self._starts[:-1]).ravel()
        offsets = np.append(base, n_cells * len(added))
        left_out = np.tile(skipped, len(added))
        return fill_skipped(key, sums, offsets, np.where(left_out < 0, -1, base + left_out), totals)
