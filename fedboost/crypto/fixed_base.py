"""Powers of fixed numbers from tables, and the random n-th residues of Paillier made with them.

Both sides keep their tables in the worker process that uses them, one set for each key, built once
enough residues have been asked for to pay for them. All randomness is the operating system's.
"""

from __future__ import annotations

import functools
import os
import secrets

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier_kernels import Octets, ciphertext_bytes, modulus, octets

SLACK_BITS = 64  # an exponent this much longer than the group's order is uniform to 2^-64

BLINDER_WINDOW_BITS = 8  # 264 products a power and 37 MB at 2048 bits
BLINDER_DIRECT = 32  # tables cost as much as 96 residues, and jobs that need 32 need hundreds
POOL = 64  # residues of which each blinder multiplies a random subset

ENCRYPT_WINDOW_BITS = 11  # 2 × 94 products a power and 120 MB at 2048 bits
ENCRYPT_DIRECT = 128
SMALL_PRIMES_BELOW = 1 << 16


class FixedBase:
    """Powers of one base: table[i][d] = base^(d · 2^(i·window)), a product of one entry a
    window.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int, window_bits: int) -> None:
        self.modulus = modulus
        self.window_bits = window_bits
        self.table: list[list[mpz]] = []
        for _ in range(-(-exponent_bits // window_bits)):
            row = [mpz(1)]
            for _ in range((1 << window_bits) - 1):
                row.append(row[-1] * base % modulus)
            self.table.append(row)
            base = row[-1] * base % modulus

    def powers(self, exponents: list[int]) -> list[mpz]:
        """base^e for each exponent, window after window, so that a window's entries stay in
        cache.
        """
        n = self.modulus
        results = [mpz(1)] * len(exponents)
        for row, digits in zip(self.table, self._digits(exponents), strict=True):
            results = [x * row[digit] % n for x, digit in zip(results, digits, strict=True)]
        return results

    def _digits(self, exponents: list[int]) -> list[list[int]]:
        """For each window, every exponent's digit."""
        windows, bits = len(self.table), self.window_bits
        width = (windows * bits + 7) // 8
        raw = b"".join([exponent.to_bytes(width, "little") for exponent in exponents])
        flat = np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)
        ones = np.unpackbits(flat, axis=1, bitorder="little", count=windows * bits)
        weights = 1 << np.arange(bits, dtype=np.int64)
        digits: list[list[int]] = (ones.reshape(-1, windows, bits) @ weights).T.tolist()
        return digits


