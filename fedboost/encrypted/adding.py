"""Where the cells of nodes are added up: whoever holds parts of the encrypted rows and of the bins.

    by rows     each shard has some rows and all columns; cells are added two by two, and come back
    by columns  each shard has all rows and some columns, and keeps the cells (`ring_shards`)

Sums are the same whichever way, and by however many shards: a product of numbers modulo another and
a sum modulo 2^64 do not depend on the order.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.arrays import Indices, Rows
from fedboost.crypto.api import Adder, Ciphertexts, H, PublicKey, joined
from fedboost.crypto.sparse import fill_skipped
from fedboost.encrypted.cells import CellNumbers
from fedboost.shards import Shards

ALL = slice(None)


class RowSums(ABC, Generic[H]):
    """Encrypted rows, or a part of them, as they are added up, and what is done with their sums."""

    @property
    @abstractmethod
    def adds(self) -> Adder[H]:
        """Return what adds up cells."""

    @abstractmethod
    def sums(self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> H:
        """Adds row `rows[i]` into each cell of `cells[i]`; see `api.Adder.segment_sum`."""

    def running(self, cells: H, offsets: NDArray[np.integer]) -> H:
        """Running sums within segments; see `api.Adder.prefix_sums`. `cells` may become them."""
        return self.adds.prefix_sums(cells, offsets)

    def siblings(self, parents: Sequence[H], others: Sequence[H]) -> list[H]:
        """Return the cells of each parent minus those of the other child; `parents` may become
        them.
        """
        minus = self.adds.subtract(joined(parents), joined(others))
        ends = np.cumsum([len(parent) for parent in parents]).tolist()
        return [minus[end - len(parent) : end] for end, parent in zip(ends, parents, strict=True)]


@dataclass(frozen=True)
class KeyedRows(RowSums[Ciphertexts]):
    """Rows under a key."""

    key: PublicKey
    gradients: Ciphertexts

    @property
    def adds(self) -> PublicKey:
        """The key itself."""
        return self.key

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> Ciphertexts:
        """See `RowSums`."""
        return self.key.segment_sum(self.gradients, rows, cells, n_cells)


@dataclass(frozen=True)
class PlacedCells:
    """The cells that rows add to, and where the gradients of each row are."""

    numbers: CellNumbers
    place: NDArray[np.signedinteger[Any]]  # (n,) among the encrypted rows of the same shard


@dataclass(frozen=True)
class AddingRows(Generic[H]):
    """The encrypted rows of some trees, given to shards."""

    shards: Shards
    kept: object
    ends: Indices | None  # (parts + 1,) cuts between the rows of each shard; None: by columns
    parts: int

    @classmethod
    def whole(cls, shards: Shards, rows: RowSums[H]) -> AddingRows[H]:
        """Every shard has all rows, and will have some columns."""
        parts = shards.count
        return cls(shards, shards.keep(parts, lambda _: rows), None, parts)

    @classmethod
    def cut(
        cls, shards: Shards, n_rows: int, rows: Callable[[int, int], RowSums[H]]
    ) -> AddingRows[H]:
        """Every shard has some rows, as `rows` gives them of the first and the one behind."""
        parts = max(1, min(shards.count, n_rows))
        ends = np.linspace(0, n_rows, parts + 1).astype(np.int64)

        def make(i: int) -> RowSums[H]:
            return rows(int(ends[i]), int(ends[i + 1]))

        return cls(shards, shards.keep(parts, make), ends, parts)

    def take(self, numbers: CellNumbers, place: Indices) -> AddingTree[H]:
        """A tree's cells beside the rows; int64 `place`, rising, says where each row of the table
        has its gradients.
        """
        columns, chosen = len(numbers.n_bins), [(ALL, ALL)]
        if self.ends is None and self.parts > 1:
            at = np.linspace(0, columns, self.parts + 1).astype(int)
            chosen = [(ALL, slice(first, stop)) for first, stop in itertools.pairwise(at.tolist())]
        elif self.ends is not None and self.parts > 1:
            at = np.searchsorted(place, self.ends)
            at[0], at[-1] = 0, len(place)
            chosen = [(slice(first, stop), ALL) for first, stop in itertools.pairwise(at.tolist())]
        ends = self.ends

        def make(i: int) -> PlacedCells:
            rows, columns = chosen[i]
            if rows == columns == ALL:
                return PlacedCells(numbers, place)
            first = 0 if ends is None else ends[i]
            return PlacedCells(numbers.part(rows, columns), (place[rows] - first).astype(np.int32))

        return AddingTree(self, self.shards.keep(len(chosen), make), numbers, chosen)


@dataclass(frozen=True)
class AddingTree(Generic[H]):
    """A tree's cells, given to the shards that have the rows."""

    rows: AddingRows[H]
    kept: object
    numbers: CellNumbers
    chosen: Sequence[tuple[slice, slice]]  # rows and columns of each shard

    def added_up(self, node_rows: Sequence[Rows]) -> H:
        """The cells of nodes with these rows, int32 each, node after node; by rows."""
        tasks = [([_within(rows, inside) for inside in node_rows],) for rows, _ in self.chosen]
        kept = self.rows.kept, self.kept
        sums: list[H] = self.rows.shards.run(add_up, kept, tasks, add_to)
        return sums[0]


def add_up(rows: RowSums[H], cells: PlacedCells, node_rows: Sequence[Rows]) -> H:
    """The cells of these nodes, node after node, from their rows."""
    numbers, place = cells.numbers, cells.place
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


def add_to(rows: RowSums[H], _: PlacedCells, a: H, b: H) -> H:
    """The cells of two shards as one's."""
    return rows.adds.add(a, b)


def _within(chosen: slice, rows: Rows) -> Rows:
    """Return those of a node's rows that a shard has, by its own numbers."""
    if chosen == ALL:
        return rows
    inside: Any = (rows >= chosen.start) & (rows < chosen.stop)
    return rows[inside] - np.int32(chosen.start)
