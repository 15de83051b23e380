"""Sums by column with fewer additions: rows that share cells in several columns are added once.

Adding is multiplying here; products lack powers of R until the end (`montgomery`). Rows with the
same cells in columns A and B are first multiplied together, one product for each pair of cells that
occurs; the two columns then take these products, not the rows. With m rows and u pairs this costs
(m − u) + 2·u multiplications, and separate columns cost 2·m; as u ≤ m it never costs more.
Columns are merged two by two, least distinct first, as long as it pays.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.montgomery import LimbRows, Montgomery

TABLE_FACTOR = 16  # keys below this many times the rows are ranked by a table, others by sorting
MERGE_GAIN_MIN = 0.05  # multiplications saved for each row; below it finding the pairs costs more


@dataclass(frozen=True)
class _Group:
    """Columns taken together: a binary tree whose leaves are columns.

    `key` int64 (rows,) numbers each row's distinct combination of cells; combination `dead` (−1 if
    none) is skipped by every column.
    """

    key: NDArray[np.int64]
    distinct: int
    dead: int
    names: NDArray[np.int64] | None = None  # a leaf: the cell of each combination
    halves: tuple[_Group, _Group] | None = None
    half_keys: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # by combination

    def live_rows(self) -> int:
        """Number of rows that add something to at least one column."""
        return len(self.key) - int(np.count_nonzero(self.key == self.dead))


def sum_columns(
    values: LimbRows, cells: NDArray[np.int32], field: Montgomery
) -> tuple[NDArray[np.int64], LimbRows]:
    """Return the cells that occur, ascending, and each one's product of `values[i]` over all i, j
    with cells[i, j] = cell.

    `cells` int32 (rows, columns), negative entries skip.
    """
    once = np.ones(len(values), np.int64)
    none = np.empty(0, np.int64), values[:0], once[:0]
    parts = [none]
    for group in _plan_groups(cells):
        _add_group(group, group.key, values, once, field, parts)
    cell, products, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    touched, products, counts = _multiplied(cell, products, counts, field)
    return touched, field.restored(products, counts)


def _plan_groups(cells: NDArray[np.int32]) -> list[_Group]:
    """Return the columns in groups; columns that share enough rows are merged."""
    leaves = [_leaf_group(cells[:, column]) for column in range(cells.shape[1])]
    waiting = [(leaf.distinct, place, leaf) for place, leaf in enumerate(leaves)]
    heapq.heapify(waiting)
    place = len(waiting)
    while len(waiting) > 1:
        first, second = heapq.heappop(waiting), heapq.heappop(waiting)
        merged = _merge_groups(first[2], second[2])
        if merged is None:  # all others have more combinations, and pay less still
            waiting += [first, second]
            break
        heapq.heappush(waiting, (merged.distinct, place, merged))
        place += 1
    return [group for _, _, group in waiting]


def _leaf_group(column: NDArray[np.int32]) -> _Group:
    cells = np.maximum(column.astype(np.int64), -1) + 1
    key, first = _rank_keys(cells, int(cells.max(initial=0)) + 1)
    names = cells[first] - 1
    skipped = np.flatnonzero(names < 0)
    return _Group(key, len(first), int(skipped[0]) if len(skipped) else -1, names=names)


def _merge_groups(left: _Group, right: _Group) -> _Group | None:
    """Return both together, or None if that saves too little."""
    key, first = _rank_keys(left.key * right.distinct + right.key, left.distinct * right.distinct)
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


def _rank_keys(keys: NDArray[np.int64], limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each key's rank among the distinct keys, and one index of each; keys are in
    0..limit−1.
    """
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
    values: LimbRows,
    counts: NDArray[np.int64],
    field: Montgomery,
    parts: list[tuple[NDArray[np.int64], LimbRows, NDArray[np.int64]]],
) -> None:
    """Add to `parts` the cells of a group's columns: each one's name, product and count.

    `values`, products of `counts` rows that lack powers of R, have the combinations `keys`.
    """
    live = np.flatnonzero(keys != group.dead)
    occurring, products, counts = _multiplied(keys, values, counts, field, live)
    if group.names is not None:
        parts.append((group.names[occurring], products, counts))
        return
    assert group.halves is not None
    assert group.half_keys is not None
    for half, half_keys in zip(group.halves, group.half_keys, strict=True):
        _add_group(half, half_keys[occurring], products, counts, field, parts)


def _multiplied(
    keys: NDArray[np.int64],
    values: LimbRows,
    counts: NDArray[np.int64],
    field: Montgomery,
    live: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], LimbRows, NDArray[np.int64]]:
    """Return the keys that occur among `live`, ascending, each one's product, and its number of
    rows.
    """
    order = np.argsort(keys, kind="stable") if live is None else live[np.argsort(keys[live])]
    occurring, first = np.unique(keys[order], return_index=True)
    lengths = np.diff(np.append(first, len(order)))
    products = field.run_products(values, order, lengths)
    return occurring, products, np.add.reduceat(counts[order], first) if len(first) else counts[:0]
