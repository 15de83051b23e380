"""A party's ids as keyed digests, in parts: what every step of the function works on.

Words w0 … w7 of a digest: w0 chooses the part, w1 to w3 the places in a store (their upper 24
bits), w4 and w5 the dense rows, w6, w7 and the rest of w1 and w2 the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.arrays import Words
from fedboost.crypto.oprf.blake2s import digest_messages, key_state
from fedboost.crypto.oprf.store import StoreKeys
from fedboost.crypto.workers import Workers, blocks
from fedboost.encoded_ids import EncodedIds
from fedboost.errors import PeerError
from fedboost.kernels import kernel
from fedboost.mapped import array_beside, let_go

HASHED_ROWS = 1 << 18  # ids whose digests are in memory together


@dataclass(frozen=True, repr=False, eq=False)
class PartIds:
    """Ids of one part."""

    rows: NDArray[np.uint32]  # (n,): of the party's table
    digests: NDArray[np.uint32]  # (n, 8): of their ids

    def keys(self, segment: int) -> StoreKeys:
        """Return their places in a store with segments of so many rows."""
        places = np.empty((len(self.rows), 3), np.int32)
        masks = np.empty(len(self.rows), np.uint64)
        _place(self.digests, segment, places, masks)
        return StoreKeys(places, masks, 3 * segment)

    def values(self) -> Words:
        """Return their values of 76 bits, uint64 (n, 2)."""
        values = np.empty((len(self.rows), 2), np.uint64)
        _evaluate(self.digests, values)
        return values

    def block(self, cut: slice) -> PartIds:
        """Return some of them."""
        return PartIds(self.rows[cut], self.digests[cut])


class IdDigests:
    """Keyed digests of all ids of a party, which differ and are not empty, in the order of their
    parts; 36 bytes a row, in files where the ids lie in some.
    """

    def __init__(self, ids: EncodedIds, key: bytes, bins: int, workers: Workers) -> None:
        n = len(ids)
        self.bins = bins
        counts = np.zeros(bins, np.int64)
        for _, some in _hashed(ids, key, workers):
            counts += np.bincount(_parts(some[:, 0], bins), minlength=bins)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._digests = array_beside(ids.data, (n, 8), np.uint32)
        self._rows = array_beside(ids.data, (n,), np.uint32)
        at = self._starts[:-1].copy()
        for first, some in _hashed(ids, key, workers):  # again, which is cheaper than to keep them
            _spread(some, _parts(some[:, 0], bins), first, at, self._digests, self._rows)
            let_go(self._digests, self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def part(self, b: int, cap: int) -> PartIds:
        """Return the ids of part `b`; a PeerError where they are more than `cap`.

        They are in the order of w1's top, so that keys next to each other read near each other in a
        store's first segment.
        """
        cut = slice(*self._starts[b : b + 2])
        if self.count(b) > cap:
            raise PeerError(
                "more ids fall into a part than it holds under the keys of this job",
                todo="submit the job again: another draws other keys",
            )
        digests = self._digests[cut]
        order = np.argsort((digests[:, 1] >> 24).astype(np.uint8), kind="stable")
        part = PartIds(self._rows[cut][order], digests[order])
        let_go(self._digests, self._rows)
        return part

    def count(self, b: int) -> int:
        """Return the number of ids in part `b`."""
        return int(self._starts[b + 1] - self._starts[b])

    def sample(self, share: float) -> NDArray[np.int64]:
        """Return the rows of a sample of about a `share` of the ids, ascending, int64 (m,).

        Parties with the same key have the same ids that both hold in their samples.
        """
        limit = min(1 << 32, round(share * (1 << 32)))
        last = min(self.bins - 1, limit * self.bins >> 32)  # the part of the limit
        cut = slice(self._starts[last + 1])
        rows = np.sort(self._rows[cut][self._digests[cut, 0] < limit].astype(np.int64))
        let_go(self._digests, self._rows)
        return rows


def _hashed(
    ids: EncodedIds, key: bytes, workers: Workers
) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yield the digests of all ids, uint32 (m, 8) at a time, and the row of the first of them."""
    start, n = key_state(key), len(ids)
    held = np.empty((min(n, HASHED_ROWS), 8), np.uint32)
    for first in range(0, n, HASHED_ROWS):
        some = held[: min(n - first, HASHED_ROWS)]
        tasks = [
            (ids.offsets[first + cut.start : first + cut.stop + 1], ids.data, start, some[cut])
            for cut in blocks(len(some), workers.count, 1 << 14, 1 << 18)
        ]
        workers.threads.map(digest_messages, tasks)
        let_go(ids.offsets, ids.data)
        yield first, some


def _parts(words: NDArray[np.uint32], bins: int) -> NDArray[np.int64]:
    """Return the part, of so many, that each w0 chooses, int64 (n,)."""
    return ((words.astype(np.uint64) * np.uint64(bins)) >> np.uint64(32)).astype(np.int64)


@kernel
def _spread(
    some: NDArray[np.uint32],
    parts: NDArray[np.int64],
    first: int,
    at: NDArray[np.int64],
    digests: NDArray[np.uint32],
    rows: NDArray[np.uint32],
) -> None:
    """Write digests of rows from `first` on behind those of their parts, and their rows; where each
    part goes on is in `at`.
    """
    for i in range(len(some)):
        place = at[parts[i]]
        at[parts[i]] += 1
        rows[place] = first + i
        for word in range(8):
            digests[place, word] = some[i, word]


@kernel
def _place(
    digests: NDArray[np.uint32], segment: int, places: NDArray[np.int32], masks: Words
) -> None:
    """Writes places in three segments and masks of dense rows."""
    for i in range(len(digests)):
        for j in range(3):
            drawn = np.uint64(digests[i, 1 + j] >> np.uint32(8)) * np.uint64(segment)
            places[i, j] = j * segment + np.int64(drawn >> np.uint64(24))
        masks[i] = np.uint64(digests[i, 4]) | (np.uint64(digests[i, 5]) << np.uint64(32))


@kernel
def _evaluate(digests: NDArray[np.uint32], values: Words) -> None:
    """Writes the values."""
    for i in range(len(digests)):
        values[i, 0] = np.uint64(digests[i, 6]) | (np.uint64(digests[i, 7]) << np.uint64(32))
        rest = np.uint64(digests[i, 2] & np.uint32(0xF)) << np.uint64(8)
        values[i, 1] = np.uint64(digests[i, 1] & np.uint32(0xFF)) | rest
