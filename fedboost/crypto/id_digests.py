"""Keyed digests of ids: how parties that share rows name them to each other, and compare them.

Only for ids that the other side knows already: it has the key, and could guess any other from its
digest. A fresh key for every use keeps the digests of two uses apart.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.errors import PeerError

KEY_BYTES = 32
DIGEST_BYTES = 16  # of one id: two of 2^24 ids meet with probability below 2^-80


def fresh_key() -> bytes:
    """A key for one use, from the operating system's randomness."""
    return os.urandom(KEY_BYTES)


def digests(ids: Iterable[bytes], key: bytes) -> list[bytes]:
    """Return one digest of 16 bytes for each id, in their order."""
    return [hmac.digest(key, row, "sha256")[:DIGEST_BYTES] for row in ids]


def named_rows(ids: Sequence[bytes], key: bytes, count: int, data: bytes) -> NDArray[np.int64]:
    """The places in `ids` of those that a peer named, int64 (count,), ascending.

    `data` holds the digests one after the other. A PeerError unless the key and all `count` of
    them have their size, and name as many different ids that are here.
    """
    if len(key) != KEY_BYTES:
        raise PeerError(f"a peer named common ids by a key of {len(key)} bytes, not {KEY_BYTES}")
    named = {data[start : start + DIGEST_BYTES] for start in range(0, len(data), DIGEST_BYTES)}
    own = digests(ids, key)
    rows = np.array([row for row, digest in enumerate(own) if digest in named], np.int64)
    if len(data) != count * DIGEST_BYTES or not len(rows) == len(named) == count:
        raise PeerError(f"a peer named {count} common ids, of which {len(rows)} are here")
    return rows


def digest_of_all(ids: Iterable[bytes], key: bytes) -> bytes:
    """Return one digest of 32 bytes over all ids in their order: equal where both are."""
    digest = hmac.new(key, digestmod="sha256")
    for row in ids:
        digest.update(len(row).to_bytes(4, "big") + row)
    return digest.digest()
