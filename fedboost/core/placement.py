"""Placement of rows: the bins of a column that each row may still be in.

A division of a node tells the side of a cut for each of its rows. The information about a row is
the addition to earlier divisions by the same column:

    bins that are possible       · · · [low ■ ■ ■ ■ high) · · ·      and whether a value is missing
    bits that a division tells   log2 of the share of rows in them before, over that after

Bits are counted in rows placed: as many rows as could be known exactly. To know the bin of a row
takes as many bits as the entropy of the column's bins (Shannon, 1948), on average over rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning, FeatureValues
from fedboost.core.bins import Bins, SparseBins, cell_type
from fedboost.ground.arrays import Bits, Floats, Indices, Rows
from fedboost.ground.kernels import kernel
from fedboost.ground.mapped import array_beside, free_pages

SAMPLE_ROWS_MAX = 1 << 17  # rows of a sample
ROWS_COUNTED = 1 << 16  # of a table at a time
EMPTY = 2.0**-10  # of a row: weight of all cells without rows together

BinCounts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ColumnShares:
    """Share of rows in each cell of some columns: their bins, then missing values."""

    rows: int  # divisor of bits
    cells: Sequence[Floats]
    entropy: Floats  # (columns,) bits that tell a row's cell

    @classmethod
    def of(cls, bins: Bins, n_bins: Indices, learnt: Bits) -> ColumnShares:
        """Count all rows, held out or not: a sample could miss a cell with one row.

        Bits are divided by the number of training rows, `learnt` bool (n,).
        """
        return cls.counted(counts_of(bins, n_bins), int(np.count_nonzero(learnt)))

    @classmethod
    def counted(cls, counts: Sequence[BinCounts], rows: int) -> ColumnShares:
        """Return the shares of cells with these row counts; bits are divided by `rows`."""
        cells = [held / max(1, int(held.sum())) for held in counts]
        return cls(max(1, rows), cells, np.array([entropy_of(shares) for shares in cells]))

    def placed(self, bits: Floats) -> Floats:
        """Return bits told of the columns as shares of the rows; 0 for a column whose rows are all
        in one cell.
        """
        whole = self.rows * self.entropy
        placed: Floats = np.divide(bits, whole, out=np.zeros_like(whole), where=whole > 0.0)
        return placed


def sample_rows(learnt: Bits, most: int = SAMPLE_ROWS_MAX) -> Indices:
    """Return at most so many of the training rows, at equal distances."""
    (rows,) = np.nonzero(learnt)
    return rows[:: max(1, -(-len(rows) // most))]


def counts_of(bins: Bins, n_bins: Indices) -> list[BinCounts]:
    """Return the number of rows in each cell of each column: its bins, then missing values."""
    if isinstance(bins, SparseBins):
        return [_counts_of_entries(bins, column, n) for column, n in enumerate(n_bins.tolist())]
    counts = [np.zeros(n_cells + 1, np.int64) for n_cells in n_bins.tolist()]
    for first in range(0, len(bins), ROWS_COUNTED):
        block = bins[first : first + ROWS_COUNTED]
        for column, held in enumerate(counts):
            cells = np.minimum(block[:, column], len(held) - 1)
            counts[column] = held + np.bincount(cells, minlength=len(held))
        free_pages(bins)
    return counts


def varying_columns(values: FeatureValues) -> Bits:
    """Return a mask of the columns of values (n, columns) with different rows; bool (columns,)."""
    differ = np.zeros(values.shape[1], np.bool_)
    for column in range(len(differ) if values.shape[0] else 0):
        if isinstance(values, np.ndarray):
            differ[column] = _has_variation(values[:, column], values[0, column])
            free_pages(values)
            continue
        stored = values.data[values.indptr[column] : values.indptr[column + 1]]
        is_full = len(stored) == values.shape[0]
        differ[column] = _has_variation(stored, stored[0] if is_full else np.float32(0))
    return differ


def entropy_least(rows: int) -> float:
    """Return the entropy, in bits, of a column with one row unlike all others."""
    return entropy_of(np.array([1.0, rows - 1.0]) / rows)


def entropy_of(shares: Floats) -> float:
    """Return the entropy of a distribution, in bits."""
    held = shares[shares > 0.0]
    return float(max(0.0, -(held * np.log2(held)).sum()))


@dataclass(eq=False)
class _NarrowedColumn:
    """Bins that are still possible, row by row: from `low` to below `high`."""

    low: NDArray[np.unsignedinteger[Any]]
    high: NDArray[np.unsignedinteger[Any]]
    may_lack: Bits  # whether a row may have no value; empty if no row of the column lacks one
    below: Floats  # (bins + 1,) share of rows in lower bins
    lacking: float  # the share of rows without a value


@dataclass
class NarrowedRows:
    """Information about each row from the divisions of one attempt, by column."""

    n_rows: int
    beside: object  # an array of the rows: if it lies in a file, the information does too
    binning: Binning
    shares: ColumnShares
    _narrowed: dict[int, _NarrowedColumn] = field(default_factory=dict)
    _by_category: dict[int, float] = field(default_factory=dict)  # bits told so far

    @classmethod
    def of(cls, bins: Bins, binning: Binning, learnt: Bits) -> NarrowedRows:
        """Return the state before the first division; `learnt` bool (n,) are training rows."""
        shares = ColumnShares.of(bins, binning.n_bins.astype(np.int64), learnt)
        return cls(bins.shape[0], bins, binning, shares)

    def divide(
        self, column: int, place: int, missing_left: bool, rows: Rows, goes_right: Bits
    ) -> float:
        """Return the bits that a division of a node with these rows adds to the information.

        `place` is the last bin on the left; for a categorical column it does not matter.
        """
        if self.binning.is_categorical[column]:
            return self._divide_by_category(column, len(rows), int(np.count_nonzero(goes_right)))
        if column not in self._narrowed:
            self._narrowed[column] = self._new_column(column)
        known = self._narrowed[column]
        state = known.low, known.high, known.may_lack
        cut = place + 1, missing_left
        return float(_narrow_rows(rows, goes_right, cut, state, (known.below, known.lacking)))

    def _divide_by_category(self, column: int, rows: int, right: int) -> float:
        """Return the entropy of the sides in bits, at most the column's remaining bits."""
        share = np.array([right, rows - right]) / max(1, rows)
        told = self._by_category.get(column, 0.0)
        whole = self.n_rows * float(self.shares.entropy[column])
        more = max(0.0, min(rows * entropy_of(share), whole - told))
        self._by_category[column] = told + more
        return more

    def _new_column(self, column: int) -> _NarrowedColumn:
        n_rows, n_bins = self.n_rows, int(self.binning.n_bins[column])
        # No bin is impossible: the remaining bins of a row always have a weight.
        cells = self.shares.cells[column] + EMPTY / (max(1, n_rows) * (n_bins + 1))
        lacks = self.shares.cells[column][n_bins] > 0.0
        low = array_beside(self.beside, (n_rows,), cell_type(n_bins + 1))
        high = array_beside(self.beside, (n_rows,), cell_type(n_bins + 1))
        high[:] = n_bins
        may_lack = np.ones(n_rows if lacks else 0, np.bool_)
        below = np.concatenate(([0.0], np.cumsum(cells[:n_bins])))
        return _NarrowedColumn(low, high, may_lack, below, float(cells[n_bins]) if lacks else 0.0)


