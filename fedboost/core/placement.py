"""How far rows have been placed: which bins of a column each row may still be in.

A division of a node says on which side of a cut each of its rows is. What it tells of a row is what
it adds to the earlier divisions by the same column:

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

from fedboost.arrays import Bits, Floats, Indices, Rows
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins, cell_type
from fedboost.kernels import kernel
from fedboost.mapped import array_beside

SAMPLED_MOST = 1 << 17  # rows by which shares of bins are counted


@dataclass(frozen=True, eq=False)
class ColumnShares:
    """The share of rows in each cell of some columns: their bins, then missing values."""

    rows: int  # that bits are divided by
    cells: Sequence[Floats]
    entropy: Floats  # (columns,) the bits that it takes to know a row's cell

    @classmethod
    def of(cls, bins: Bins, n_bins: Indices, learnt: Bits) -> ColumnShares:
        """Count the rows that are learnt from, or a sample of them; bool (n,)."""
        cells = _shares(bins, n_bins, sample_of(learnt))
        entropy = np.array([entropy_of(shares) for shares in cells])
        return cls(max(1, int(np.count_nonzero(learnt))), cells, entropy)

    def placed(self, bits: Floats) -> Floats:
        """Return bits told of the columns as shares of the rows; nothing can be told of a column
        whose rows are all in one cell.
        """
        whole = self.rows * self.entropy
        placed: Floats = np.divide(bits, whole, out=np.zeros_like(whole), where=whole > 0.0)
        return placed


def sample_of(learnt: Bits, most: int = SAMPLED_MOST) -> Indices:
    """Return so many rows of those that are learnt from, at most, at equal distances."""
    (rows,) = np.nonzero(learnt)
    return rows[:: max(1, -(-len(rows) // most))]


def entropy_of(shares: Floats) -> float:
    """Return the entropy of a distribution, in bits."""
    held = shares[shares > 0.0]
    return float(max(0.0, -(held * np.log2(held)).sum()))


@dataclass(eq=False)
class _NarrowedColumn:
    """The bins that are still possible, row by row: from `low` to below `high`."""

    low: NDArray[np.unsignedinteger[Any]]
    high: NDArray[np.unsignedinteger[Any]]
    may_lack: Bits  # whether a row may have no value; empty for a column in which none lacks one
    below: Floats  # (bins + 1,) the share of rows in lower bins, of each
    lacking: float  # the share of rows without a value


@dataclass
class NarrowedRows:
    """What the divisions of one attempt have told of each row, by column."""

    n_rows: int
    beside: object  # an array of the rows: what is known lies in a file where it does
    binning: Binning
    shares: ColumnShares
    _narrowed: dict[int, _NarrowedColumn] = field(default_factory=dict)
    _by_category: dict[int, float] = field(default_factory=dict)  # bits told

    @classmethod
    def of(cls, bins: Bins, binning: Binning, learnt: Bits) -> NarrowedRows:
        """Nothing has been told of a table, whose rows bool (n,) are learnt from."""
        shares = ColumnShares.of(bins, binning.n_bins.astype(np.int64), learnt)
        return cls(bins.shape[0], bins, binning, shares)

    def divide(
        self, column: int, place: int, missing_left: bool, rows: Rows, goes_right: Bits
    ) -> float:
        """Return the bits that a division of a node with these rows adds to what is known.

        `place` is the last bin on the left; of categories which ones go left does not matter.
        """
        if self.binning.is_categorical[column]:
            return self._divide_by_category(column, len(rows), int(np.count_nonzero(goes_right)))
        if column not in self._narrowed:
            self._narrowed[column] = self._untold(column)
        known = self._narrowed[column]
        state = known.low, known.high, known.may_lack
        cut = place + 1, missing_left
        return float(_narrow(rows, goes_right, cut, state, (known.below, known.lacking)))

    def _divide_by_category(self, column: int, rows: int, right: int) -> float:
        """As many bits as the sides are uncertain, and no more of a column than its rows hold."""
        share = np.array([right, rows - right]) / max(1, rows)
        told = self._by_category.get(column, 0.0)
        whole = self.n_rows * float(self.shares.entropy[column])
        more = max(0.0, min(rows * entropy_of(share), whole - told))
        self._by_category[column] = told + more
        return more

    def _untold(self, column: int) -> _NarrowedColumn:
        n_rows, n_bins = self.n_rows, int(self.binning.n_bins[column])
        # No bin is impossible, though the sample may have no row in it.
        cells = self.shares.cells[column] + 1.0 / (SAMPLED_MOST * (n_bins + 1))
        lacks = self.shares.cells[column][n_bins] > 0.0
        low = array_beside(self.beside, (n_rows,), cell_type(n_bins + 1))
        high = array_beside(self.beside, (n_rows,), cell_type(n_bins + 1))
        high[:] = n_bins
        may_lack = np.ones(n_rows if lacks else 0, np.bool_)
        below = np.concatenate(([0.0], np.cumsum(cells[:n_bins])))
        return _NarrowedColumn(low, high, may_lack, below, float(cells[n_bins]) if lacks else 0.0)


def _shares(bins: Bins, n_bins: Indices, rows: Indices) -> list[Floats]:
    counts = []
    sampled = None if isinstance(bins, SparseBins) else bins[rows]
    for column, n_cells in enumerate(n_bins.tolist()):
        if isinstance(bins, SparseBins):  # of all rows: entries have no order by row
            stored, in_column = bins.column(column)
            held = np.bincount(np.minimum(in_column, n_cells), minlength=n_cells + 1)
            held[min(int(bins.zero[column]), n_cells)] += bins.n_rows - len(stored)
        else:
            assert sampled is not None
            held = np.bincount(np.minimum(sampled[:, column], n_cells), minlength=n_cells + 1)
        counts.append(held / max(1, int(held.sum())))
    return counts


@kernel
def _narrow(
    rows: Rows,
    goes_right: Bits,
    cut: tuple[int, bool],
    state: tuple[
        NDArray[np.unsignedinteger[Any]], NDArray[np.unsignedinteger[Any]], NDArray[np.bool_]
    ],
    shares: tuple[Floats, float],
) -> float:
    """Narrow what is possible of each row to the side of the cut that it is on; return the bits."""
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
