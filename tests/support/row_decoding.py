"""What sums say of single rows, by all that arithmetic gives: whole numbers, and ranks.

Nothing here knows what a host offers, charges or refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

SEARCHED_MOST = 12  # rows whose subsets are all tried

Sides = NDArray[np.int8]  # (sums, rows) 1: in the sum; 0: not; −1: either is possible


def members(numbers: NDArray[np.int64], sums: NDArray[np.int64]) -> Sides:
    """Return which rows must be in each sum, and which cannot be.

    numbers int64 (rows, columns): what each row adds; sums int64 (sums, columns). A row is decided
    where the sum is out of reach otherwise: of numbers each larger than all smaller ones together
    that decides all rows. Of few that are left every subset is tried.
    """
    sides = np.full((len(sums), len(numbers)), -1, np.int8)
    is_marked = (numbers != 0).any(axis=1)
    undecided = -1
    while undecided != (undecided := int(np.count_nonzero(sides == -1))):
        for column in range(numbers.shape[1]):
            _narrow(sides, numbers[:, column], sums[:, column])
    for number, total in enumerate(sums):
        (left,) = np.nonzero((sides[number] == -1) & is_marked)
        if 0 < len(left) <= SEARCHED_MOST:
            rest = total - numbers[sides[number] == 1].sum(axis=0)
            sides[number, left] = _searched(numbers[left], rest)
    return sides


def _narrow(sides: Sides, numbers: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    """Decides rows that the reach of all other open rows decides."""
    is_open = (sides == -1) & (numbers != 0)
    rest = sums - (sides == 1) @ numbers
    low = np.where(is_open, np.minimum(numbers, 0), 0).sum(axis=1)
    high = np.where(is_open, np.maximum(numbers, 0), 0).sum(axis=1)
    others_low = low[:, None] - np.minimum(numbers, 0)
    others_high = high[:, None] - np.maximum(numbers, 0)
    may_be_out = (others_low <= rest[:, None]) & (rest[:, None] <= others_high)
    within = rest[:, None] - numbers
    may_be_in = (others_low <= within) & (within <= others_high)
    sides[is_open & may_be_in & ~may_be_out] = 1
    sides[is_open & may_be_out & ~may_be_in] = 0


def _searched(numbers: NDArray[np.int64], rest: NDArray[np.int64]) -> Sides:
    """Return what all subsets with the sum `rest` agree on; of none −1."""
    subsets = _subsets(len(numbers))
    fitting = subsets[(subsets @ numbers == rest).all(axis=1)]
    if not len(fitting):
        return np.full(len(numbers), -1, np.int8)
    agree = (fitting == fitting[0]).all(axis=0)
    return np.where(agree, fitting[0], -1).astype(np.int8)


@cache
def _subsets(count: int) -> NDArray[np.int64]:
    return np.arange(1 << count)[:, None] >> np.arange(count) & 1


def leverage(sets: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """How much of one person's row the combination nearest to it is about, float64 (people,): 1
    where some combination of the sets' sums is about this row alone.

    Of a combination that is about k rows alone it is 1/k for each of them, at least.
    """
    left, sizes, _ = np.linalg.svd(np.stack(sets, axis=1).astype(np.float64), full_matrices=False)
    found: NDArray[np.float64] = (left[:, sizes > 1e-9] ** 2).sum(axis=1)
    return found