def _counts_of_entries(bins: SparseBins, column: int, n_cells: int) -> BinCounts:
    stored, in_column = bins.column(column)
    held = np.bincount(np.minimum(in_column, n_cells), minlength=n_cells + 1).astype(np.int64)
    held[min(int(bins.zero[column]), n_cells)] += bins.n_rows - len(stored)
    return held


def _has_variation(values: NDArray[np.float32], first: np.float32) -> bool:
    for start in range(0, len(values), ROWS_COUNTED):
        block = values[start : start + ROWS_COUNTED]
        if not (np.isnan(block).all() if np.isnan(first) else (block == first).all()):
            return True
    return False


@kernel
def _narrow_rows(
    rows: Rows,
    goes_right: Bits,
    cut: tuple[int, bool],
    state: tuple[
        NDArray[np.unsignedinteger[Any]], NDArray[np.unsignedinteger[Any]], NDArray[np.bool_]
    ],
    shares: tuple[Floats, float],
) -> float:
    """Narrow the possible bins of each row to its side of the cut; return the bits."""
    first_right, missing_left = np.int64(cut[0]), cut[1]
    low, high, may_lack = state
    below, lacking = shares
    bits = 0.0
    for i in range(len(rows)):
        row = rows[i]
        least, most = np.int64(low[row]), np.int64(high[row])
        lacks = len(may_lack) > 0 and may_lack[row]
        before = below[most] - below[least] + (lacking if lacks else 0.0)
        if goes_right[i]:
            least = max(least, first_right)
        else:
            most = min(most, first_right)
        lacks = lacks and missing_left != goes_right[i]
        after = below[most] - below[least] if least < most else 0.0
        after += lacking if lacks else 0.0
        if 0.0 < after < before:
            bits += math.log2(before / after)
            low[row], high[row] = min(least, most), most
            if len(may_lack) > 0:
                may_lack[row] = lacks
    return bits
