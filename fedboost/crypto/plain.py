"""No encryption at all behind the schemes' interface: for tests, and for the cost of the rest.

A "ciphertext" is the number itself modulo 2^256, big-endian. Everything else (packing, packages,
headroom, the types) is as with a real scheme.
"""

from __future__ import annotations

from fedboost.crypto.api import KeyScheme
from fedboost.crypto.limbs import ByteArray, resized
from fedboost.crypto.residues import ResiduePrivate, ResiduePublic
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Workers

PLAIN_WIDTH = 32  # bytes
PLAINTEXT_BITS = 8 * PLAIN_WIDTH - 1
PLAIN_KEY = b"plain"
PLAIN_KEY_BITS = PLAIN_KEY_BITS_MIN = 0  # it has no key


class _Itself:
    """Every number is its own ciphertext."""

    modulus = 1 << (8 * PLAIN_WIDTH)
    plaintext_bits = PLAINTEXT_BITS

    def encrypt(self, fields: ByteArray, width: int) -> ByteArray:
        """Return the numbers themselves."""
        return resized(fields, width)

    def decrypt(self, data: ByteArray) -> ByteArray:
        """Return the numbers themselves."""
        return data

    def public_bytes(self) -> bytes:
        """Return the name that stands for a key."""
        return PLAIN_KEY

    def to_bytes(self) -> bytes:
        """Return the name that stands for a key."""
        return PLAIN_KEY


def plaintext_bits(key_bits: int) -> int:
    """Return the bits of a plaintext: any number below 2^plaintext_bits can be written."""
    return PLAINTEXT_BITS


def ciphertext_bytes(key_bits: int) -> int:
    """Return the width of a number."""
    return PLAIN_WIDTH


def public_bytes(key_bits: int) -> int:
    """Return the size of the name that stands for a key."""
    return len(PLAIN_KEY)


def generate(key_bits: int, workers: Workers) -> ResiduePrivate:
    """Return a key of no bits; both arguments are for real schemes."""
    return ResiduePrivate(_Itself())


def load_private(data: bytes, workers: Workers) -> ResiduePrivate:
    """Return the key that `to_bytes` wrote."""
    return ResiduePrivate(_Itself())


def load_public(data: bytes, key_bits: int, workers: Workers) -> ResiduePublic:
    """Return the key a peer sent; a PeerError if that is another scheme's."""
    if data != PLAIN_KEY:
        raise PeerError("expected no encryption key, for the plain scheme has none")
    return ResiduePublic(_Itself.modulus, PLAINTEXT_BITS, PLAIN_KEY, headroom=True)


SCHEME = KeyScheme(
    name="plain",
    secure=False,
    multiplies=True,
    key_bits=PLAIN_KEY_BITS,
    key_bits_min=PLAIN_KEY_BITS_MIN,
    plaintext_bits=plaintext_bits,
    ciphertext_bytes=ciphertext_bytes,
    public_bytes=public_bytes,
    generate=generate,
    load_private=load_private,
    load_public=load_public,
)
