"""Okamoto and Uchiyama's encryption (1998): ciphertexts modulo n = p²·q itself.

A ciphertext of m is g^m · r^n modulo n. The n-th powers modulo n have p cosets. The owner knows p,
and reads the coset of a number from a discrete logarithm that is easy modulo p²:

    m = L(c^(p−1) mod p²) / L(g^(p−1) mod p²) mod p,        L(x) = (x − 1) / p

Plaintexts are numbers modulo p, a third of the key; hosts do not know p, so all rely on
⌊key_bits / 3⌋ − 1 bits, which every p of this module exceeds: a released package is below that and
never wraps. Additions cost a third of Paillier's at the same key length.

The published scheme blinds with powers of h = g^n. Its powers are not all n-th powers, and a guest
that put something outside them into a row's randomness could find it again. A host here draws
n-th powers itself, uniform among all of them for any n (`blinding`), so h need not travel. That
leaves the coset, which is the plaintext: the headroom covers it up to 2^plaintext_bits, and the
key's proof says that there is hardly more. For 32 numbers x that a hash draws from (n, g), it gives
M < 2^⌈key_bits / 3⌉ and a unit r with x = g^M · r^n:

* were there B times as many cosets as such M, each would be found with probability 1/B: a key with
  2^4 times as many passes with probability 2^-128;
* were the cosets not all reached by g, at most one x in 2^16 would be (their number has the prime
  factors of n, and smaller ones are excluded by trial division): nothing hides beside m.

So a guest that forges its key, e.g. with a larger p, has at most 6 bits above the promised ones,
and reads at most them and the topmost 40 bits' worth of the blinding range. The M are uniform below
p and tell its topmost five or six bits; the r are uniform n-th roots, always the same for one
key, for two roots of one number would give p away. That n is p²·q is not proved, and need not
be: `blinding` hides for any n, and a guest whose key others can factor harms itself.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedboost.crypto import moduli
from fedboost.crypto.api import KeyScheme
from fedboost.crypto.fixed_base import FixedBase, PrimePowers, uniform
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.secrets import SYSTEM_SOURCE, RandomSource, Secrets, SecretSource
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Workers

OU_KEY_BITS = 2048
OU_KEY_BITS_MIN = 2048
OU_PROOF_ROOTS = 32  # 4 bits each: a bad key passes with probability 2^-128
BARE_WINDOW_BITS = 8  # 86 products a power and 6 MB at 2048 bits
_LABEL = b"fedboost okamoto-uchiyama key proof 1"
_ROOT_LABEL = b"fedboost okamoto-uchiyama key root 1"


@dataclass(frozen=True)
class OuKey:
    """The public key: the modulus n, and g whose powers are plaintexts."""

    n: int
    g: int

    @functools.cached_property
    def modulus(self) -> mpz:
        """The modulus n."""
        return mpz(self.n)

    @property
    def plaintext_space(self) -> int:
        """Bound of plaintexts, which every p exceeds."""
        return 1 << plaintext_bits(self.n.bit_length())

    def bare_encryptions(self, plaintexts: list[int]) -> list[mpz]:
        """Return g^m of each plaintext."""
        base = _powers_of(self)
        zeros = np.zeros(len(plaintexts), np.int64)
        powers = base.base_powers(plaintexts)
        powers = base.field.products(powers, np.arange(len(powers)), base.field.of([mpz(1)]), zeros)
        return numbers(base.field.data(powers))


@dataclass(frozen=True, repr=False)
class OuSecret:
    """The two primes and g; it prints nothing."""

    p: int
    q: int
    g: int

    @functools.cached_property
    def key(self) -> OuKey:
        """The public part."""
        return OuKey(self.p * self.p * self.q, self.g)

    def encrypt(self, plaintexts: list[int], source: RandomSource = SYSTEM_SOURCE) -> list[mpz]:
        """Return a fresh encryption of each; a negative number stands for its remainder modulo p.

        Modulo p² that is (1 + m·slope·p) times a random p-th power, modulo q any unit, for r^n
        hides the rest of g^m: so any multiple of p² is added (to a multiple of q once in q times).
        """
        powers = _powers_at(self.p)
        p, square = powers.prime, powers.square
        slope = -self._discrete_log(gmpy2.powmod(self.g, p - 1, square)) % p
        blinded = powers.blinded([plaintext * slope % p for plaintext in plaintexts], source)
        above = uniform(mpz(self.q), len(plaintexts), source)
        return [c + square * k for c, k in zip(blinded, above, strict=True)]

    def decrypt(self, ciphertexts: list[mpz]) -> list[int] | None:
        """Return the plaintexts, 0 ≤ m < p; None if one is no ciphertext."""
        p, q, n = mpz(self.p), mpz(self.q), self.key.modulus
        square = p * p
        factor = gmpy2.invert(self._discrete_log(gmpy2.powmod(self.g, p - 1, square)), p)
        plaintexts = []
        for c in ciphertexts:
            if not 0 < c < n or c % p == 0 or c % q == 0:
                return None
            log = self._discrete_log(gmpy2.powmod(c % square, p - 1, square))
            plaintexts.append(int(log * factor % p))
        return plaintexts

    def proved_key(self) -> bytes:
        """Return n and g with the proof that the plaintext space has its promised size."""
        n, width, short = (
            self.key.n,
            self.key.n.bit_length() // 8,
            _prime_bytes(self.key.n.bit_length()),
        )
        parts = [moduli.join_numbers([n, self.g], width)]
        for i in range(OU_PROOF_ROOTS):
            drawn = mpz(_challenge(self.key, i))
            (exponent,) = self.decrypt([drawn]) or (0,)
            root = self._nth_root(drawn * gmpy2.powmod(self.g, -exponent, n) % n, i)
            parts.append(
                moduli.join_numbers([exponent], short) + moduli.join_numbers([root], width)
            )
        return b"".join(parts)

    def to_bytes(self) -> bytes:
        """Return p, q and g, for the party's own sealed store."""
        width = self.key.n.bit_length() // 8
        return moduli.join_numbers([self.p, self.q, self.g], width)

    def _discrete_log(self, power: mpz) -> mpz:
        return (power - 1) // self.p

    def _nth_root(self, power: mpz, index: int) -> int:
        """Return one of the p roots of an n-th power, uniform among them and always the same."""
        p, q, n = mpz(self.p), mpz(self.q), self.key.modulus
        square = p * p
        at_p = gmpy2.powmod(power, gmpy2.invert(n, p - 1), square)
        at_q = gmpy2.powmod(power, gmpy2.invert(n, q - 1), q)
        seed = _ROOT_LABEL + index.to_bytes(4, "big") + self.to_bytes()
        drawn = hashlib.shake_256(seed).digest(p.bit_length() // 8 + 17)
        at_p = at_p * (1 + int.from_bytes(drawn, "big") % p * p) % square
        return int(at_q + q * ((at_p - at_q) * gmpy2.invert(q, square) % square))

    def __repr__(self) -> str:
        return f"OuSecret({self.key.n.bit_length()} bits, hidden)"


@functools.lru_cache(maxsize=2)
def _powers_of(key: OuKey) -> FixedBase:
    """Return the table of a key, made once in a process."""
    return FixedBase(mpz(key.g), key.modulus, plaintext_bits(key.n.bit_length()), BARE_WINDOW_BITS)


@functools.lru_cache(maxsize=2)
def _powers_at(prime: int) -> PrimePowers:
    """Return the table of a prime, made once in a process."""
    return PrimePowers(prime)


def plaintext_bits(key_bits: int) -> int:
    """Return the bits of a plaintext: any number below 2^plaintext_bits can be encrypted under such
    a key.
    """
    return key_bits // 3 - 1


def draw_secret(key_bits: int, source: RandomSource = SYSTEM_SOURCE) -> OuSecret:
    """Return a fresh key of exactly `key_bits` bits."""
    p_bits = _prime_bits(key_bits)
    while True:
        p = moduli.drawn_prime(p_bits, source)
        q = moduli.drawn_prime(key_bits - 2 * p_bits, source)
        n = p * p * q
        # r^n must reach all units but for the cosets that are plaintexts.
        if n.bit_length() == key_bits and (p - 1) % q and (q - 1) % p and p != q:
            break
    while True:
        [g] = (2 + int(number) for number in uniform(mpz(n - 2), 1, source))
        if gmpy2.gcd(g, n) == 1 and gmpy2.powmod(g, p - 1, p * p) != 1:
            return OuSecret(p, q, g)


def read_public(data: bytes, key_bits: int) -> OuKey:
    """Return the key, from the output of `OuSecret.proved_key`; a PeerError unless it is sound."""
    width, short = key_bits // 8, _prime_bytes(key_bits)
    if len(data) != public_bytes(key_bits):
        raise PeerError(f"expected a key of {key_bits} bits and its proof, got {len(data)} bytes")
    n, g = moduli.split_numbers(data[: 2 * width], width)
    moduli.check_modulus(n, key_bits)
    key = OuKey(n, g)
    holds = moduli.is_unit(g, n)
    for i in range(OU_PROOF_ROOTS):
        start = 2 * width + i * (short + width)
        exponent = int.from_bytes(data[start : start + short], "big")
        root = int.from_bytes(data[start + short : start + short + width], "big")
        power = gmpy2.powmod(g, exponent, n) * gmpy2.powmod(root, n, n) % n
        short_enough = exponent.bit_length() <= _prime_bits(key_bits)
        holds = holds and short_enough and moduli.is_unit(root, n)
        holds = holds and power == _challenge(key, i)
    if not holds:
        raise PeerError("the proof of the encryption key does not hold")
    return key


def ciphertext_bytes(key_bits: int) -> int:
    """Return the width of a number modulo n."""
    return key_bits // 8


def public_bytes(key_bits: int) -> int:
    """Return the size of a public key with its proof."""
    return 2 * (key_bits // 8) + OU_PROOF_ROOTS * (_prime_bytes(key_bits) + key_bits // 8)


def generate(key_bits: int, workers: Workers) -> ModularPrivate:
    """Return a fresh key of exactly `key_bits` bits; a ConfigError below 2048."""
    moduli.check_key_bits("okamoto-uchiyama", key_bits, OU_KEY_BITS_MIN)
    return ModularPrivate(draw_secret(key_bits), workers)


def generate_from(key_bits: int, workers: Workers, secrets: Secrets) -> ModularPrivate:
    """Return the key that a secret gives, of exactly `key_bits` bits; a ConfigError below 2048."""
    moduli.check_key_bits("okamoto-uchiyama", key_bits, OU_KEY_BITS_MIN)
    source = SecretSource(secrets.derive("okamoto-uchiyama primes", key_bits))
    return ModularPrivate(draw_secret(key_bits, source), workers)


def load_private(data: bytes, workers: Workers) -> ModularPrivate:
    """Return the key that `OuSecret.to_bytes` wrote."""
    p, q, g = moduli.split_numbers(data, len(data) // 3)
    return ModularPrivate(OuSecret(p, q, g), workers)


def load_public(data: bytes, key_bits: int, workers: Workers) -> ModularPublic:
    """Return the key a peer sent; a PeerError unless it is sound and of exactly `key_bits` bits."""
    moduli.check_key_bits("okamoto-uchiyama", key_bits, OU_KEY_BITS_MIN)
    return ModularPublic(read_public(data, key_bits), workers, data)


def _prime_bits(key_bits: int) -> int:
    """Return the length of p."""
    return -(-key_bits // 3)


def _prime_bytes(key_bits: int) -> int:
    return (_prime_bits(key_bits) + 7) // 8


def _challenge(key: OuKey, index: int) -> int:
    """Return the number that a proof gives plaintext and root of: drawn from n and g."""
    width = key.n.bit_length() // 8
    return moduli.challenge(_LABEL, index, moduli.join_numbers([key.n, key.g], width), key.n)


SCHEME = KeyScheme(
    name="okamoto-uchiyama",
    secure=True,
    multiplies=True,
    key_bits=OU_KEY_BITS,
    key_bits_min=OU_KEY_BITS_MIN,
    plaintext_bits=plaintext_bits,
    ciphertext_bytes=ciphertext_bytes,
    public_bytes=public_bytes,
    generate=generate,
    load_private=load_private,
    load_public=load_public,
    generate_from=generate_from,
)
