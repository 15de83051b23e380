"""Sums of integer gradients per node, column and bin: exact, so the same in every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedboost.core.bins import Bins, Dense, SparseBins, entries_of_nodes
from fedboost.core.partition import Partition, sibling, smaller_child
from fedboost.core.threads import Threads, run_shared
from fedboost.ground.arrays import Indices, Rows, Sums
from fedboost.ground.kernels import kernel

ROWS_AHEAD = 32  # rows whose bins and gradients are fetched together


def build(
    bins: Bins,
    node_rows: Sequence[Rows],
    gh: Sums,
    n_cells: int,
    columns: Rows | None = None,
    threads: Threads | None = None,
) -> Sums:
    """Return the sum of `gh` over each cell's rows, int64 (nodes, columns, n_cells, 2·outputs).

    bins (n, all columns), row after row, or sparse, below n_cells; node_rows int32 row numbers per
    node; gh int64 (n, 2·outputs); `columns` int32 the ones to add up, all if absent. The caller
    ensures that sums fit int64 (FixedPoint). Each of the `threads` adds up different columns.
    """
    if columns is None:
        columns = np.arange(bins.shape[1], dtype=np.int32)
    sums = np.zeros((len(node_rows), len(columns), n_cells, gh.shape[1]), dtype=np.int64)
    if isinstance(bins, SparseBins):
        _add_entries(bins, node_rows, gh, columns, sums)
        return sums
    starts = np.cumsum([0, *map(len, node_rows)])
    rows = np.concatenate([np.empty(0, np.int32), *node_rows])
    by_row = np.ascontiguousarray(bins)

    def task(part: slice) -> tuple[Any, ...]:
        return by_row, rows, starts, gh, (columns[part], part.start), sums

    run_shared(threads, _add_rows, task, len(columns), len(rows) * len(columns))
    return sums


def signed_total(gh: Sums, rows: Rows) -> Sums:
    """Return the sum of some rows' gradients int64 (n, 2·outputs), int64 (2·outputs,)."""
    return _both_totals(gh, rows)[0]


def absolute_total(gh: Sums, rows: Rows) -> Sums:
    """Return the sum of absolute gradients: no sum of some of the rows is farther from 0."""
    return _both_totals(gh, rows)[1]


def child_histograms(
    bins: Bins, partition: Partition, gh: Sums, parents: Mapping[int, Sums], columns: Rows
) -> dict[int, Sums]:
    """Return the histograms of both children of every divided node, by heap id, ascending.

    `parents` maps the nodes just divided to their histograms, int64 (columns, n_cells, 2·outputs).
    Only the child with fewer rows is added up; the other is the parent's minus that.
    """
    fewer = {node: smaller_child(partition, node) for node in sorted(parents)}
    n_cells = next((whole.shape[1] for whole in parents.values()), 0)
    parts = build(bins, [partition.rows(child) for child in fewer.values()], gh, n_cells, columns)
    histograms: dict[int, Sums] = {}
    for (node, child), part in zip(fewer.items(), parts, strict=True):
        both = {child: part, sibling(child): parents[node] - part}
        histograms.update(sorted(both.items()))
    return histograms


def _add_entries(
    bins: SparseBins, node_rows: Sequence[Rows], gh: Sums, columns: Rows, sums: Sums
) -> None:
    """Add up the entries, and give the rest of each node's total to the bin of zeros."""
    indices, nodes = entries_of_nodes(bins, node_rows)
    place_of = np.full(bins.shape[1], -1, np.int32)
    place_of[columns] = np.arange(len(columns), dtype=np.int32)
    place = place_of[bins.columns[indices]]
    kept = place >= 0
    indices, nodes, place = indices[kept], nodes[kept], place[kept]
    _add_each(bins.bins[indices], place, nodes, gh[bins.rows[indices]], sums)
    for node, rows in enumerate(node_rows):
        rest = signed_total(gh, rows) - sums[node].sum(axis=1)
        sums[node, np.arange(len(columns)), bins.zero[columns]] += rest


@kernel
def _add_each(bins: Dense, columns: Rows, nodes: Rows, row_gh: Sums, sums: Sums) -> None:
    """Add each entry's gradients, int64 (entries, k), to its cell."""
    for i in range(len(bins)):
        cell = sums[nodes[i], columns[i], bins[i]]
        for j in range(row_gh.shape[1]):
            cell[j] += row_gh[i, j]


@kernel
def _add_rows(
    bins: Dense, rows: Rows, starts: Indices, gh: Sums, part: tuple[Rows, int], sums: Sums
) -> int:
    """Add up the rows of each node, rows[starts[i]:starts[i + 1]], row by row, in some columns,
    written from an index of `sums` on. The returned number has no meaning.
    """
    (columns, index), width = part, gh.shape[1]
    apart, two = np.uint64(sums.shape[2] * width), np.uint64(2)
    begin, touched, end = np.uint64(index) * apart, 0, np.uint64(bins.shape[1] - 1)
    for node in range(len(starts) - 1):
        cells, ahead = sums[node].ravel(), starts[node]
        for i in range(starts[node], starts[node + 1]):
            if i == ahead:  # fetches many rows into the cache at once
                ahead = min(i + ROWS_AHEAD, starts[node + 1])
                for j in range(i, ahead):
                    row = np.uint32(rows[j])
                    touched += bins[row, 0] + bins[row, end] + gh[row, 0]
            row_bins, first = bins[np.uint32(rows[i])], begin
            if width == 2:
                g, h = gh[np.uint32(rows[i]), 0], gh[np.uint32(rows[i]), 1]
                for j in range(len(columns)):
                    cell = first + two * np.uint64(row_bins[np.uint32(columns[j])])
                    cells[cell] += g
                    cells[cell + np.uint64(1)] += h
                    first += apart
            else:
                each = gh[np.uint32(rows[i])]
                for j in range(len(columns)):
                    cell = first + np.uint64(width) * np.uint64(row_bins[np.uint32(columns[j])])
                    for k in range(width):
                        cells[cell + np.uint64(k)] += each[k]
                    first += apart
    return touched


@kernel
def _both_totals(gh: Sums, rows: Rows) -> Sums:
    """Return the sums of some rows, and the sums of their absolute values; int64 (2, width)."""
    width = gh.shape[1]
    sums = np.zeros((2, width), np.int64)
    for i in range(len(rows)):
        row = np.uint32(rows[i])
        for j in range(width):
            sums[0, j] += gh[row, j]
            sums[1, j] += abs(gh[row, j])
    return sums
