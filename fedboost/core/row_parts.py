"""A party's rows in growing trees, if workers add them up and send sums back.

    by rows      each has some rows and all columns; sums are added two by two
    by columns   each has all rows and adds up some columns, if `own_rows_min` joins cells

Each worker divides its rows by the splits that it receives, so a layer costs the size of splits and
sums.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import histogram
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.categories import NO_THRESHOLD
from fedboost.core.own_rows import ColumnPart, OwnRows
from fedboost.core.partition import Partition
from fedboost.core.tree import Split, divide_rows
from fedboost.ground.arrays import Rows, Sums
from fedboost.ground.part_workers import PartWorkers

Splits = Mapping[int, Split]  # of one layer, by heap id


@dataclass(frozen=True)
class PlainTablePart:
    """Training rows, kept for all trees."""

    bins: Bins  # (n, all columns)
    binning: Binning  # without cut points and codes of categories
    least: int  # own_rows_min


class TrueRows:
    """Rows in a tree at their true nodes; in every layer `sums`, then `divide`, as `OwnRows`."""

    def __init__(self, table: PlainTablePart, gh: Sums, rows: Rows, columns: Rows) -> None:
        """gh int64 (n, 2·outputs); rows and columns int32 ascending, used by the tree."""
        self._table, self._gh, self._columns = table, gh, columns
        self._partition = Partition.at_root(rows)

    def sums(self, nodes: Sequence[int]) -> Sums:
        """Return int64 (nodes, columns, n_cells, 2·outputs) of some nodes."""
        rows, n_cells = [self._partition.rows(node) for node in nodes], self._table.binning.n_cells
        return histogram.build(self._table.bins, rows, self._gh, n_cells, self._columns)

    def divide(self, splits: Splits) -> None:
        """Divide the nodes of one layer."""
        divide_rows(self._partition, self._table.bins, splits, self._table.binning.missing)


class PlainTreePart:
    """Rows of one tree, which remembers the layers that have divided them."""

    def __init__(self, gh: Sums, rows: Rows, part: ColumnPart) -> None:
        """Arguments as in `OwnRows`."""
        self._given = gh, rows, part
        self._lock = threading.Lock()  # an abandoned task may still be running
        self._standing: tuple[int, OwnRows | TrueRows] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PlainTreePart, self._given  # a copy begins at the root again

    def sums(self, table: PlainTablePart, layers: Sequence[Splits], nodes: Sequence[int]) -> Sums:
        """Return the sums of some nodes below these layers of splits."""
        with self._lock:
            done, rows = self._standing or (0, self._at_root(table))
            if done > len(layers):
                done, rows = 0, self._at_root(table)
            self._standing = None
            for splits in layers[done:]:
                rows.divide(splits)
            self._standing = len(layers), rows
            return rows.sums(nodes)

    def _at_root(self, table: PlainTablePart) -> OwnRows | TrueRows:
        gh, rows, part = self._given
        if table.least == 1:
            return TrueRows(table, gh, rows, part[0])
        return OwnRows(table.binning, table.bins, gh, rows, part, table.least)


@dataclass(frozen=True)
class SharedTable:
    """Training rows of a party's trees, given to workers."""

    part_workers: PartWorkers
    kept: object
    n_columns: int
    ends: NDArray[np.int64] | None  # (parts + 1,) cuts between their rows; None: by columns
    parts: int

    @classmethod
    def of(
        cls, part_workers: PartWorkers, bins: Bins, binning: Binning, least: int = 1
    ) -> SharedTable | None:
        """Give the rows to workers that take gradients; None if these do not.

        `least` is the owner's own_rows_min, which counts rows together.
        """
        if not part_workers.takes_gradients:
            return None
        n_rows, n_columns = bins.shape
        parts = max(1, min(part_workers.count, n_rows if least == 1 else n_columns))
        ends = np.linspace(0, n_rows, parts + 1).astype(np.int64) if least == 1 else None
        none = np.empty(0, np.float32), np.empty(0, np.int32)
        valueless = Binning(
            binning.max_bin, (none[0],) * n_columns, dict.fromkeys(binning.categories, none[1])
        )

        def make(i: int) -> PlainTablePart:
            if ends is None:
                return PlainTablePart(bins, valueless, least)
            rows = slice(int(ends[i]), int(ends[i + 1]))
            some = bins.row_range(rows) if isinstance(bins, SparseBins) else bins[rows]
            return PlainTablePart(some, valueless, least)

        return cls(part_workers, part_workers.keep(parts, make), n_columns, ends, parts)

    def plant_tree(self, gh: Sums, rows: Rows, columns: Rows) -> SharedTree:
        """Return a tree at its root; see `growth.GrowingTree`."""
        ends = self.ends
        parts = self.parts if ends is not None else min(self.parts, len(columns))
        cuts = (
            np.linspace(0, len(columns), parts + 1).astype(int)
            if ends is None
            else np.searchsorted(rows, ends)
        )

        def make(i: int) -> PlainTreePart:
            inside = slice(int(cuts[i]), int(cuts[i + 1]))
            if ends is None:
                return PlainTreePart(gh, rows, (columns[inside], inside.start))
            here = (rows[inside] - ends[i]).astype(np.int32)
            return PlainTreePart(gh[int(ends[i]) : int(ends[i + 1])], here, (columns, 0))

        return SharedTree(self, self.part_workers.keep(parts, make), parts)


class SharedTree:
    """Rows of a party in one tree; in every layer take `sums`, then `divide`, as in `OwnRows`."""

    def __init__(self, table: SharedTable, kept: object, parts: int) -> None:
        """`kept` are the tree's PlainTreeParts, as many as `parts`."""
        self._table, self._kept, self._parts = table, kept, parts
        self._layers: list[Splits] = []

    def sums(self, nodes: Sequence[int]) -> Sums:
        """Return int64 (nodes, columns, n_cells, 2·outputs) of some nodes."""
        table = self._table
        tasks = [(tuple(self._layers), tuple(nodes))] * self._parts
        kept, run = (table.kept, self._kept), table.part_workers.run
        if table.ends is not None:
            return run(sums_of, kept, tasks, add_sums)[0]
        return np.concatenate(run(sums_of, kept, tasks), axis=1)

    def divide(self, splits: Splits) -> None:
        """Note the splits of one layer, without thresholds, which are values."""
        if splits:
            self._layers.append(
                {node: replace(cut, threshold=NO_THRESHOLD) for node, cut in splits.items()}
            )


def sums_of(
    table: PlainTablePart, tree: PlainTreePart, layers: Sequence[Splits], nodes: Sequence[int]
) -> Sums:
    """Return `PlainTreePart.sums`, at the worker with the rows."""
    return tree.sums(table, layers, nodes)


def add_sums(_: PlainTablePart, __: PlainTreePart, a: Sums, b: Sums) -> Sums:
    """Return the sum of two workers' sums."""
    return a + b
