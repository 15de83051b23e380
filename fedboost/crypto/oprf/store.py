"""An oblivious key-value store: each key reads its value from rows, and other keys read noise.

```
segment 0 | segment 1 | segment 2 | 64 dense rows
    a     ^     b     ^     c     ^ the rows of the key's mask  =  the key's value
```
A key has one place in each segment. Keys alone at a place are removed, and set last first in the
end (peeling); elimination with the dense rows solves the remaining keys. All other rows are
random, so with random values the whole store is random for any keys.
(Garimella, Pinkas, Rosulek, Trieu, Yanai, 2021; the three segments as in binary fuse filters.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.sizes import DENSE_ROWS
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError
from fedboost.ground.kernels import kernel

CORE_MAX = 4000  # keys to eliminate: more remain only if keys were not drawn at random


@dataclass(frozen=True, repr=False, eq=False)
class StoreKeys:
    """Keys of a store, made from their digests."""

    places: NDArray[np.int32]  # (n, 3): one row in each segment
    masks: Words  # (n,): a bit for each dense row
    sparse_rows: int  # rows of the three segments

    def __len__(self) -> int:
        return len(self.masks)


def encode_store(keys: StoreKeys, values: Words, rows: Words) -> None:
    """Write rows, uint64 (m, 2) and random before, so that each key reads its value, (n, 2).

    A PeerError if no rows do that: with random keys a chance below 2^−40.
    """
    peeled = np.empty((len(keys), 2), np.int32)
    peeled = peeled[: _peel_keys(keys.places, keys.sparse_rows, peeled)]
    if len(peeled) < len(keys):
        core = np.setdiff1d(np.arange(len(keys)), peeled[:, 0])
        _solve_core(keys, core, values, rows)
    dense = np.empty((8, 256, 2), np.uint64)
    _tabulate(rows[keys.sparse_rows : keys.sparse_rows + DENSE_ROWS], dense)
    _substitute(keys.places, keys.masks, values, peeled, dense, rows)


def decode_values(keys: StoreKeys, rows: Words) -> Words:
    """Return the values that keys read, uint64 (n, w), in rows, uint64 (m, w)."""
    values = np.empty((len(keys), rows.shape[1]), np.uint64)
    dense = np.empty((8, 256, rows.shape[1]), np.uint64)
    _tabulate(rows[keys.sparse_rows : keys.sparse_rows + DENSE_ROWS], dense)
    _read_values(keys.places, keys.masks, rows, dense, values)
    return values


def _solve_core(keys: StoreKeys, core: NDArray[np.int64], values: Words, rows: Words) -> None:
    """Set rows so that the keys of the core read their values: elimination over one bit."""
    if len(core) > CORE_MAX:
        raise _no_store()
    sparse = np.unique(keys.places[core])
    names = [*sparse.tolist(), *range(keys.sparse_rows, keys.sparse_rows + DENSE_ROWS)]
    column_of = {row: column for column, row in enumerate(names)}
    reduced: list[tuple[int, int, int]] = []  # pivot, columns, value; no pivot in another's columns
    for key in core.tolist():
        columns = int(keys.masks[key]) << len(sparse)
        for row in keys.places[key].tolist():
            columns ^= 1 << column_of[row]
        value = _as_number(values[key])
        for pivot, known, known_value in reduced:
            if columns >> pivot & 1:
                columns, value = columns ^ known, value ^ known_value
        if not columns:
            raise _no_store()
        new = (columns & -columns).bit_length() - 1
        reduced = [
            (pivot, known ^ columns, known_value ^ value) if known >> new & 1 else kept_row
            for kept_row in reduced
            for pivot, known, known_value in [kept_row]
        ]
        reduced.append((new, columns, value))
    for pivot, columns, value in reduced:
        held, rest = value, columns ^ 1 << pivot
        while rest:
            held ^= _as_number(rows[names[(rest & -rest).bit_length() - 1]])
            rest &= rest - 1
        rows[names[pivot]] = held & (1 << 64) - 1, held >> 64


def _as_number(value: Words) -> int:
    return int(value[0]) | int(value[1]) << 64


def _no_store() -> PeerError:
    return PeerError(
        "the ids fit no store under the keys of this job",
        todo="submit the job again: another draws other keys",
    )


@kernel
def _peel_keys(places: NDArray[np.int32], rows: int, peeled: NDArray[np.int32]) -> int:
    """Return how many keys peel; write each, first to last, with the row that it has alone."""
    degrees = np.zeros(rows, np.uint8)
    sums = np.zeros(rows, np.uint32)  # of the keys left at a row
    for i in range(len(places)):
        for j in range(3):
            degrees[places[i, j]] += 1
            sums[places[i, j]] ^= np.uint32(i)
    queue = np.empty(rows + len(places), np.int32)
    tail = 0
    for row in range(rows):
        if degrees[row] == 1:
            queue[tail] = row
            tail += 1
    head, count = 0, 0
    while head < tail:
        row = queue[head]
        head += 1
        if degrees[row] == 1:
            key = np.int64(sums[row])
            peeled[count, 0], peeled[count, 1] = key, row
            count += 1
            for j in range(3):
                left = places[key, j]
                degrees[left] -= 1
                sums[left] ^= np.uint32(key)
                if degrees[left] == 1:
                    queue[tail] = left
                    tail += 1
    return count


@kernel
def _tabulate(rows: Words, dense: Words) -> None:
    """Write sums of the 64 dense rows by byte of a mask, uint64 (8, 256, w)."""
    width = rows.shape[1]
    for b in range(8):
        for w in range(width):
            dense[b, 0, w] = np.uint64(0)
        for byte in range(1, 256):
            low = 0
            while not (byte >> low) & 1:
                low += 1
            for w in range(width):
                dense[b, byte, w] = dense[b, byte & (byte - 1), w] ^ rows[8 * b + low, w]


@kernel
def _substitute(
    places: NDArray[np.int32],
    masks: Words,
    values: Words,
    peeled: NDArray[np.int32],
    dense: Words,
    rows: Words,
) -> None:
    """Set the row that each peeled key has alone, the last peeled first."""
    for k in range(len(peeled) - 1, -1, -1):
        i, pivot = peeled[k, 0], peeled[k, 1]
        first, second = values[i, 0], values[i, 1]
        for j in range(3):
            row = places[i, j]
            if row != pivot:
                first ^= rows[row, 0]
                second ^= rows[row, 1]
        for b in range(8):
            byte = (masks[i] >> np.uint64(8 * b)) & np.uint64(255)
            first ^= dense[b, byte, 0]
            second ^= dense[b, byte, 1]
        rows[pivot, 0] = first
        rows[pivot, 1] = second


@kernel
def _read_values(
    places: NDArray[np.int32], masks: Words, rows: Words, dense: Words, values: Words
) -> None:
    """Write the value that each key reads."""
    width = rows.shape[1]
    for k in range(len(places)):
        a, b, c = places[k, 0], places[k, 1], places[k, 2]
        for w in range(width):
            values[k, w] = rows[a, w] ^ rows[b, w] ^ rows[c, w]
        for j in range(8):
            byte = (masks[k] >> np.uint64(8 * j)) & np.uint64(255)
            for w in range(width):
                values[k, w] ^= dense[j, byte, w]
