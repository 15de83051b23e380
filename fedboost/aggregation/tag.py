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
from fedboost.kernels import kernel

PRIME = (1 << 89) - 1
TAG_WORDS = 2  # of 45 and 44 bits: sums of 2^18 tags do not overflow
KEY_BYTES = 32
_LOW_BITS = 45
_HALF, _LOW_HALF = np.uint64(32), np.uint64((1 << 32) - 1)

Vector = NDArray[np.int64]


class Tagging:
    """The secret r and s of one sum of vectors int64 (n,); it prints nothing."""

    __slots__ = ("_pad", "_stream")

    def __init__(self, key: bytes, context: bytes, words: int) -> None:
        """`key` is what the contributors share, `context` names one sum for ever."""
        own = hmac.digest(key, b"fedboost tag 1" + context, hashlib.sha512)
        self._stream = np.zeros(words, np.uint64)
        add_stream(self._stream, own[:KEY_BYTES], 1)
        self._pad = int.from_bytes(own[KEY_BYTES:], "big") % PRIME

    def of(self, vector: Vector, *, adds_pad: bool) -> Vector:
        """The tag of a party's own vector, (TAG_WORDS,); the pad s belongs into one of them."""
        tag = (inner(self._stream, vector) + adds_pad * self._pad) % PRIME
        return np.array([tag & ((1 << _LOW_BITS) - 1), tag >> _LOW_BITS], np.int64)

    def fits(self, total: Vector, tag: Vector) -> bool:
        """Return whether a total has this sum of tags."""
        low, high = tag.tolist()
        return (low + (high << _LOW_BITS) - inner(self._stream, total) - self._pad) % PRIME == 0

    def __repr__(self) -> str:
        return "Tagging(hidden)"


def inner(left: Words, right: Vector) -> int:
    """⟨left, right⟩ over the integers; uint64 (n,) and int64 (n,)."""
    low, middle, high, wrapped, carried = _inner(left, right.view(np.uint64)).tolist()
    # A negative number is 2^64 less than its word.
    return low + (middle - wrapped << 64) + (high - carried << 128)


@kernel
def _inner(left: Words, right: Words) -> Words:
    """Σ left·right in three words, least first; then in two words Σ left where right's first bit
    is set."""
    sums = np.zeros(5, np.uint64)
    for i in range(len(left)):
        a, b = left[i], right[i]
        a_low, a_high, b_low, b_high = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
        least, one, other = a_low * b_low, a_low * b_high, a_high * b_low
        middle = (least >> _HALF) + (one & _LOW_HALF) + (other & _LOW_HALF)
        low = (middle << _HALF) | (least & _LOW_HALF)
        high = a_high * b_high + (one >> _HALF) + (other >> _HALF) + (middle >> _HALF)
        sums[0] += low
        high += np.uint64(sums[0] < low)
        sums[1] += high
        sums[2] += np.uint64(sums[1] < high)
        if b_high >> np.uint64(31):
            sums[3] += a
            sums[4] += np.uint64(sums[3] < a)
    return sums
