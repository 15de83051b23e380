"""A contributor's rows in a growing tree, as its columns see them: no sum is of too few rows.

Each column has a separate view, in which every row stands in an apparent node and an apparent bin.
At the root small cells are joined until each holds `own_rows_min` rows or none. If a node divides a
cell, and only few of its rows go to one side, they follow the others. So each cell of each node,
added up or computed as the rest of its parent's, has none of our rows or at least that many. The
true rows divide as ever: only the sums that leave are about apparent cells.

    column A   node 0: bin 3 of 9 rows ──► 2 go left, 7 right ──► all 9 are seen on the right
    column B   node 0: bin 1 of 12 rows ─► 5 go left, 7 right ──► 5 and 7, as it is

Views differ, and so do the totals of a node from column to column. These must not differ by few
rows. So a view in which fewer than `own_rows_min` rows have followed others sends as many decoys to
the other child: rows of a divided cell, different ones in each column. It stays possible that two
columns with equal divisions differ by few rows in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, Dense, SparseBins, bins_of_rows
from fedboost.core.partition import ROOT
from fedboost.core.tree import Split
from fedboost.ground.arrays import Bits, Rows, Sums
from fedboost.ground.kernels import kernel

ApparentNodes = NDArray[np.int16]  # heap ids: the deepest tree of TreeParams has 2^15 − 1 nodes
ColumnPart = tuple[Rows, int]  # int32 ascending, and the index of the first in the tree's columns
TrueSides = tuple[Dense, Rows, Bits]  # values, by and right of a Layer

COLUMNS_AT_ONCE = 64  # of a sparse table made dense together, so that a wide one needs no more room


@dataclass(frozen=True)
class Layer:
    """Splits of one layer, as they send the rows of a view."""

    nodes: tuple[int, ...]
    values: Dense  # (dividing columns, rows) their true bins
    by: Rows  # (nodes,) index of each node's column among these
    right: Bits  # (nodes, cells) mask of the column's bins that go right

    @property
    def true_sides(self) -> TrueSides:
        """Return the fields as kernels read them."""
        return self.values, self.by, self.right

    @classmethod
    def of(cls, splits: Mapping[int, Split], bins: Bins, rows: Rows, missing: int) -> Self:
        """Return the layer of these splits, by heap id."""
        columns, by = np.unique([cut.column for cut in splits.values()], return_inverse=True)
        cells = np.arange(missing + 1, dtype=np.uint16)
        right = [
            split.goes_right(cells, cut.bin, cut.missing_left, missing, cut.left_bins)
            for cut in splits.values()
        ]
        values = np.stack([bins_of_rows(bins, column, rows) for column in columns.tolist()])
        return cls(tuple(splits), values, by.astype(np.int32), np.stack(right))


class OwnRows:
    """Rows of one contributor in one tree. In every layer take `sums`, then `divide`."""

    def __init__(
        self, binning: Binning, bins: Bins, gh: Sums, rows: Rows, part: ColumnPart, least: int
    ) -> None:
        """bins (n, all columns) and gh int64 (n, 2·outputs) as in a growing tree; rows int32
        ascending, the own rows that it learns from; `part` of the columns that it may use; `least`
        is the owner's own_rows_min. With fewer rows than that, all sums are 0.

        Rows without a gradient add nothing to a sum, so they do not count.
        """
        self._rows = rows[gh[rows].any(axis=1)]
        if len(self._rows) < least:
            self._rows = rows[:0]
        self._binning, self._bins, self._gh = binning, bins, gh[self._rows]
        (self._columns, self._first), self._least = part, least
        self._layers: list[Layer] = []
        self._dense = (
            None if isinstance(bins, SparseBins) else self._root_view(bins, part[0], *part)
        )

    def sums(self, nodes: Sequence[int]) -> Sums:
        """Return sums of nodes' apparent cells, int64 (nodes, columns, n_cells, 2·outputs)."""
        if self._dense is not None:
            return self._dense.sums(nodes, self._gh, self._binning.n_cells)
        starts = range(0, len(self._columns), COLUMNS_AT_ONCE)
        views = map(self._regrow_view, starts)
        each = [view.sums(nodes, self._gh, self._binning.n_cells) for view in views]
        return np.concatenate(each, axis=1)

    def divide(self, splits: Mapping[int, Split]) -> None:
        """Divide the apparent nodes of one layer, `splits` by heap id."""
        if not splits:
            return
        layer = Layer.of(splits, self._bins, self._rows, self._binning.missing)
        if self._dense is not None:
            self._dense.divide(layer, self._least, self._binning.n_cells)
        else:
            self._layers.append(layer)

    def _root_view(self, bins: Dense, indices: Rows, columns: Rows, first: int) -> View:
        """Return the view of some columns at the root; they lie at `indices` in `bins`."""
        ordered = ~self._binning.is_categorical[columns]
        n_cells = self._binning.n_cells
        joined = _join_small_cells(bins, self._rows, indices, ordered, self._least, n_cells)
        return View(np.full(joined.shape, ROOT, np.int16), joined, first)

    def _regrow_view(self, first: int) -> View:
        """Return a view of sparse columns from index `first` on, grown again from the root."""
        assert isinstance(self._bins, SparseBins)
        columns = self._columns[first : first + COLUMNS_AT_ONCE]
        indices = np.arange(len(columns), dtype=np.int32)
        bins = self._bins.take(columns).dense()
        view = self._root_view(bins, indices, columns, self._first + first)
        for layer in self._layers:
            view.divide(layer, self._least, self._binning.n_cells)
        return view


