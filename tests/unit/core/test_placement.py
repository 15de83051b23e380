"""NarrowedRows counts what a naive twin finds that keeps the set of each row's possible bins."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from fedboost.core.binning import Binning
from fedboost.core.bins import SparseBins
from fedboost.core.placement import (
    SAMPLE_ROWS_MAX,
    ColumnShares,
    NarrowedRows,
    entropy_least,
    entropy_of,
    varying_columns,
)
from tests import tiers


def binned(bins, n_bins, learnt=None, categories=None):
    """NarrowedRows of rows in these bins (n, columns), where `n_bins` stands for no value."""
    cuts = tuple(np.arange(1, n_bins, dtype=np.float32) for _ in range(bins.shape[1]))
    binning = Binning(n_bins, cuts, categories or {})
    return NarrowedRows.of(bins, binning, np.ones(len(bins), bool) if learnt is None else learnt)


class Twin:
    """The possible bins of each row, as sets."""

    def __init__(self, bins, n_bins):
        self.bins, cells = bins, range(n_bins + (bins == n_bins).any())
        counts = np.bincount(bins, minlength=n_bins + 1)
        self.share = {cell: counts[cell] / len(bins) for cell in cells}
        self.possible = [set(cells) for _ in bins]
        self.n_bins = n_bins

    def right(self, place, missing_left):
        lacks = self.bins == self.n_bins
        return np.where(lacks, not missing_left, self.bins > place)

    def divide(self, place, missing_left, rows):
        bits = 0.0
        right = self.right(place, missing_left)
        for row in rows.tolist():
            sides = {c: (c > place) if c < self.n_bins else not missing_left for c in self.share}
            kept = {cell for cell in self.possible[row] if sides[cell] == right[row]}
            before = sum(self.share[cell] for cell in self.possible[row])
            bits += math.log2(before / sum(self.share[cell] for cell in kept))
            self.possible[row] = kept
        return bits


@settings(max_examples=tiers.examples(60), deadline=None)
@given(
    seed=st.integers(0, 1000),
    n_bins=st.sampled_from([2, 5, 32, 255, 256]),
    lacking=st.sampled_from([0.0, 0.2]),
    cuts=st.lists(st.tuples(st.floats(0.0, 0.999), st.booleans()), max_size=12),
)
def test_divisions_tell_what_they_add_to_the_sets_of_possible_bins(seed, n_bins, lacking, cuts):
    draw = np.random.default_rng(seed)
    bins = draw.integers(0, n_bins, 200).astype(np.uint16)
    bins[draw.random(200) < lacking] = n_bins
    twin, placement = Twin(bins, n_bins), binned(bins[:, None], n_bins)
    told = 0.0
    for at, missing_left in cuts:
        place = int(at * n_bins)
        rows = np.flatnonzero(draw.random(200) < 0.7).astype(np.int32)
        right = twin.right(place, missing_left)[rows]
        bits = placement.divide(0, place, missing_left, rows, right)
        assert bits == pytest.approx(twin.divide(place, missing_left, rows), abs=0.05)
        told += bits
    assert told <= 200 * placement.shares.entropy[0] + 0.1


def test_all_cuts_place_every_row_and_say_nothing_more():
    bins = np.random.default_rng(1).integers(0, 32, (5000, 1)).astype(np.uint8)
    placement, rows = binned(bins, 32), np.arange(5000, dtype=np.int32)
    bits = sum(placement.divide(0, cut, False, rows, bins[:, 0] > cut) for cut in range(31))
    [placed] = placement.shares.placed(np.array([bits]))
    assert placed == pytest.approx(1.0, abs=1e-3)
    assert placement.divide(0, 7, False, rows, bins[:, 0] > 7) == 0.0


def test_categories_tell_how_uncertain_their_sides_are_and_no_more_than_rows_hold():
    bins = np.tile(np.arange(4, dtype=np.uint8), 25)[:, None]
    placement = binned(bins, 4, categories={0: np.arange(4, dtype=np.int32)})
    rows = np.arange(100, dtype=np.int32)
    assert placement.divide(0, -1, False, rows, bins[:, 0] > 1) == pytest.approx(100.0)
    assert placement.divide(0, -1, False, rows, bins[:, 0] > 2) == pytest.approx(81.13, abs=0.01)
    assert placement.divide(0, -1, False, rows, bins[:, 0] > 0) == pytest.approx(18.87, abs=0.01)
    assert placement.divide(0, -1, False, rows, bins[:, 0] > 0) == 0.0


def test_shares_are_of_all_rows_and_alike_for_sparse_tables():
    bins = np.array([[0], [0], [0], [1], [2]], np.uint8)
    learnt = np.array([True, True, False, True, False])
    dense = ColumnShares.of(bins, np.array([2]), learnt)
    assert dense.rows == 3
    assert dense.cells[0].tolist() == [0.6, 0.2, 0.2]  # a held-out row is the only one of the last
    stored = np.array([3, 4], np.int32), np.array([1, 2], np.uint8)
    sparse = SparseBins(5, np.array([0, 2]), *stored, np.zeros(1, np.uint8))
    assert ColumnShares.of(sparse, np.array([2]), learnt).cells[0].tolist() == [0.6, 0.2, 0.2]


def test_a_column_of_one_bin_tells_nothing():
    placement = binned(np.zeros((10, 1), np.uint8), 4)
    assert placement.shares.entropy.tolist() == [0.0]
    assert placement.shares.placed(np.array([5.0])).tolist() == [0.0]
    assert entropy_of(np.array([0.5, 0.25, 0.25])) == 1.5


FEW = np.arange(1, 2 * SAMPLE_ROWS_MAX, 6000)  # of every other row a sample has none


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("cell", [1, 2])
def test_who_is_in_a_cell_of_few_rows_is_told_in_full(cell, held_out):
    """A rare value, and a missing one, in a column where all other rows are alike."""
    bins = np.zeros((2 * SAMPLE_ROWS_MAX, 1), np.uint8)
    bins[FEW] = cell
    learnt = np.ones(len(bins), bool)
    learnt[FEW] = not held_out
    placement, rows = binned(bins, 2, learnt), np.arange(len(bins), dtype=np.int32)
    bits = placement.divide(0, 0, False, rows, bins[:, 0] > 0)
    [placed] = placement.shares.placed(np.array([bits]))
    assert placed == pytest.approx(1.0, rel=0.01)


def test_who_lacks_a_value_is_told_by_two_cuts_where_few_do():
    bins = np.random.default_rng(3).integers(0, 32, (2 * SAMPLE_ROWS_MAX, 1)).astype(np.uint8)
    bins[FEW] = 32
    placement, rows = binned(bins, 32), np.arange(len(bins), dtype=np.int32)
    lacks = bins[:, 0] == 32
    left = lacks | (bins[:, 0] <= 5)
    placement.divide(0, 5, True, rows, ~left)
    bits = placement.divide(0, 5, False, rows[left], lacks[left])
    assert bits > len(FEW) * math.log2(len(rows) / len(FEW) / 6)


def test_columns_vary_where_one_row_differs():
    values = np.zeros((300_000, 5), np.float32, order="F")
    values[299_999, 1] = 1.0
    values[7, 2] = np.nan
    values[:, 3] = np.nan
    values[:-1, 4] = np.nan
    expected = [False, True, True, False, True]
    assert varying_columns(values).tolist() == expected
    assert varying_columns(csc_array(values)).tolist() == expected
    assert varying_columns(values[:0]).tolist() == [False] * 5
    assert entropy_least(2) == 1.0
    assert entropy_least(1) == 0.0
