"""Cells of a host's histograms, and the rows that add to them.

A column has a cell for each bin, then one of missing rows; a node has its columns' cells one after
the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, Dense, SparseBins, entries_of_nodes
from fedboost.core.groups import GroupNumbers, Minimum, usable_groups
from fedboost.core.sampling import TreeColumns
from fedboost.ground.arrays import Bits, Indices, Rows
from fedboost.ground.part_workers import PlacedParts

# A column's most frequent bin is left out if it holds at least this share of the rows, and only
# if the columns together save more than they cost: the nodes' totals take an addition a row,
# and rows that share cells are added once anyway, so that an addition left out saves half of one.
SKIPPED_SHARE_MIN = 0.6
SKIPPED_SHARES_MIN = 3.0
ROWS_MOST = 1 << 31
ADDITIONS_AT_ONCE = 1 << 24  # 64 MB of numbers of cells


@dataclass(frozen=True)
class Additions:
    """Arguments of `segment_sum`: rows[i] adds to every cell of cells[i] that is not −1."""

    rows: Rows  # (m,) of the table
    cells: Rows  # (m, k), of all nodes, counted node after node
    skipped: Indices  # (columns,) the bin that each column leaves out, −1 for none


class RowCells(ABC):
    """The cells that rows of a table, or of a part of it, add to in some columns; no more than sums
    need.
    """

    def __init__(self, n_bins: Indices) -> None:
        """Begin with columns of so many bins each, int64 (columns,), without the cell of missing
        rows.
        """
        self.n_bins = n_bins
        self.starts = np.concatenate(([0], np.cumsum(n_bins + 1)))

    @property
    def n_cells(self) -> int:
        """Number of cells of a node."""
        return int(self.starts[-1])

    @property
    def rows_at_once(self) -> int:
        """Most rows that `additions` should get at once."""
        return ROWS_MOST

    @abstractmethod
    def additions(self, node_rows: Sequence[Rows]) -> Additions:
        """Return the additions for nodes with these rows, int32 each."""

    @abstractmethod
    def missing(self, rows: Rows) -> Bits:
        """Return the columns that some of a node's rows lack a value in, bool (columns,)."""


