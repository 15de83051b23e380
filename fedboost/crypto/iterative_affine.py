"""Iterative affine encryption as SecureBoost+ used it: broken, kept to reproduce the paper.

Round i of a chain multiplies by a secret unit a_i modulo n_i; the moduli grow evenly
from half the key size to the key size, hosts add modulo the last, the owner multiplies by the
inverses in reverse order:

    c = a_k · (... (a_2 · (a_1 · m mod n_1) mod n_2) ...) mod n_k

It hides nothing from a party that knows a few plaintexts: the same number has the same ciphertext,
and a short linear relation among plaintexts is one among ciphertexts (up to a few constants that a
few known relations give away). Nor can a host blind its releases, for an encryption of one
would hand it the key: a guest that fills spare plaintext bits reads which rows were summed.

Numbers must not wrap. Undoing round i is right as long as Σ |w| · n_(i−1) < n_i / 2 for the host's
weights w of ciphertexts, and the last step as long as |m| < n_1 / 2. In a package
the weights come to less than 2^package_bits. With the key of b bits and k rounds, moduli are
b / (2·(k − 1)) bits apart, so that only two rounds leave both bounds at half a key; the framework's
five leave 128 of 1024 bits between rounds, and a package would be lost on the way back.
"""

from __future__ import annotations

import functools
import math
import secrets
from dataclasses import dataclass

from fedboost.crypto.api import KeyScheme
from fedboost.crypto.limbs import ByteArray, integers, rows_of
from fedboost.crypto.moduli import check_key_bits, join_numbers, split_numbers
from fedboost.crypto.residues import ResiduePrivate, ResiduePublic, residue_bytes
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.workers import Workers

AFFINE_KEY_BITS = 1024
AFFINE_KEY_BITS_MIN = 1024
ROUNDS = 2


@dataclass(frozen=True, repr=False)
class AffineSecret:
    """The moduli n_1 < ... < n_k and the units a_1, ..., a_k; it prints nothing."""

    moduli: tuple[int, ...]
    units: tuple[int, ...]

    def __post_init__(self) -> None:
        rounds = zip(self.units, self.moduli, strict=True)
        if len(self.moduli) < 2 or any(math.gcd(unit, n) != 1 for unit, n in rounds):
            raise ConfigError("an iterative affine key needs two rounds and units")
        if self.plaintext_bits < 1:
            raise ConfigError("the moduli of an iterative affine key must grow")

    @property
    def modulus(self) -> int:
        """The last modulus: hosts add modulo it."""
        return self.moduli[-1]

    @functools.cached_property
    def plaintext_bits(self) -> int:
        """Bits of plaintexts: neither a plaintext nor the weights of a sum below 2^plaintext_bits
        wrap.
        """
        room = [self.moduli[0]]
        room += [n // before for before, n in zip(self.moduli, self.moduli[1:], strict=False)]
        return min(bound.bit_length() for bound in room) - 2

    def encrypt(self, fields: ByteArray, width: int) -> ByteArray:
        """Return signed plaintexts as ciphertexts, uint8 (n, width)."""
        return rows_of((self.encrypt_number(m) for m in integers(fields, signed=True)), width)

    def decrypt(self, data: ByteArray) -> ByteArray | None:
        """Return ciphertexts as plaintexts in two's complement; None if one is out of range."""
        ciphertexts = integers(data)
        if any(c >= self.modulus for c in ciphertexts):
            return None
        width = self.moduli[0].bit_length() // 8 + 1
        return rows_of((self.decrypt_number(c) for c in ciphertexts), width)

    def encrypt_number(self, plaintext: int) -> int:
        """Return the ciphertext of one number."""
        for unit, n in zip(self.units, self.moduli, strict=True):
            plaintext = unit * plaintext % n
        return plaintext

    def decrypt_number(self, ciphertext: int) -> int:
        """Return the plaintext, between −n_1/2 and n_1/2."""
        for inverse, n in self._inverses:
            ciphertext = inverse * ciphertext % n
            if 2 * ciphertext > n:
                ciphertext -= n
        return ciphertext

    @functools.cached_property
    def _inverses(self) -> list[tuple[int, int]]:
        rounds = zip(self.units, self.moduli, strict=True)
        return [(pow(unit, -1, n), n) for unit, n in rounds][::-1]

    def public_bytes(self) -> bytes:
        """Return the last modulus."""
        return self.modulus.to_bytes(self.modulus.bit_length() // 8, "big")

    def to_bytes(self) -> bytes:
        """Return moduli and units, for the party's own sealed store."""
        width = self.modulus.bit_length() // 8
        return join_numbers([*self.moduli, *self.units], width)

    def __repr__(self) -> str:
        return f"AffineSecret({self.modulus.bit_length()} bits, hidden)"


def plaintext_bits(key_bits: int) -> int:
    """Return the plaintext bits that two rounds hold, for any moduli of these lengths."""
    return key_bits // 2 - 2


def draw_secret(key_bits: int, rounds: int) -> AffineSecret:
    """Return a fresh key; moduli of evenly growing lengths, units anywhere below them."""
    first = key_bits // 2
    bits = [first + (key_bits - first) * i // (rounds - 1) for i in range(rounds)]
    drawn = tuple(secrets.randbits(b) | 1 << (b - 1) | 1 for b in bits)
    return AffineSecret(drawn, tuple(_draw_unit(n) for n in drawn))


def ciphertext_bytes(key_bits: int) -> int:
    """Return the width of a number below the last modulus."""
    return residue_bytes(1 << key_bits)


def public_bytes(key_bits: int) -> int:
    """Return the size of the last modulus."""
    return key_bits // 8


def generate(key_bits: int, workers: Workers) -> ResiduePrivate:
    """Return a fresh key of exactly `key_bits` bits; a ConfigError below 1024."""
    check_key_bits("iterative-affine", key_bits, AFFINE_KEY_BITS_MIN)
    return ResiduePrivate(draw_secret(key_bits, ROUNDS))


def load_private(data: bytes, workers: Workers) -> ResiduePrivate:
    """Return the key that `AffineSecret.to_bytes` wrote."""
    numbers = split_numbers(data, len(data) // (2 * ROUNDS))
    return ResiduePrivate(AffineSecret(tuple(numbers[:ROUNDS]), tuple(numbers[ROUNDS:])))


def load_public(data: bytes, key_bits: int, workers: Workers) -> ResiduePublic:
    """Return the key a peer sent; a PeerError unless it is an odd number of exactly `key_bits`
    bits.
    """
    check_key_bits("iterative-affine", key_bits, AFFINE_KEY_BITS_MIN)
    modulus = int.from_bytes(data, "big")
    if len(data) != key_bits // 8 or modulus.bit_length() != key_bits or modulus % 2 == 0:
        raise PeerError(f"expected an odd number of {key_bits} bits as the encryption key")
    return ResiduePublic(modulus, plaintext_bits(key_bits), data, headroom=False)


def _draw_unit(n: int) -> int:
    while True:
        unit = 2 + secrets.randbelow(n - 2)
        if math.gcd(unit, n) == 1:
            return unit


SCHEME = KeyScheme(
    name="iterative-affine",
    secure=False,  # broken: see above
    multiplies=False,
    key_bits=AFFINE_KEY_BITS,
    key_bits_min=AFFINE_KEY_BITS_MIN,
    plaintext_bits=plaintext_bits,
    ciphertext_bytes=ciphertext_bytes,
    public_bytes=public_bytes,
    generate=generate,
    load_private=load_private,
    load_public=load_public,
)
