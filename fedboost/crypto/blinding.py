"""A host's random n-th powers, which hide from the key's owner how a sum was made.

A guest chooses n and the randomness of every row. Its key's proof says that only the plaintext
tells the cosets of G apart, the group of all n-th powers. So a factor that is uniform in G hides
everything but the plaintext. r^n for a random unit r is uniform in G, for any n.

A full power takes nine times as long as products from tables. So a host draws N full powers
g_1 … g_N, gives each to one answer, and then blinds with products

    g_1^e_1 · … · g_N^e_N        all e_i random bytes, fresh for each answer

With 8·N ≥ log2 n + 160 these are within 2^-80 of uniform, even if all g_i are known
(after Regev, "On lattices, learning with errors, random linear codes, and cryptography", 2005,
section 5, who takes subset sums):

* The distance from uniform is at most ½ · √(Σ |E χ|²) over all characters χ ≠ 1 of G. On average
  over g_i, |E χ|² for a χ of order c is ρ(c)^N, where ρ(c) is the probability that c divides the
  difference of two random bytes: 2^-8 from c = 256 on, at most 1.25/c below.
* n has no prime factor below 2^16 (`moduli.check_modulus`), so G is a product of k ≤ log2 n / 16
  cyclic groups, and has at most c^k characters of order c.
* Orders from 256 on: |G| · 2^(-8·N) ≤ 2^-160. Smaller orders, powers of 2 apart: together below
  2^-230, the most of them 3^(k-N). A power of 2: E χ = 0 unless χ is 1 at every g_i, and that such
  a χ exists has probability below 2^(k-N) ≤ 2^-148.

So the guest learns nothing from m answers but with probability m · 2^-80. Fewer bases of longer
exponents would not do: n may be a product of k primes, then G needs k generators. Fewer bases
generate a subgroup only, and the coset of an answer reveals the rows that it adds up.
"""

from __future__ import annotations

import functools
import os
import threading

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedboost.crypto.fixed_base import uniform
from fedboost.crypto.limbs import ByteArray, as_bytes
from fedboost.crypto.modular_kernels import ModularKey, ciphertext_bytes
from fedboost.crypto.montgomery import LimbRows, Montgomery, montgomery

EXPONENT_BITS = 8  # a byte; the tables take 20 MB at 2048 bits (Paillier: 43)
SLACK_BITS = 160  # bits of an answer's exponents beyond those of n


def count_bases(key_bits: int) -> int:
    """Return the number of full powers that the tables of a key of this length need."""
    return -(-(key_bits + SLACK_BITS) // EXPONENT_BITS)


class Blinding:
    """Random n-th powers modulo one key's modulus: full powers first, then products of those."""

    def __init__(self, key: ModularKey) -> None:
        self.n, self.modulus, self._width = mpz(key.n), key.modulus, ciphertext_bytes(key)
        self.base_count = count_bases(self.n.bit_length())
        self._bases: list[mpz] = []
        self._changing = threading.Lock()
        self._tables: list[LimbRows] | None = None

    def make_factors(self, count: int) -> ByteArray:
        """Return `count` fresh powers, uint8 (count, width)."""
        powers: list[mpz] = []
        while len(powers) < count and len(self._bases) < self.base_count:
            powers.append(self._draw_power())
            with self._changing:
                if len(self._bases) < self.base_count:
                    self._bases.append(powers[-1])
        data = as_bytes(powers, self._width)
        if len(powers) == count:
            return data
        return np.concatenate([data, self._draw_products(count - len(powers))])

    def _draw_power(self) -> mpz:
        """Return r^n for a uniform unit r."""
        while True:
            (r,) = uniform(self.n, 1)
            if gmpy2.gcd(r, self.n) == 1:
                # This function lets other threads run meanwhile, `powmod` does not.
                (power,) = gmpy2.powmod_base_list([r], self.n, self.modulus)
                return power

    def _draw_products(self, count: int) -> ByteArray:
        """Return products of powers of all bases with random exponents."""
        field = montgomery(self.modulus)
        with self._changing:
            if self._tables is None:
                self._tables = power_tables(field, self._bases)
        tables, each = self._tables, np.arange(count)
        exponents = np.frombuffer(os.urandom(len(tables) * count), np.uint8)
        exponents = exponents.reshape(len(tables), count)
        # Table after table, so that one stays in cache.
        products = tables[0][exponents[0]]
        for table, digits in zip(tables[1:], exponents[1:], strict=True):
            products = field.products(products, each, table, digits)
        return field.data(products)


def power_tables(field: Montgomery, bases: list[mpz]) -> list[LimbRows]:
    """Return the powers of each base for exponents of a byte, times R;
    the last base's without R.
    """
    tables = np.empty((len(bases), 1 << EXPONENT_BITS, field.limbs), np.uint32)
    each, once = np.arange(len(bases)), np.zeros(len(bases), np.int64)
    factors = field.products(field.of(bases), each, field.radix_square, once)
    powers = field.of([*[field.radix] * (len(bases) - 1), mpz(1)])
    for exponent in range(1 << EXPONENT_BITS):
        tables[:, exponent] = powers
        powers = field.products(powers, each, factors, each)
    return list(tables)


@functools.lru_cache(maxsize=2)
def _blinding(key: ModularKey) -> Blinding:
    return Blinding(key)


def make_blinders(key: ModularKey, count: int) -> ByteArray:
    """Return `count` fresh random n-th powers, uint8 (count, width)."""
    return _blinding(key).make_factors(count)
