"""Pairwise masks of secure aggregation: one party of a pair adds a mask, the other subtracts it.

```
X25519                pair secret, 32 bytes, the same on both sides
  └ HKDF-extract      once a pair, salted with constants of the job
      └ HKDF-expand   once a vector, with the vector's context
          └ AES-256-CTR   words of 64 bits, added modulo 2^64
```
Sums of all parties' vectors lose the masks without a rest; sums of fewer parties are uniform to
an observer without the remaining keys. A context names one vector for ever: two vectors under one
stream reveal their difference. The caller chooses the signs and the content of a context.

Answers that are decrypted as whole numbers, not modulo 2^64, take wide masks (`answer_masks`): the
same stream, read as numbers below 2^bits, and joined to a ciphertext by `PublicKey.release`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from fedboost.crypto.limbs import LIMB_BITS, Limbs
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError

MASK_KEY_BYTES = 32  # of private and public X25519 keys, of pair secrets and of stream keys
AES_BLOCK_BYTES = 16
AES_BLOCK_WORDS = 2
SCRATCH_BYTES = 1 << 18  # zeros, keystream and the vector's part stay in a core's own cache
_ZEROS = bytes(SCRATCH_BYTES)


class MaskKey:
    """An X25519 private key (RFC 7748); it prints nothing and cannot be pickled.

    Any 32 secret bytes are one. The key keeps the form that the ladder uses, three low bits and the
    highest cleared and the next set, so that each key has one seal only (see `is_private_of`).
    """

    __slots__ = ("_key", "_sealed", "public")

    def __init__(self, data: bytes) -> None:
        if len(data) != MASK_KEY_BYTES:
            raise ValueError(f"a mask key has {MASK_KEY_BYTES} bytes, got {len(data)}")
        first, last = data[0] & 0xF8, data[-1] & 0x7F | 0x40
        self._sealed = bytes((first, *data[1:-1], last))
        self._key = X25519PrivateKey.from_private_bytes(self._sealed)
        self.public = self._key.public_key().public_bytes_raw()

    def shared(self, peer_public: bytes) -> bytes:
        """Return the pair secret, 32 bytes; the peer computes the same from our public key.

        A PeerError for a wrong length and for a point of small order, which makes the secret zero
        for any key of ours.
        """
        if len(peer_public) != MASK_KEY_BYTES:
            raise PeerError(
                f"expected a mask key of {MASK_KEY_BYTES} bytes, got {len(peer_public)}"
            )
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:  # the library's error for a product that is zero
            raise PeerError("a mask key is a point of small order") from None

    def seal(self) -> bytes:
        """Return the private key, 32 bytes, for shares of it
        (`shamir.split_secret`) and for nothing else.
        """
        return self._sealed

    def __repr__(self) -> str:
        return "MaskKey(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("mask keys are not pickled")


def is_private_of(data: bytes, public: bytes) -> bool:
    """Return whether these bytes are the seal of the mask key with this public key.

    Bytes that only lead to the same public key are not: a share with other values of the bits that
    X25519 ignores must not pass (`shamir.wrong_shares`).
    """
    key = MaskKey(data)
    return hmac.compare_digest(key.seal(), data) and key.public == public


class Pair:
    """A pair secret that gives each context a stream key; it prints nothing, is never pickled.

    The salt is public, and the same on both sides: a label and constants of the job.
    """

    __slots__ = ("_key",)

    def __init__(self, secret: bytes, salt: bytes) -> None:
        self._key = hmac.digest(salt, secret, hashlib.sha256)  # RFC 5869, section 2.2

    def stream_key(self, context: bytes) -> bytes:
        """Return 32 bytes for this context, as HKDF-SHA256 gives them (RFC 5869, section 2.3)."""
        return hmac.digest(self._key, context + b"\x01", hashlib.sha256)

    def __repr__(self) -> str:
        return "Pair(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("pair secrets are not pickled")


def add_stream(vector: Words, key: bytes, sign: int, start: int = 0) -> None:
    """Add (sign 1) or subtract (sign −1) the key's stream in place, modulo 2^64; uint64 (n,).

    Word i of the stream is bytes 8·i to 8·i + 7 of AES-256-CTR from counter 0, little-endian.
    `start` is the stream's word for `vector[0]`, an even number: a vector may be masked part by
    part, but a key never masks a second one. A ValueError for any other argument.
    """
    if vector.dtype != np.uint64 or vector.ndim != 1:
        raise ValueError(f"masks are added to uint64 (n,), not {vector.dtype} {vector.shape}")
    if len(key) != MASK_KEY_BYTES or sign not in (1, -1):
        raise ValueError(f"a stream has a key of {MASK_KEY_BYTES} bytes and the sign 1 or -1")
    if start < 0 or start % AES_BLOCK_WORDS:
        raise ValueError(f"a stream starts at an even word, got {start}")
    counter = (start // AES_BLOCK_WORDS).to_bytes(AES_BLOCK_BYTES, "big")
    cipher = Cipher(AES(key), CTR(counter)).encryptor()
    combine = np.add if sign == 1 else np.subtract
    # Older releases of the cipher's library want room for one more block than they write.
    scratch = bytearray(min(SCRATCH_BYTES, 8 * len(vector)) + AES_BLOCK_BYTES)
    stream = np.frombuffer(scratch, dtype="<u8")
    for first in range(0, len(vector), SCRATCH_BYTES // 8):
        part = vector[first : first + SCRATCH_BYTES // 8]
        cipher.update_into(_ZEROS[: 8 * len(part)], scratch)
        combine(part, stream[: len(part)], out=part)


def wide_stream(key: bytes, count: int, bits: int) -> Limbs:
    """Return the key's stream as `count` numbers, each uniform below 2^bits, int64 (count, limbs).

    Number j is 32-bit words j·L to j·L + L − 1 of the stream, L = ⌈bits / 32⌉, least first, without
    the excess bits. A context names one answer for ever, as it does one vector.
    """
    limbs = -(-bits // LIMB_BITS)
    words = np.zeros(-(-count * limbs // 2), dtype="<u8")
    add_stream(words, key, 1)
    numbers = words.view("<u4")[: count * limbs].reshape(count, limbs).astype(np.int64)
    numbers[:, -1] &= (1 << (bits - (limbs - 1) * LIMB_BITS)) - 1
    return numbers


@dataclass(frozen=True, repr=False, eq=False)
class PairStream:
    """A pair's part in an answer: the rows that both hold, in an order that both know."""

    key: bytes  # `Pair.stream_key` of a context that names this answer alone
    sign: int  # 1 at one side and −1 at the other
    rows: NDArray[np.integer]  # (shared,): their indices in this side's answer, each once


