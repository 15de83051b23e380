"""Readings of columns by networks: standardised, by rank among cut points, or by single cuts.

    standard  (x − mean) / deviation                 sparse rows as they are
    rank      from −1 in the first bin to 1 in the last; sparse rows: distance from a 0's bin
    bins      a 0/1 column for each cut point: x ≥ cut; with missing values one more column, 1 for
              rows with a value
    auto      each of these in turn, network after network, if any column is cut

The 0/1 columns are never written out: an output of a network has few weights, and their sum is
looked up by a row's bin (`BinInputs`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedboost.core import quantiles, sampling
from fedboost.core.binning import Binning, Cuts, FeatureValues
from fedboost.core.bins import Bins, Dense, SparseBins
from fedboost.core.networks import (
    DenseInputs,
    Inputs,
    Network,
    SparseInputs,
    blocks_of,
)
from fedboost.core.params import MAX_BIN
from fedboost.core.quantiles import SearchParams
from fedboost.core.sampling import Purpose
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.kernels import kernel

Form = Literal["standard", "rank", "bins", "auto"]
WEIGHTS_MAX = 64  # of an output: with more, a matrix of weights is better


def needs_scale(form: str) -> bool:
    """Return whether networks with this reading see means and deviations of dense columns."""
    return form in ("standard", "auto")


class ColumnParams(SearchParams):
    """Settings of a job about its reading of columns."""

    columns: Form = "auto"  # how networks read a column; auto: a form in turn each round
    weights_per_output: int = Field(4, ge=1, le=WEIGHTS_MAX)  # of bins, that are not 0
    max_bin: int = Field(32, ge=2, le=MAX_BIN)  # bins of a column at most, in rank and bins


@dataclass(frozen=True)
class Scale:
    """Mean and deviation that make dense columns comparable, float64 (columns,) each."""

    mean: Floats = field(repr=False)
    deviation: Floats = field(repr=False)

    @classmethod
    def from_values(cls, values: NDArray[np.float32]) -> Scale:
        """Fit float32 (n, columns) without missing values, with n − 1 under the deviation's root.

        A column with fewer than two distinct values has the deviation 1.
        """
        count = np.count_nonzero(~np.isnan(values), axis=0)
        mean = np.nansum(values, axis=0, dtype=np.float64) / np.maximum(count, 1)
        squares = np.nansum((values - mean) ** 2, axis=0)
        varies = np.fmin.reduce(values, axis=0) < np.fmax.reduce(values, axis=0)
        deviation = np.sqrt(squares / np.maximum(count - 1, 1))
        return cls(mean, np.where(varies, deviation, 1.0))

    def inputs(self, values: NDArray[np.float32]) -> DenseInputs:
        """Return rows as networks read them; missing values become the mean."""
        scaled = (values.astype(np.float64) - self.mean) / self.deviation
        return DenseInputs(np.nan_to_num(scaled, copy=False, nan=0.0))


@dataclass(frozen=True)
class CutColumns:
    """Cut points of columns, and a mask of the columns with missing values."""

    binning: Binning
    lacks: NDArray[np.bool_] = field(repr=False)  # (columns,)

    @classmethod
    def found(cls, cuts: tuple[Cuts, ...], max_bin: int, present: Indices, rows: int) -> CutColumns:
        """Return the cut points of a search; `present` int64 (columns,) counts the values of each
        column in so many rows.
        """
        return cls(Binning(max_bin, cuts), present < rows)

    @classmethod
    def from_values(cls, values: FeatureValues, max_bin: int, tolerance: int | None) -> CutColumns:
        """Search for the cut points of one table, float32 (n, columns), dense or sparse.

        A DataError names a column with infinite values.
        """
        ranked = quantiles.Ranked.of(values)
        present = ranked.present()
        search = quantiles.Search(present, max_bin, tolerance)
        while not search.is_over:
            search.take(ranked.count_below(search.next_probes()))
        return cls.found(search.cuts(), max_bin, present, values.shape[0])

    @property
    def width(self) -> Indices:
        """Number of 0/1 columns of each column; int64 (columns,)."""
        return self.binning.n_bins.astype(np.int64) - 1 + self.lacks


@dataclass(frozen=True)
class ColumnReading:
    """Reading of all rows of a model; the same for every party that trains or predicts with it."""

    form: str  # a `Form`
    scale: Scale | None = None  # of dense columns that are standardised
    cuts: CutColumns | None = None  # of rank and bins
    weights_per_output: int = 1  # of bins: how many 0/1 columns an output of a network sees

    @classmethod
    def from_values(cls, values: FeatureValues, params: ColumnParams) -> ColumnReading:
        """Fit the columns of one table, float32 (n, columns), dense or sparse."""
        cuts = None
        if needs_search(params, is_sparse=not isinstance(values, np.ndarray)):
            cuts = CutColumns.from_values(values, params.max_bin, params.quantile_tolerance)
        reading = cls.for_params(params, cuts)
        if reading.standardises and isinstance(values, np.ndarray):
            return replace(reading, scale=Scale.from_values(values))
        return reading

    @classmethod
    def for_params(cls, params: ColumnParams, cuts: CutColumns | None) -> ColumnReading:
        """Return the reading that the params ask for; standardised columns lack their scale yet.

        `cuts` is None without a search. With `auto` and without any cut, the form is `standard`.
        """
        form = params.columns
        if form == "auto" and (cuts is None or cuts.binning.n_bins.max(initial=1) == 1):
            form = "standard"
        if form == "standard":
            return cls(form)
        return cls(form, cuts=cuts, weights_per_output=params.weights_per_output)

    @property
    def standardises(self) -> bool:
        """Return whether networks see means and deviations of dense columns."""
        return needs_scale(self.form)

    def inputs(self, values: FeatureValues, ids: NDArray[np.uint32] | None = None) -> Inputs:
        """Return rows float32 (n, columns) as networks read them.

        `ids` uint32 (columns,) are hashed for sparse columns: their numbers if absent.
        """
        forms: list[Inputs] = []
        if self.standardises and isinstance(values, np.ndarray):
            assert self.scale is not None
            forms.append(self.scale.inputs(values))
        elif self.standardises:
            forms.append(_hashed_inputs(values, ids))
        if self.cuts is not None:
            bins = self.cuts.binning.transform(values)
            if self.form != "bins":
                forms.append(_ranked_inputs(bins, self.cuts.binning, ids))
            if self.form != "rank":
                forms.append(BinInputs(bins, self.cuts, self.weights_per_output))
        return forms[0] if len(forms) == 1 else TurnInputs(tuple(forms))


def needs_search(params: ColumnParams, *, is_sparse: bool) -> bool:
    """Return whether a search finds cut points: `auto` reads sparse rows as they are."""
    return params.columns in ("rank", "bins") or (params.columns == "auto" and not is_sparse)


@dataclass(frozen=True)
class BinInputs:
    """Rows by their bins; each output of a network sees a few 0/1 columns."""

    bins: Bins = field(repr=False)  # (n, columns)
    cuts: CutColumns
    weights_per_output: int

    @property
    def n_rows(self) -> int:
        """See Inputs."""
        return int(self.bins.shape[0])

    def blocks(self, outputs: int) -> list[slice]:
        """See Inputs."""
        return blocks_of(self.n_rows, outputs)

    def forward(self, rows: slice, network: Network) -> Floats:
        """See Inputs; one output after the other, so that a column's bins are read in order."""
        columns, sums = _lookup_tables(network, self.cuts, self.weights_per_output)
        outputs = np.zeros((network.outputs, rows.stop - rows.start))
        if isinstance(self.bins, SparseBins):
            # A 0 adds the same to an output in all rows, and normalising removes it.
            sums = sums - sums[np.arange(len(sums)), self.bins.zero[columns]][:, None]
            listed = self.bins.starts, self.bins.rows, self.bins.bins
            _add_listed(listed, columns, sums, rows.start, outputs)
        else:
            _add_cells(self.bins[rows], columns, sums, outputs)
        return outputs.T

    def reach(self) -> float:
        """See Inputs."""
        return float(self.weights_per_output)


