"""Columns as bins: equal-frequency cut points or categories, and values as bin numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fedboost.core.bins import Bins, Dense, SparseBins, cell_type
from fedboost.ground.errors import DataError
from fedboost.ground.kernels import kernel
from fedboost.ground.mapped import array_beside, free_pages

if TYPE_CHECKING:
    from scipy.sparse import csc_array

Cuts = NDArray[np.float32]
FeatureValues: TypeAlias = "Cuts | csc_array"  # (n, columns); entries missing in a sparse one are 0
BinCodes = NDArray[np.int32]

REGISTER = 16  # numbers of 32 bits in the widest registers
ROWS_READ = 1 << 18  # of a table in a file, before their memory is freed
ROWS_AT_ONCE = 512  # bins of so many rows fit a core's cache


@dataclass(frozen=True)
class Binning:
    """Cut points of each column, and `max_bin`, which is also the bin of missing values.

    Bin b of a column holds cuts[b-1] ≤ x < cuts[b]: `x < cut` goes left, as in XGBoost. Bin b of a
    categorical column is one category; a category without a bin counts as missing.
    """

    max_bin: int
    cuts: tuple[Cuts, ...]  # per column float32, rising; one less than the column has bins
    categories: Mapping[int, BinCodes] = field(
        default_factory=dict
    )  # by column: the code of each bin

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.cuts)

    @property
    def missing(self) -> int:
        """Bin of missing values, the same in every column."""
        return self.max_bin

    @property
    def n_cells(self) -> int:
        """Number of bins of a column, including the one for missing values."""
        return self.max_bin + 1

    @cached_property
    def n_bins(self) -> NDArray[np.int32]:
        """Number of bins in use per column, without missing ones; int32 (columns,), at least 1."""
        return np.array(
            [
                max(1, len(self.categories[c])) if c in self.categories else len(cuts) + 1
                for c, cuts in enumerate(self.cuts)
            ],
            dtype=np.int32,
        )

    @cached_property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Mask of the columns that are divided by category, not at a threshold; bool (columns,)."""
        return np.array([c in self.categories for c in range(self.n_columns)], np.bool_)

    def threshold(self, column: int, bin_number: int) -> np.float32:
        """Return the upper limit (exclusive) of values in bins up to `bin_number`; +inf after the
        last.
        """
        cuts = self.cuts[column]
        return cuts[bin_number] if bin_number < len(cuts) else np.float32(np.inf)

    @overload
    def transform(self, values: Cuts) -> Dense: ...

    @overload
    def transform(self, values: FeatureValues) -> Bins: ...

    def transform(self, values: FeatureValues) -> Bins:
        """Return the bins (n, columns), row after row, of float32 (n, columns), NaN where missing.

        A sparse table's bins are sparse; bins of values in a file lie in a file, too.
        """
        assert values.shape[1] == self.n_columns
        if not isinstance(values, np.ndarray):
            return self._transform_sparse(values)
        bins: Dense = array_beside(values, values.shape, cell_type(self.n_cells))
        for first in range(0, len(values), ROWS_READ):
            rows = first, min(len(values), first + ROWS_READ)
            _place_values(values, *self._padded_cuts, bins.dtype.type(self.missing), bins, rows)
            free_pages(values)
        for column, codes in self.categories.items():
            bins[:, column] = _look_up(values[:, column], codes, self.missing)
        free_pages(values)
        return bins

    @cached_property
    def _padded_cuts(self) -> tuple[Cuts, NDArray[np.int64]]:
        return _pad_cuts(self.cuts)

    def _transform_sparse(self, values: csc_array) -> SparseBins:
        """Return the bins of a sparse table, without entries in the bin of zeros."""
        number = cell_type(self.n_cells)
        missing = number(self.missing)
        placed = np.empty(values.nnz, number)
        zero = np.empty(self.n_columns, number)
        padded, starts = self._padded_cuts
        for column, cuts in enumerate(self.cuts):
            span = slice(values.indptr[column], values.indptr[column + 1])
            of_column = values.data[span, None], padded, starts[column:], missing
            _place_values(*of_column, placed[span, None], (0, len(values.data[span])))
            zero[column] = np.searchsorted(cuts, np.float32(0), side="right")
        kept = placed != np.repeat(zero, np.diff(values.indptr))
        begins = np.concatenate(([0], np.cumsum(kept)))[values.indptr]
        rows = values.indices[kept].astype(np.int32)
        return SparseBins(values.shape[0], begins, rows, placed[kept], zero)

    def columns(self, start: int, stop: int) -> Binning:
        """Return the binning of columns start..stop-1, as the party with them would fit it."""
        categories = {c - start: codes for c, codes in self.categories.items() if start <= c < stop}
        return Binning(self.max_bin, self.cuts[start:stop], categories)