@dataclass(frozen=True)
class View:
    """Apparent nodes and bins of the rows in some columns, (columns, rows); nodes change."""

    nodes: ApparentNodes
    bins: Dense
    first: int  # index of the first column among the tree's columns

    def sums(self, nodes: Sequence[int], gh: Sums, n_cells: int) -> Sums:
        """Return int64 (nodes, columns, n_cells, 2·outputs) of gh (rows, 2·outputs)."""
        sums = np.zeros((len(nodes), len(self.bins), n_cells, gh.shape[1]), np.int64)
        if len(nodes):
            _add_rows(self.nodes, self.bins, _node_indices(nodes), gh, sums)
        return sums

    def divide(self, layer: Layer, least: int, n_cells: int) -> None:
        """Move the rows of a layer's nodes to the apparent children."""
        rule = least, self.first
        _divide_rows(
            self.nodes, self.bins, _node_indices(layer.nodes), layer.true_sides, rule, n_cells
        )


def _node_indices(nodes: Sequence[int]) -> Rows:
    """Return each heap id's index in `nodes`, up to the end of the nodes' layer; −1 for other
    nodes.
    """
    indices = np.full((1 << (max(nodes) + 1).bit_length()) - 1, -1, np.int32)
    indices[np.array(nodes)] = np.arange(len(nodes))
    return indices


@kernel
def _join_small_cells(
    bins: Dense, rows: Rows, columns: Rows, ordered: Bits, least: int, n_cells: int
) -> Dense:
    """Return the rows' apparent bins in some columns, (columns, rows).

    Bins of an ordered column are joined with the next non-empty ones, a short rest with the ones
    before; the bin of a group with most rows stands for it. A small category or few missing rows
    then join the cell with most rows, the first of equal ones.
    """
    joined = np.empty((len(columns), len(rows)), bins.dtype)
    for j in range(len(columns)):
        column = bins[:, columns[j]]
        held = np.zeros(n_cells, np.int64)
        for i in range(len(rows)):
            held[column[rows[i]]] += 1
        to = np.arange(n_cells)
        if ordered[j]:
            _join_neighbours(held, to, least)
        full = np.argmax(held)
        for b in range(n_cells):
            if held[to[b]] < least:
                to[b] = full
        for i in range(len(rows)):
            joined[j, i] = to[column[rows[i]]]
    return joined