@dataclass(frozen=True)
class TurnInputs:
    """Rows in several forms; networks see them in turn, by their numbers."""

    forms: tuple[Inputs, ...]

    @property
    def n_rows(self) -> int:
        """See Inputs."""
        return self.forms[0].n_rows

    def blocks(self, outputs: int) -> list[slice]:
        """See Inputs."""
        return blocks_of(self.n_rows, outputs)

    def forward(self, rows: slice, network: Network) -> Floats:
        """See Inputs."""
        return self.forms[network.number % len(self.forms)].forward(rows, network)

    def reach(self) -> float:
        """See Inputs."""
        return max(form.reach() for form in self.forms)


@lru_cache(maxsize=2)  # each pass over each block of rows uses it
def _draw_inputs(
    network: Network, width: tuple[int, ...], count: int
) -> tuple[Indices, Indices, Floats]:
    """Draw `count` 0/1 columns for each output: column, number of the 0/1 column, and weight in
    [−1, 1).

    Columns are drawn first, so columns with many cuts do not count more.
    """
    size = network.outputs * count
    words = sampling.random_words(network.seed, Purpose.NETWORK, network.number, n=2 * size)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    counts = np.array(width, np.int64)
    (cut,) = np.nonzero(counts)
    if not len(cut):  # no column differs between rows
        return np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size)
    place = uniform[:size] * len(cut)
    columns = cut[place.astype(np.int64)]
    which = ((place % 1.0) * counts[columns]).astype(np.int64)
    return columns, which, 2.0 * uniform[size:] - 1.0


