"""Rows and the cells of a host's histograms that they add to."""

import tracemalloc

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.core.params import TreeParams
from fedboost.core.sampling import TreeColumns
from fedboost.encrypted.cells import row_cells

ROWS, COLUMNS, BINS = 5_000, 6, 16


def table(seed=1, rows=ROWS):
    draw = np.random.default_rng(seed)
    values = np.asfortranarray(draw.normal(size=(rows, COLUMNS)), np.float32)
    values[draw.random(values.shape) < 0.1] = np.nan
    values[draw.random(rows) < 0.9, :4] = 0.0  # bins that may be left out
    cuts = binning.fit(values, BINS)
    drawn = TreeColumns.draw_columns(TreeParams(), 0, (COLUMNS,))
    return cuts, cuts.transform(values), drawn


@pytest.mark.parametrize("leave_out", [False, True])
def test_a_row_adds_to_the_cell_of_its_bin_in_each_column_of_its_node(leave_out):
    cuts, bins, drawn = table()
    own = row_cells.TreeCells(row_cells.BinnedTable.of(cuts, bins, leave_out=leave_out), drawn)
    nodes = np.array_split(np.random.default_rng(2).permutation(ROWS).astype(np.int32), 3)
    asked = own.numbers.additions(nodes)
    assert asked.cells.dtype == np.int32
    assert (asked.skipped >= 0).any() == leave_out
    at = 0
    for number, rows in enumerate(nodes):
        for row in rows[:200]:
            assert asked.rows[at] == row
            for c in range(COLUMNS):
                place = min(int(bins[row, c]), int(own.numbers.n_bins[c]))
                cell = number * own.numbers.n_cells + int(own.numbers.starts[c]) + place
                assert asked.cells[at, c] == (-1 if place == asked.skipped[c] else cell)
            at += 1
        at += len(rows) - min(len(rows), 200)


def test_additions_of_all_rows_take_little_beside_their_cells():
    cuts, bins, drawn = table(rows=50_000)
    own = row_cells.TreeCells(row_cells.BinnedTable.of(cuts, bins, leave_out=True), drawn)
    rows = np.arange(50_000, dtype=np.int32)
    own.numbers.additions([rows[:100]])
    tracemalloc.start()
    try:
        asked = own.numbers.additions([rows])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * asked.cells.nbytes
