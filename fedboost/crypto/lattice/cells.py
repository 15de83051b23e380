"""Rows and their sums at a host: additions of contiguous windows, and nothing else.

Coefficient i of a·s is the inner product of s, highest coefficient first, with row i's window:

    E = [−a_0 … −a_{N−1}, a_0 … a_{N−1}]        window of row i = E[i + 1 : i + 1 + N]

So a cell, which adds up rows of any blocks, is the sum of their windows (16 KB for `lattice`)
and of their b: one LWE ciphertext per output, all with the same vector. Sums wrap modulo 2^64 and
are cut to q at the end.

Memory: cells take 8·(N + outputs) bytes each, rows 16 + 8·outputs. A host adds up many columns or
nodes in parts (`HostTreeBatch.batches`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Index, Pairs
from fedboost.crypto.lattice.dense_sums import add_dense
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.words import words_of
from fedboost.crypto.shapes import check_cells, check_segments
from fedboost.ground.arrays import Words
from fedboost.ground.errors import ProtocolError
from fedboost.ground.kernels import kernel
from fedboost.ground.mapped import array_beside
from fedboost.ground.workers import Serial, Workers

CELLS_MOST = 1 << 18  # at once: four gigabytes of `lattice`
TOGETHER, FOUR = 8, 4  # windows added to a cell in one pass over it; and of a rest
ROWS_EACH = 1 << 11  # rows added in all columns before the next ones

CellIndices = NDArray[np.int32]


@dataclass(frozen=True, repr=False, eq=False)
class LatticeSums:
    """Sums of rows: never on the wire, for they show which rows they add up."""

    parameters: LatticeParameters
    vectors: Words  # (n, N) below q
    scalars: Words  # (n, outputs) below q

    @classmethod
    def concat(cls, parts: Sequence[LatticeSums]) -> LatticeSums:
        """Join all parts, one after the other; at least one."""
        vectors = np.concatenate([part.vectors for part in parts])
        scalars = np.concatenate([part.scalars for part in parts])
        return cls(parts[0].parameters, vectors, scalars)

    def joined(self, others: Sequence[LatticeSums]) -> LatticeSums:
        """Return these and all the others, one after the other."""
        return LatticeSums.concat([self, *others])

    def replaced(self, indices: NDArray[np.integer], values: LatticeSums) -> LatticeSums:
        """Return a copy with the given values at these indices."""
        vectors, scalars = self.vectors.copy(), self.scalars.copy()
        vectors[indices], scalars[indices] = values.vectors, values.scalars
        return LatticeSums(self.parameters, vectors, scalars)

    @property
    def outputs(self) -> int:
        """Number of values in a sum."""
        return self.scalars.shape[1]

    def segment_sum(
        self, rows: NDArray[np.integer], cells: CellIndices, n_cells: int
    ) -> LatticeSums:
        """Add cell `rows[i]` of these into each cell of `cells[i]`; see `api.Adder`."""
        check_cells(rows, cells, n_cells)
        sums = [np.zeros((n_cells, part.shape[1]), np.uint64) for part in self._both_arrays]
        for part, total in zip(self._both_arrays, sums, strict=True):
            for column in cells.T:
                _gather_sums(part, rows[column >= 0].astype(np.int64), column[column >= 0], total)
        return LatticeSums(self.parameters, *(total & self.parameters.mask for total in sums))

    def add(self, other: LatticeSums) -> LatticeSums:
        """Return self[i] + other[i]; a ProtocolError unless there are as many of both."""
        self._check_pairs(other)
        sums = [a + b for a, b in zip(self._both_arrays, other._both_arrays, strict=True)]
        return LatticeSums(self.parameters, *(part & self.parameters.mask for part in sums))

    def subtract(self, other: LatticeSums) -> LatticeSums:
        """Return self[i] − other[i]; a ProtocolError unless there are as many of both."""
        self._check_pairs(other)
        less = [a - b for a, b in zip(self._both_arrays, other._both_arrays, strict=True)]
        return LatticeSums(self.parameters, *(part & self.parameters.mask for part in less))

    def prefix_sums(self, offsets: NDArray[np.integer]) -> LatticeSums:
        """Return running sums within each segment self[offsets[s]:offsets[s + 1]].

        A ProtocolError unless the offsets span all cells.
        """
        sums = LatticeSums(self.parameters, self.vectors.copy(), self.scalars.copy())
        sums.run(offsets)
        return sums

    def run(self, offsets: NDArray[np.integer], workers: Workers | None = None) -> None:
        """Replace the sums by their running sums; see `prefix_sums`."""
        check_segments(self, offsets)
        starts = np.asarray(offsets, np.int64)
        self._change_all(_run_sums, workers, starts, starts)

    def add_in_place(self, other: LatticeSums) -> None:
        """Add other[i] to self[i] in place; a ProtocolError unless there are as many of both."""
        self._check_pairs(other)
        for total, more in zip(self._both_arrays, other._both_arrays, strict=True):
            np.add(total, more, out=total)
            np.bitwise_and(total, self.parameters.mask, out=total)

    def subtract_in_place(self, other: LatticeSums, workers: Workers | None = None) -> None:
        """Subtract other[i] from self[i] in place; a ProtocolError unless there are as many of
        both.
        """
        self._check_pairs(other)
        self._change_all(_take_off, workers, *other._both_arrays)

    def _change_all(
        self,
        kernel: Callable[..., None],
        workers: Workers | None,
        of_vectors: NDArray[Any],
        of_scalars: NDArray[Any],
    ) -> None:
        """Change all numbers in place; the kernel gets `of_vectors` with vectors, `of_scalars` with
        scalars.
        """
        workers, mask = workers or Serial(), self.parameters.mask
        tasks = [
            (self.vectors, of_vectors, mask, first, stop)
            for first, stop in _coefficient_shares(self.vectors.shape[1], workers)
        ]
        workers.map(kernel, tasks)
        kernel(self.scalars, of_scalars, mask, 0, self.outputs)

    @property
    def _both_arrays(self) -> tuple[Words, Words]:
        return self.vectors, self.scalars

    def _check_pairs(self, other: LatticeSums) -> None:
        if self.vectors.shape != other.vectors.shape or self.outputs != other.outputs:
            raise ProtocolError(f"{len(self)} and {len(other)} cells are no pairs")

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: Index) -> LatticeSums:
        """Return the sums at these indices; a copy unless `index` is a slice."""
        return LatticeSums(self.parameters, self.vectors[index], self.scalars[index])

    def __repr__(self) -> str:
        return f"Cells({len(self)} × ({self.vectors.shape[1]} + {self.outputs}))"


class CellAdds:
    """Sums of cells; implements `api.Adder`."""

    def segment_sum(
        self, held: LatticeSums, rows: NDArray[np.integer], cells: CellIndices, n_cells: int
    ) -> LatticeSums:
        """See `LatticeSums.segment_sum`."""
        return held.segment_sum(rows, cells, n_cells)

    def add(self, a: LatticeSums, b: LatticeSums) -> LatticeSums:
        """Return a[i] + b[i]."""
        return a.add(b)

    def subtract(self, a: LatticeSums, b: LatticeSums) -> LatticeSums:
        """Return a[i] − b[i]."""
        return a.subtract(b)

    def prefix_sums(self, cells: LatticeSums, offsets: NDArray[np.integer]) -> LatticeSums:
        """Return running sums within each segment."""
        return cells.prefix_sums(offsets)

    def sum_pairs(self, pairs: Pairs[LatticeSums]) -> LatticeSums:
        """Return the sums of the pairs."""
        cells = pairs.a
        vectors = np.empty((len(pairs), cells.vectors.shape[1]), np.uint64)
        scalars = np.empty((len(pairs), cells.outputs), np.uint64)
        fill_pairs(pairs, cells.parameters.mask, vectors, scalars)
        return LatticeSums(cells.parameters, vectors, scalars)


def fill_pairs(pairs: Pairs[LatticeSums], mask: np.uint64, vectors: Words, scalars: Words) -> None:
    """Write the sums of pairs, cut to the bits of a mask, into uint64 (n, N) and (n, outputs)."""
    cells, other = pairs.a, pairs.b
    _add_pairs(cells.vectors, pairs.first, other.vectors, pairs.second, mask, vectors)
    _add_pairs(cells.scalars, pairs.first, other.scalars, pairs.second, mask, scalars)


@dataclass(frozen=True, repr=False, eq=False)
class EncryptedRows:
    """A tree's encrypted rows as a host holds them."""

    tree: TreePolynomials
    numbers: Words  # (n, outputs): b, below q
    windows: Words  # (blocks, 2·N): E of each block

    @classmethod
    def received(cls, tree: TreePolynomials, data: bytes, shape: tuple[int, int]) -> EncryptedRows:
        """Read the output of `TreeSecret.encrypt`, all blocks one after the other, of (rows,
        outputs).

        A PeerError unless the size is right and every number below q.
        """
        return cls.of(tree, words_of(data, shape, tree.parameters, "rows"))

    @classmethod
    def of(cls, tree: TreePolynomials, numbers: Words) -> EncryptedRows:
        """Return rows with checked b, uint64 (n, outputs)."""
        ring = tree.parameters.ring
        windows = array_beside(numbers, (-(-len(numbers) // ring), 2 * ring), np.uint64)
        for block in range(len(windows)):
            windows[block, ring:] = tree.of_rows(block)
            np.negative(windows[block, ring:], out=windows[block, :ring])
        return cls(tree, numbers, windows)

    def __len__(self) -> int:
        return len(self.numbers)

    def segment_sum(
        self,
        rows: NDArray[np.integer],
        cells: CellIndices,
        n_cells: int,
        workers: Workers | None = None,
    ) -> LatticeSums:
        """Add row `rows[i]` into each cell of `cells[i]`; see `api.Adder`.

        Fastest with `rows` ascending, and columns that have their own cells. The sums are the same
        with any `workers`: threads, which share rows and sums.
        """
        self._check_rows(rows, cells, n_cells)
        parameters, workers = self.tree.parameters, workers or Serial()
        chosen = np.ascontiguousarray(rows, dtype=np.int64)
        vectors = np.zeros((n_cells, parameters.ring), dtype=np.uint64)
        scalars = np.zeros((n_cells, self.numbers.shape[1]), dtype=np.uint64)
        bits = parameters.modulus_bits
        for part in add_dense(self.windows, bits, chosen, cells, vectors, workers):
            # Each worker adds up all rows, but only so many coefficients of their windows.
            tasks = [
                (self.windows, chosen[part], cells[part], vectors, first, stop)
                for first, stop in _coefficient_shares(parameters.ring, workers)
            ]
            workers.map(sum_windows, tasks)
        _add_numbers(self.numbers, chosen, cells, scalars)
        vectors &= parameters.mask
        scalars &= parameters.mask
        return LatticeSums(parameters, vectors, scalars)

    def _check_rows(self, rows: NDArray[np.integer], cells: CellIndices, n_cells: int) -> None:
        fits = cells.dtype == np.int32 and cells.ndim == 2 and len(rows) == len(cells)
        if not fits or not 0 <= n_cells <= CELLS_MOST or (cells.size and cells.max() >= n_cells):
            raise ProtocolError(
                f"{len(rows)} rows do not go into {n_cells} cells by {cells.dtype} {cells.shape}"
            )
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
            raise ProtocolError(f"rows to be added up are not among the {len(self)} there are")

    def __reduce__(self) -> tuple[Any, ...]:
        return EncryptedRows.of, (self.tree, self.numbers)  # windows are derived, not carried

    def __repr__(self) -> str:
        return f"Rows({len(self)} × {self.numbers.shape[1]})"


def _coefficient_shares(ring: int, workers: Workers) -> Iterator[tuple[int, int]]:
    """Yield the first coefficient of each worker's share, and the one behind it."""
    return itertools.pairwise(np.linspace(0, ring, workers.count + 1).astype(int).tolist())


@kernel
def sum_windows(
    windows: Words, rows: NDArray[np.int64], cells: CellIndices, sums: Words, first: int, stop: int
) -> None:
    """Add coefficients `first` to `stop` of all windows to uint64 (n_cells, N), modulo 2^64.

    Rows of one cell wait until there are TOGETHER of them, so that a cell is read and written once
    for so many additions. Windows of ROWS_EACH rows stay in a cache.
    """
    ring, flat = windows.shape[1] // 2, windows.reshape(-1)
    waiting = np.empty((sums.shape[0], TOGETHER), dtype=np.int64)
    count = np.zeros(sums.shape[0], dtype=np.int64)
    for begin in range(0, len(rows), ROWS_EACH):
        for column in range(cells.shape[1]):
            for i in range(begin, min(len(rows), begin + ROWS_EACH)):
                cell = cells[i, column]
                if cell >= 0:
                    row = rows[i]
                    waiting[cell, count[cell]] = row // ring * ring + row + 1 + first
                    count[cell] += 1
                    if count[cell] == TOGETHER:
                        _add_eight(flat, waiting[cell], sums[cell, first:stop])
                        count[cell] = 0
    for cell in range(len(count)):
        place, total = 0, sums[cell, first:stop]
        if count[cell] >= FOUR:
            _add_four(flat, waiting[cell], total)
            place = FOUR
        for rest in range(place, count[cell]):
            _add_one(flat, waiting[cell, rest], total)


@kernel
def _add_eight(flat: Words, starts: NDArray[np.int64], total: Words) -> None:
    width = len(total)
    a = flat[starts[0] : starts[0] + width]
    b = flat[starts[1] : starts[1] + width]
    c = flat[starts[2] : starts[2] + width]
    d = flat[starts[3] : starts[3] + width]
    e = flat[starts[4] : starts[4] + width]
    f = flat[starts[5] : starts[5] + width]
    g = flat[starts[6] : starts[6] + width]
    h = flat[starts[7] : starts[7] + width]
    for w in range(width):
        total[w] += ((a[w] + b[w]) + (c[w] + d[w])) + ((e[w] + f[w]) + (g[w] + h[w]))


@kernel
def _add_four(flat: Words, starts: NDArray[np.int64], total: Words) -> None:
    width = len(total)
    a = flat[starts[0] : starts[0] + width]
    b = flat[starts[1] : starts[1] + width]
    c = flat[starts[2] : starts[2] + width]
    d = flat[starts[3] : starts[3] + width]
    for w in range(width):
        total[w] += (a[w] + b[w]) + (c[w] + d[w])


@kernel
def _add_one(flat: Words, start: int, total: Words) -> None:
    a = flat[start : start + len(total)]
    for w in range(len(total)):
        total[w] += a[w]


@kernel
def _add_numbers(
    numbers: Words, rows: NDArray[np.int64], cells: CellIndices, scalars: Words
) -> None:
    for i in range(len(rows)):
        for column in range(cells.shape[1]):
            cell = cells[i, column]
            if cell >= 0:
                for j in range(numbers.shape[1]):
                    scalars[cell, j] += numbers[rows[i], j]


@kernel
def _gather_sums(part: Words, rows: NDArray[np.int64], cells: CellIndices, sums: Words) -> None:
    for i in range(len(rows)):
        for k in range(part.shape[1]):
            sums[cells[i], k] += part[rows[i], k]


@kernel
def _run_sums(
    sums: Words, offsets: NDArray[np.int64], mask: np.uint64, first: int, stop: int
) -> None:
    for segment in range(len(offsets) - 1):
        for i in range(offsets[segment] + 1, offsets[segment + 1]):
            total, before = sums[i, first:stop], sums[i - 1, first:stop]
            for k in range(len(total)):
                total[k] = (total[k] + before[k]) & mask


@kernel
def _take_off(sums: Words, others: Words, mask: np.uint64, first: int, stop: int) -> None:
    for i in range(sums.shape[0]):
        total, other = sums[i, first:stop], others[i, first:stop]
        for k in range(len(total)):
            total[k] = (total[k] - other[k]) & mask


@kernel
def _add_pairs(
    a: Words,
    first: NDArray[np.int64],
    b: Words,
    second: NDArray[np.int64],
    mask: np.uint64,
    sums: Words,
) -> None:
    for i in range(len(first)):
        total = a[first[i]]
        if second[i] < 0:
            for k in range(a.shape[1]):
                sums[i, k] = total[k] & mask
        else:
            other = b[second[i]]
            for k in range(a.shape[1]):
                sums[i, k] = (total[k] + other[k]) & mask
