"""Sums of integer gradients per node, column and bin: exact, so the same in every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedboost.core.partition import Partition, sibling, smaller_child

Bins = NDArray[np.uint8]
Rows = NDArray[np.int32]
Sums = NDArray[np.int64]


def build(
    bins: Bins, node_rows: Sequence[Rows], gh: Sums, n_cells: int, columns: Rows | None = None
) -> Sums:
    """int64 (nodes, columns, n_cells, 2·outputs): the sum of `gh` over each cell's rows.

    bins uint8 (n, columns) Fortran order, below n_cells; node_rows int32 row numbers per node;
    gh int64 (n, 2·outputs); `columns` int32 leaves the others' cells at 0. The caller sees to it
    that sums fit int64 (FixedPoint).
    """
    if columns is None:
        columns = np.arange(bins.shape[1], dtype=np.int32)
    sums = np.zeros((len(node_rows), bins.shape[1], n_cells, gh.shape[1]), dtype=np.int64)
    for node, rows in enumerate(node_rows):
        own = gh[rows]
        if gh.shape[1] == 2:
            _add_pairs(bins, rows, own, columns, sums[node])
        else:
            _add_many(bins, rows, own, columns, sums[node])
    return sums


def children(
    bins: Bins, partition: Partition, gh: Sums, parents: Mapping[int, Sums], columns: Rows
) -> dict[int, Sums]:
    """The histograms of both children of every divided node, by heap id, ascending.

    `parents` maps the nodes just divided to their histograms, int64 (columns, n_cells, 2·outputs).
    Only the child with fewer rows is added up; the other is the parent's minus that.
    """
    found: dict[int, Sums] = {}
    for node, whole in sorted(parents.items()):
        fewer = smaller_child(partition, node)
        part = build(bins, [partition.rows(fewer)], gh, whole.shape[1], columns)[0]
        both = {fewer: part, sibling(fewer): whole - part}
        found.update(sorted(both.items()))
    return found


def row_counts(bins: Bins, node_rows: Sequence[Rows], n_cells: int) -> Sums:
    """int64 (nodes, columns, n_cells): how many rows stand in each cell."""
    ones = np.ones((len(bins), 1), dtype=np.int64)
    return build(bins, node_rows, ones, n_cells)[..., 0]


def has_missing(bins: Bins, node_rows: Sequence[Rows], missing: int) -> NDArray[np.bool_]:
    """bool (nodes, columns): whether some row of the node has no value in the column."""
    found = np.zeros((len(node_rows), bins.shape[1]), dtype=np.bool_)
    for node, rows in enumerate(node_rows):
        _find(bins, rows, np.uint8(missing), found[node])
    return found


@njit(nogil=True, cache=True)
def _add_pairs(bins: Bins, rows: Rows, own: Sums, columns: Rows, sums: Sums) -> None:
    """One g and one h per row; columns outside, because each is contiguous in `bins`."""
    for c in columns:
        column = bins[:, c]
        cells = sums[c]
        for i in range(len(rows)):
            cell = column[rows[i]]
            cells[cell, 0] += own[i, 0]
            cells[cell, 1] += own[i, 1]


@njit(nogil=True, cache=True)
def _add_many(bins: Bins, rows: Rows, own: Sums, columns: Rows, sums: Sums) -> None:
    for c in columns:
        column = bins[:, c]
        cells = sums[c]
        for i in range(len(rows)):
            cell = column[rows[i]]
            for j in range(own.shape[1]):
                cells[cell, j] += own[i, j]


@njit(nogil=True, cache=True)
def _find(bins: Bins, rows: Rows, wanted: np.uint8, found: NDArray[np.bool_]) -> None:
    for c in range(bins.shape[1]):
        column = bins[:, c]
        for i in range(len(rows)):
            if column[rows[i]] == wanted:
                found[c] = True
                break
