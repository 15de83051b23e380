"""A party's ids as keyed digests, in parts: what every step of the function works on.

Words w0 … w7 of a digest: w0 chooses the part, w1 to w3 the places in a store (their upper 24
bits), w4 and w5 the dense rows, w6, w7 and the rest of w1 and w2 the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.arrays import Words
from fedboost.crypto.oprf.blake2s import digest_messages, key_state
from fedboost.crypto.oprf.store import StoreKeys
from fedboost.crypto.workers import Workers, blocks
from fedboost.encoded_ids import EncodedIds
from fedboost.errors import PeerError
from fedboost.kernels import kernel

RUNS = 256  # of a part


@dataclass(frozen=True, repr=False, eq=False)
class PartIds:
    """Ids of one part."""

    rows: NDArray[np.uint32]  # (n,): of the party's table
    table: NDArray[np.uint32]  # (m, 8): the digests of all its ids

    @cached_property
    def digests(self) -> NDArray[np.uint32]:
        """Return their digests, uint32 (n, 8)."""
        return self.table[self.rows]

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
        return PartIds(self.rows[cut], self.table)


class IdDigests:
    """Keyed digests of all ids of a party, which differ and are not empty; and their order by
    part.
    """

    def __init__(self, ids: EncodedIds, key: bytes, bins: int, workers: Workers) -> None:
        n = len(ids)
        self.bins = bins
        self.digests = np.empty((n, 8), np.uint32)
        start = key_state(key)
        tasks = [
            (ids.offsets[cut.start : cut.stop + 1], ids.data, start, self.digests[cut])
            for cut in blocks(n, workers.count, 1 << 14, 1 << 18)
        ]
        workers.threads.map(digest_messages, tasks)
        self._starts = np.empty(bins + 1, np.int64)
        self._order = np.empty(n, np.uint32)
        _sort(self.digests, bins, self._starts, self._order)

    def __len__(self) -> int:
        return len(self.digests)

    def part(self, b: int, cap: int) -> PartIds:
        """Return the ids of part `b`; a PeerError where they are more than `cap`."""
        rows = self._order[self._starts[b] : self._starts[b + 1]]
        if len(rows) > cap:
            raise PeerError(
                "more ids fall into a part than it holds under the keys of this job",
                todo="submit the job again: another draws other keys",
            )
        return PartIds(rows, self.digests)

    def count(self, b: int) -> int:
        """Return the number of ids in part `b`."""
        return int(self._starts[b + 1] - self._starts[b])

    def sample(self, share: float) -> NDArray[np.int64]:
        """Return the rows of a sample of about a `share` of the ids, ascending, int64 (m,).

        Parties with the same key have the same ids that both hold in their samples.
        """
        limit = min(1 << 32, round(share * (1 << 32)))
        return np.flatnonzero(self.digests[:, 0] < limit)


@kernel
def _sort(
    digests: NDArray[np.uint32], bins: int, starts: NDArray[np.int64], order: NDArray[np.uint32]
) -> None:
    """Writes where each part begins, (bins + 1,), and the rows by part and within it by w1's top.

    The second so that keys next to each other read near each other in a store's first segment.
    """
    counts = np.zeros(RUNS * bins + 1, np.int64)
    for i in range(len(digests)):
        counts[_run(digests[i], bins) + 1] += 1
    at = np.cumsum(counts)
    starts[:] = at[::RUNS]
    for i in range(len(digests)):
        run = _run(digests[i], bins)
        order[at[run]] = i
        at[run] += 1


@kernel
def _run(digest: NDArray[np.uint32], bins: int) -> np.int64:
    """Return the run, of the RUNS of each part, that a digest falls into."""
    part = (np.uint64(digest[0]) * np.uint64(bins)) >> np.uint64(32)
    return np.int64(part) * RUNS + np.int64(digest[1] >> np.uint32(24))


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
