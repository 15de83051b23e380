"""Powers of fixed numbers from tables, and the random p-th powers that a key owner makes with them.

Both sides keep their tables in the process, one set for each key, built once enough powers are
needed to pay for them. All randomness is the operating system's.
"""

from __future__ import annotations

import threading
from itertools import count

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.moduli import challenge, small_primes
from fedboost.crypto.montgomery import (
    EDGE_LIMBS,
    MONTGOMERY_LANES,
    Constants,
    LimbRows,
    montgomery,
    product,
)
from fedboost.crypto.secrets import SYSTEM_SOURCE, RandomSource
from fedboost.ground.kernels import kernel

_BASE_LABEL = b"fedboost base of powers 1"
ENCRYPT_WINDOW_BITS = 10  # Paillier: 2 × 103 products a power and 64 MB at 2048 bits
ENCRYPT_DIRECT = 256  # the table takes as long as 300


class FixedBase:
    """Powers of one base: table[i][d] = base^(d · 2^(i·window)) · R, a product of one entry a
    window.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int, window_bits: int) -> None:
        self.field = montgomery(modulus)
        self.window_bits = window_bits
        self.table: list[LimbRows] = []
        for _ in range(-(-exponent_bits // window_bits)):
            row = [self.field.radix]
            for _ in range((1 << window_bits) - 1):
                row.append(row[-1] * base % modulus)
            self.table.append(self.field.of(row))
            base = gmpy2.powmod(base, 1 << window_bits, modulus)

    def base_powers(self, exponents: list[int]) -> LimbRows:
        """Return base^e · R for each exponent, window after window, so that a window's entries stay
        in cache.
        """
        digits, each = self._window_digits(exponents), np.arange(len(exponents))
        results = self.table[0][digits[0]]
        for row, chosen in zip(self.table[1:], digits[1:], strict=True):
            results = self.field.products(results, each, row, chosen)
        return results

    def _window_digits(self, exponents: list[int]) -> NDArray[np.int64]:
        """Return every exponent's digit for each window, (windows, exponents)."""
        windows, bits = len(self.table), self.window_bits
        width = (windows * bits + 7) // 8
        raw = b"".join([exponent.to_bytes(width, "little") for exponent in exponents])
        flat = np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)
        ones = np.unpackbits(flat, axis=1, bitorder="little", count=windows * bits)
        weights = 1 << np.arange(bits, dtype=np.int64)
        return (ones.reshape(-1, windows, bits) @ weights).T.copy()