def fit(
    values: FeatureValues,
    max_bin: int,
    categorical: Sequence[int] = (),
    known: Mapping[int, BinCodes] | None = None,
    rows: NDArray[np.bool_] | None = None,
    group_cuts: Mapping[int, Cuts] | None = None,
) -> Binning:
    """Fit cut points to each column of float32 (n, columns), dense or sparse; with `rows`, bool
    (n,), to these training rows only.

    A column with at most `max_bin` distinct values gets one bin for each, cut midway between
    neighbours; others get bins of as equal row counts as their ties allow. A `categorical` column,
    with codes from 0 as values, gets a bin for each category: first the `known` ones, whose bins an
    earlier model has fixed, then the most frequent others, at most `max_bin` in all. A column with
    `group_cuts`, rising, is cut only at some of these. Columns do not influence one another, so
    each party bins its columns alone. A DataError names an infinite value.
    """
    chosen: slice | NDArray[np.bool_] = slice(None) if rows is None or rows.all() else rows
    if not isinstance(values, np.ndarray):
        values, chosen = values[chosen], slice(None)
    # Column by column: a copy of the training rows would be as large as the table.
    categories = {
        c: _fit_categories(
            values[:, c][chosen], max_bin, (known or {}).get(c, np.empty(0, np.int32))
        )
        for c in categorical
    }
    none = np.empty(0, np.float32)
    cuts = tuple(
        none
        if c in categories
        else _fit_column(values, c, max_bin, chosen, (group_cuts or {}).get(c))
        for c in range(values.shape[1])
    )
    return Binning(max_bin, cuts, categories)


def _fit_categories(column: Cuts, max_bin: int, known: BinCodes) -> BinCodes:
    """Return the codes that get a bin: `known`, then the most frequent others, in rising order."""
    assert len(known) <= max_bin
    codes, counts = np.unique(column[~np.isnan(column)].astype(np.int32), return_counts=True)
    fresh = ~np.isin(codes, known)
    codes, counts = codes[fresh], counts[fresh]
    kept = np.argsort(-counts, kind="stable")[: max(0, max_bin - len(known))]
    return np.concatenate([known, np.sort(codes[kept])]).astype(np.int32)


def present_values(
    values: FeatureValues, number: int, rows: slice | NDArray[np.bool_] = slice(None)
) -> tuple[Cuts, int]:
    """Return one column's present values, float32 (m,), and the number of zeros that a sparse table
    leaves out; `rows` selects rows of a dense one.

    A DataError if some are infinite.
    """
    if not isinstance(values, np.ndarray):
        column = values.data[values.indptr[number] : values.indptr[number + 1]]
        zeros = values.shape[0] - len(column)
    else:
        column, zeros = values[:, number][rows], 0
    present = column[~np.isnan(column)]
    infinite = int(np.count_nonzero(np.isinf(present)))
    if infinite:
        raise DataError(
            f"{infinite} of {len(column) + zeros} values are infinite",
            todo="replace them by numbers, or leave them empty as missing",
            column=number,
        )
    return present, zeros


def _fit_column(
    values: FeatureValues,
    number: int,
    max_bin: int,
    rows: slice | NDArray[np.bool_],
    group_cuts: Cuts | None,
) -> Cuts:
    distinct, counts = distinct_values(values, number, rows)
    free_pages(values)
    ends = bin_ends(counts, max_bin)
    if group_cuts is None:
        return cut_between(distinct[ends], distinct[ends + 1])
    # The group of the value above begins at the last of its cut points that is not beyond it.
    return group_cuts[np.searchsorted(group_cuts, distinct[ends + 1], side="right") - 1]


def distinct_values(
    values: FeatureValues, number: int, rows: slice | NDArray[np.bool_] = slice(None)
) -> tuple[Cuts, NDArray[np.int64]]:
    """Return one column's distinct values, float32 rising, and the row count of each.

    See `present_values`.
    """
    present, zeros = present_values(values, number, rows)
    distinct, counts = np.unique(present, return_counts=True)
    if zeros:
        place = int(np.searchsorted(distinct, np.float32(0)))
        distinct = np.insert(distinct, place, np.float32(0))
        counts = np.insert(counts, place, zeros)
    return distinct, counts.astype(np.int64)


