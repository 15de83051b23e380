"""A tree while it grows, as a host sees it: encrypted histograms and the candidates in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.partition import parent, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.api import Adds, H, Pairs
from fedboost.crypto.sparse import fill_skipped
from fedboost.encrypted.cells import Cells, Rows
from fedboost.encrypted.growth import Growth
from fedboost.encrypted.sides import HostRows

Bits = NDArray[np.bool_]
Places = NDArray[np.int64]

KEPT_OCTETS_MAX = 1 << 29  # of a layer's cells of all trees, for the next layer to subtract from
CELLS_OCTETS_MAX = 1 << 26  # of the nodes whose sums are made at once


@dataclass(frozen=True)
class Found:
    """One node's candidates, with their places among the sums that were made with it."""

    listed: Candidates
    sums: Places  # (candidates,)
    grouped: tuple[tuple[int, Places, bool], ...]  # categorical column, its bins' sums and, last,
    # that of missing rows if the node has any, which the bool says


class HostTree(Generic[H]):
    """One tree. Every layer: divide as the guest says, `open`, then `candidate_sums` of all the
    open nodes, some at a time.
    """

    def __init__(
        self, cells: Cells, growth: Growth, place: Places, *, subtraction: bool, trees: int = 1
    ) -> None:
        """Cells of the columns that the tree may use; `growth`: where rows begin, and which of
        them it learns from; place int64 (n,): where each row's gradients are among the encrypted
        ones; `subtraction`: whether a node's sums may be its parent's minus its sibling's
        (SecureBoost+, section 4.3); `trees`: how many grow at once.
        """
        self.growth = growth
        self.opened: list[int] = []
        # Of each node whose sums have left, the group of every cell, uint8 (columns, n_cells), of
        # which there is a sum; None: one of each cell.
        self.released: dict[int, NDArray[np.uint8] | None] = {}
        self._cells_of, self._place, self._subtraction = cells, place, subtraction
        self._columns, self._by_category = cells.columns, cells.by_category
        self._trees = trees
        self._n_bins, self._starts = cells.n_bins, cells.starts
        self._ordered = np.where(self._by_category, 0, self._n_bins)  # bins that thresholds divide
        self._parents: dict[int, H] = {}  # the cells of the layer above
        self._cells: dict[int, H] = {}  # of the open nodes, as far as they have been made and kept

    @property
    def columns(self) -> Rows:
        """The columns that the tree may use, rising."""
        return self._columns

    def begin_layer(self) -> None:
        """The cells of the layer before become those that may be subtracted from."""
        self._parents, self._cells = self._cells, {}

    def octets(self, rows: HostRows[H]) -> int:
        """What a node's cells take in memory."""
        return self._cells_of.n_cells * rows.cell_octets

    def candidate_sums(
        self, rows: HostRows[H], nodes: Sequence[int]
    ) -> tuple[Pairs[H], dict[int, Found]]:
        """Sums, and for each of some open nodes its candidates with their places among them.

        [ prefix sums | those with missing rows added | the cells, where a column is categorical ]
        """
        self.released.update(dict.fromkeys(nodes))
        histograms, key = self._histograms(rows, nodes), rows.adds
        self._keep(histograms, rows)
        cells = _joined([histograms[node] for node in nodes])
        prefix = self._prefix_sums(key, cells, len(nodes))
        missing = [self._cells_of.missing(self.growth.training.rows(node)) for node in nodes]
        listed = [self._listed(lacks) for lacks in missing]
        found, base, absent = self._placed(nodes, listed, missing)
        first, second = np.arange(len(prefix)), np.full(len(prefix), -1)
        rest = np.arange(len(cells) if self._by_category.any() else 0)
        if len(rest):
            prefix = prefix.joined([cells])
        sums = Pairs(
            prefix,
            np.concatenate([first, base, len(first) + rest]),
            cells,
            np.concatenate([second, absent, np.full(len(rest), -1)]),
        )
        return sums, found

    def _placed(
        self, nodes: Sequence[int], listed: Sequence[Candidates], missing: Sequence[Bits]
    ) -> tuple[dict[int, Found], Places, Places]:
        """Where the nodes' candidates are; which prefix sums and which cells of missing rows make
        up the second part.
        """
        width, per_node = int(self._ordered.sum()), int(self._starts[-1])
        with_missing = width * len(nodes)
        cells = with_missing + sum(int(own.missing_left.sum()) for own in listed)
        first_bin = np.cumsum(self._ordered) - self._ordered
        found: dict[int, Found] = {}
        base, absent = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, (node, own, lacks) in enumerate(zip(nodes, listed, missing, strict=True)):
            sums = i * width + first_bin[own.column] + own.bin.astype(np.int64)
            left = np.flatnonzero(own.missing_left)
            base.append(sums[left])
            absent.append(i * per_node + self._starts[own.column[left] + 1] - 1)
            sums[left] = with_missing + np.arange(len(left))
            with_missing += len(left)
            named = Candidates(self._columns[own.column], own.bin, own.missing_left)
            found[node] = Found(named, sums, self._grouped(cells + i * per_node, lacks))
        return found, np.concatenate(base), np.concatenate(absent)

    def _prefix_sums(self, key: Adds[H], cells: H, nodes: int) -> H:
        """Of each column that thresholds divide, node after node, the sums up to each bin.

        They run within a column's bins; the cell of missing rows stays outside.
        """
        is_bin = np.repeat(~self._by_category, self._n_bins + 1)
        is_bin[self._starts[1:] - 1] = False
        present = np.flatnonzero(np.tile(is_bin, nodes))
        lengths = np.tile(self._ordered, nodes)
        return key.prefix_sums(cells[present], np.concatenate(([0], np.cumsum(lengths))))

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

    def _histograms(self, rows: HostRows[H], nodes: Sequence[int]) -> dict[int, H]:
        """The encrypted histogram of each node: added up, or its parent's minus its sibling's."""
        added = self._to_add(nodes)
        n_cells = int(self._starts[-1])
        found: dict[int, H] = {}
        if added:
            sums = self._added_up(rows, added)
            found = {node: sums[i * n_cells : (i + 1) * n_cells] for i, node in enumerate(added)}
        rest = [node for node in nodes if node not in found]
        if rest:
            siblings = self._cells | found
            above = _joined([self._parents[parent(node)] for node in rest])
            beside = _joined([siblings[sibling(node)] for node in rest])
            minus = rows.adds.subtract(above, beside)
            for i, node in enumerate(rest):
                found[node] = minus[i * n_cells : (i + 1) * n_cells]
        return {node: found[node] for node in nodes}

    def _to_add(self, nodes: Sequence[int]) -> list[int]:
        """Of two siblings the one with fewer rows, whether or not it is open itself; none where
        one of them has been made before.
        """
        training, added = self.growth.training, set()
        for node in nodes:
            if self._subtraction and parent(node) in self._parents:
                if sibling(node) in self._cells:
                    continue
                pair = (node, sibling(node))
                added.add(min(pair, key=lambda child: (len(training.rows(child)), child)))
            else:
                added.add(node)
        return sorted(added)

    def _keep(self, histograms: dict[int, H], rows: HostRows[H]) -> None:
        """Keeps cells for the next layer, while there is room."""
        room = KEPT_OCTETS_MAX // max(1, self._trees * self.octets(rows))
        if self._subtraction:
            for node, cells in histograms.items():
                if len(self._cells) < room:
                    self._cells[node] = cells

    def _added_up(self, rows: HostRows[H], added: Sequence[int]) -> H:
        """The cells of these nodes, node after node, from their rows."""
        own = [self.growth.training.rows(node) for node in added]
        asked, n_cells = self._cells_of.additions(own), int(self._starts[-1])
        place, skipped = self._place[asked.rows], asked.skipped
        sums = rows.sums(place, asked.cells, n_cells * len(added))
        if (skipped < 0).all():
            return sums
        joined = self._place[np.concatenate([np.empty(0, np.int32), *own])]
        node = np.repeat(np.arange(len(added), dtype=np.int32), [len(one) for one in own])
        totals = rows.sums(joined, node[:, None], len(added))
        base = (n_cells * np.arange(len(added))[:, None] + self._starts[:-1]).ravel()
        offsets = np.append(base, n_cells * len(added))
        left_out = np.tile(skipped, len(added))
        filled = np.where(left_out < 0, -1, base + left_out)
        return fill_skipped(rows.adds, sums, offsets, filled, totals)


def _joined(parts: Sequence[H]) -> H:
    return parts[0].joined(parts[1:]) if len(parts) > 1 else parts[0]
