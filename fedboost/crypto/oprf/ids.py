"""A party's ids as keyed digests, in parts: the input of every step of the function.

Words w0 … w7 of a digest: w0 chooses the part, w1 to w3 the places in a store (their upper 24
bits), w4 and w5 the dense rows, w6, w7 and the rest of w1 and w2 the value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.blake2s import digest_messages, key_state
from fedboost.crypto.oprf.store import StoreKeys
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.kernels import kernel
from fedboost.ground.mapped import free_pages
from fedboost.ground.workers import Workers, even_slices

BLOCK_IDS = 1 << 16  # ids whose digests are in memory at once, in each thread


@dataclass(frozen=True, repr=False, eq=False)
class PartIds:
    """Ids of one part."""

    rows: NDArray[np.uint32]  # (n,): of the party's table
    digests: NDArray[np.uint32]  # (n, 8)

    def keys(self, segment: int) -> StoreKeys:
        """Return their rows in a store with segments of so many rows."""
        places = np.empty((len(self.rows), 3), np.int32)
        masks = np.empty(len(self.rows), np.uint64)
        _write_places(self.digests, segment, places, masks)
        return StoreKeys(places, masks, 3 * segment)

    def values(self) -> Words:
        """Return their values of 76 bits, uint64 (n, 2)."""
        values = np.empty((len(self.rows), 2), np.uint64)
        _evaluate(self.digests, values)
        return values

    def slice_ids(self, cut: slice) -> PartIds:
        """Return some of them."""
        return PartIds(self.rows[cut], self.digests[cut])


class IdDigests:
    """Keyed digests of all ids of a party, which differ and are not empty.

    In memory is their order by part; a part's digests are made again on each request.
    """

    def __init__(self, ids: EncodedIds, key: bytes, bins: int, workers: Workers) -> None:
        self.bins = bins
        self._ids, self._start = ids, key_state(key)
        parts = np.empty(len(ids), np.uint16)
        tasks = [
            (cut, parts[cut]) for cut in even_slices(len(ids), workers.count, 1 << 14, BLOCK_IDS)
        ]
        workers.threads.map(self._note_parts, tasks)
        free_pages(ids.data, ids.offsets)
        self._starts = np.empty(bins + 1, np.int64)
        self._order = np.empty(len(ids), np.uint32)
        _sort_by_part(parts, self._starts, self._order)

    def __len__(self) -> int:
        return len(self._order)

    def part(self, b: int, cap: int) -> PartIds:
        """Return the ids of part `b`; a PeerError if they are more than `cap`.

        In the order of w1's top, so that keys next to each other read near each other in a store's
        first segment.
        """
        if self.count(b) > cap:
            raise PeerError(
                "more ids fall into a part than it holds under the keys of this job",
                todo="submit the job again: another draws other keys",
            )
        rows = self._order[self._starts[b] : self._starts[b + 1]]
        digests = self._digested(self._ids.take(rows.astype(np.int64)))
        free_pages(self._ids.data, self._ids.offsets)
        order = np.argsort((digests[:, 1] >> np.uint32(24)).astype(np.uint8), kind="stable")
        return PartIds(rows[order], digests[order])

    def count(self, b: int) -> int:
        """Return the number of ids in part `b`."""
        return int(self._starts[b + 1] - self._starts[b])

    def sample(self, share: float) -> NDArray[np.int64]:
        """Return the rows of a sample of about a `share` of the ids, ascending, int64 (m,).

        Parties with the same key have the same ids that both hold in their samples.
        """
        limit = min(1 << 32, round(share * (1 << 32)))
        found = [np.empty(0, np.uint32)]
        for b in range(min(self.bins, (limit * self.bins >> 32) + 1)):
            part = self.part(b, self.count(b))
            found.append(part.rows[part.digests[:, 0] < limit])
        return np.sort(np.concatenate(found)).astype(np.int64)

    def _note_parts(self, cut: slice, parts: NDArray[np.uint16]) -> None:
        first = self._digested(self._ids[cut])[:, 0].astype(np.uint64)
        parts[:] = first * np.uint64(self.bins) >> np.uint64(32)

    def _digested(self, ids: EncodedIds) -> NDArray[np.uint32]:
        digests = np.empty((len(ids), 8), np.uint32)
        digest_messages(ids.offsets, ids.data, self._start, digests)
        return digests


@kernel
def _sort_by_part(
    parts: NDArray[np.uint16], starts: NDArray[np.int64], order: NDArray[np.uint32]
) -> None:
    """Write the start of each part, (bins + 1,), and the rows by part, ascending in each."""
    starts[:] = 0
    for i in range(len(parts)):
        starts[parts[i] + 1] += 1
    at = np.cumsum(starts)
    starts[:] = at
    for i in range(len(parts)):
        order[at[parts[i]]] = i
        at[parts[i]] += 1


@kernel
def _write_places(
    digests: NDArray[np.uint32], segment: int, places: NDArray[np.int32], masks: Words
) -> None:
    """Write places in three segments and masks of dense rows."""
    for i in range(len(digests)):
        for j in range(3):
            drawn = np.uint64(digests[i, 1 + j] >> np.uint32(8)) * np.uint64(segment)
            places[i, j] = j * segment + np.int64(drawn >> np.uint64(24))
        masks[i] = np.uint64(digests[i, 4]) | (np.uint64(digests[i, 5]) << np.uint64(32))


@kernel
def _evaluate(digests: NDArray[np.uint32], values: Words) -> None:
    """Write the values."""
    for i in range(len(digests)):
        values[i, 0] = np.uint64(digests[i, 6]) | (np.uint64(digests[i, 7]) << np.uint64(32))
        rest = np.uint64(digests[i, 2] & np.uint32(0xF)) << np.uint64(8)
        values[i, 1] = np.uint64(digests[i, 1] & np.uint32(0xFF)) | rest
