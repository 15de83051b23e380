"""Bins of a table: a number for each cell; a sparse table stores only cells unlike a zero's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.arrays import Indices, Rows

Dense = NDArray[np.unsignedinteger[Any]]  # dtype from `cell_type`


def cell_type(n_cells: int) -> type[np.uint8 | np.uint16]:
    """Return the dtype of a cell's number: one byte, or two if a column has 256 bins."""
    return np.uint8 if n_cells <= 256 else np.uint16


@dataclass(frozen=True, eq=False)
class SparseBins:
    """Rows whose bin is not that of a value 0, and their bins, column after column."""

    n_rows: int
    starts: Indices  # (columns + 1,) offset of each column's entries
    rows: Rows  # (entries,) rising within a column
    bins: Dense  # (entries,)
    zero: Dense  # (columns,) the bin of all other rows

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, as an array's shape."""
        return self.n_rows, len(self.zero)

    @property
    def columns(self) -> Rows:
        """Column of each entry, int32 (entries,)."""
        return np.repeat(np.arange(len(self.zero), dtype=np.int32), np.diff(self.starts))

    def column(self, number: int) -> tuple[Rows, Dense]:
        """Return the entries of one column: rows and bins."""
        span = slice(int(self.starts[number]), int(self.starts[number + 1]))
        return self.rows[span], self.bins[span]

    def take(self, columns: Rows) -> SparseBins:
        """Return the bins of some columns, int32 in any order."""
        parts = [self.column(number) for number in columns.tolist()]
        sizes = [len(rows) for rows, _ in parts]
        return SparseBins(
            n_rows=self.n_rows,
            starts=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
            rows=np.concatenate([np.empty(0, np.int32), *(rows for rows, _ in parts)]),
            bins=np.concatenate([self.bins[:0], *(bins for _, bins in parts)]),
            zero=self.zero[columns],
        )

    def row_range(self, rows: slice) -> SparseBins:
        """Return the bins of consecutive rows, numbered from zero."""
        first, stop, _ = rows.indices(self.n_rows)
        inside = (self.rows >= first) & (self.rows < stop)
        before = np.concatenate(([0], np.cumsum(inside)))
        return SparseBins(
            n_rows=max(0, stop - first),
            starts=before[self.starts],
            rows=self.rows[inside] - np.int32(first),
            bins=self.bins[inside],
            zero=self.zero,
        )

    def dense(self) -> Dense:
        """Return the bins of every cell, (n, columns), row after row."""
        whole = np.empty(self.shape, self.bins.dtype)
        whole[:] = self.zero
        whole[self.rows, self.columns] = self.bins
        return whole


Bins: TypeAlias = Dense | SparseBins


def bins_of_rows(bins: Bins, column: int, rows: Rows) -> Dense:
    """Return the bins (m,) of some rows, int32 (m,), in one column."""
    if not isinstance(bins, SparseBins):
        return bins[rows, column]
    stored, column_bins = bins.column(column)
    cells = np.full(len(rows), bins.zero[column], bins.zero.dtype)
    if len(stored):
        place = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
        there = stored[place] == rows
        cells[there] = column_bins[place[there]]
    return cells


def entries_of_nodes(bins: SparseBins, node_rows: Sequence[Rows]) -> tuple[Indices, Rows]:
    """Return the indices, int64, of the entries of some nodes' rows, and their nodes' numbers."""
    node_of = np.full(bins.n_rows, -1, np.int32)
    for number, rows in enumerate(node_rows):
        node_of[rows] = number
    node = node_of[bins.rows]
    (kept,) = np.nonzero(node >= 0)
    return kept, node[kept]