class Blinding:
    """A host's random n-th residues modulo n².

    With tables: a power of one random residue with an exponent longer than the group's order, times
    the product of a random subset of 64 others. The power alone would be uniform only within the
    subgroup that its base generates, and which coset a ciphertext came from could be read.
    """

    def __init__(self, n: int) -> None:
        self.n, self.n2 = modulus(n)
        self._made = 0
        self._base: FixedBase | None = None
        self._subsets: list[list[mpz]] = []

    def make(self, count: int) -> list[mpz]:
        """`count` fresh ones."""
        self._made += count
        if self._made <= BLINDER_DIRECT:
            return [self._direct() for _ in range(count)]
        if self._base is None:
            self._base = self._tables()
        base = self._base
        exponents = [secrets.randbits(len(base.table) * BLINDER_WINDOW_BITS) for _ in range(count)]
        return [self._times_subset(power) for power in base.powers(exponents)]

    def _direct(self) -> mpz:
        """r^n for a uniform unit r."""
        while True:
            r = mpz(secrets.randbelow(int(self.n)))
            if gmpy2.gcd(r, self.n) == 1:
                return gmpy2.powmod(r, self.n, self.n2)

    def _tables(self) -> FixedBase:
        for _ in range(POOL // 8):  # the 256 products of 8 residues, by which bits are set
            products = [mpz(1)]
            for _ in range(8):
                residue = self._direct()
                products += [product * residue % self.n2 for product in products]
            self._subsets.append(products)
        bits = self.n.bit_length() + SLACK_BITS
        return FixedBase(self._direct(), self.n2, bits, BLINDER_WINDOW_BITS)

    def _times_subset(self, residue: mpz) -> mpz:
        for products, chosen in zip(self._subsets, os.urandom(POOL // 8), strict=True):
            residue = residue * products[chosen] % self.n2
        return residue


class Encryption:
    """The key owner's encryptions, modulo p² and q² apart (Chinese remainders).

    The n-th residues modulo p² are a cyclic group of order p − 1. The base of its table generates
    it up to factors of p − 1 beyond 2^16, so that its powers are as good as random n-th residues.
    """

    def __init__(self, p: int, q: int) -> None:
        self.p, self.q = mpz(p), mpz(q)
        self.n = self.p * self.q
        self.p2, self.q2 = self.p * self.p, self.q * self.q
        self._q2_inverse = gmpy2.invert(self.q2, self.p2)
        self._width = ciphertext_bytes(int(self.n))
        self._made = 0
        self._bases: tuple[FixedBase, FixedBase] | None = None

    def rows(self, plaintexts: list[int]) -> Octets:
        """A fresh encryption of each (a negative number stands for its remainder modulo n)."""
        p2, q2, n, q2_inverse = self.p2, self.q2, self.n, self._q2_inverse
        at_p, at_q = self._residues(len(plaintexts))
        ciphertexts = []
        for plaintext, r_p, r_q in zip(plaintexts, at_p, at_q, strict=True):
            c = 1 + plaintext * n
            c_p, c_q = c * r_p % p2, c * r_q % q2
            ciphertexts.append(c_q + q2 * ((c_p - c_q) * q2_inverse % p2))
        return octets(ciphertexts, self._width)

    def _residues(self, count: int) -> tuple[list[mpz], list[mpz]]:
        """Random n-th residues modulo p² and modulo q²."""
        self._made += count
        primes = (int(self.p), int(self.q))
        if self._bases is None and self._made <= ENCRYPT_DIRECT:
            first, second = (
                [
                    gmpy2.powmod(1 + secrets.randbelow(prime - 1), prime, prime**2)
                    for _ in range(count)
                ]
                for prime in primes
            )
            return first, second
        if self._bases is None:
            self._bases = (_generator_table(primes[0]), _generator_table(primes[1]))
        first, second = (
            base.powers([secrets.randbelow(prime - 1) for _ in range(count)])
            for base, prime in zip(self._bases, primes, strict=True)
        )
        return first, second


def _generator_table(prime: int) -> FixedBase:
    order = mpz(prime - 1)
    factors = [int(f) for f in _small_primes() if order % int(f) == 0]
    while True:
        y = mpz(2 + secrets.randbelow(prime - 3))
        if all(gmpy2.powmod(y, order // factor, prime) != 1 for factor in factors):
            break
    square = mpz(prime) ** 2
    base = gmpy2.powmod(y, prime, square)
    return FixedBase(base, square, int(order).bit_length(), ENCRYPT_WINDOW_BITS)


@functools.lru_cache(maxsize=1)
def _small_primes() -> NDArray[np.int64]:
    """All primes below 2^16."""
    prime = np.ones(SMALL_PRIMES_BELOW, dtype=np.bool_)
    prime[:2] = False
    for number in range(2, 256):
        if prime[number]:
            prime[number * number :: number] = False
    return np.flatnonzero(prime)


def small_prime_product() -> mpz:
    """The product of all primes below 2^16."""
    return gmpy2.primorial(SMALL_PRIMES_BELOW)


@functools.lru_cache(maxsize=2)
def _blinding(n: int) -> Blinding:
    return Blinding(n)


@functools.lru_cache(maxsize=2)
def _encryption(p: int, q: int) -> Encryption:
    return Encryption(p, q)


def make_blinders(n: int, count: int) -> Octets:
    """`count` fresh random n-th residues modulo n², uint8 (count, width)."""
    return octets(_blinding(n).make(count), ciphertext_bytes(n))


def encrypt_rows(
    p: int, q: int, g: NDArray[np.int64], h: NDArray[np.int64], layout: GhLayout
) -> Octets:
    """Fresh encryptions of packed (g, h), uint8 (rows, width)."""
    return _encryption(p, q).rows(layout.pack(g, h))
