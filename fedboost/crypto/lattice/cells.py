"""Rows and their sums at a host: additions of contiguous windows, and nothing else.

Coefficient i of a·s is the inner product of s, highest coefficient first, with row i's window:

    E = [−a_0 … −a_{N−1}, a_0 … a_{N−1}]        window of row i = E[i + 1 : i + 1 + N]

So a cell, which adds up rows of any blocks, is the sum of their windows (16 KB for `lattice`)
and of their b: one LWE ciphertext per output, all with the same vector. Sums wrap modulo 2^64 and
are cut to q at the end.

Memory: `segment_sums` is a stream of one column after the other, each of n_cells · 8·(N + outputs)
octets, made when it is asked for; turn a column into answers (or keep what its siblings are
subtracted from) before asking for the next. Rows take 16 + 8·outputs octets each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedboost.crypto.lattice.parameters import Parameters
from fedboost.crypto.lattice.polynomials import Tree
from fedboost.crypto.lattice.words import Words, words_of
from fedboost.crypto.workers import Serial, Workers
from fedboost.errors import ProtocolError

CELLS_MOST = 1 << 16  # of a column at once: one gigabyte of `lattice`
TOGETHER = 4  # windows added to a cell in one go over it

CellNumbers = NDArray[np.int32]
Index = slice | NDArray[np.integer] | NDArray[np.bool_]


@dataclass(frozen=True, repr=False, eq=False)
class Cells:
    """Sums of rows: never on the wire, for they show which rows they add up."""

    parameters: Parameters
    vectors: Words  # (n, N) below q
    scalars: Words  # (n, outputs) below q

    @classmethod
    def concat(cls, parts: Sequence[Cells]) -> Cells:
        """All parts, one after the other; at least one."""
        vectors = np.concatenate([part.vectors for part in parts])
        scalars = np.concatenate([part.scalars for part in parts])
        return cls(parts[0].parameters, vectors, scalars)

    @property
    def outputs(self) -> int:
        """Numbers in a sum."""
        return self.scalars.shape[1]

    def subtract(self, other: Cells) -> Cells:
        """self[i] − other[i]; a ProtocolError unless there are as many of both."""
        if self.vectors.shape != other.vectors.shape or self.outputs != other.outputs:
            raise ProtocolError(f"{len(self)} and {len(other)} cells are no pairs")
        mask = self.parameters.mask
        return Cells(
            self.parameters,
            (self.vectors - other.vectors) & mask,
            (self.scalars - other.scalars) & mask,
        )

    def prefix_sums(self, offsets: NDArray[np.integer]) -> Cells:
        """Running sums within each segment self[offsets[s]:offsets[s + 1]].

        A ProtocolError unless the offsets span all cells.
        """
        whole = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(self)
        if not whole or (np.diff(offsets) < 0).any():
            raise ProtocolError(f"the segments do not span the {len(self)} cells")
        sums = [self.vectors.copy(), self.scalars.copy()]
        for part in sums:
            for first, stop in itertools.pairwise(offsets):
                _run(part[first:stop], self.parameters.mask)
        return Cells(self.parameters, *sums)

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: Index) -> Cells:
        """Those at these places; a copy unless `index` is a slice."""
        return Cells(self.parameters, self.vectors[index], self.scalars[index])

    def __repr__(self) -> str:
        return f"Cells({len(self)} × ({self.vectors.shape[1]} + {self.outputs}))"


@dataclass(frozen=True, repr=False, eq=False)
class Rows:
    """A tree's encrypted rows as a host holds them."""

    tree: Tree
    numbers: Words  # (n, outputs): b, below q
    windows: Words  # (blocks, 2·N): E of each block

    @classmethod
    def received(cls, tree: Tree, octets: bytes, shape: tuple[int, int]) -> Rows:
        """What `TreeSecret.encrypt` gave, all blocks one after the other, of (rows, outputs).

        A PeerError unless the size is right and every number below q.
        """
        numbers = words_of(octets, shape, tree.parameters, "rows")
        ring = tree.parameters.ring
        windows = np.empty((-(-shape[0] // ring), 2 * ring), dtype=np.uint64)
        for block in range(len(windows)):
            windows[block, ring:] = tree.of_rows(block)
            np.negative(windows[block, ring:], out=windows[block, :ring])
        return cls(tree, numbers, windows)

    def __len__(self) -> int:
        return len(self.numbers)

    def segment_sums(
        self,
        rows: NDArray[np.integer],
        cells: CellNumbers,
        n_cells: int,
        workers: Workers | None = None,
    ) -> Iterator[Cells]:
        """One `Cells` of n_cells for each column of `cells`, one after the other.

        `rows` (n,) are row numbers, fastest ascending; `cells` int32 (n, columns) are below
        `n_cells`, −1 adds nothing. A cell that nothing fell into is an encryption of zero. The
        sums are the same whatever `workers` there are; threads share the rows, processes would
        copy them. A ProtocolError for rows and cells that are not there.
        """
        self._check(rows, cells, n_cells)
        chosen = np.ascontiguousarray(rows, dtype=np.int64)
        for column in range(cells.shape[1]):
            own = np.ascontiguousarray(cells[:, column])
            yield self._column(chosen, own, n_cells, workers or Serial())

    def _column(
        self, rows: NDArray[np.int64], cells: CellNumbers, n_cells: int, workers: Workers
    ) -> Cells:
        parameters = self.tree.parameters
        # Each worker adds up all rows, but only so many coefficients of their windows.
        cuts = np.linspace(0, parameters.ring, workers.count + 1).astype(int).tolist()
        tasks = [
            (self.windows, rows, cells, n_cells, slice(first, stop))
            for first, stop in itertools.pairwise(cuts)
        ]
        parts = workers.map(sum_windows, tasks)
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        vectors &= parameters.mask
        scalars = np.zeros((n_cells, self.numbers.shape[1]), dtype=np.uint64)
        _add_numbers(self.numbers, rows, cells, scalars)
        scalars &= parameters.mask
        return Cells(parameters, vectors, scalars)

    def _check(self, rows: NDArray[np.integer], cells: CellNumbers, n_cells: int) -> None:
        fits = cells.dtype == np.int32 and cells.ndim == 2 and len(rows) == len(cells)
        if not fits or not 0 <= n_cells <= CELLS_MOST or (cells.size and cells.max() >= n_cells):
            raise ProtocolError(
                f"{len(rows)} rows do not go into {n_cells} cells by {cells.dtype} {cells.shape}"
            )
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise ProtocolError(f"rows to be added up are not among the {len(self)} there are")

    def __repr__(self) -> str:
        return f"Rows({len(self)} × {self.numbers.shape[1]})"


def sum_windows(
    windows: Words, rows: NDArray[np.int64], cells: CellNumbers, n_cells: int, part: slice
) -> Words:
    """Coefficients `part` of the sums of windows, uint64 (n_cells, part), modulo 2^64."""
    sums = np.zeros((n_cells, part.stop - part.start), dtype=np.uint64)
    _add_windows(windows, rows, cells, sums, part.start)
    return sums


@njit(nogil=True, cache=True)
def _add_windows(
    windows: Words, rows: NDArray[np.int64], cells: CellNumbers, sums: Words, first: int
) -> None:
    """Adds each row's window, from coefficient `first` on, to its cell.

    Rows of one block and cell wait until there are TOGETHER of them, so that a cell is read and
    written once for so many additions.
    """
    ring = windows.shape[1] // 2
    waiting = np.empty((sums.shape[0], TOGETHER), dtype=np.int64)
    count = np.zeros(sums.shape[0], dtype=np.int64)
    i = 0
    while i < len(rows):
        block = rows[i] // ring
        begun = i
        own = windows[block]
        while i < len(rows) and rows[i] // ring == block:
            cell = cells[i]
            if cell >= 0:
                waiting[cell, count[cell]] = rows[i] - block * ring + 1 + first
                count[cell] += 1
                if count[cell] == TOGETHER:
                    _add_four(own, waiting[cell], sums[cell])
                    count[cell] = 0
            i += 1
        for j in range(begun, i):
            cell = cells[j]
            if cell >= 0 and count[cell] > 0:
                for place in range(count[cell]):
                    _add_one(own, waiting[cell, place], sums[cell])
                count[cell] = 0


@njit(nogil=True, cache=True)
def _add_four(own: Words, starts: NDArray[np.int64], total: Words) -> None:
    width = len(total)
    a = own[starts[0] : starts[0] + width]
    b = own[starts[1] : starts[1] + width]
    c = own[starts[2] : starts[2] + width]
    d = own[starts[3] : starts[3] + width]
    for w in range(width):
        total[w] += (a[w] + b[w]) + (c[w] + d[w])


@njit(nogil=True, cache=True)
def _add_one(own: Words, start: int, total: Words) -> None:
    a = own[start : start + len(total)]
    for w in range(len(total)):
        total[w] += a[w]


@njit(nogil=True, cache=True)
def _add_numbers(
    numbers: Words, rows: NDArray[np.int64], cells: CellNumbers, scalars: Words
) -> None:
    for i in range(len(rows)):
        if cells[i] >= 0:
            for j in range(numbers.shape[1]):
                scalars[cells[i], j] += numbers[rows[i], j]


@njit(nogil=True, cache=True)
def _run(part: Words, mask: np.uint64) -> None:
    for i in range(1, part.shape[0]):
        for k in range(part.shape[1]):
            part[i, k] = (part[i, k] + part[i - 1, k]) & mask
