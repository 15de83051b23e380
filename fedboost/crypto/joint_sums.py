"""Sums by column with fewer additions: rows that share cells in several columns are added once.

Rows with the same cells in columns A and B are first multiplied together, one product for each pair
of cells that occurs; the two columns then take these products, not the rows. With m rows and u
pairs this costs (m − u) + 2·u multiplications where each column on its own costs 2·m, and as u ≤ m
it never costs more. Columns are merged two by two, least distinct first, as long as it pays.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

TABLE_FACTOR = 16  # keys below this many times the rows are ranked by a table, others by sorting
MERGE_GAIN_MIN = 0.05  # multiplications saved for each row; below it finding the pairs costs more


@dataclass(frozen=True)
class _Group:
    """Columns taken together: a binary tree whose leaves are columns.

    `key` int64 (rows,) numbers each row's distinct combination of cells; combination `dead` (−1 if
    none) is the one in which every column skips.
    """

    key: NDArray[np.int64]
    distinct: int
    dead: int
    names: NDArray[np.int64] | None = None  # a leaf: the cell of each combination
    halves: tuple[_Group, _Group] | None = None
    half_keys: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # by combination

    def live_rows(self) -> int:
        """Rows that add something to at least one column."""
        return len(self.key) - int(np.count_nonzero(self.key == self.dead))


def sum_columns(values: list[mpz], cells: NDArray[np.int32], modulus: mpz) -> dict[int, mpz]:
    """Products modulo `modulus`: cell → product of `values[i]` over all i, j with cells[i, j] =
    cell.

    `cells` int32 (rows, columns), negative entries skip. Cells that nothing fell into are absent.
    """
    sums: dict[int, mpz] = {}
    for group in _plan(cells):
        _add_group(group, group.key, values, modulus, sums)
    return sums


def _plan(cells: NDArray[np.int32]) -> list[_Group]:
    """The columns in groups, those that share enough rows merged."""
    leaves = [_leaf(cells[:, column]) for column in range(cells.shape[1])]
    waiting = [(leaf.distinct, place, leaf) for place, leaf in enumerate(leaves)]
    heapq.heapify(waiting)
    place = len(waiting)
    while len(waiting) > 1:
        first, second = heapq.heappop(waiting), heapq.heappop(waiting)
        merged = _merge(first[2], second[2])
        if merged is None:  # all others have more combinations, and pay less still
            waiting += [first, second]
            break
        heapq.heappush(waiting, (merged.distinct, place, merged))
        place += 1
    return [group for _, _, group in waiting]


def _leaf(column: NDArray[np.int32]) -> _Group:
    cells = np.maximum(column.astype(np.int64), -1) + 1
    key, first = _rank(cells, int(cells.max(initial=0)) + 1)
    names = cells[first] - 1
    skipped = np.flatnonzero(names < 0)
    return _Group(key, len(first), int(skipped[0]) if len(skipped) else -1, names=names)


def _merge(left: _Group, right: _Group) -> _Group | None:
    """Both together, or None where that saves too little."""
    key, first = _rank(left.key * right.distinct + right.key, left.distinct * right.distinct)
    left_keys, right_keys = left.key[first], right.key[first]
    left_live, right_live = left_keys != left.dead, right_keys != right.dead
    dead = np.flatnonzero(~(left_live | right_live))
    merged = _Group(
        key=key,
        distinct=len(first),
        dead=int(dead[0]) if len(dead) else -1,
        halves=(left, right),
        half_keys=(left_keys, right_keys),
    )
    apart = left.live_rows() + right.live_rows()
    combinations = len(first) - len(dead)
    together = merged.live_rows() - combinations
    together += int(np.count_nonzero(left_live)) + int(np.count_nonzero(right_live))
    return merged if apart - together > MERGE_GAIN_MIN * len(key) else None


def _rank(keys: NDArray[np.int64], limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each key's rank among the distinct keys, and one place of each; keys are in 0..limit−1."""
    if limit > TABLE_FACTOR * len(keys):
        _, first, rank = np.unique(keys, return_index=True, return_inverse=True)
        return rank.astype(np.int64), first.astype(np.int64)
    place = np.full(limit, -1, dtype=np.int64)
    place[keys] = np.arange(len(keys))
    present = np.flatnonzero(place >= 0)
    first = place[present]
    place[present] = np.arange(len(present))
    return place[keys], first


def _add_group(
    group: _Group,
    keys: NDArray[np.int64],
    values: list[mpz],
    modulus: mpz,
    sums: dict[int, mpz],
) -> None:
    """Adds `values`, whose combinations of the group's columns are `keys`, into `sums`."""
    if group.names is not None:
        cells = group.names[keys].tolist()
        for cell, value in zip(cells, values, strict=True):
            if cell >= 0:
                present = sums.get(cell)
                sums[cell] = value if present is None else present * value % modulus
        return
    products: list[mpz | None] = [None] * group.distinct
    for key, value in zip(keys.tolist(), values, strict=True):
        if key != group.dead:
            present = products[key]
            products[key] = value if present is None else present * value % modulus
    assert group.halves is not None
    assert group.half_keys is not None
    occurring = np.flatnonzero([product is not None for product in products])
    occurred = [product for product in products if product is not None]
    for half, half_keys in zip(group.halves, group.half_keys, strict=True):
        _add_group(half, half_keys[occurring], occurred, modulus, sums)
