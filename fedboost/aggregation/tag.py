"""The tag behind a vector: by it contributors see whether a total is the sum of what they gave.

```
t_i = ⟨r, v_i⟩  (and the guest + s)    modulo p = 2^89 − 1, added up under masks as the vectors are
total T, t:     t = ⟨r, T⟩ + s         or whoever added up told something else
```
r and s come from a key that the contributors share and the aggregator does not have, anew for each
sum: a one-time authenticator that is linear (Wegman and Carter, 1981). Whoever does not know the
key changes a total unseen with a probability of at most 2^-64. A contributor that helps the
aggregator gives away the key; it could as well have changed its own vector.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.masking import Words, add_stream

PRIME = (1 << 89) - 1
TAG_WORDS = 2  # of 45 and 44 bits: sums of 2^18 tags do not overflow
KEY_BYTES = 32
_LOW_BITS = 45
_LIMB_BITS, _LIMBS = 16, 4
_ROWS = 1 << 20  # whose products of limbs add up exactly in float64: 2^(16 + 16 + 20) < 2^53

Vector = NDArray[np.int64]


class Tagging:
    """The secret r and s of one sum; it prints nothing."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes, context: bytes) -> None:
        """`key` is what the contributors share, `context` names one sum for ever."""
        self._key = hmac.digest(key, b"fedboost tag 1" + context, hashlib.sha256)

    def of(self, vector: Vector, *, adds_pad: bool) -> Vector:
        """The tag of a party's own int64 (n,), (TAG_WORDS,); the pad s belongs into one of them."""
        return _words(self._inner(vector) + (self._pad() if adds_pad else 0))

    def fits(self, total: Vector, tag: Vector) -> bool:
        """Whether a total, int64 (n,), has this sum of tags."""
        low, high = tag.tolist()
        return (low + (high << _LOW_BITS) - self._inner(total) - self._pad()) % PRIME == 0

    def _pad(self) -> int:
        return int.from_bytes(hmac.digest(self._key, b"pad", hashlib.sha256), "big") % PRIME

    def _inner(self, vector: Vector) -> int:
        stream = np.zeros(len(vector), np.uint64)
        add_stream(stream, self._key, 1)
        return sum(
            inner(stream[i : i + _ROWS], vector[i : i + _ROWS])
            for i in range(0, len(vector), _ROWS)
        )

    def __repr__(self) -> str:
        return "Tagging(hidden)"


def inner(left: Words, right: Vector) -> int:
    """⟨left, right⟩ over the integers; uint64 (n,) and int64 (n,), n at most 2^20."""
    own, signed = _limbs(left), _limbs(right)
    products = (own.T @ signed).astype(np.int64).tolist()
    found = sum(
        product << _LIMB_BITS * (i + j)
        for i, row in enumerate(products)
        for j, product in enumerate(row)
    )
    wrapped = own[right < 0].sum(axis=0).astype(np.int64).tolist()  # as 2^64 more than they are
    return found - (sum(limb << _LIMB_BITS * i for i, limb in enumerate(wrapped)) << 64)


def _limbs(words: NDArray[np.generic]) -> NDArray[np.float64]:
    """64-bit words as 16-bit ones, least first, float64 (n, 4)."""
    little = np.ascontiguousarray(words).astype("<u8" if words.dtype.kind == "u" else "<i8")
    return little.view("<u2").reshape(-1, _LIMBS).astype(np.float64)


def _words(tag: int) -> Vector:
    tag %= PRIME
    return np.array([tag & ((1 << _LOW_BITS) - 1), tag >> _LOW_BITS], np.int64)
