"""Cells added up by shards of any number are those that one process adds up."""

from typing import Any

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.core.bins import SparseBins
from fedboost.core.params import TreeParams
from fedboost.core.sampling import TreeColumns
from fedboost.encrypted.adding import AddingRows, PlacedCells, add_up
from fedboost.encrypted.cells import Cells
from tests.support.elsewhere import Elsewhere
from tests.unit.encrypted.test_ciphers import SHOP, Pair

ROWS, COLUMNS, BINS = 300, 7, 6


def table(kind):
    """The cells of a table whose first columns have a frequent bin."""
    draw = np.random.default_rng(2)
    values = np.asfortranarray(draw.normal(size=(2 * ROWS, COLUMNS)), np.float32)
    values[draw.random(values.shape) < 0.1] = np.nan
    values[draw.random(2 * ROWS) < 0.9, :5] = 0.0
    cuts = binning.fit(values, BINS)
    drawn = TreeColumns.drawn(TreeParams(), 0, (COLUMNS,))
    bins: Any = cuts.transform(values)
    if kind == "sparse":
        zero = np.array([cuts.transform(np.zeros((1, COLUMNS), np.float32))[0]]).ravel()
        columns, rows = np.nonzero((bins != zero).T)
        starts = np.searchsorted(columns, np.arange(COLUMNS + 1)).astype(np.int64)
        bins = SparseBins(2 * ROWS, starts, rows.astype(np.int32), bins[rows, columns], zero)
    return Cells(cuts, bins, drawn, leave_out=kind == "frequent").numbers


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", ["plain", "iterative-affine"])
def test_any_number_of_shards_makes_the_sums_of_one(scheme, kind):
    compare(Pair(scheme, rows=ROWS), table(kind))


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_shards_multiply_what_one_would(scheme):
    compare(Pair(scheme, rows=40), table("frequent"), counts=(3,))


def nodes_of(n):
    """Where the gradients of so many rows are, and rows of nodes; the last has none."""
    draw = np.random.default_rng(3)
    learns = np.sort(draw.permutation(2 * ROWS)[:n])
    place = np.cumsum(np.isin(np.arange(2 * ROWS), learns)) - 1
    nodes = [np.sort(own).astype(np.int32) for own in np.array_split(draw.permutation(learns), 3)]
    return place, [*nodes, np.empty(0, np.int32)]


def compare(pair, numbers, counts=(2, 3, 9)):
    """The sums of nodes by so many shards are those of this process."""
    held, _ = pair.rows(SHOP)
    place, nodes = nodes_of(pair.n_rows)
    expected = held.adding.take(numbers, place).added_up(nodes)
    assert len(expected) == 4 * numbers.n_cells
    for shards in counts:
        rows = AddingRows.cut(Elsewhere(shards), pair.n_rows, held._part)
        found = rows.take(numbers, place).added_up(nodes)
        assert np.array_equal(expected.data, found.data)


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", ["plain", "lattice"])
def test_rows_that_come_some_at_a_time_make_the_same_sums(scheme, kind, monkeypatch):
    held, _ = Pair(scheme, rows=ROWS).rows(SHOP)
    numbers, (place, nodes) = table(kind), nodes_of(ROWS)
    added = PlacedCells(numbers, place)
    expected = add_up(held.row_sums, added, nodes)
    for most in (1, 7, 100, ROWS):
        monkeypatch.setattr("fedboost.encrypted.cells.ADDITIONS_AT_ONCE", most * COLUMNS)
        found = add_up(held.row_sums, added, nodes)
        names = ("data",) if scheme == "plain" else ("vectors", "scalars")
        for name in names:
            assert np.array_equal(getattr(expected, name), getattr(found, name))


def test_rows_of_a_sparse_table_begin_at_zero():
    bins = SparseBins(
        6,
        np.array([0, 3, 4]),
        np.array([0, 3, 5, 4], np.int32),
        np.array([2, 3, 4, 5], np.uint8),
        np.array([1, 0], np.uint8),
    )
    part = bins.between(slice(3, 6))
    assert np.array_equal(part.dense(), bins.dense()[3:6])
    assert part.shape == (3, 2)
