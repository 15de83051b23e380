"""Minimum groups: sums of a node that leave the columns' owner are of enough rows.

A column's cells (its bins, and the cell of missing rows) are joined into groups. The sum of a group
in a node, in its sibling or in their parent is of at least `least` rows, or of no row, because
splits of the same column above the node have ruled its bins out. Groups of children are unions of
their parent's, so no difference of a tree's released sums is of fewer rows either (SECURITY.md,
D7). Only cuts between groups are released, for both siblings or for neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import histogram, split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.params import MAX_BIN
from fedboost.core.partition import Partition, left_child, parent, sibling
from fedboost.core.sampling import TreeColumns
from fedboost.core.split import Candidates
from fedboost.ground.arrays import Bits, Rows
from fedboost.ground.kernels import kernel
from fedboost.ground.state import state_class

GroupNumbers = NDArray[np.uint16]  # (columns, n_cells) the group of each cell, rising with the bins
CellCounts = NDArray[np.int64]  # (columns, n_cells)


@dataclass(frozen=True)
class NodeGroups:
    """Groups of an open node."""

    groups: GroupNumbers  # (columns, n_cells); the last cell is that of missing rows
    possible: Bits  # (columns, n_cells): not ruled out by splits above
    smallest: int | None  # rows of the smallest group that is released and not empty


@dataclass(frozen=True)
class Segments:
    """Groups of one column as ranges of its cells: bins, then the cell of missing rows."""

    bounds: NDArray[np.int64]  # (groups + 1,) first bins of the groups, and the end
    apart: bool  # whether the cell of missing rows is a separate group, not part of the last

    @classmethod
    def of(cls, groups: GroupNumbers, n_bins: int) -> Self:
        """Return the segments of groups (n_cells,)."""
        known = groups[:n_bins].astype(np.int64)
        bounds = np.concatenate(([0], np.flatnonzero(np.diff(known)) + 1, [n_bins]))
        return cls(bounds, bool(groups[-1] != known[-1]))

    @classmethod
    def one_per_bin(cls, n_bins: int) -> Self:
        """Return a group for each bin."""
        return cls(np.arange(n_bins + 1), apart=True)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of cells of each group, int64 (groups,)."""
        lengths: NDArray[np.int64] = np.diff(self.bounds)
        lengths[-1] += not self.apart
        return lengths

    def members(self, chosen: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the bins, int64 rising, in the chosen groups."""
        inside = np.zeros(len(self), np.bool_)
        inside[chosen] = True
        return np.flatnonzero(np.repeat(inside, np.diff(self.bounds)))

    def holds_missing(self, chosen: NDArray[np.integer]) -> bool:
        """Return whether missing rows belong to one of the chosen groups."""
        return not self.apart and len(self) - 1 in chosen


@state_class
class MinimumState:
    """State of the last layer that the next one needs."""

    nodes: dict[int, NodeGroups]  # open nodes
    divided: dict[int, tuple[int, Bits]]  # the column's index, and a mask of its cells that go left


class Minimum(MinimumState):
    """Groups of a growing tree's open nodes. In every layer call `open`, then `divide` for each
    split of one of these columns.
    """

    def __init__(self, bins: Bins, columns: Rows, n_bins: Rows, n_cells: int, least: Rows) -> None:
        """bins (n, all columns), below n_cells; columns int32 that the tree may use; n_bins and
        least int32 (columns,): the bins in use, and the least rows of a group. A column whose
        `least` is 1 has a group for every cell.
        """
        self._bins, self._columns, self._n_cells = bins, columns, n_cells
        self._n_bins, self._least = n_bins.astype(np.int64), least.astype(np.int64)
        self.nodes, self.divided = {}, {}

    def open(self, nodes: Sequence[int], training: Partition) -> None:
        """Begin a layer of these nodes; `training` holds the rows that the tree learns from."""
        above, self.nodes = self.nodes, {}
        pairs = {node: [node, sibling(node)] if parent(node) in above else [node] for node in nodes}
        counted = list(dict.fromkeys(child for pair in pairs.values() for child in pair))
        counts = dict(zip(counted, self._cell_counts(training, counted), strict=True))
        for node, pair in pairs.items():
            beside = self.nodes.get(pair[-1])
            sides = [(counts[child], self._possible_cells(above, child)) for child in pair]
            if beside is None:
                whole = finest_groups(self._n_bins, self._n_cells)
                before = above[parent(node)].groups if len(pair) > 1 else whole
                groups = coarsen_groups(before, sides, self._n_bins, self._least)
            else:
                groups = beside.groups
            self.nodes[node] = NodeGroups(groups, sides[0][1], _smallest_group(groups, sides[0][0]))
        self.divided = {}

    def divide(
        self, node: int, column: int, bin_number: int, missing_left: bool, left_bins: bytes
    ) -> None:
        """Note a split of one of the columns; arguments as in `split.goes_right`."""
        cells = np.arange(self._n_cells).astype(np.uint16)
        right = split.goes_right(cells, bin_number, missing_left, self._n_cells - 1, left_bins)
        self.divided[node] = int(np.searchsorted(self._columns, column)), ~right

    @classmethod
    def of(cls, binning: Binning, bins: Bins, columns: Rows, least: Rows | None) -> Self | None:
        """Return the minimum of a tree that may use `columns`, int32; `least` int32 (all columns,).

        None if no column asks for more than one row.
        """
        if least is None or (least[columns] <= 1).all():
            return None
        rows = least[columns]
        return cls(bins, columns, binning.n_bins[columns], binning.n_cells, rows)

    def groups(self, node: int) -> GroupNumbers:
        """Return the groups of an open node."""
        return self.nodes[node].groups

    def smallest_group(self, node: int) -> int | None:
        """Return the rows of the smallest group of an open node; None if no column has two."""
        return self.nodes[node].smallest

    def stacked_groups(self, nodes: Sequence[int]) -> GroupNumbers:
        """Return the groups of several nodes, (nodes, columns, n_cells)."""
        return np.array([self.nodes[node].groups for node in nodes])

    def _cell_counts(self, training: Partition, nodes: Sequence[int]) -> NDArray[np.int64]:
        """Return the number of rows of each node in each cell, (nodes, columns, n_cells)."""
        each = np.ones((self._bins.shape[0], 1), np.int64)
        rows = [training.rows(node) for node in nodes]
        return histogram.build(self._bins, rows, each, self._n_cells, self._columns)[..., 0]

    def _possible_cells(self, above: Mapping[int, NodeGroups], node: int) -> Bits:
        """Return a mask of the cells that splits of the same column above a node have left."""
        if parent(node) not in above:
            return np.ones((len(self._columns), self._n_cells), np.bool_)
        possible = above[parent(node)].possible
        if parent(node) not in self.divided:
            return possible
        place, on_left = self.divided[parent(node)]
        possible = possible.copy()
        possible[place] &= on_left if node == left_child(parent(node)) else ~on_left
        return possible


def finest_groups(n_bins: NDArray[np.integer], n_cells: int) -> GroupNumbers:
    """Return a group for each cell, uint16 (columns, n_cells); n_bins (columns,)."""
    cells = np.minimum(np.arange(n_cells), n_bins[:, None])
    cells[:, -1] = n_bins
    return cells.astype(np.uint16)


def usable_groups(
    binning: Binning, columns: TreeColumns, nodes: Sequence[int], held: GroupNumbers | None = None
) -> GroupNumbers | None:
    """Return the groups of some nodes, uint16 (nodes, columns, n_cells), or None for one group a
    cell.

    They are the `held` ones, with a single group for each column that a node has not drawn.
    """
    drawn = columns.usable_masks(nodes)
    if drawn is None:
        return held
    groups = (
        finest_groups(binning.n_bins[columns.all], binning.n_cells)[None] if held is None else held
    )
    return np.where(drawn[..., None], groups, groups.dtype.type(0))


def coarsen_groups(
    before: GroupNumbers,
    sides: Sequence[tuple[CellCounts, Bits]],
    n_bins: NDArray[np.int64],
    least: NDArray[np.int64],
) -> GroupNumbers:
    """Join groups `before` until each holds enough rows on each of the `sides`, or cannot hold any.

    (columns, n_cells). `sides` are a node and its sibling, or only the root: rows int64 (columns,
    n_cells) of each cell, and a mask of the possible cells.
    """
    rows = np.stack([side[0] for side in sides])
    possible = np.stack([side[1] for side in sides])
    return _coarsen_groups(before, rows, possible, n_bins, least)


def released_mask(groups: GroupNumbers, listed: Candidates, n_bins: NDArray[np.integer]) -> Bits:
    """Return bool (nodes, candidates): whether a candidate divides between groups, not within one.

    groups (nodes, columns, n_cells); the candidates' columns are counted as in `groups`, n_bins
    (columns,).
    """
    column, cell = listed.column, listed.bin.astype(np.int64)
    last = n_bins[column] - 1
    apart = groups[:, column, -1] != groups[:, column, last]
    beyond = groups[:, column, np.minimum(cell + 1, last)]
    inside = groups[:, column, cell] != beyond
    cuts: Bits = np.where(cell < last, inside, apart) & (~listed.missing_left | apart)
    return cuts


def _smallest_group(groups: GroupNumbers, counts: CellCounts) -> int | None:
    """Return the rows of the smallest non-empty group, among columns that have several."""
    several = (groups != groups[:, :1]).any(axis=1)
    if not several.any():
        return None
    counted_groups = groups[several].astype(np.int64)
    indices = counted_groups + (MAX_BIN + 2) * np.arange(len(counted_groups))[:, None]
    rows = np.bincount(indices.ravel(), weights=counts[several].ravel())
    held = rows[rows > 0]
    return int(held.min()) if len(held) else None


@kernel
def _is_large_enough(rows: NDArray[np.int64], possible: Bits, least: int) -> bool:
    """Return whether a group holds enough rows on each side, or cannot hold any."""
    return not np.any(possible & (rows < least))


@kernel
def _coarsen_groups(
    before: GroupNumbers,
    rows: NDArray[np.int64],
    possible: Bits,
    n_bins: NDArray[np.int64],
    least: NDArray[np.int64],
) -> GroupNumbers:
    """See `coarsen_groups`; rows and possible (sides, columns, n_cells)."""
    coarse = before.copy()
    sides, missing = rows.shape[0], before.shape[1] - 1
    for c in range(len(before)):
        if least[c] <= 1:
            continue
        last = n_bins[c] - 1
        apart = before[c, missing] != before[c, last] and _is_large_enough(
            rows[:, c, missing], possible[:, c, missing], least[c]
        )
        ends = np.zeros(n_bins[c] + 1, np.int64)  # ends of closed groups, after a 0
        closed = 0
        held, may = np.zeros(sides, np.int64), np.zeros(sides, np.bool_)
        for b in range(last + 1):
            held += rows[:, c, b]
            may |= possible[:, c, b]
            ended = b == last or before[c, b] != before[c, b + 1]
            if ended and _is_large_enough(held, may, least[c]):
                closed += 1
                ends[closed] = b + 1
                held[:], may[:] = 0, False
        if not apart:
            held += rows[:, c, missing]
            may |= possible[:, c, missing]
        # The rows left at the end join the groups before them until they are enough.
        while closed and (
            (not apart and ends[closed] == last + 1) or not _is_large_enough(held, may, least[c])
        ):
            for b in range(ends[closed - 1], ends[closed]):
                held += rows[:, c, b]
                may |= possible[:, c, b]
            closed -= 1
        apart = apart and (closed > 0 or _is_large_enough(held, may, least[c]))
        number = 0
        for b in range(last + 1):
            if number < closed and b == ends[number + 1]:
                number += 1
            coarse[c, b] = number
        coarse[c, missing] = number + 1 if apart else number
    return coarse
