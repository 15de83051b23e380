"""A tree at a worker, which has some of its rows or columns: nodes of the rows, and cells of nodes.

A worker that has lost its part gets the current one, without cells: it makes these again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import Partition
from fedboost.crypto.api import H, Pairs
from fedboost.crypto.sparse import fill_skipped
from fedboost.encrypted.cells.node_cells import NodeCells, RowSums
from fedboost.encrypted.cells.request import CellRequest
from fedboost.encrypted.cells.row_cells import BinnedPart, RowCells
from fedboost.ground.arrays import Bits, Rows

Divided = dict[int, NDArray[np.uint8]]  # of nodes, in turn: a bit for each row that goes right


class TreePart(Generic[H]):
    """A worker's knowledge of a tree, besides its encrypted rows and bins."""

    def __init__(
        self,
        partition: Partition,
        place: NDArray[np.signedinteger[Any]],
        columns: Rows,
        begins: Bits,
        numbers: RowCells | None = None,
    ) -> None:
        """Begin with the worker's rows in their current nodes. `place` (n,) has the index of each
        row's gradients; `columns` are the tree's, and `begins` belongs to their cells as in
        `NodeCells`; `numbers` are the numbers of its bins, if they have been made.
        """
        self._partition, self._place, self._numbers = partition, place, numbers
        self._columns, self._begins = columns, begins
        self.cells = NodeCells[H](begins)
        self.lock = threading.RLock()  # a task that counts as lost may still run beside another

    def __getstate__(self) -> tuple[Any, ...]:
        n_rows = len(self._place)
        standing = {
            node: _packed_rows(rows, n_rows) for node, rows in self._partition.by_leaf.items()
        }
        has_gradients = np.packbits(np.diff(self._place, prepend=-1).astype(np.bool_))
        return n_rows, standing, has_gradients, self._columns, self._begins

    def __setstate__(self, sent: tuple[Any, ...]) -> None:
        n_rows, standing, has_gradients, columns, begins = sent
        place = np.cumsum(np.unpackbits(has_gradients, count=n_rows), dtype=np.int32) - np.int32(1)
        by_leaf = {node: _unpacked_rows(rows, n_rows) for node, rows in standing.items()}
        TreePart.__init__(self, Partition(by_leaf=by_leaf), place, columns, begins)

    def divide(self, divided: Divided) -> None:
        """Divide the nodes that are not divided yet."""
        for node, bits in divided.items():
            rows = self._partition.by_leaf.get(node)
            if rows is not None:
                goes_right = np.unpackbits(bits, count=len(rows)).view(np.bool_)
                self._partition.divide(node, goes_right)

    def added_up(self, rows: RowSums[H], bins: BinnedPart, nodes: Sequence[int]) -> H:
        """Return the cells of these nodes, node after node, from their rows, some
        rows at a time.
        """
        if self._numbers is None:
            self._numbers = bins.numbers(self._columns)
        numbers = self._numbers
        node_rows = [self._partition.rows(node) for node in nodes]
        first, *others = _some_at_once(node_rows, numbers.rows_at_once)
        sums = self._add_some(rows, numbers, first)
        for some in others:
            sums = rows.add_cells(sums, self._add_some(rows, numbers, some))
        return sums

    def sums(self, request: CellRequest, rows: RowSums[H], bins: BinnedPart) -> list[Pairs[H]]:
        """Return the requested sums of cells that stay here."""
        return self.cells.sums(request, rows, partial(self.added_up, rows, bins))

    def _add_some(self, rows: RowSums[H], numbers: RowCells, node_rows: Sequence[Rows]) -> H:
        place = self._place
        asked = numbers.additions(node_rows)
        skipped = asked.skipped
        sums = rows.sums(place[asked.rows], asked.cells, numbers.n_cells * len(node_rows))
        if (skipped < 0).all():
            return sums
        every = place[np.concatenate([np.empty(0, np.int32), *node_rows])]
        lengths = [len(some) for some in node_rows]
        node = np.repeat(np.arange(len(node_rows), dtype=np.int32), lengths)
        totals = rows.sums(every, node[:, None], len(node_rows))
        base = (numbers.n_cells * np.arange(len(node_rows))[:, None] + numbers.starts[:-1]).ravel()
        offsets = np.append(base, numbers.n_cells * len(node_rows))
        left_out = np.tile(skipped, len(node_rows))
        filled = np.where(left_out < 0, -1, base + left_out)
        return fill_skipped(rows.adds, sums, offsets, filled, totals)


def add_up(
    rows: RowSums[H], bins: BinnedPart, tree: TreePart[H], divided: Divided, nodes: Sequence[int]
) -> H:
    """Return the cells of some nodes, once these are `divided`."""
    with tree.lock:
        tree.divide(divided)
        return tree.added_up(rows, bins, nodes)


def add_to(rows: RowSums[H], _: BinnedPart, __: TreePart[H], a: H, b: H) -> H:
    """Return the sums of two workers' cells."""
    return rows.adds.add(a, b)


def _some_at_once(node_rows: Sequence[Rows], most: int) -> Iterator[list[Rows]]:
    """Yield the rows of nodes in groups of at most `most` rows, node after node."""
    ends = np.cumsum([0, *map(len, node_rows)])
    for first in range(0, max(1, int(ends[-1])), most):
        bounds = np.clip([first, first + most] - ends[:-1, None], 0, None).tolist()
        yield [rows[start:stop] for rows, (start, stop) in zip(node_rows, bounds, strict=True)]


def _packed_rows(rows: Rows, n_rows: int) -> Rows | NDArray[np.uint8]:
    """Return the rows, or a bit for each row of the table if that is smaller."""
    if rows.nbytes <= n_rows // 8:
        return rows
    inside = np.zeros(n_rows, np.bool_)
    inside[rows] = True
    return np.packbits(inside)


def _unpacked_rows(rows: NDArray[Any], n_rows: int) -> Rows:
    if rows.dtype == np.uint8:
        return np.flatnonzero(np.unpackbits(rows, count=n_rows)).astype(np.int32)
    return rows
