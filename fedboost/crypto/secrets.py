"""A party's sealed secret, the source of all randomness that a job must be able to draw again.

Each draw names its purpose; equal seeds and purposes give equal bytes in every release
(SECURITY.md, D11), different purposes give independent ones.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from functools import cache
from typing import NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

SEED_BYTES = 32
_SALT = b"fedboost secrets 1"  # a release that draws differently must change it

RawBytes = bytes  # the class below has a method named bytes
DrawPurpose = str | int | RawBytes


class Secrets:
    """A secret seed that gives each purpose its draws; it prints nothing and cannot be pickled."""

    __slots__ = ("_extracted", "_seed")

    def __init__(self, seed: RawBytes) -> None:
        if len(seed) < SEED_BYTES:
            raise ValueError(f"a secret seed has {SEED_BYTES} bytes at least, got {len(seed)}")
        self._seed = RawBytes(seed)
        self._extracted = hmac.digest(_SALT, self._seed, "sha256")

    @classmethod
    def from_os(cls) -> Secrets:
        """Return a fresh secret from the operating system."""
        return cls(os.urandom(SEED_BYTES))

    def derive(self, *purpose: DrawPurpose) -> RawBytes:
        """Return 32 bytes for this purpose (HKDF-SHA256, RFC 5869)."""
        return self._expand("derive", purpose)

    def child(self, *purpose: DrawPurpose) -> Secrets:
        """Return a separate secret for this purpose, e.g. for one stage of a job."""
        return Secrets(self._expand("child", purpose))

    def bytes(self, n: int, *purpose: DrawPurpose) -> RawBytes:
        """Return `n` bytes for this purpose (ChaCha20 under a derived key, RFC 8439's block
        function).
        """
        cipher = Cipher(ChaCha20(self._expand("stream", purpose), RawBytes(16)), mode=None)
        return cipher.encryptor().update(RawBytes(n))

    def permutation(self, n: int, *purpose: DrawPurpose) -> NDArray[np.int64]:
        """Return a secret order of 0..n−1, int64 (n,): the order that sorts n random 64-bit keys.

        Equal keys keep their order; n keys have an equal pair with probability below n² / 2^65.
        """
        if n < 2:
            return np.arange(n)
        drawn = self.bytes(8 * n, "permutation", n, *purpose)
        return np.argsort(np.frombuffer(drawn, dtype="<u8"), kind="stable").astype(np.int64)

    def seal(self) -> RawBytes:
        """Return the seed itself, for the party's own sealed store and for nothing else."""
        return self._seed

    def _expand(self, use: str, purpose: tuple[DrawPurpose, ...]) -> RawBytes:
        # HKDF of one block, enough for a digest's length: a message draws several.
        return hmac.digest(self._extracted, _encoded((use, *purpose)) + b"\x01", "sha256")

    def __repr__(self) -> str:
        return "Secrets(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


class RandomSource(Protocol):
    """Random bytes, one after the other."""

    def take(self, n: int) -> RawBytes:
        """Return the next `n` bytes."""


class SystemSource(RandomSource):
    """Random bytes of the operating system."""

    def take(self, n: int) -> RawBytes:
        """See `RandomSource`."""
        return os.urandom(n)


class SecretSource(RandomSource):
    """Random bytes of a key of 32 bytes (ChaCha20, RFC 8439): the same key gives the same bytes."""

    def __init__(self, key: RawBytes) -> None:
        self._cipher = Cipher(ChaCha20(key, RawBytes(16)), mode=None).encryptor()

    def take(self, n: int) -> RawBytes:
        """See `RandomSource`."""
        return self._cipher.update(RawBytes(n))


SYSTEM_SOURCE = SystemSource()


class Streams:
    """Streams of bytes under one key, each with a separate number (ChaCha20, RFC 8439); they cannot
    be pickled.
    """

    def __init__(self, key: RawBytes) -> None:
        self._cipher = Cipher(ChaCha20(key, RawBytes(16)), mode=None).encryptor()

    def fill_buffers(self, number: RawBytes, into: Sequence[memoryview]) -> None:
        """Write the beginning of the stream with this number, 12 bytes, one after the other.

        Numbers may be drawn at random: among 2^24 streams two are equal once in 2^49.
        """
        self._cipher.reset_nonce(_BEGINNING + number)
        for part in into:
            self._cipher.update_into(_zero_bytes(len(part)), part)


_BEGINNING = RawBytes(4)  # of a stream: its first block


@cache
def _zero_bytes(n: int) -> RawBytes:
    return RawBytes(n)


def _encoded(purpose: tuple[DrawPurpose, ...]) -> bytes:
    """Return the purpose as bytes: each part with its kind and length, so that no two purposes
    meet.
    """
    parts = []
    for part in purpose:
        if isinstance(part, str):
            kind, data = b"s", part.encode()
        elif isinstance(part, bytes):
            kind, data = b"b", part
        elif isinstance(part, int) and not isinstance(part, bool):
            kind, data = b"i", b"%d" % part
        else:
            raise TypeError(
                f"a purpose is text, a whole number or bytes, not {type(part).__name__}"
            )
        parts.append(kind + len(data).to_bytes(4, "big") + data)
    return b"".join(parts)