def _lookup_tables(network: Network, cuts: CutColumns, count: int) -> tuple[Indices, Floats]:
    """Return the columns that outputs see, int64 (outputs · count,), and the sum that each adds by
    a row's bin, float64 (outputs · count, bins and missing): its weight from the bin of the cut on.
    """
    columns, which, weight = _draw_inputs(network, tuple(cuts.width.tolist()), count)
    first = which + 1 - cuts.lacks[columns]
    bins = np.arange(cuts.binning.n_cells)
    above = (bins >= first[:, None]) & (bins != cuts.binning.missing)
    return columns, np.where(above, weight[:, None], 0.0)


def _hashed_inputs(values: FeatureValues, ids: NDArray[np.uint32] | None) -> SparseInputs:
    """Return sparse rows as inputs; a missing value counts as absent."""
    assert not isinstance(values, np.ndarray)
    if np.isnan(values.data).any():
        values = values.copy()
        values.data[:] = np.nan_to_num(values.data, nan=0.0)
    return SparseInputs(values, np.arange(values.shape[1], dtype=np.uint32) if ids is None else ids)


def _ranked_inputs(bins: Bins, binning: Binning, ids: NDArray[np.uint32] | None) -> Inputs:
    """Return rows by the ranks of bins; a missing value gets the middle, or a sparse 0's rank."""
    step = 2.0 / np.maximum(binning.n_bins - 1, 1)
    if not isinstance(bins, SparseBins):
        place = bins * step - np.minimum(binning.n_bins - 1, 1)
        return DenseInputs(np.where(bins == binning.missing, 0.0, place))
    from scipy.sparse import csc_array

    columns = bins.columns
    far = (bins.bins.astype(np.int64) - bins.zero[columns]) * step[columns]
    far = np.where(bins.bins == binning.missing, 0.0, far).astype(np.float32)
    return _hashed_inputs(csc_array((far, bins.rows, bins.starts), shape=bins.shape), ids)


@kernel
def _add_cells(bins: Dense, columns: Indices, sums: Floats, outputs: Floats) -> None:
    """Add to `outputs` (outputs, rows) the value of each lookup, equally many for each output."""
    each = len(columns) // len(outputs)
    for i in range(len(columns)):
        total, sums_by_bin, cells = outputs[i // each], sums[i], bins[:, columns[i]]
        for row in range(len(total)):
            total[row] += sums_by_bin[cells[row]]


@kernel
def _add_listed(
    listed: tuple[Indices, NDArray[np.int32], Dense],
    columns: Indices,
    sums: Floats,
    first: int,
    outputs: Floats,
) -> None:
    """Add the same for the rows from `first` on with bins in a sparse table's list."""
    starts, rows, bins = listed
    each, last = len(columns) // len(outputs), first + outputs.shape[1]
    for i in range(len(columns)):
        total, sums_by_bin = outputs[i // each], sums[i]
        begin, end = starts[columns[i]], starts[columns[i] + 1]
        begin += np.searchsorted(rows[begin:end], first)
        for entry in range(begin, end):
            if rows[entry] >= last:
                break
            total[rows[entry] - first] += sums_by_bin[bins[entry]]
