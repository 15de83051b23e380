"""A contributor's rows as the columns of a growing tree see them: no sum of them is of too few.

Each column has a view of its own, in which every row stands in an apparent node and an apparent
bin. At the root small cells are joined until each holds `own_rows_min` rows or none; where a node
divides, the few rows of a cell that part from the others follow them. So each cell of each node,
added up or found as the rest of its parent's, is of none of our rows or of so many. Rows really
divide as ever: only the sums that leave are about apparent cells.

    column A   node 0: bin 3 of 9 rows ──► 2 go left, 7 right ──► all 9 are seen on the right
    column B   node 0: bin 1 of 12 rows ─► 5 go left, 7 right ──► 5 and 7, as it is

Views differ, and so do the totals of a node from column to column. So that these do not differ by
few rows, a view in which fewer than `own_rows_min` rows have followed others sends as many decoys
to the other child: rows of a divided cell, other ones in each column. Nothing rules out that two
columns that go together differ by few in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, Dense, SparseBins, of_rows
from fedboost.core.partition import ROOT
from fedboost.core.tree import Split
from fedboost.ground.arrays import Bits, Rows, Sums
from fedboost.ground.kernels import kernel

Nodes = NDArray[np.int16]  # heap ids: the deepest tree that TreeParams allows has 2^15 − 1 nodes
ColumnPart = tuple[Rows, int]  # int32 ascending, and the index of the first among all of the tree
TrueSides = tuple[Dense, Rows, Bits]  # values, by and right of a Layer

COLUMNS_AT_ONCE = 64  # of a sparse table are dense at a time, so that a wide one needs no more room


@dataclass(frozen=True)
class Layer:
    """The splits of one layer, as they send the rows of a view."""

    nodes: tuple[int, ...]
    values: Dense  # (columns that divide, rows) their true bins
    by: Rows  # (nodes,) which of these columns divides each node
    right: Bits  # (nodes, cells) whether a bin of that column goes right

    @property
    def true_sides(self) -> TrueSides:
        """As kernels read it."""
        return self.values, self.by, self.right

    @classmethod
    def of(cls, splits: Mapping[int, Split], bins: Bins, rows: Rows, missing: int) -> Self:
        """Return the views of some nodes."""
        columns, by = np.unique([cut.column for cut in splits.values()], return_inverse=True)
        cells = np.arange(missing + 1, dtype=np.uint16)
        right = [
            split.goes_right(cells, cut.bin, cut.missing_left, missing, cut.left_bins)
            for cut in splits.values()
        ]
        values = np.stack([of_rows(bins, column, rows) for column in columns.tolist()])
        return cls(tuple(splits), values, by.astype(np.int32), np.stack(right))


class OwnRows:
    """The rows of one contributor in one tree. Every layer: `sums`, then `divide`."""

    def __init__(
        self, binning: Binning, bins: Bins, gh: Sums, rows: Rows, part: ColumnPart, least: int
    ) -> None:
        """bins (n, all columns) and gh int64 (n, 2·outputs) as of a growing tree; rows int32
        ascending, the own ones that it learns from; `part` of the columns that it may use; `least`
        is the owner's own_rows_min. Of fewer rows than that nothing is added up.

        Rows without a gradient add nothing to a sum, so they do not count.
        """
        self._rows = rows[gh[rows].any(axis=1)]
        if len(self._rows) < least:
            self._rows = rows[:0]
        self._binning, self._bins, self._gh = binning, bins, gh[self._rows]
        (self._columns, self._first), self._least = part, least
        self._layers: list[Layer] = []
        self._dense = None if isinstance(bins, SparseBins) else self._view(bins, part[0], *part)

    def sums(self, nodes: Sequence[int]) -> Sums:
        """int64 (nodes, columns, n_cells, 2·outputs) over the apparent cells of some nodes."""
        if self._dense is not None:
            return self._dense.sums(nodes, self._gh, self._binning.n_cells)
        starts = range(0, len(self._columns), COLUMNS_AT_ONCE)
        views = map(self._grown, starts)
        each = [view.sums(nodes, self._gh, self._binning.n_cells) for view in views]
        return np.concatenate(each, axis=1)

    def divide(self, splits: Mapping[int, Split]) -> None:
        """Divides the apparent nodes of one layer, `splits` by heap id."""
        if not splits:
            return
        layer = Layer.of(splits, self._bins, self._rows, self._binning.missing)
        if self._dense is not None:
            self._dense.divide(layer, self._least, self._binning.n_cells)
        else:
            self._layers.append(layer)

    def _view(self, bins: Dense, indices: Rows, columns: Rows, first: int) -> View:
        """Some columns at the root, which lie at `indices` in `bins`."""
        ordered = ~self._binning.is_categorical[columns]
        n_cells = self._binning.n_cells
        joined = _joined(bins, self._rows, indices, ordered, self._least, n_cells)
        return View(np.full(joined.shape, ROOT, np.int16), joined, first)

    def _grown(self, first: int) -> View:
        """The columns of a sparse table from a place on, grown again from the root."""
        assert isinstance(self._bins, SparseBins)
        columns = self._columns[first : first + COLUMNS_AT_ONCE]
        indices = np.arange(len(columns), dtype=np.int32)
        bins = self._bins.take(columns).dense()
        view = self._view(bins, indices, columns, self._first + first)
        for layer in self._layers:
            view.divide(layer, self._least, self._binning.n_cells)
        return view


@dataclass(frozen=True)
class View:
    """Apparent nodes and bins of the rows in some columns, (columns, rows); nodes change."""

    nodes: Nodes
    bins: Dense
    first: int  # the place of the first of the columns among all that the tree may use

    def sums(self, nodes: Sequence[int], gh: Sums, n_cells: int) -> Sums:
        """int64 (nodes, columns, n_cells, 2·outputs) of gh (rows, 2·outputs)."""
        sums = np.zeros((len(nodes), len(self.bins), n_cells, gh.shape[1]), np.int64)
        if len(nodes):
            _add(self.nodes, self.bins, _indices(nodes), gh, sums)
        return sums

    def divide(self, layer: Layer, least: int, n_cells: int) -> None:
        """Moves the rows of a layer's nodes to the apparent children."""
        rule = least, self.first
        _divide(self.nodes, self.bins, _indices(layer.nodes), layer.true_sides, rule, n_cells)