@dataclass(frozen=True, eq=False)
class BinnedPart:
    """The bins of some rows and columns of a table, which workers keep for all trees."""

    bins: Bins
    n_bins: Indices  # int64 (columns,), without the cell of missing rows
    leave_out: bool  # whether frequent bins may be left out; a sparse table's zeros are

    def part(self, rows: slice, columns: slice) -> BinnedPart:
        """Return some rows and columns, numbered from zero."""
        if (rows, columns) == (slice(0, self.bins.shape[0]), slice(0, self.bins.shape[1])):
            return self
        if isinstance(self.bins, SparseBins):
            chosen = np.arange(len(self.n_bins), dtype=np.int32)[columns]
            some: Bins = self.bins.take(chosen).row_range(rows)
        else:
            some = np.ascontiguousarray(self.bins[rows, columns])
        return BinnedPart(some, self.n_bins[columns], self.leave_out)

    def numbers(self, columns: Rows) -> RowCells:
        """Return the cells that rows add to in some columns, rising."""
        if isinstance(self.bins, SparseBins):
            return SparseCells(self.bins.take(columns), self.n_bins[columns])
        return DenseCells(self, columns)

    @cached_property
    def most(self) -> Indices:
        """The highest bin of each column of a dense table, int64 (columns,)."""
        assert not isinstance(self.bins, SparseBins)
        return self.bins.max(axis=0, initial=0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class BinnedTable:
    """A host's table: all of it, and the parts that workers have."""

    binning: Binning
    whole: BinnedPart
    placed: PlacedParts = field(default_factory=PlacedParts)

    @classmethod
    def of(cls, binning: Binning, bins: Bins, *, leave_out: bool) -> BinnedTable:
        """Return the table with the bins of all rows; see `BinnedPart`."""
        return cls(binning, BinnedPart(bins, binning.n_bins.astype(np.int64), leave_out))


class TreeCells:
    """The cells of the columns that a tree may use."""

    def __init__(self, table: BinnedTable, drawn: TreeColumns) -> None:
        self.table, self.drawn, self.columns = table, drawn, drawn.all  # columns of the table
        self.by_category = table.binning.is_categorical[self.columns]
        self.numbers = table.whole.numbers(self.columns)

    def minimum(self, least: int) -> Minimum | None:
        """Return the groups of at least so many rows that candidates of these columns lie
        between.
        """
        binning = self.table.binning
        each = np.full(binning.n_columns, least, np.int32)
        return Minimum.of(binning, self.table.whole.bins, self.columns, each)

    def groups(self, node: int, minimum: Minimum | None) -> GroupNumbers | None:
        """Return the groups of a node's cells, uint8 (columns, n_cells): at least those of the
        minimum, and a single group of a column that it has not drawn; None if each cell is a group.
        """
        held = None if minimum is None else minimum.stacked_groups([node])
        stacked = usable_groups(self.table.binning, self.drawn, [node], held)
        return None if stacked is None else stacked[0]


class DenseCells(RowCells):
    """Cells of a dense table, with a number for every row and column."""

    def __init__(self, table: BinnedPart, columns: Rows) -> None:
        """Begin with these columns of a dense table."""
        super().__init__(table.n_bins[columns])
        assert not isinstance(table.bins, SparseBins)
        self._bins, self._columns, self._leave_out = table.bins, columns, table.leave_out
        self._most = table.most[columns]

    @property
    def rows_at_once(self) -> int:
        """Most rows whose cell numbers take little memory."""
        return max(1, ADDITIONS_AT_ONCE // max(1, len(self.n_bins)))

    def additions(self, node_rows: Sequence[Rows]) -> Additions:
        """Return additions of each row to a cell of each column."""
        joined = np.concatenate([np.empty(0, np.int32), *node_rows])
        # All rows are used without a copy.
        whole = len(node_rows) == 1 and len(joined) == len(self._bins)
        bins = self._bins if whole else self._bins[joined]
        if len(self._columns) < bins.shape[1]:
            bins = bins[:, self._columns]
        if (self._most > self.n_bins).any():  # rows without a value are beyond
            bins = np.minimum(bins, self.n_bins.astype(bins.dtype))
        # No array may be wider than the cells: a root has one for every row and column.
        cells = np.add(bins, self.starts[:-1].astype(np.int32), dtype=np.int32)
        ends = np.cumsum([len(rows) for rows in node_rows])
        for number, (some, end) in enumerate(zip(node_rows, ends, strict=True)):
            cells[end - len(some) : end] += number * self.n_cells
        skipped = self._skipped(bins)
        if (skipped >= 0).any():
            cells[bins == skipped] = -1
        return Additions(joined, cells, skipped)

    def missing(self, rows: Rows) -> Bits:
        """See `RowCells`; only columns that lack a value somewhere are checked."""
        lacks = self._most >= self.n_bins
        for c in np.flatnonzero(lacks):
            lacks[c] = (self._bins[rows, self._columns[c]] >= self.n_bins[c]).any()
        return lacks

    def _skipped(self, bins: Dense) -> Indices:
        """Return the most frequent bin of each column that saves work when left out, −1 for the
        others.
        """
        skipped = np.full(bins.shape[1], -1, np.int64)
        if not self._leave_out or not len(bins):
            return skipped
        counts = [np.bincount(bins[:, c]) for c in range(bins.shape[1])]
        shares = np.array([count.max() for count in counts]) / len(bins)
        frequent = shares >= SKIPPED_SHARE_MIN
        if shares[frequent].sum() >= SKIPPED_SHARES_MIN:
            skipped[frequent] = [int(counts[c].argmax()) for c in np.flatnonzero(frequent)]
        return skipped


class SparseCells(RowCells):
    """Cells of a sparse table, with numbers for its entries and none for its zeros."""

    def __init__(self, bins: SparseBins, n_bins: Indices) -> None:
        super().__init__(n_bins)
        self._bins = bins
        self._columns = bins.columns
        most = n_bins[self._columns]
        self._in_column = np.minimum(bins.bins, most)
        (self._lacking,) = np.nonzero(self._in_column == most)

    def additions(self, node_rows: Sequence[Rows]) -> Additions:
        """Return additions of each entry to one cell; the zeros' are left out."""
        indices, node = entries_of_nodes(self._bins, node_rows)
        cells = self._in_column[indices] + self.starts[self._columns[indices]] + self.n_cells * node
        skipped = self._bins.zero.astype(np.int64)
        return Additions(self._bins.rows[indices], cells.astype(np.int32)[:, None], skipped)

    def missing(self, rows: Rows) -> Bits:
        """See `RowCells`; only entries without a value are checked."""
        lacks = np.zeros(len(self.n_bins), np.bool_)
        there = np.isin(self._bins.rows[self._lacking], rows)
        lacks[self._columns[self._lacking[there]]] = True
        return lacks
