"""A forecast of rows placed is no less than what sums could tell, and all rows of many layers."""

import math

import numpy as np
import pytest

from fedboost.flow import Releases
from fedboost.runtime.policy.placing import Learnt
from tests.support.federated import frame_of

ROWS = 800


def table(max_bin=4, held=0):
    """Two columns: one of equal bins, and one that is the same in every row."""
    values = np.zeros((ROWS, 2), np.float32)
    values[:, 0] = np.arange(ROWS) % 4
    held_out = np.zeros(ROWS, bool)
    held_out[:held] = True
    return Learnt(frame_of([b"%d" % row for row in range(ROWS)], values), held_out, max_bin)


def bits(of_bins, layers=1):
    """A job whose sums tell so many bits of a column for each of its bins."""
    return Releases(1, sum_bits=lambda bins, rows: of_bins * bins, layers=layers)


def test_sums_place_rows_by_the_bits_of_the_column_that_tells_most():
    assert table().share_placed_by_sums(bits(40.0)) == pytest.approx(4 * 40 / (2 * ROWS))
    assert table(held=ROWS // 2).share_placed_by_sums(bits(40.0)) == pytest.approx(4 * 40 / ROWS)
    assert table(max_bin=2).share_placed_by_sums(bits(40.0)) == pytest.approx(2 * 40 / ROWS)
    assert table().share_placed_by_sums(bits(math.inf)) == 1.0
    assert table().share_placed_by_sums(Releases(1)) == 0.0


def test_divisions_place_a_bit_of_each_row_and_layer():
    assert table().placed(bits(0.0, layers=1)) == pytest.approx(0.5)
    assert table().placed(bits(40.0, layers=1)) == pytest.approx(0.6)
    assert table().placed(bits(0.0, layers=3)) == 1.0
    assert table().placed(Releases(0)) == 0.0


@pytest.mark.parametrize("rare", [1.0, np.nan])
def test_a_column_that_no_sampled_row_differs_in_is_placed_by_few_bits(rare):
    values = np.zeros((1 << 15, 1), np.float32)
    values[1] = rare  # the sample has not this row
    ids = [b"%d" % row for row in range(len(values))]
    learnt = Learnt(frame_of(ids, values), np.zeros(len(values), bool), 4)
    assert learnt.share_placed_by_sums(bits(5.0, layers=1)) == pytest.approx(10 / 16.44, rel=0.01)
    assert learnt.placed(bits(0.0, layers=1)) == 1.0
