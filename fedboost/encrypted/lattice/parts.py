"""Cells of lattice trees with the workers that have their columns: there they stay.

A worker makes the cells of its columns, blinds their answers and packs these into slots that
the host says; what comes back is what answers are made of. It gets a secret of each of its columns,
for one tree. Cells that a worker has lost it makes again from rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.answers import AskedSums, Draws, TreeKey
from fedboost.crypto.lattice.cells import CellAdds, EncryptedRows, LatticeSums
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.released import Blinded
from fedboost.crypto.lattice.words import ByteArray
from fedboost.crypto.secrets import SEED_BYTES, Secrets
from fedboost.encrypted.cells.adding import AddingTree
from fedboost.encrypted.cells.node_cells import Chosen, Making, RowSums
from fedboost.encrypted.cells.row_cells import BinnedPart
from fedboost.encrypted.scheme.ciphers import TreeCells
from fedboost.ground.arrays import Indices
from fedboost.ground.workers import Serial, Workers

Answers = Blinded[Any] | None  # of a worker that is asked for none: None


@dataclass(frozen=True)
class LatticeRows(RowSums[LatticeSums]):
    """Rows and the keys of their trees; elsewhere without these threads."""

    encrypted: EncryptedRows
    key: TreeKey
    workers: Workers

    @property
    def adds(self) -> CellAdds:
        """Additions that wrap."""
        return CellAdds()

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> LatticeSums:
        """Sums of windows."""
        return self.encrypted.segment_sum(rows, cells, n_cells, self.workers)

    def plus(self, cells: LatticeSums, others: LatticeSums) -> LatticeSums:
        """See `RowSums`; in place."""
        cells.take_in(others)
        return cells

    def running(self, cells: LatticeSums, offsets: NDArray[np.integer]) -> LatticeSums:
        """See `RowSums`; in place."""
        cells.run(offsets, self.workers)
        return cells

    def siblings(
        self, parents: Sequence[LatticeSums], others: Sequence[LatticeSums]
    ) -> list[LatticeSums]:
        """See `RowSums`; in place."""
        for parent, other in zip(parents, others, strict=True):
            parent.take_off(other, self.workers)
        return [*parents]

    def __reduce__(self) -> tuple[Any, ...]:
        return LatticeRows, (self.encrypted, self.key, Serial())


@dataclass(frozen=True, repr=False)
class AskedNode:
    """Sums of a node of which a worker has the cells."""

    tree: int  # its place among those at hand
    node: int
    chosen: Chosen
    draws: Draws


def answered(
    rows: LatticeRows, bins: BinnedPart, packing: PackingKey | None, *rest: Any
) -> Answers:
    """Make answers of a worker's own cells: of each tree at hand its part there, then how to make
    its cells, and the nodes asked for; one, where nothing is packed.
    """
    *trees, wanted, nodes = rest
    with ExitStack() as locked:
        for tree in trees:
            locked.enter_context(tree.lock)
        for tree, (divided, making) in zip(trees, wanted, strict=True):
            tree.divide(divided)
            tree.cells.make(making, rows, partial(tree.added_up, rows, bins))
        asked = []
        for of in nodes:
            pairs = trees[of.tree].cells.pairs(rows.adds, {of.node: of.chosen})
            asked.append(AskedSums(pairs[of.node], of.draws))
        blinded = blinded_of(rows, packing, asked) if asked else None
        for tree, (_, making) in zip(trees, wanted, strict=True):
            tree.cells.keep(making.kept)
    return blinded


def blinded_of(
    rows: LatticeRows, packing: PackingKey | None, asked: Sequence[AskedSums]
) -> Blinded[Any]:
    """Answers to sums of which the cells are at hand."""
    if packing is not None:
        return rows.key.packed(asked, packing, rows.workers)
    [some] = asked
    return rows.key.vectors(some, rows.workers)


def join_answers(*given: Any) -> Answers:
    """Return what two workers have made; they stand last."""
    a, b = given[-2:]
    return a.joined(b) if a and b else a or b


@dataclass(frozen=True, eq=False)
class LatticeTree(TreeCells):
    """A tree whose cells lie with workers, by columns."""

    adding: AddingTree[LatticeSums]
    secrets: Secrets
    _seeds: dict[int, ByteArray] = field(default_factory=dict, repr=False)

    def sums(self, making: Making, chosen: Mapping[int, Chosen]) -> Mapping[int, LatticeNodeSums]:
        """See `TreeCells`; made when they are released."""
        return {
            node: LatticeNodeSums(self, making, node, of, np.arange(len(of.first)))
            for node, of in chosen.items()
        }

    def seeds(self, number: int) -> ByteArray:
        """Return the secret of each column as tree `number` of the model; see `seeds_of`."""
        if number not in self._seeds:
            columns = len(self.adding.numbers.n_bins)
            self._seeds[number] = seeds_of(self.secrets, number, columns)
        return self._seeds[number]

    def part(self, worker: int, chosen: Chosen) -> tuple[Indices, Indices, Chosen]:
        """Return which of some sums a worker has, their columns, and them by the worker's cells."""
        starts, used = self.adding.numbers.starts, self.adding.shares[worker].used
        first_group = starts[-1] + np.cumsum([0, *(len(counts) for _, counts in chosen.groups)])
        of_groups = [int(np.searchsorted(starts, at, "right")) - 1 for at, _ in chosen.groups]
        is_group = chosen.first >= starts[-1]
        column = np.searchsorted(starts, chosen.first, "right") - 1
        if of_groups:
            place = np.searchsorted(first_group, chosen.first[is_group], "right") - 1
            column[is_group] = np.array(of_groups)[place]
        begin, stop = used.start, used.stop
        mine = np.flatnonzero((column >= begin) & (column < stop))
        low, high = starts[begin], starts[stop]
        inside = [number for number, c in enumerate(of_groups) if begin <= c < stop]
        behind = first_group[inside[0]] if inside else 0
        first, second = chosen.first[mine], chosen.second[mine]
        return (
            mine,
            column[mine],
            Chosen(
                np.where(is_group[mine], first - behind + high - low, first - low),
                np.where(second < 0, -1, second - low),
                [(chosen.groups[n][0] - int(low), chosen.groups[n][1]) for n in inside],
            ),
        )


@dataclass(frozen=True, eq=False)
class LatticeNodeSums:
    """Sums of a node whose cells lie with workers."""

    tree: LatticeTree
    making: Making  # that of all nodes asked for together
    node: int
    chosen: Chosen
    numbers: Indices  # in canonical order

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: slice | Indices) -> LatticeNodeSums:
        """Return those at these places."""
        return replace(self, chosen=self.chosen.part(index), numbers=self.numbers[index])


def seeds_of(secrets: Secrets, tree: int, columns: int) -> ByteArray:
    """A secret for each column of one tree, uint8 (columns, 32)."""
    of_tree = secrets.child("lattice answers", tree)
    drawn = [of_tree.derive("column", column) for column in range(columns)]
    return np.frombuffer(b"".join(drawn), np.uint8).reshape(-1, SEED_BYTES)
