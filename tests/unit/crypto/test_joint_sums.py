"""Shared additions: the same sums as column by column, and never more multiplications."""

from dataclasses import replace

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedboost.crypto.joint_sums import sum_columns
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.montgomery import Montgomery, montgomery

PRIME = mpz(1_000_003)


class Counting(Montgomery):
    """Counts how often two numbers are multiplied."""

    made = 0

    def run_products(self, numbers, order, lengths):
        Counting.made += int((lengths - 1).sum())
        return super().run_products(numbers, order, lengths)


def column_by_column(values, cells):
    """The naive twin, with the number of its multiplications."""
    sums: dict[int, mpz] = {}
    count = 0
    for value, row in zip(values, cells.tolist(), strict=True):
        for cell in row:
            if cell >= 0:
                count += cell in sums
                sums[cell] = sums.get(cell, 1) * value % PRIME
    return sums, count


def both(cells):
    values = [mpz(i + 2) for i in range(len(cells))]
    field = Counting(**vars(replace(montgomery(PRIME))))
    Counting.made = 0
    touched, sums = sum_columns(field.of(values), cells, field)
    expected, naive = column_by_column(values, cells)
    assert dict(zip(touched.tolist(), numbers(field.data(sums)), strict=True)) == expected
    assert Counting.made <= naive
    return Counting.made / max(naive, 1)


@given(
    st.integers(1, 12).flatmap(
        lambda most: hnp.arrays(
            np.int32,
            st.tuples(st.integers(1, 60), st.integers(1, 7)),
            elements=st.integers(-1, most),
        )
    )
)
def test_sums_equal_the_naive_ones_whatever_the_cells(cells):
    """Cells may also be shared between columns, and rows may skip all of them."""
    both(cells)


@pytest.mark.parametrize("missing", [0.0, 0.5, 0.95, 1.0])
def test_columns_of_their_own_cells_sum_right_with_missing_ones(missing):
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 8, (3000, 9)) + 8 * np.arange(9)
    cells[rng.random(cells.shape) < missing] = -1
    both(cells.astype(np.int32))


def test_few_bins_and_many_rows_cost_less_than_half():
    rng = np.random.default_rng(4)
    cells = rng.integers(0, 8, (20_000, 8)) + 8 * np.arange(8)
    assert both(cells.astype(np.int32)) < 0.4


def test_binary_columns_cost_next_to_nothing():
    rng = np.random.default_rng(5)
    cells = rng.integers(0, 2, (5000, 40)) + 2 * np.arange(40)
    assert both(cells.astype(np.int32)) < 0.25


def test_rows_that_share_nothing_cost_the_same():
    rng = np.random.default_rng(6)
    cells = np.stack([rng.permutation(500) + 500 * j for j in range(4)], axis=1)
    assert both(cells.astype(np.int32)) <= 1
