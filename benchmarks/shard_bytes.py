"""What travels between a host and workers that add up its rows: bytes of rows, tasks and sums.

Weighed in one process, by what each part comes to as bytes; content does not matter to that.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness import Shown
from fedboost.crypto import paillier
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.shards import Embedded, MakePart
from fedboost.crypto.workers import Serial
from fedboost.encrypted.adding import AddingRows, KeyedRows
from fedboost.encrypted.cells import DenseCells
from fedboost.encrypted.ring import RingRowSums

T = TypeVar("T")

ROWS, COLUMNS, BINS, NODES, SHARDS = 16_384, 10, 32, 8, 2


class Weighing(Embedded):
    """Shards of this process that weigh what would travel."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.given = self.asked = self.answered = 0

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        """See `Shards`."""
        made = super().keep(parts, make)
        self.given += sum(map(weight, made))
        return made

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[Any],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """See `Shards`."""
        results = super().run(kernel, kept, tasks, join)
        self.asked += sum(map(weight, tasks))
        self.answered += sum(map(weight, results))
        return results


@dataclass(frozen=True)
class Carried:
    """Bytes of a tree and of a layer in which half of the rows are added up."""

    scheme: str
    row_bytes: float  # to the shards, once a tree, with the bins
    layer_row_bytes: float  # to the shards, of each row that is added up
    cell_bytes: float  # back, of each cell of each node

    def __iter__(self) -> Iterator[tuple[str, float]]:
        yield "row_bytes", self.row_bytes
        yield "layer_row_bytes", self.layer_row_bytes
        yield "cell_bytes", self.cell_bytes


def weight(what: object) -> int:
    """Return how many bytes something takes where it travels."""
    return len(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def measure() -> list[Carried]:
    """A scheme that cuts columns, and one that cuts rows."""
    return [_carried("lattice", _lattice), _carried("paillier", _paillier)]


def _lattice(shards: Weighing) -> AddingRows[Any]:
    own = parameters.named("lattice")
    tree = TreePolynomials(own, Origin(bytes(32), bytes(32), (bytes(32),)), 0)
    numbers = np.random.default_rng(1).integers(0, 1 << 30, (ROWS, 2)).astype(np.uint64)
    return AddingRows.whole(shards, RingRowSums(EncryptedRows.of(tree, numbers), Serial()))


def _paillier(shards: Weighing) -> AddingRows[Any]:
    key = paillier.load_public(paillier.generate(2048, Serial()).public_bytes(), 2048, Serial())
    data = np.random.default_rng(1).integers(0, 256, (ROWS, 1, key.width)).astype(np.uint8)
    data[:, :, 0] = 0

    def rows(first: int, stop: int) -> KeyedRows:
        return KeyedRows(key, Ciphertexts(data[first:stop]))

    return AddingRows.cut(shards, ROWS, rows)


def _carried(scheme: str, given: Callable[[Weighing], AddingRows[Any]]) -> Carried:
    draw, shards = np.random.default_rng(2), Weighing(SHARDS)
    bins = draw.integers(0, BINS, (ROWS, COLUMNS)).astype(np.uint8)
    cells = DenseCells(bins, np.full(COLUMNS, BINS, np.int64), leave_out=False)
    tree = given(shards).take(cells, np.arange(ROWS))
    half = np.arange(0, ROWS, 2, dtype=np.int32)
    tree.added_up(np.array_split(half, NODES))
    n_cells = NODES * cells.n_cells
    return Carried(scheme, shards.given / ROWS, shards.asked / len(half), shards.answered / n_cells)


def table(schemes: Sequence[Carried]) -> Shown:
    """One row for each scheme."""
    heads = ("scheme", "a row, once a tree", "a row added up", "a cell back")
    rows = [(one.scheme, *(f"{value:,.0f} B" for _, value in one)) for one in schemes]
    title = f"To and from {SHARDS} workers, {COLUMNS} columns of {BINS} bins"
    return Shown(title, heads, rows)
