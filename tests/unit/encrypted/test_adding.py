"""Cells added up by workers of any number are those that one process adds up."""

from typing import Any

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.core.bins import SparseBins
from fedboost.core.params import TreeParams
from fedboost.core.partition import Partition
from fedboost.core.sampling import TreeColumns
from fedboost.encrypted.cells.adding import PlacedRows
from fedboost.encrypted.cells.row_cells import BinnedTable, TreeCells
from tests.support.elsewhere import Elsewhere
from tests.unit.encrypted.test_ciphers import SHOP, Pair

ROWS, COLUMNS, BINS = 300, 7, 6


def table(kind, share=1.0):
    """The cells of a share of a table's columns, of which the first have a frequent bin."""
    draw = np.random.default_rng(2)
    values = np.asfortranarray(draw.normal(size=(2 * ROWS, COLUMNS)), np.float32)
    values[draw.random(values.shape) < 0.1] = np.nan
    values[draw.random(2 * ROWS) < 0.9, :5] = 0.0
    cuts = binning.fit(values, BINS)
    drawn = TreeColumns.draw_columns(TreeParams(colsample_bytree=share), 0, (COLUMNS,))
    bins: Any = cuts.transform(values)
    if kind == "sparse":
        zero = np.array([cuts.transform(np.zeros((1, COLUMNS), np.float32))[0]]).ravel()
        columns, rows = np.nonzero((bins != zero).T)
        starts = np.searchsorted(columns, np.arange(COLUMNS + 1)).astype(np.int64)
        bins = SparseBins(2 * ROWS, starts, rows.astype(np.int32), bins[rows, columns], zero)
    return TreeCells(BinnedTable.of(cuts, bins, leave_out=kind == "frequent"), drawn)


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", ["plain", "iterative-affine"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_any_number_of_workers_makes_the_sums_of_one(scheme, kind, share):
    compare(Pair(scheme, rows=ROWS), table(kind, share))


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_workers_multiply_what_one_would(scheme):
    compare(Pair(scheme, rows=40), table("frequent"), counts=(3,))


def nodes_of(n):
    """Where the gradients of so many rows are, and rows of two layers' nodes; the last has none."""
    draw = np.random.default_rng(3)
    learns = np.sort(draw.permutation(2 * ROWS)[:n])
    place = np.cumsum(np.isin(np.arange(2 * ROWS), learns)) - 1
    thirds = np.array_split(draw.permutation(learns), 3)
    of = {3: thirds[0], 4: thirds[1], 5: thirds[2], 6: thirds[2][:0]}
    of |= {1: np.concatenate(thirds[:2]), 2: thirds[2], 0: learns}
    return place, {node: np.sort(rows).astype(np.int32) for node, rows in of.items()}


class Growing:
    """A tree whose rows divide into these nodes, added up by `adding`."""

    def __init__(self, adding, cells, place, of):
        self.of, self.partition = of, Partition.at_root(of[0])
        begins = np.ones(cells.numbers.n_cells, np.bool_)
        self.tree = adding.take(cells, self.partition, begins, place)

    def divide(self, *nodes):
        divisions = [(node, np.isin(self.of[node], self.of[2 * node + 2])) for node in nodes]
        for division in divisions:
            self.partition.divide(*division)
        self.tree.divide(divisions)

    def sums(self):
        """Of the root, of a child, and of all nodes of the last layer."""
        first = self.tree.added_up([0])
        self.divide(0)
        second = self.tree.added_up([2])
        self.divide(1, 2)
        third = self.tree.added_up([3, 4, 5, 6])
        names = ("data",) if hasattr(third, "data") else ("vectors", "scalars")
        return [getattr(cells, name) for cells in (first, second, third) for name in names]


def compare(pair, cells, counts=(2, 3, 9)):
    """The sums of nodes by so many workers are those of this process."""
    held, _ = pair.rows(SHOP)
    place, of = nodes_of(pair.n_rows)
    expected = Growing(held.placed_rows, cells, place, of).sums()
    assert len(expected[-1]) == 4 * len(expected[0]) == 4 * cells.numbers.n_cells
    for count in counts:
        rows = PlacedRows(Elsewhere(count), held._chosen_part, by_rows=True)
        found = Growing(rows, cells, place, of).sums()
        assert all(map(np.array_equal, expected, found))


@pytest.mark.parametrize("kind", ["dense", "frequent", "sparse"])
@pytest.mark.parametrize("scheme", ["plain", "lattice"])
def test_rows_that_come_some_at_a_time_make_the_same_sums(scheme, kind, monkeypatch):
    pair, cells = Pair(scheme, rows=ROWS), table(kind)
    held, _ = pair.rows(SHOP)
    place, of = nodes_of(pair.n_rows)
    expected = Growing(held.placed_rows, cells, place, of).sums()
    for most in (1, 7, 100, ROWS):
        monkeypatch.setattr("fedboost.encrypted.cells.row_cells.ADDITIONS_AT_ONCE", most * COLUMNS)
        found = Growing(held.placed_rows, cells, place, of).sums()
        assert all(map(np.array_equal, expected, found))


def test_rows_of_a_sparse_table_begin_at_zero():
    bins = SparseBins(
        6,
        np.array([0, 3, 4]),
        np.array([0, 3, 5, 4], np.int32),
        np.array([2, 3, 4, 5], np.uint8),
        np.array([1, 0], np.uint8),
    )
    part = bins.row_range(slice(3, 6))
    assert np.array_equal(part.dense(), bins.dense()[3:6])
    assert part.shape == (3, 2)