@kernel
def _join_neighbours(held: Sums, to: Sums, least: int) -> None:
    """Join all bins except the cell of missing rows: `to` is each bin's new bin, and `held` has a
    group's rows at the bin that stands for it.
    """
    first = before = 0  # first bins of the current group, and of the one before
    rows = 0  # of the current group
    for b in range(len(held) - 1):
        rows += held[b]
        if rows >= least:
            _join_group(held, to, first, b + 1)
            before, first, rows = first, b + 1, 0
    if rows > 0:
        _join_group(held, to, before, len(held) - 1)


@kernel
def _join_group(held: Sums, to: Sums, start: int, stop: int) -> None:
    """Let the bin with most rows stand for the bins of a group."""
    top, rows = start, 0
    for b in range(start, stop):
        rows += held[b]
        if held[b] > held[top]:
            top = b
    for b in range(start, stop):
        to[b] = top
        held[b] = 0
    held[top] = rows


@kernel
def _divide_rows(
    nodes: ApparentNodes,
    bins: Dense,
    indices: Rows,
    true_sides: TrueSides,
    rule: tuple[int, int],
    n_cells: int,
) -> None:
    """Send rows by their true bins, the few rows of a cell after its others, and decoys."""
    (values, by, right), (least, first) = true_sides, rule
    held = np.empty(2 * len(by) * n_cells, np.int32)  # rows by node, cell and side
    child = np.empty(len(held), np.int16)  # 1 for the left one, 2 for the right one
    side = np.empty(nodes.shape[1], np.int32)  # each row's index in `held`
    decoys = np.empty((len(by), 2), np.int32)  # of each node: index in `held`, and the first
    for j in range(nodes.shape[0]):
        held[:] = 0
        for i in range(nodes.shape[1]):
            k = indices[nodes[j, i]]
            if k < 0:
                side[i] = -1
                continue
            side[i] = 2 * (k * n_cells + bins[j, i]) + right[k, values[by[k], i]]
            held[side[i]] += 1
        for k in range(len(by)):
            start, stop = 2 * k * n_cells, 2 * (k + 1) * n_cells
            place = _choose_children(held[start:stop], child[start:stop], least)
            decoys[k, 0] = -1
            if place >= 0:  # other rows than in the next column
                decoys[k, 0] = start + place
                decoys[k, 1] = (first + j) * least % (held[start + place] - least + 1)
        for i in range(nodes.shape[1]):
            place = side[i]
            if place < 0:
                continue
            k = indices[nodes[j, i]]
            if place == decoys[k, 0]:
                place ^= -least < decoys[k, 1] <= 0
                decoys[k, 1] -= 1
            nodes[j, i] = 2 * nodes[j, i] + child[place]


@kernel
def _choose_children(held: Rows, child: ApparentNodes, least: int) -> int:
    """Write the child of each cell and side of a node, `held` rows each, to `child`.

    Return the index of the rows that send decoys to the other child, −1 for none: the fuller side
    of the cell with the best division, if too few rows follow others to hide which.
    """
    decoys, best, followed = -1, least - 1, 0
    for left in range(0, len(held), 2):
        few, most = held[left], held[left + 1]
        to_left, to_right = 0, 1
        if few <= most and 0 < few < least:
            to_left, followed = 1, followed + few
        elif most < few and 0 < most < least:
            to_right, followed = 0, followed + most
        elif min(few, most) > best and max(few, most) >= 2 * least:
            decoys, best = left + int(most > few), min(few, most)
        child[left], child[left + 1] = 1 + to_left, 1 + to_right
    return -1 if followed >= least or least == 1 else decoys


@kernel
def _add_rows(nodes: ApparentNodes, bins: Dense, indices: Rows, gh: Sums, sums: Sums) -> None:
    """Add up the rows of some nodes."""
    for j in range(nodes.shape[0]):
        for i in range(nodes.shape[1]):
            k = indices[nodes[j, i]]
            if k < 0:
                continue
            cell = sums[k, j, bins[j, i]]
            cell[0] += gh[i, 0]
            cell[1] += gh[i, 1]
            for o in range(2, gh.shape[1]):
                cell[o] += gh[i, o]
