"""Paillier's encryption: keys from phe, ciphertexts modulo n².

A ciphertext of m is (1 + m·n)·r^n modulo n² (generator n + 1). The key's owner works modulo p² and
q² apart (Chinese remainders); `modular` works on ciphertexts in bulk.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import gmpy2
from gmpy2 import mpz

from fedboost.crypto import moduli, paillier_keys
from fedboost.crypto.api import KeyScheme
from fedboost.crypto.fixed_base import PrimePowers
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.paillier_keys import SecretPrimes, check_key_bits, read_public
from fedboost.crypto.secrets import SYSTEM_SOURCE, RandomSource, Secrets
from fedboost.ground.workers import Workers

_KEY_BITS = 2048


@dataclass(frozen=True)
class PaillierKey:
    """The public key n, and the modulus n²."""

    n: int

    @functools.cached_property
    def modulus(self) -> mpz:
        """The modulus n²."""
        return mpz(self.n) ** 2

    @property
    def plaintext_space(self) -> int:
        """Bound of plaintexts, which are the numbers modulo n."""
        return self.n

    def bare_encryptions(self, plaintexts: list[int]) -> list[mpz]:
        """Return 1 + m·n of each plaintext."""
        n = mpz(self.n)
        return [1 + plaintext * n for plaintext in plaintexts]


@dataclass(frozen=True, repr=False)
class PaillierSecret:
    """The two primes, and the owner's operations; it prints nothing."""

    primes: SecretPrimes

    @functools.cached_property
    def key(self) -> PaillierKey:
        """The public part."""
        return PaillierKey(self.primes.n)

    def encrypt(self, plaintexts: list[int], source: RandomSource = SYSTEM_SOURCE) -> list[mpz]:
        """Return a fresh encryption of each; a negative number stands
        for its remainder modulo n.
        """
        at_p, at_q = _powers_at(self.primes.p), _powers_at(self.primes.q)
        p, q, p2, q2 = at_p.prime, at_q.prime, at_p.square, at_q.square
        q2_inverse = gmpy2.invert(q2, p2)
        every_p = at_p.blinded([plaintext * q % p for plaintext in plaintexts], source)
        every_q = at_q.blinded([plaintext * p % q for plaintext in plaintexts], source)
        return [
            c_q + q2 * ((c_p - c_q) * q2_inverse % p2)
            for c_p, c_q in zip(every_p, every_q, strict=True)
        ]

    def decrypt(self, ciphertexts: list[mpz]) -> list[int] | None:
        """Return the plaintexts, 0 ≤ m < n; None if one is no ciphertext."""
        p, q = mpz(self.primes.p), mpz(self.primes.q)
        at_p, at_q = _Prime(p, q), _Prime(q, p)
        p_inverse, modulus = gmpy2.invert(p, q), self.key.modulus
        plaintexts = []
        for ciphertext in ciphertexts:
            if not 0 < ciphertext < modulus or ciphertext % p == 0 or ciphertext % q == 0:
                return None
            m_p, m_q = at_p.decrypt(ciphertext), at_q.decrypt(ciphertext)
            plaintexts.append(int(m_p + p * ((m_q - m_p) * p_inverse % q)))
        return plaintexts

    def proved_key(self) -> bytes:
        """Return n with its proof."""
        return paillier_keys.proved_key(self.primes)

    def to_bytes(self) -> bytes:
        """Return the two primes, for the party's own sealed store."""
        width = (self.primes.n.bit_length() + 15) // 16
        return moduli.join_numbers([self.primes.p, self.primes.q], width)

    def __repr__(self) -> str:
        return f"PaillierSecret({self.primes.n.bit_length()} bits, hidden)"


class _Prime:
    """Decryption modulo one of the two primes: m = L(c^(p−1) mod p²) / (−q) mod p."""

    def __init__(self, prime: mpz, other: mpz) -> None:
        self.prime, self.square = prime, prime * prime
        self.factor = gmpy2.invert(-other % prime, prime)

    def decrypt(self, ciphertext: mpz) -> mpz:
        """Return the plaintext modulo the prime."""
        power = gmpy2.powmod(ciphertext % self.square, self.prime - 1, self.square)
        return (power - 1) // self.prime * self.factor % self.prime


@functools.lru_cache(maxsize=4)
def _powers_at(prime: int) -> PrimePowers:
    """Return the table of a prime, made once in a process."""
    return PrimePowers(prime)


def plaintext_bits(key_bits: int) -> int:
    """Return the bits of a plaintext: any number below 2^plaintext_bits can be encrypted under such
    a key.
    """
    return key_bits - 1


def ciphertext_bytes(key_bits: int) -> int:
    """Return the width of a number modulo n²."""
    return key_bits // 4


def public_bytes(key_bits: int) -> int:
    """Return the size of a public key with its proof."""
    return (1 + paillier_keys.PAILLIER_PROOF_ROOTS) * key_bits // 8


def generate(key_bits: int, workers: Workers) -> ModularPrivate:
    """Return a fresh key of exactly `key_bits` bits; a ConfigError below 2048."""
    return ModularPrivate(PaillierSecret(paillier_keys.generate(key_bits)), workers)


def generate_from(key_bits: int, workers: Workers, secrets: Secrets) -> ModularPrivate:
    """Return the key that a secret gives, of exactly `key_bits` bits; a ConfigError below 2048."""
    return ModularPrivate(PaillierSecret(paillier_keys.draw_primes(key_bits, secrets)), workers)


def load_private(data: bytes, workers: Workers) -> ModularPrivate:
    """Return the key that `PaillierSecret.to_bytes` wrote."""
    p, q = moduli.split_numbers(data, len(data) // 2)
    return ModularPrivate(PaillierSecret(SecretPrimes(p, q)), workers)


def load_public(data: bytes, key_bits: int, workers: Workers) -> ModularPublic:
    """Return the key a peer sent; a PeerError unless it is sound and of exactly `key_bits` bits."""
    check_key_bits(key_bits)
    return ModularPublic(PaillierKey(read_public(data, key_bits)), workers, data)


SCHEME = KeyScheme(
    name="paillier",
    secure=True,
    multiplies=True,
    key_bits=_KEY_BITS,
    key_bits_min=paillier_keys.KEY_BITS_MIN,
    plaintext_bits=plaintext_bits,
    ciphertext_bytes=ciphertext_bytes,
    public_bytes=public_bytes,
    generate=generate,
    load_private=load_private,
    load_public=load_public,
    generate_from=generate_from,
)
