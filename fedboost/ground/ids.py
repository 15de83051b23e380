"""Ids of a table's rows in one buffer: their bytes one after the other, and the offset of each.

A list of Python objects would take twice the memory and a pass of the interpreter over every id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.arrays import Indices
from fedboost.ground.kernels import inlined, kernel
from fedboost.ground.mapped import ROWS_PER_FREE, array_beside, free_pages

if TYPE_CHECKING:
    import hashlib

Bytes = NDArray[np.uint8]
# Table of strings by hash (FNV-1a): half of the hash, and the string's number plus one.
HashTable = NDArray[np.uint64]

IDS_AT_ONCE = 1 << 16  # ids that are Python objects at the same time, or copied to be hashed
LENGTH_BYTES = 4  # of the length before each part of an id, big endian
SORT_WORD_BYTES = np.int64(7)  # of an id in one comparison; an eighth byte counts the bytes left
INSERTION_SORT_MAX = np.int64(48)  # ids that insertion sorts
COPIED_TOGETHER = 64  # strings copied together
IDS_MAX = 1 << 31
LOW = np.uint64(0xFFFFFFFF)
FNV_START, FNV_FACTOR = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@dataclass(frozen=True, eq=False, repr=False)
class EncodedIds(Sequence[bytes]):
    """A sequence of n byte strings: id i is ``data[offsets[i] : offsets[i + 1]]``.

    `data` uint8 (bytes,), `offsets` int64 (n + 1,) ascending from 0 to the size of `data`; both are
    read-only, and may lie in files (`ground.mapped`). Two objects with the same ids are equal; a
    list never equals one.
    """

    data: Bytes
    offsets: Indices

    def __post_init__(self) -> None:
        """Check the invariants and make the arrays read-only."""
        assert self.data.dtype == np.uint8
        assert self.data.flags.c_contiguous
        assert self.offsets.dtype == np.int64
        assert self.offsets.flags.c_contiguous
        assert self.offsets[0] == 0
        assert self.offsets[-1] == len(self.data)
        self.data.flags.writeable = False
        self.offsets.flags.writeable = False

    @classmethod
    def of(cls, ids: Iterable[bytes]) -> EncodedIds:
        """Return ids given as Python objects."""
        listed = list(ids)
        return cls(np.frombuffer(b"".join(listed), np.uint8), ends_of([*map(len, listed)]))

    @property
    def sizes(self) -> Indices:
        """Return the size of each id in bytes, int64 (n,)."""
        return np.diff(self.offsets)

    def take(self, rows: Indices) -> EncodedIds:
        """Return the ids numbered `rows`, int (k,); many ids lie in files if these do."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError("no such row")
        beside = self.data if len(rows) > IDS_AT_ONCE else None
        offsets = array_beside(beside, (len(rows) + 1,), np.int64)
        for cut in _cut_range(len(rows), ROWS_PER_FREE):
            _measure(self.offsets, rows[cut], offsets[cut.start : cut.stop + 1])
            if beside is not None:
                free_pages(self.offsets, offsets)
        data = array_beside(beside, (int(offsets[-1]),), np.uint8)
        for cut in _cut_range(len(rows), ROWS_PER_FREE):
            ends = offsets[cut.start : cut.stop + 1]
            _copy_rows(self.data, self.offsets, rows[cut], ends, data)
            if beside is not None:
                free_pages(self.data, self.offsets, data, offsets)
        return EncodedIds(data, offsets)

    def order(self, rows: Indices | None = None) -> Indices:
        """Return the stable permutation, int64 (n,), that sorts the ids by their bytes.

        With `rows` (k,), distinct row numbers, return these numbers in the order of their ids.
        """
        assert len(self) < IDS_MAX
        order = (np.arange(len(self)) if rows is None else rows).astype(np.int32)
        for cut in _cut_range(len(order), ROWS_PER_FREE):
            ascends = _ascends(self.data, self.offsets, order[max(0, cut.start - 1) : cut.stop])
            free_pages(self.data, self.offsets)
            if not ascends:
                _sort_rows(self.data, self.offsets, order)
                free_pages(self.data, self.offsets)
                break
        return order.astype(np.int64)

    def update(self, digest: hashlib._Hash) -> None:
        """Feed a hash with the size of each id, in four bytes, and then with their bytes."""
        for cut in _cut_range(len(self), IDS_AT_ONCE):
            digest.update(np.diff(self.offsets[cut.start : cut.stop + 1]).astype("<u4").data)
            free_pages(self.offsets)
        for cut in _cut_range(len(self.data), 8 * ROWS_PER_FREE):
            digest.update(self.data[cut].data)
            free_pages(self.data)

    def find(self, wanted: EncodedIds) -> Indices:
        """Return the row of each wanted id, int64 (len(wanted),): the first of equal ones, -1 if
        absent.
        """
        table, ids = self._empty_table(), (self.data, self.offsets)
        _find_rows(table, *ids, *ids, True)
        return _find_rows(table, *ids, wanted.data, wanted.offsets, False)

    def hashes(self) -> HashTable:
        """Return a hash of each id, uint64 (n,): equal for equal ids, rarely for others."""
        return _hash_rows(self.data, self.offsets)

    def first(self) -> Indices:
        """Return the number of the first id equal to each, int64 (n,), possibly its own."""
        ids = self.data, self.offsets
        return _find_rows(self._empty_table(), *ids, *ids, True)

    def blocks(self, rows: Indices | None = None) -> Iterator[EncodedIds]:
        """Yield all ids, or those numbered `rows`, `IDS_AT_ONCE` at a time."""
        for cut in _cut_range(len(self if rows is None else rows), IDS_AT_ONCE):
            yield self[cut] if rows is None else self.take(rows[cut])
            if not cut.stop % ROWS_PER_FREE:
                free_pages(self.data, self.offsets)
        free_pages(self.data, self.offsets)

    def _empty_table(self) -> HashTable:
        """Return an empty table with room for all ids, and a third more."""
        assert len(self) < IDS_MAX
        return np.zeros(1 << max(4, (4 * len(self) // 3).bit_length()), np.uint64)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        for some in self.blocks():
            data = some.data.tobytes()
            yield from [data[start:end] for start, end in pairwise(some.offsets.tolist())]

    @overload
    def __getitem__(self, which: int) -> bytes: ...

    @overload
    def __getitem__(self, which: slice) -> EncodedIds: ...

    def __getitem__(self, which: int | slice) -> bytes | EncodedIds:
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            offsets = self.offsets[start : max(start, stop) + 1]
            return EncodedIds(self.data[offsets[0] : offsets[-1]], offsets - offsets[0])
        row = range(len(self))[which]
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncodedIds):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the number of ids, never the ids."""
        return f"EncodedIds({len(self)})"


def frame_ids(*parts: EncodedIds, little_endian: bool = False) -> EncodedIds:
    """Return each row's parts one after the other, each behind its length in four bytes."""
    offsets = np.zeros(len(parts[0]) + 1, np.int64)
    for part in parts:
        offsets[1:] += part.sizes
    offsets[1:] += LENGTH_BYTES * len(parts)
    np.cumsum(offsets, out=offsets)
    data, at = np.empty(offsets[-1], np.uint8), offsets[:-1].copy()
    shifts = 8 * np.arange(LENGTH_BYTES)[:: 1 if little_endian else -1].copy()
    for part in parts:
        _write_frames(part.data, part.offsets, shifts, at, data)
    return EncodedIds(data, offsets)


def _cut_range(count: int, most: int) -> Iterator[slice]:
    """Yield slices that cut `count` items into parts of at most `most`."""
    for start in range(0, count, most):
        yield slice(start, min(start + most, count))


def ends_of(sizes: Sequence[int] | Indices) -> Indices:
    """Return the offsets, int64 (n + 1,), of n strings that have these sizes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


@kernel
def _measure(offsets: Indices, rows: Indices, ends: Indices) -> None:
    """Write the end of each row's string in a copy of these rows' strings."""
    for i in range(len(rows)):
        ends[i + 1] = ends[i] + offsets[rows[i] + 1] - offsets[rows[i]]


@kernel
def _copy_rows(data: Bytes, offsets: Indices, rows: Indices, ends: Indices, out: Bytes) -> np.uint8:
    """Copy the strings of some rows; the returned value has no meaning. Reading the first byte of
    each string of a block before the copies halves the time: the kernel waits for memory once a
    block.
    """
    starts, read = np.empty(COPIED_TOGETHER, np.int64), np.uint8(0)
    for first in range(0, len(rows), COPIED_TOGETHER):
        last = min(first + COPIED_TOGETHER, len(rows))
        for i in range(first, last):
            start = offsets[rows[i]]
            starts[i - first] = start
            if start < len(data):
                read |= data[start]
        for i in range(first, last):
            start, at = starts[i - first], ends[i]
            for k in range(ends[i + 1] - at):
                out[at + k] = data[start + k]
    return read


@kernel
def _write_frames(data: Bytes, offsets: Indices, shifts: Indices, at: Indices, out: Bytes) -> None:
    """Write each string behind its length to `out`, from `at` on, and move `at` behind it."""
    for i in range(len(at)):
        start, place = offsets[i], at[i]
        size = offsets[i + 1] - start
        for k in range(LENGTH_BYTES):
            out[place + k] = np.uint8((size >> shifts[k]) & 0xFF)
        place += LENGTH_BYTES
        for k in range(size):
            out[place + k] = data[start + k]
        at[i] = place + size


@inlined
def _next_word(data: Bytes, start: np.int64, end: np.int64) -> np.uint64:
    """Return the next bytes of a string and the number left; words sort as strings."""
    left = max(np.int64(0), end - start)
    word = np.uint64(0)
    for k in range(SORT_WORD_BYTES):
        word = np.uint64(word << np.uint64(8))
        if k < left:
            word |= np.uint64(data[start + k])
    return np.uint64(word << np.uint64(8)) | np.uint64(min(left, SORT_WORD_BYTES + 1))


@kernel
def _ascends(data: Bytes, offsets: Indices, order: NDArray[np.int32]) -> bool:
    """Return whether rows are already sorted, as those of tables often are."""
    for i in range(1, len(order)):
        before, start = offsets[order[i - 1]], offsets[order[i]]
        sizes = offsets[order[i - 1] + 1] - before, offsets[order[i] + 1] - start
        k, least = 0, min(sizes[0], sizes[1])
        while k < least and data[before + k] == data[start + k]:
            k += 1
        if sizes[0] > sizes[1] if k == least else data[before + k] > data[start + k]:
            return False
    return True


@kernel
def _sort_rows(data: Bytes, offsets: Indices, order: NDArray[np.int32]) -> None:
    """Sort rows word by word: runs of equal words are sorted again by the next word."""
    n, spare_order = len(order), np.empty(len(order), np.int32)
    words, spare_words = np.empty(n, np.uint64), np.empty(n, np.uint64)
    open_runs = np.empty((n // 2 + 1, 3), np.int32)  # first, behind the last, bytes compared
    open_runs[0] = 0, n, 0
    count = 1 if n > 1 else 0
    while count:
        count -= 1
        low, high, depth = open_runs[count]
        for i in range(low, high):
            row = order[i]
            words[i] = _next_word(data, offsets[row] + depth, offsets[row + 1])
        if high - low <= INSERTION_SORT_MAX:
            _insertion_sort(words[low:high], order[low:high])
        else:
            _radix_sort(words[low:high], order[low:high], spare_words, spare_order)
        first = low
        for i in range(low + 1, high + 1):
            if i == high or words[i] != words[first]:
                is_open = words[first] & np.uint64(0xFF) > np.uint64(SORT_WORD_BYTES)
                if i - first > 1 and is_open:
                    open_runs[count] = first, i, depth + SORT_WORD_BYTES
                    count += 1
                first = i


@kernel
def _insertion_sort(words: NDArray[np.uint64], order: NDArray[np.int32]) -> None:
    for i in range(1, len(words)):
        word, row, k = words[i], order[i], i
        while k > 0 and words[k - 1] > word:
            words[k], order[k] = words[k - 1], order[k - 1]
            k -= 1
        words[k], order[k] = word, row


@kernel
def _radix_sort(
    words: NDArray[np.uint64],
    order: NDArray[np.int32],
    spare_words: NDArray[np.uint64],
    spare_order: NDArray[np.int32],
) -> None:
    """Sort by each byte of the words in turn, the last one first."""
    n = len(words)
    places = np.zeros((8, 256), np.int64)
    for i in range(n):
        for byte in range(8):
            places[byte, (words[i] >> np.uint64(8 * byte)) & np.uint64(0xFF)] += 1
    for byte in range(8):
        shift = np.uint64(8 * byte)
        if places[byte, (words[0] >> shift) & np.uint64(0xFF)] == n:
            continue  # all have the same byte
        place = 0
        for value in range(256):
            places[byte, value], place = place, place + places[byte, value]
        for i in range(n):
            bucket = (words[i] >> shift) & np.uint64(0xFF)
            spare_words[places[byte, bucket]] = words[i]
            spare_order[places[byte, bucket]] = order[i]
            places[byte, bucket] += 1
        words[:] = spare_words[:n]
        order[:] = spare_order[:n]


@kernel
def _find_rows(
    table: HashTable, data: Bytes, offsets: Indices, wanted: Bytes, ends: Indices, enters: bool
) -> Indices:
    """Return the number of the string in the table that equals each wanted one, or -1. With
    `enters` the wanted strings enter the table, so that each finds the first one equal to it.
    """
    rows = np.empty(len(ends) - 1, np.int64)
    for row in range(len(rows)):
        at, mark = _find_slot(table, data, offsets, wanted, ends[row], ends[row + 1])
        if enters and not table[at]:
            table[at] = mark | np.uint64(row + 1)
        rows[row] = np.int64(table[at] & LOW) - 1
    return rows


@kernel
def _hash_rows(data: Bytes, offsets: Indices) -> HashTable:
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(hashes)):
        hashes[row] = _hash_bytes(data, offsets[row], offsets[row + 1])
    return hashes


@inlined
def _hash_bytes(text: Bytes, start: np.int64, end: np.int64) -> np.uint64:
    value = FNV_START
    for i in range(start, end):
        value = np.uint64((value ^ np.uint64(text[i])) * FNV_FACTOR)
    return value


@kernel
def _find_slot(
    table: HashTable, data: Bytes, offsets: Indices, text: Bytes, start: np.int64, end: np.int64
) -> tuple[np.int64, np.uint64]:
    """Return the slot that holds the string text[start:end], or a free one for it, and half of its
    hash.
    """
    value = _hash_bytes(text, start, end)
    mark = np.uint64(value & ~LOW)
    at = np.int64((value ^ (value >> np.uint64(32))) & np.uint64(len(table) - 1))
    while table[at]:
        if table[at] & ~LOW == mark:
            row = np.int64(table[at] & LOW) - 1
            other, k = offsets[row], end - start
            if offsets[row + 1] - other == k:
                while k > 0 and data[other + k - 1] == text[start + k - 1]:
                    k -= 1
                if k == 0:
                    break
        at = (at + 1) & (len(table) - 1)
    return at, mark
