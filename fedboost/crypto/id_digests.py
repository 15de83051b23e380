"""Keyed digests of ids: parties that share rows name and compare them by their digests.

Only for ids that the other side knows already: it has the key, and could guess any other id from
its digest. A fresh key for every use keeps the digests of two uses apart.
"""

from __future__ import annotations

import hmac
import os

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError
from fedboost.ground.hashes import BLOCK_BYTES, sha256_each
from fedboost.ground.ids import EncodedIds, frame_ids
from fedboost.ground.kernels import kernel

ID_KEY_BYTES = 32
PADS = 0x36, 0x5C  # HMAC's, of the inner and the outer hash (FIPS 198-1)
ID_DIGEST_BYTES = 16  # of one id: two of 2^24 ids meet with probability below 2^-80


def fresh_key() -> bytes:
    """Return a key for one use, from the operating system's randomness."""
    return os.urandom(ID_KEY_BYTES)


def digests(ids: EncodedIds, key: bytes) -> NDArray[np.uint8]:
    """Return one digest for each id, uint8 (n, 16), in their order: the head of an HMAC."""
    inner, outer = (bytes(byte ^ pad for byte in key.ljust(BLOCK_BYTES, b"\0")) for pad in PADS)
    rows = np.empty((len(ids), ID_DIGEST_BYTES), np.uint8)
    at = 0
    for some in ids.blocks():
        first = sha256_each(inner, some)
        ends = np.arange(len(some) + 1) * first.shape[1]
        second = sha256_each(outer, EncodedIds(first.reshape(-1), ends))
        rows[at : at + len(some)] = second[:, :ID_DIGEST_BYTES]
        at += len(some)
    return rows


def named_rows(ids: EncodedIds, key: bytes, count: int, data: bytes) -> NDArray[np.int64]:
    """Return the indices in `ids` of the ids that a peer named, int64 (count,), ascending.

    `data` holds the digests one after the other. A PeerError unless the key and all `count` of them
    have their size, and name as many different ids that are here.
    """
    if len(key) != ID_KEY_BYTES:
        raise PeerError(f"a peer named common ids by a key of {len(key)} bytes, not {ID_KEY_BYTES}")
    named = np.frombuffer(data[: len(data) // ID_DIGEST_BYTES * ID_DIGEST_BYTES], np.uint64)
    is_named = _named_digests(digests(ids, key).view(np.uint64), named.reshape(-1, 2))
    rows = np.flatnonzero(is_named)
    if len(data) != count * ID_DIGEST_BYTES or len(rows) != count:  # so no two names are of one row
        raise PeerError(f"a peer named {count} common ids; {len(rows)} of them are here")
    return rows


def digest_of_all(ids: EncodedIds, key: bytes, rows: NDArray[np.int64] | None = None) -> bytes:
    """Return one digest of 32 bytes over all ids, or those numbered `rows`, in their order: equal
    if both are.
    """
    digest = hmac.new(key, digestmod="sha256")
    for some in ids.blocks(rows):
        digest.update(frame_ids(some).data.data)
    return digest.digest()


@kernel
def _named_digests(digests: Words, named: Words) -> NDArray[np.bool_]:
    """Return the digests, (n, 2) and all different, that are among others, (m, 2), as bool (n,).

    The table holds the own digests, which a peer cannot make collide: it chose the key, not the
    ids.
    """
    size = 16
    while size < 2 * len(digests):
        size *= 2
    table, is_named = np.full(size, -1, np.int32), np.zeros(len(digests), np.bool_)
    mask = np.uint64(size - 1)
    for row in range(len(digests)):
        at = digests[row, 0] & mask
        while table[at] >= 0:
            at = (at + np.uint64(1)) & mask
        table[at] = row
    for number in range(len(named)):
        at = named[number, 0] & mask
        while table[at] >= 0:
            row = table[at]
            if digests[row, 0] == named[number, 0] and digests[row, 1] == named[number, 1]:
                is_named[row] = True
                break
            at = (at + np.uint64(1)) & mask
    return is_named