@dataclass(frozen=True, repr=False, eq=False)
class Masks:
    """Masks or noise that hide an answer: a signed number for each of its rows or sums and of their
    outputs; it prints nothing.
    """

    limbs: NDArray[np.int64]  # (rows, outputs, limbs): Σ limbs[..., i] · 2^(32·i), limbs signed
    bits: int  # of each stream's numbers
    streams: int  # the most that one row has

    def __repr__(self) -> str:
        return f"Masks({len(self.limbs)} rows, hidden)"


def answer_masks(shape: tuple[int, int], bits: int, pairs: Iterable[PairStream]) -> Masks:
    """Return the masks of an answer of `shape` (rows, outputs): all pairs' streams with their
    signs.

    Row `rows[j]` of a pair takes numbers j·outputs to j·outputs + outputs − 1 of its stream. A
    ValueError for rows outside the answer or named twice, and for arguments that `add_stream`
    refuses.
    """
    rows, outputs = shape
    limbs = np.zeros((rows, outputs, -(-bits // LIMB_BITS)), dtype=np.int64)
    streams = np.zeros(rows, dtype=np.int64)
    for pair in pairs:
        indices = pair.rows
        inside = not len(indices) or (indices.min() >= 0 and indices.max() < rows)
        if not inside or len(np.unique(indices)) != len(indices) or pair.sign not in (1, -1):
            raise ValueError(
                f"a pair's rows are {len(indices)} different ones of {rows}, its sign ±1"
            )
        numbers = wide_stream(pair.key, len(indices) * outputs, bits)
        limbs[indices] += pair.sign * numbers.reshape(len(indices), *limbs.shape[1:])
        streams[indices] += 1
    return Masks(limbs, bits, int(streams.max(initial=0)))
