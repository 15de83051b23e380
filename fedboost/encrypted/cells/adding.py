"""Workers that add up the cells of nodes; each holds a part of the encrypted rows and of the bins.

    by rows     each worker has some rows and all columns; cells are added two by two, and come back
    by columns  each worker has all rows and some columns, and keeps the cells (`lattice.parts`)

Workers get bins once, rows once for the trees that grow on them, and bits as these divide. Sums are
the same either way, by any number of workers: a product of numbers modulo another and a sum modulo
2^64 do not depend on the order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import numpy as np

from fedboost.core.partition import Partition, left_child, right_child
from fedboost.crypto.api import H, Pairs
from fedboost.encrypted.cells.node_cells import NodeCells, RowSums
from fedboost.encrypted.cells.request import CellRequest
from fedboost.encrypted.cells.row_cells import TreeCells
from fedboost.encrypted.cells.tree_part import Divided, TreePart, add_to, add_up
from fedboost.encrypted.tree.growth import Division
from fedboost.ground.arrays import Bits, Indices, Rows
from fedboost.ground.part_workers import Embedded, PartWorkers, PlacedParts


@dataclass(frozen=True)
class PartSlices:
    """A worker's part of a table and of a tree: slices with both ends."""

    rows: slice  # of the table
    columns: slice
    gradients: slice  # the encrypted rows that are theirs
    used: slice  # its columns, among the tree's

    def of(self, rows: Rows) -> Indices:
        """Return the start and the end of the worker's rows among some rows, int32 ascending."""
        return np.searchsorted(rows, [self.rows.start, self.rows.stop])


@dataclass(eq=False)
class PlacedRows(Generic[H]):
    """The encrypted rows that trees grow on at once, given to workers."""

    part_workers: PartWorkers
    rows: Callable[[slice], RowSums[H]]  # returns a slice of the rows
    by_rows: bool
    _placed: PlacedParts = field(default_factory=PlacedParts)

    @cached_property
    def parts(self) -> int:
        """Number of workers that have them."""
        return self.part_workers.count

    def take(
        self, cells: TreeCells, partition: Partition, begins: Bits, place: Indices
    ) -> PlacedTree[H]:
        """Return a tree on these rows, which stand as in `partition`, now and as it grows.

        `begins`: see `NodeCells`. `place`, int64 rising and the same for all trees: the index of
        each table row's gradients.
        """
        table, numbers, parts = cells.table, cells.numbers, self.parts
        shares = [*self._slices_of_workers(cells, place)]

        def part(i: int) -> TreePart[H]:
            """Return the part of the i-th worker."""
            if parts == 1:
                return TreePart(partition, place, cells.columns, begins, numbers)
            share = shares[i]
            columns = cells.columns[share.used] - np.int32(share.columns.start)
            of_cells = slice(numbers.starts[share.used.start], numbers.starts[share.used.stop])
            standing = {
                node: _rows_of_worker(rows, share) for node, rows in partition.by_leaf.items()
            }
            own_place = place[share.rows] - share.gradients.start
            return TreePart(Partition(by_leaf=standing), own_place, columns, begins[of_cells])

        kept = (
            self._placed.at(self.part_workers, parts, lambda i: self.rows(shares[i].gradients)),
            table.placed.at(
                self.part_workers,
                parts,
                lambda i: table.whole.part(shares[i].rows, shares[i].columns),
            ),
            self.part_workers.keep(parts, part),
        )
        return PlacedTree(
            self.part_workers, kept, numbers.starts, shares, partition, NodeCells(begins)
        )

    def _slices_of_workers(self, cells: TreeCells, place: Indices) -> Iterator[PartSlices]:
        n_rows, n_columns = cells.table.whole.bins.shape
        ends = np.linspace(0, n_rows if self.by_rows else n_columns, self.parts + 1)
        for cut in itertools.pairwise(ends.astype(int).tolist()):
            rows, columns = (cut, (0, n_columns)) if self.by_rows else ((0, n_rows), cut)
            gradients = (int(place[end - 1]) + 1 if end else 0 for end in rows)
            used = np.searchsorted(cells.columns, columns).tolist()
            yield PartSlices(slice(*rows), slice(*columns), slice(*gradients), slice(*used))


@dataclass(frozen=True, eq=False)
class PlacedTree(Generic[H]):
    """A tree, given to the workers that have its rows."""

    part_workers: PartWorkers
    kept: tuple[object, object, object]  # rows, bins, and `TreePart`s
    starts: Indices  # of each column's cells in a node, and their end
    shares: Sequence[PartSlices]
    partition: Partition
    cells: NodeCells[H]  # cells that workers return
    divided: list[Divided] = field(init=False)  # divisions not yet sent to each worker

    def __post_init__(self) -> None:
        object.__setattr__(self, "divided", [{} for _ in self.shares])

    @classmethod
    def of_cells(cls, cells: Mapping[int, H], rows: RowSums[H]) -> PlacedTree[H]:
        """Return a tree of this process whose nodes have these cells already, of one column."""
        begins = np.ones(max(map(len, cells.values())), np.bool_)
        partition, none = Partition(by_leaf={}), np.empty(0, np.int32)
        part = TreePart[H](partition, none, none, begins)
        part.cells = NodeCells(begins, cells)
        whole = PartSlices(slice(0, 0), slice(0, 1), slice(0, 0), slice(0, 1))
        starts = np.array([0, len(begins)])
        return cls(Embedded(), ([rows], [None], [part]), starts, [whole], partition, part.cells)

    def parts(self, request: CellRequest) -> list[CellRequest]:
        """Return the request to each worker, which has some of the columns."""
        return [request.part(self.starts, share.used) for share in self.shares]

    def sums(self, request: CellRequest, rows: RowSums[H]) -> list[Pairs[H]]:
        """Return the requested sums, of cells that come back; by rows."""
        return self.cells.sums(request, rows, self.added_up)

    def divide(self, divisions: Sequence[Division]) -> None:
        """Note which rows of a layer's nodes go right; `partition` has already moved them."""
        of = self.partition.rows
        for node, goes_right in divisions:
            for share, divided in zip(self.shares, self.divided, strict=True):
                sides = (of(left_child(node)), of(right_child(node)))
                first, stop = np.sum([share.of(rows) for rows in sides], axis=0).tolist()
                divided[node] = np.packbits(goes_right[first:stop])

    def note_divisions_sent(self) -> None:
        """Note that workers have received all divisions."""
        for divided in self.divided:
            divided.clear()

    def added_up(self, nodes: Sequence[int]) -> H:
        """Return the cells of nodes, node after node; by rows."""
        tasks = [(divided, nodes) for divided in self.divided]
        sums: list[H] = self.part_workers.run(add_up, self.kept, tasks, add_to)
        self.note_divisions_sent()
        return sums[0]


def _rows_of_worker(rows: Rows, share: PartSlices) -> Rows:
    """Return the worker's rows of a node, by the worker's numbers."""
    first, stop = share.of(rows)
    return rows[first:stop] - np.int32(share.rows.start)