class PrimePowers:
    """The key owner's random p-th powers modulo p², for a prime p: a cyclic group of order p − 1.

    The base of the table generates it up to factors of p − 1 beyond 2^16, so that its powers are as
    good as random ones.

    From a table, two products modulo p stand for one modulo p². With the number written as (z +
    p·d)·(1 + p·s) and an entry as y·(1 + p·v), a product is z·y = z' + p·c,

        z' + p·(d·y + c), s + v        a reduction of z·y subtracts p·c

    and Montgomery's reduction, z·y + m·p = R·z', subtracts −m / R (`_multiply_up`).
    """

    def __init__(self, prime: int) -> None:
        self.prime = mpz(prime)
        self.square = self.prime * self.prime
        self._made = 0
        self._drawing = threading.Lock()
        self._table: NDArray[np.uint32] | None = None

    def make_powers(self, count: int) -> list[tuple[mpz, mpz]]:
        """Return `count` fresh powers as (z, w), which stand for z + p·w modulo p²; 0 < z < p."""
        self._made += count
        order = self.prime - 1
        if self._table is None and self._made <= ENCRYPT_DIRECT:
            units = [1 + unit for unit in uniform(order, count)]
            powers = (gmpy2.powmod(unit, self.prime, self.square) for unit in units)
            return [(power % self.prime, power // self.prime) for power in powers]
        return self._powers_from_table(uniform(order, count))

    def draw(self, count: int, source: RandomSource) -> list[tuple[mpz, mpz]]:
        """Return `count` powers from the numbers of a source, as `make_powers` does: equal numbers
        give equal powers.
        """
        return self._powers_from_table(uniform(self.prime - 1, count, source))

    def blinded(self, slopes: list[mpz], source: RandomSource = SYSTEM_SOURCE) -> list[mpz]:
        """Return (1 + p·slope)·r modulo p² with a fresh random power r for each."""
        p, count = self.prime, len(slopes)
        made = self.make_powers(count) if source is SYSTEM_SOURCE else self.draw(count, source)
        powers = zip(slopes, made, strict=True)
        return [z + p * ((w + z * slope) % p) for slope, (z, w) in powers]

    def _powers_from_table(self, exponents: list[mpz]) -> list[tuple[mpz, mpz]]:
        with self._drawing:
            if self._table is None:
                self._table = self._make_table()
        field, table = montgomery(self.prime), self._table
        width = (len(table) * ENCRYPT_WINDOW_BITS + 7) // 8 + 2  # a digit is read from three bytes
        raw = b"".join([exponent.to_bytes(width, "little") for exponent in exponents])
        digits = np.frombuffer(raw, np.uint8).reshape(-1, width)
        z, d, s = (np.empty((len(exponents), field.limbs), np.uint32) for _ in range(3))
        lifted = field.of([-(field.radix_power - 1) % self.prime])[0]
        _multiply_up(table, digits, ENCRYPT_WINDOW_BITS, field.constants, lifted, (z, d, s))
        each, first = np.arange(len(z)), np.zeros(len(z), np.int64)
        s = field.products(s, each, field.radix_square, first)
        sums = numbers(field.data(field.products(z, each, s, each)))
        parts = zip(numbers(field.data(z)), sums, numbers(field.data(d)), strict=True)
        return [(low, product + high) for low, product, high in parts]

    def _make_table(self) -> NDArray[np.uint32]:
        """Table of y and v of base^(digit · 2^(i · window)), uint32 (windows, digits, 2 · limbs).

        All windows but the first are multiplied by R, which each product removes again.
        """
        prime, order = self.prime, self.prime - 1
        factors = [int(f) for f in small_primes() if order % int(f) == 0]
        # As secret as the prime is, and the same whenever powers of it are drawn again.
        seed = int(prime).to_bytes((prime.bit_length() + 7) // 8, "big")
        for number in count():
            drawn = mpz(challenge(_BASE_LABEL, number, seed, int(prime)))
            if drawn > 1 and all(gmpy2.powmod(drawn, order // f, prime) != 1 for f in factors):
                break
        field, size = montgomery(prime), 1 << ENCRYPT_WINDOW_BITS
        base, entry, rows = gmpy2.powmod(drawn, prime, self.square), mpz(1), []
        for _ in range(-(-order.bit_length() // ENCRYPT_WINDOW_BITS)):
            back, inverse = gmpy2.invert(base, prime), gmpy2.invert(entry, prime)
            ys, vs = [], []
            for _ in range(size):
                high, low = divmod(entry, prime)
                ys.append(low)
                vs.append(high * inverse % prime)
                entry, inverse = entry * base % self.square, inverse * back % prime
            rows.append(np.concatenate([field.of(ys), field.of(vs)], axis=1))
            base = gmpy2.powmod(base, size, self.square)
            entry = field.radix_power % self.square
        return np.stack(rows)


@kernel
def _multiply_up(
    table: NDArray[np.uint32],
    exponents: NDArray[np.uint8],
    window_bits: int,
    constants: Constants,
    lifted: NDArray[np.uint32],
    products: tuple[LimbRows, LimbRows, LimbRows],
) -> None:
    """Write products of one entry a window, as z, d and s; see `PrimePowers`. `lifted`: 1 − R
    modulo p.

    Window after window, so that its entries stay in cache. An m is subtracted as R − 1 − m.
    """
    by_z, by_d, by_s = products
    _, _, bits = constants
    n, count = by_z.shape[1], len(exponents)
    groups = -(-count // MONTGOMERY_LANES)
    mask = np.uint32((1 << bits) - 1)
    z = np.zeros((groups, (n + EDGE_LIMBS) * MONTGOMERY_LANES), np.uint32)
    d = np.zeros((groups, (n + EDGE_LIMBS) * MONTGOMERY_LANES), np.uint32)
    s = np.zeros((groups, n * MONTGOMERY_LANES), np.uint64)
    y = np.zeros((n + 2 * EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32)
    scratch = (
        np.zeros((n + EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32),
        np.zeros(2 * MONTGOMERY_LANES, np.uint64),
    )
    m, _ = scratch
    none, start = (
        np.zeros(n * MONTGOMERY_LANES, np.uint32),
        np.zeros(n * MONTGOMERY_LANES, np.uint32),
    )
    for window in range(len(table)):
        byte, within = window * window_bits // 8, window * window_bits % 8
        for group in range(groups):
            for w in range(MONTGOMERY_LANES):
                row = min(group * MONTGOMERY_LANES + w, count - 1)
                digit = np.int64(exponents[row, byte])
                digit |= np.int64(exponents[row, byte + 1]) << 8
                digit |= np.int64(exponents[row, byte + 2]) << 16
                entry = table[window, (digit >> within) & ((1 << window_bits) - 1)]
                for limb in range(n):
                    y[(limb + EDGE_LIMBS) * MONTGOMERY_LANES + w] = entry[limb]
                    s[group, limb * MONTGOMERY_LANES + w] += entry[n + limb]
            if window == 0:
                z[group, : n * MONTGOMERY_LANES] = y[
                    EDGE_LIMBS * MONTGOMERY_LANES : (EDGE_LIMBS + n) * MONTGOMERY_LANES
                ]
            else:
                product(z[group], y, none, constants, scratch, z[group, : n * MONTGOMERY_LANES])
                for limb in range(n):
                    for w in range(MONTGOMERY_LANES):
                        at = limb * MONTGOMERY_LANES + w
                        start[at] = lifted[limb] + (mask - m[at])
                product(d[group], y, start, constants, scratch, d[group, : n * MONTGOMERY_LANES])
    for row in range(count):
        group, w = row // MONTGOMERY_LANES, row % MONTGOMERY_LANES
        carry = np.uint64(0)
        for limb in range(n):
            at = limb * MONTGOMERY_LANES + w
            carry += s[group, at]
            by_s[row, limb] = np.uint32(carry) & mask
            carry >>= np.uint64(bits)
            by_z[row, limb], by_d[row, limb] = z[group, at], d[group, at]


def uniform(bound: mpz, count: int, source: RandomSource = SYSTEM_SOURCE) -> list[mpz]:
    """Return `count` random numbers below `bound`, each uniform to 2^-128."""
    width = (bound.bit_length() + 7) // 8 + 16
    raw = source.take(count * width)
    return [
        mpz.from_bytes(raw[start : start + width], "big") % bound
        for start in range(0, len(raw), width)
    ]