def _indices(nodes: Sequence[int]) -> Rows:
    """Return the index among `nodes` by heap id up to the end of the nodes' layer, −1 of other
    nodes.
    """
    indices = np.full((1 << (max(nodes) + 1).bit_length()) - 1, -1, np.int32)
    indices[np.array(nodes)] = np.arange(len(nodes))
    return indices


@kernel
def _joined(
    bins: Dense, rows: Rows, columns: Rows, ordered: Bits, least: int, n_cells: int
) -> Dense:
    """The rows' apparent bins in some columns, (columns, rows).

    Bins of an ordered column are joined with the next ones that have rows, a short rest with the
    ones before; the bin of a group with most rows stands for it. What is small then, a category or
    the missing rows, joins the cell with most rows; of equal ones the first.
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
    """Joins all bins but the last cell, that of missing rows: `to` says where each counts, `held`
    then has a group's rows at the bin that stands for it.
    """
    first = before = 0  # where the group at hand begins, and the one before it
    rows = 0  # of the group at hand
    for b in range(len(held) - 1):
        rows += held[b]
        if rows >= least:
            _stand_for(held, to, first, b + 1)
            before, first, rows = first, b + 1, 0
    if rows > 0:
        _stand_for(held, to, before, len(held) - 1)


@kernel
def _stand_for(held: Sums, to: Sums, start: int, stop: int) -> None:
    """Lets the bin with most rows stand for the bins of a group."""
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
def _divide(
    nodes: Nodes,
    bins: Dense,
    indices: Rows,
    true_sides: TrueSides,
    rule: tuple[int, int],
    n_cells: int,
) -> None:
    """Sends rows by their true bins, the few of a cell after its others, and decoys."""
    (values, by, right), (least, first) = true_sides, rule
    held = np.empty(2 * len(by) * n_cells, np.int32)  # rows by node, cell and side
    child = np.empty(len(held), np.int16)  # 1 for the left one, 2 for the right one
    side = np.empty(nodes.shape[1], np.int32)  # each row's place in `held`
    decoys = np.empty((len(by), 2), np.int32)  # of each node: their place in `held`, the first one
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
            place = _followed(held[start:stop], child[start:stop], least)
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
def _followed(held: Rows, child: Nodes, least: int) -> int:
    """Finds for each cell and side of a node, `held` rows each, to which child it goes.

    Gives the place of rows of which some go to the other one as decoys, −1 where none do: the
    fuller side of the cell that divides best, where too few rows follow others to hide which.
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
def _add(nodes: Nodes, bins: Dense, indices: Rows, gh: Sums, sums: Sums) -> None:
    """Adds up the rows of some nodes."""
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
