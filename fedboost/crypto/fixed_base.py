"""Powers of fixed numbers from tables, and the random n-th powers made with them.

Both sides keep their tables in the worker process that uses them, one set for each key, built once
enough powers have been asked for to pay for them. All randomness is the operating system's.
"""

from __future__ import annotations

import functools
import os
import secrets

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.modular_kernels import ModularKey, as_bytes, ciphertext_bytes
from fedboost.crypto.moduli import small_primes

SLACK_BITS = 64  # an exponent this much longer than the group's order is uniform to 2^-64

BLINDER_WINDOW_BITS = 8  # 264 products a power and 37 MB at 2048 bits
BLINDER_DIRECT = 32  # tables cost as much as 96 residues, and jobs that need 32 need hundreds
POOL = 64  # n-th powers of which each blinder multiplies a random subset

ENCRYPT_WINDOW_BITS = 11  # 2 × 94 products a power and 120 MB at 2048 bits
ENCRYPT_DIRECT = 128


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
        """Return every exponent's digit for each window."""
        windows, bits = len(self.table), self.window_bits
        width = (windows * bits + 7) // 8
        raw = b"".join([exponent.to_bytes(width, "little") for exponent in exponents])
        flat = np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)
        ones = np.unpackbits(flat, axis=1, bitorder="little", count=windows * bits)
        weights = 1 << np.arange(bits, dtype=np.int64)
        digits: list[list[int]] = (ones.reshape(-1, windows, bits) @ weights).T.tolist()
        return digits


class Blinding:
    """A host's random n-th powers modulo the key's modulus.

    With tables: a power of one random n-th power with an exponent longer than the group's order,
    times the product of a random subset of 64 others. The first alone would be uniform only within
    the subgroup that its base generates, and which coset a ciphertext came from could be read: the
    n-th powers of Paillier and of Okamoto-Uchiyama are a product of two cyclic groups of even
    order, so no base generates all of them.
    """

    def __init__(self, key: ModularKey) -> None:
        self.n, self.modulus = mpz(key.n), key.modulus
        self._made = 0
        self._tables: tuple[FixedBase, list[list[mpz]]] | None = None

    def make(self, count: int) -> list[mpz]:
        """`count` fresh ones."""
        self._made += count
        if self._made <= BLINDER_DIRECT:
            return [self._direct() for _ in range(count)]
        if self._tables is None:
            self._tables = self._drawn()  # at once: threads of two parties may be here
        base, subsets = self._tables
        exponents = [secrets.randbits(len(base.table) * BLINDER_WINDOW_BITS) for _ in range(count)]
        return [self._times_subset(power, subsets) for power in base.powers(exponents)]

    def _direct(self) -> mpz:
        """r^n for a uniform unit r."""
        while True:
            r = mpz(secrets.randbelow(int(self.n)))
            if gmpy2.gcd(r, self.n) == 1:
                return gmpy2.powmod(r, self.n, self.modulus)

    def _drawn(self) -> tuple[FixedBase, list[list[mpz]]]:
        subsets = []
        for _ in range(POOL // 8):  # the 256 products of 8, by which bits are set
            products = [mpz(1)]
            for _ in range(8):
                residue = self._direct()
                products += [product * residue % self.modulus for product in products]
            subsets.append(products)
        bits = self.n.bit_length() + SLACK_BITS
        return FixedBase(self._direct(), self.modulus, bits, BLINDER_WINDOW_BITS), subsets

    def _times_subset(self, residue: mpz, subsets: list[list[mpz]]) -> mpz:
        for products, chosen in zip(subsets, os.urandom(POOL // 8), strict=True):
            residue = residue * products[chosen] % self.modulus
        return residue


class PrimePowers:
    """The key owner's random p-th powers modulo p², for a prime p: a cyclic group of order p − 1.

    The base of the table generates it up to factors of p − 1 beyond 2^16, so that its powers are
    as good as random ones.
    """

    def __init__(self, prime: int) -> None:
        self.prime = mpz(prime)
        self.square = self.prime * self.prime
        self._made = 0
        self._base: FixedBase | None = None

    def make(self, count: int) -> list[mpz]:
        """`count` fresh ones."""
        self._made += count
        order = int(self.prime) - 1
        if self._base is None and self._made <= ENCRYPT_DIRECT:
            units = [1 + secrets.randbelow(order) for _ in range(count)]
            return [gmpy2.powmod(unit, self.prime, self.square) for unit in units]
        if self._base is None:
            self._base = self._table()
        return self._base.powers([secrets.randbelow(order) for _ in range(count)])

    def _table(self) -> FixedBase:
        prime, order = self.prime, self.prime - 1
        factors = [int(f) for f in small_primes() if order % int(f) == 0]
        while True:
            y = mpz(2 + secrets.randbelow(int(prime) - 3))
            if all(gmpy2.powmod(y, order // factor, prime) != 1 for factor in factors):
                break
        base = gmpy2.powmod(y, prime, self.square)
        return FixedBase(base, self.square, int(order).bit_length(), ENCRYPT_WINDOW_BITS)


@functools.lru_cache(maxsize=2)
def _blinding(key: ModularKey) -> Blinding:
    return Blinding(key)


def make_blinders(key: ModularKey, count: int) -> ByteArray:
    """`count` fresh random n-th powers, uint8 (count, width)."""
    return as_bytes(_blinding(key).make(count), ciphertext_bytes(key))