def bin_ends(counts: NDArray[np.int64], max_bin: int) -> NDArray[np.int64]:
    """Return the index of the last value of each bin but the last bin, for rising values with these
    row counts: one bin for each value, or bins of row counts as equal as ties allow.
    """
    if len(counts) <= max_bin:
        return np.arange(max(0, len(counts) - 1))
    return _equal_frequency(counts, max_bin)


def cut_between(low: Cuts, high: Cuts) -> Cuts:
    """Return a float32 cut with low < cut ≤ high: the middle, or high if they are neighbours."""
    middle = ((low.astype(np.float64) + high) / 2.0).astype(np.float32)
    return np.where((low < middle) & (middle <= high), middle, high).astype(np.float32)


@kernel
def coarsen(numbers: Cuts, cuts: Cuts, values: Cuts) -> None:
    """Replace each number, float32 (n,), by its bin's value: `values` (cuts + 1,); NaN stays."""
    for i in range(len(numbers)):
        if not np.isnan(numbers[i]):
            numbers[i] = values[np.searchsorted(cuts, numbers[i], side="right")]


def _look_up(column: Cuts, codes: BinCodes, missing: int) -> BinCodes:
    """Return the bin of each code, `missing` for NaN and for codes without a bin."""
    table = np.full(
        2 + int(max(codes.max(initial=-1), np.fmax.reduce(column, initial=-1.0))),
        missing,
        np.int32,
    )
    table[codes] = np.arange(len(codes))
    return table[np.where(np.isnan(column), -1, column).astype(np.int64)]


@kernel
def _equal_frequency(counts: NDArray[np.int64], max_bin: int) -> NDArray[np.int64]:
    """Return the last distinct value of each bin but the last bin, for more values than bins.

    A value with at least an even share of all rows is frequent and ends its bin. The others share
    the remaining bins evenly. A bin ends if its next value would overshoot the fair share of the
    remaining rows by more than stopping undershoots it. It also ends before a frequent value if it
    holds half a fair share; with less it joins the frequent value.
    """
    frequent = counts * max_bin >= counts.sum()
    bins = max_bin - frequent.sum()  # still open, for the other values; at least 1
    left = counts[~frequent].sum()  # rows of the other values outside closed bins
    held = 0  # rows in the open bin
    ends = np.empty(max_bin - 1, dtype=np.int64)
    n_ends = 0
    for i in range(len(counts) - 1):  # shares are left/bins, compared in integers
        if not frequent[i]:
            held += counts[i]
            if frequent[i + 1]:
                full = held == left or (bins > 1 and 2 * held * bins >= left)
            else:
                full = bins > 1 and (2 * held + counts[i + 1]) * bins > 2 * left
            if not full:
                continue
            bins -= 1
        ends[n_ends] = i
        n_ends += 1
        left -= held
        held = 0
    return ends[:n_ends]


def _pad_cuts(cuts: Sequence[Cuts]) -> tuple[Cuts, NDArray[np.int64]]:
    """Return all cuts one after the other, each column's filled up with NaN to whole registers, and
    the index where each column's begin.
    """
    sizes = [-(-len(these) // REGISTER) * REGISTER for these in cuts]
    starts = np.cumsum([0, *sizes])
    flat = np.full(starts[-1], np.nan, np.float32)
    for these, start in zip(cuts, starts.tolist(), strict=False):
        flat[start : start + len(these)] = these
    return flat, starts


@kernel
def _place_values(
    values: Cuts,
    cuts: Cuts,
    starts: NDArray[np.int64],
    missing: np.unsignedinteger[Any],
    bins: Dense,
    rows: tuple[int, int],
) -> None:
    """Write the number of its column's cuts at or below each value of rows[0]..rows[1]-1; `missing`
    for NaN.

    Values lie by column and bins by row, so the kernel takes some rows at a time. It compares with
    every cut, which is faster than a search: processors compare many at once.
    """
    for begin in range(rows[0], rows[1], ROWS_AT_ONCE):
        for c in range(values.shape[1]):
            these = cuts[starts[c] : starts[c + 1]]
            for i in range(begin, min(rows[1], begin + ROWS_AT_ONCE)):
                x = values[i, c]
                count = 0
                for j in range(len(these)):
                    count += these[j] <= x
                bins[i, c] = missing if np.isnan(x) else count
