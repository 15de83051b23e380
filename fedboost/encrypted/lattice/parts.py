"""Cells of lattice trees, which stay with the workers that have their columns.

A worker makes the cells of its columns, blinds their answers and packs these into slots that the
host says; it returns the parts of answers. It gets a secret of each of its columns, for one tree. A
worker that has lost cells makes them again from rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.cells import CellAdds, EncryptedRows, LatticeSums
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.released import Blinded
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.secrets import SEED_BYTES, Secrets
from fedboost.encrypted.cells.node_cells import RowSums
from fedboost.encrypted.cells.request import CandidateTerms
from fedboost.encrypted.cells.row_cells import BinnedPart
from fedboost.ground.workers import Serial, Workers

WorkerAnswers = Blinded[Any] | None  # None: the worker had no request


@dataclass(frozen=True)
class LatticeRows(RowSums[LatticeSums]):
    """Rows and the keys of their trees; a pickled copy has no threads."""

    encrypted: EncryptedRows
    key: TreeKey
    workers: Workers

    @property
    def adds(self) -> CellAdds:
        """The adder, whose additions wrap."""
        return CellAdds()

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> LatticeSums:
        """Return sums of windows."""
        return self.encrypted.segment_sum(rows, cells, n_cells, self.workers)

    def add_cells(self, cells: LatticeSums, others: LatticeSums) -> LatticeSums:
        """See `RowSums`; in place."""
        cells.add_in_place(others)
        return cells

    def running_sums(self, cells: LatticeSums, offsets: NDArray[np.integer]) -> LatticeSums:
        """See `RowSums`; in place."""
        cells.run(offsets, self.workers)
        return cells

    def siblings(
        self, parents: Sequence[LatticeSums], others: Sequence[LatticeSums]
    ) -> list[LatticeSums]:
        """See `RowSums`; in place."""
        for parent, other in zip(parents, others, strict=True):
            parent.subtract_in_place(other, self.workers)
        return [*parents]

    def __reduce__(self) -> tuple[Any, ...]:
        return LatticeRows, (self.encrypted, self.key, Serial())


def make_answers(
    rows: LatticeRows, bins: BinnedPart, packing: PackingKey | None, *rest: Any
) -> WorkerAnswers:
    """Return answers from a worker's own cells; `rest` has the worker's part of each tree, then the
    divisions of its nodes, then its request. Without packing, the request is of one node.
    """
    *trees, divided, requests = rest
    with ExitStack() as locked:
        for tree in trees:
            locked.enter_context(tree.lock)
        asked, sums = list[CandidateTerms](), list[Pairs[LatticeSums]]()
        for tree, bits, request in zip(trees, divided, requests, strict=True):
            tree.divide(bits)
            sums += tree.sums(request, rows, bins)
            asked += request.sums
        return blinded_of(rows, packing, asked, sums) if asked else None


def blinded_of(
    rows: LatticeRows,
    packing: PackingKey | None,
    asked: Sequence[CandidateTerms],
    sums: Sequence[Pairs[LatticeSums]],
) -> Blinded[Any]:
    """Return answers to sums whose cells are at hand."""
    randomness = [terms.randomness for terms in asked if terms.randomness is not None]
    places = np.concatenate([terms.places for terms in asked])
    if packing is not None:
        nodes = [*zip(sums, randomness, strict=True)]
        return rows.key.packed(nodes, places, packing, rows.workers)
    [some], [drawn] = sums, randomness
    return rows.key.vectors(some, drawn, places, rows.workers)


def join_answers(*given: Any) -> WorkerAnswers:
    """Return the joined answers of two workers, which are the last arguments."""
    a, b = given[-2:]
    return a.joined(b) if a and b else a or b


def seeds_of(secrets: Secrets, tree: int, columns: int) -> ByteArray:
    """Return a secret for each column of one tree, uint8 (columns, 32)."""
    of_tree = secrets.child("lattice answers", tree)
    drawn = [of_tree.derive("column", column) for column in range(columns)]
    return np.frombuffer(b"".join(drawn), np.uint8).reshape(-1, SEED_BYTES)
