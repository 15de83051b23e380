"""Products modulo an odd number, many at once: Montgomery's, 32 independent ones side by side.

A number is a row of small limbs, least first. A product of two numbers is divided by R, the
power of two that all limbs hold. A sum of k ciphertexts takes k − 1 products in any order, and
one product with R^(k−1). Numbers stay below twice the modulus until they become bytes.

The compiled loops take the same limb of all lanes together, so that the compiler fills vector
registers of any width. They branch on no number's value and look nothing up by one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.limbs import ByteArray, as_bytes
from fedboost.ground.arrays import Words
from fedboost.ground.kernels import kernel

MONTGOMERY_LANES = 32
LIMB_BITS_MAX = 28
EDGE_LIMBS = (
    4  # rows of zeros around a factor: loops take four limbs at a time, beyond the ends too
)
ROOM_BITS = 12  # R above the modulus: a factor may be the sum of 2000 numbers
POWER_BITS = 6  # digits of a count whose power of R is looked up

LimbRows = NDArray[np.uint32]  # (count, limbs)
Flat = NDArray[np.uint32]  # limb after limb, LANES of each
Constants = tuple[Flat, int, int]  # the modulus in all lanes, −1 / modulus, bits of a limb
U = np.uint64


@dataclass(frozen=True, eq=False)
class Montgomery:
    """Constants for products modulo one number."""

    modulus: mpz
    limbs: int
    bits: int  # of a limb
    lanes: Flat  # the modulus in all lanes, with its edges
    inverse: int  # −1 / modulus modulo 2^bits

    @property
    def radix_power(self) -> mpz:
        """The number R."""
        return mpz(1) << (self.limbs * self.bits)

    @functools.cached_property
    def radix(self) -> mpz:
        """R modulo the modulus."""
        return self.radix_power % self.modulus

    @property
    def constants(self) -> Constants:
        """The arguments of its kernels."""
        return self.lanes, self.inverse, self.bits

    @functools.cached_property
    def radix_square(self) -> LimbRows:
        """R² in one row: a product with it is the number times R."""
        return self.of([self.radix * self.radix % self.modulus])

    @property
    def width(self) -> int:
        """Bytes of a number below the modulus."""
        return (self.modulus.bit_length() + 7) // 8

    def numbers(self, data: ByteArray) -> LimbRows:
        """Return big-endian rows as limbs."""
        words = np.zeros((len(data), -(-data.shape[1] // 8) * 8), np.uint8)
        words[:, words.shape[1] - data.shape[1] :] = data
        limbs = np.empty((len(data), self.limbs), np.uint32)
        _split_words(words.view(">u8")[:, ::-1].astype(np.uint64), self.bits, limbs)
        return limbs

    def of(self, values: list[mpz]) -> LimbRows:
        """Return numbers below the modulus as limbs."""
        return self.numbers(as_bytes(values, self.width))

    def data(self, numbers: LimbRows) -> ByteArray:
        """Return limbs as big-endian rows, below the modulus."""
        words = np.zeros((len(numbers), -(-self.limbs * self.bits // 64)), np.uint64)
        _join_words(numbers, self.lanes, self.bits, words)
        wide = words[:, ::-1].astype(">u8").view(np.uint8)
        return np.ascontiguousarray(wide[:, wide.shape[1] - self.width :])

    def products(
        self,
        a: LimbRows,
        first: NDArray[np.integer],
        b: LimbRows,
        second: NDArray[np.integer],
        into: LimbRows | None = None,
    ) -> LimbRows:
        """Return a[first[i]] · b[second[i]] / R, written to `into`,
        which is neither `a` nor `b`.
        """
        product = np.empty((len(first), self.limbs), np.uint32) if into is None else into
        at = first.astype(np.int64, copy=False), second.astype(np.int64, copy=False)
        _multiply(a, at[0], b, at[1], self.constants, product)
        return product

    def run_products(
        self, numbers: LimbRows, order: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> LimbRows:
        """Return the product of each run of `numbers[order]`, runs of these lengths, one or more
        each.

        Those of a run of k come divided by R^(k−1). Neighbours are multiplied two by two.
        """
        while len(lengths) and lengths.max() > 1:
            starts = np.cumsum(lengths) - lengths
            halves, odd = lengths // 2, np.flatnonzero(lengths % 2)
            ends = np.cumsum(halves)
            pairs = np.arange(ends[-1])
            at = 2 * pairs + np.repeat(starts - 2 * (ends - halves), halves)
            made = np.empty((len(pairs) + len(odd), self.limbs), np.uint32)
            self.products(numbers, order[at], numbers, order[at + 1], made[: len(pairs)])
            made[len(pairs) :] = numbers[order[(starts + lengths - 1)[odd]]]
            order = np.insert(pairs, ends[odd], len(pairs) + np.arange(len(odd)))
            numbers, lengths = made, halves + lengths % 2
        return numbers[order]

    def restored(self, numbers: LimbRows, counts: NDArray[np.int64]) -> LimbRows:
        """Return products of so many numbers, with the powers of R that they lack; may be
        `numbers`.
        """
        lacks, place = counts - 1, 0
        while lacks.any():
            digits = lacks % (1 << POWER_BITS)
            chosen = np.flatnonzero(digits)
            powers = _radix_powers(self.modulus, place)
            numbers[chosen] = self.products(numbers, chosen, powers, digits[chosen])
            lacks, place = lacks >> POWER_BITS, place + 1
        return numbers

    def squared(self, numbers: LimbRows, times: int) -> LimbRows:
        """Return numbers times R, squared so many times, again times R."""
        square = np.empty_like(numbers)
        _square_numbers(numbers, times, self.constants, square)
        return square


@functools.lru_cache(maxsize=8)
def montgomery(modulus: mpz) -> Montgomery:
    """Return the constants for products modulo an odd number, made once in a process."""
    length = modulus.bit_length() + ROOM_BITS
    bits = LIMB_BITS_MAX
    while 2 * (length // bits + 3) << (2 * bits) >= 1 << 64:  # a column's sum fits a word
        bits -= 1
    limbs = -(-length // (2 * bits)) * 2
    digits = [int(modulus >> (bits * i)) & ((1 << bits) - 1) for i in range(limbs)]
    lanes = np.zeros((EDGE_LIMBS + limbs + EDGE_LIMBS, MONTGOMERY_LANES), np.uint32)
    lanes[EDGE_LIMBS : EDGE_LIMBS + limbs] = np.array(digits, np.uint32)[:, None]
    inverse = -pow(int(modulus), -1, 1 << bits) % (1 << bits)
    return Montgomery(modulus, limbs, bits, lanes.ravel(), inverse)


@functools.lru_cache(maxsize=32)
def _radix_powers(modulus: mpz, place: int) -> LimbRows:
    """Return R^(1 + d · 2^(POWER_BITS · place)) for each digit d."""
    field = montgomery(modulus)
    step = pow(field.radix, 1 << (POWER_BITS * place), modulus)
    powers = [field.radix]
    for _ in range((1 << POWER_BITS) - 1):
        powers.append(powers[-1] * step % modulus)
    return field.of(powers)


@kernel
def add_diagonals(
    x: Flat, y: Flat, sums: Words, k: np.uint64, first: np.uint64, end: np.uint64
) -> None:
    """Add the products x[i]·y[k − i] and x[i]·y[k + 1 − i], first ≤ i < end, to two sums a lane.

    From a multiple of four on, four at a time; `y` has its edges.
    """
    lanes = U(MONTGOMERY_LANES)
    i = first // U(4) * U(4)
    while i < end:
        at, of = i * lanes, (k + U(EDGE_LIMBS + 1) - i) * lanes
        for w in range(lanes):
            x0, x1 = U(x[at + w]), U(x[at + lanes + w])
            x2, x3 = U(x[at + U(2) * lanes + w]), U(x[at + U(3) * lanes + w])
            y0, y1, y2 = U(y[of + w]), U(y[of - lanes + w]), U(y[of - U(2) * lanes + w])
            y3, y4 = U(y[of - U(3) * lanes + w]), U(y[of - U(4) * lanes + w])
            sums[w] += x0 * y1 + x1 * y2 + x2 * y3 + x3 * y4
            sums[lanes + w] += x0 * y0 + x1 * y1 + x2 * y2 + x3 * y3
        i += U(4)


@kernel
def product(
    x: Flat, y: Flat, start: Flat, constants: Constants, scratch: tuple[Flat, Words], out: Flat
) -> None:
    """Write out = (x·y + start + m·p) / R with the m that makes it divide, which `scratch` has
    then.

    `x` has an edge above, `y` and `p` have both; `start` and `out` have none. `out` may be the
    limbs of `x` and of `y`: later products read only zeros from the limbs that are overwritten.
    """
    p, inverse, bits = constants
    m, sums = scratch
    lanes, n = U(MONTGOMERY_LANES), U(len(out) // MONTGOMERY_LANES)
    shift, mask = U(bits), (U(1) << U(bits)) - U(1)
    for w in range(len(m)):
        m[w] = 0
    for w in range(len(sums)):
        sums[w] = 0
    k = U(0)
    while k < U(2) * n:
        first = k - n if k > n else U(0)
        add_diagonals(x, y, sums, k, first, min(n, k + U(2)))
        add_diagonals(m, p, sums, k, first, min(n, k))
        if k < n:
            p0, p1 = U(p[EDGE_LIMBS * MONTGOMERY_LANES]), U(p[(EDGE_LIMBS + 1) * MONTGOMERY_LANES])
            at = k * lanes
            for w in range(lanes):
                low = sums[w] + U(start[at + w])
                m0 = np.uint32(np.uint32(low) * np.uint32(inverse)) & np.uint32(mask)
                high = sums[lanes + w] + U(start[at + lanes + w])
                high += ((low + U(m0) * p0) >> shift) + U(m0) * p1
                m1 = np.uint32(np.uint32(high) * np.uint32(inverse)) & np.uint32(mask)
                m[at + w], m[at + lanes + w] = m0, m1
                sums[w] = (high + U(m1) * p0) >> shift
                sums[lanes + w] = U(0)
        else:
            at = (k - n) * lanes
            for w in range(lanes):
                high = sums[lanes + w] + (sums[w] >> shift)
                out[at + w] = np.uint32(sums[w] & mask)
                out[at + lanes + w] = np.uint32(high & mask)
                sums[w] = high >> shift
                sums[lanes + w] = U(0)
        k += U(2)


@kernel
def _multiply(
    a: LimbRows,
    first: NDArray[np.int64],
    b: LimbRows,
    second: NDArray[np.int64],
    constants: Constants,
    products: LimbRows,
) -> None:
    """See `Montgomery.products`; the last lanes repeat the last product."""
    n = a.shape[1]
    x = np.zeros((n + EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32)
    y = np.zeros((n + 2 * EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32)
    scratch = (
        np.zeros((n + EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32),
        np.zeros(2 * MONTGOMERY_LANES, np.uint64),
    )
    start, out = (
        np.zeros(n * MONTGOMERY_LANES, np.uint32),
        np.zeros(n * MONTGOMERY_LANES, np.uint32),
    )
    for begin in range(0, len(first), MONTGOMERY_LANES):
        for w in range(MONTGOMERY_LANES):
            t = min(begin + w, len(first) - 1)
            i, j = first[t], second[t]
            for limb in range(n):
                x[limb * MONTGOMERY_LANES + w] = a[i, limb]
                y[(limb + EDGE_LIMBS) * MONTGOMERY_LANES + w] = b[j, limb]
        product(x, y, start, constants, scratch, out)
        for w in range(min(MONTGOMERY_LANES, len(first) - begin)):
            for limb in range(n):
                products[begin + w, limb] = out[limb * MONTGOMERY_LANES + w]


@kernel
def _square_numbers(a: LimbRows, times: int, constants: Constants, square: LimbRows) -> None:
    """See `Montgomery.squared`; a square's limbs overwrite limbs that are no longer needed."""
    n = a.shape[1]
    y = np.zeros((n + 2 * EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32)
    x, out = (
        y[EDGE_LIMBS * MONTGOMERY_LANES :],
        y[EDGE_LIMBS * MONTGOMERY_LANES : (EDGE_LIMBS + n) * MONTGOMERY_LANES],
    )
    scratch = (
        np.zeros((n + EDGE_LIMBS) * MONTGOMERY_LANES, np.uint32),
        np.zeros(2 * MONTGOMERY_LANES, np.uint64),
    )
    none = np.zeros(n * MONTGOMERY_LANES, np.uint32)
    for begin in range(0, len(a), MONTGOMERY_LANES):
        for w in range(MONTGOMERY_LANES):
            t = min(begin + w, len(a) - 1)
            for limb in range(n):
                out[limb * MONTGOMERY_LANES + w] = a[t, limb]
        for _ in range(times):
            product(x, y, none, constants, scratch, out)
        for w in range(min(MONTGOMERY_LANES, len(a) - begin)):
            for limb in range(n):
                square[begin + w, limb] = out[limb * MONTGOMERY_LANES + w]


@kernel
def _split_words(words: Words, bits: int, numbers: LimbRows) -> None:
    """Write 64-bit words, least first, as limbs; bits above the last word are zero."""
    mask = (U(1) << U(bits)) - U(1)
    for row in range(numbers.shape[0]):
        for limb in range(numbers.shape[1]):
            place, within = limb * bits // 64, limb * bits % 64
            value = words[row, place] >> U(within) if place < words.shape[1] else U(0)
            if within + bits > 64 and place + 1 < words.shape[1]:
                value |= words[row, place + 1] << U(64 - within)
            numbers[row, limb] = value & mask


@kernel
def _join_words(numbers: LimbRows, p: Flat, bits: int, words: Words) -> None:
    """Write limbs below twice the modulus as 64-bit words, least first, below the modulus; from
    zeros.
    """
    mask = (np.int64(1) << bits) - 1
    for row in range(numbers.shape[0]):
        borrow = np.int64(0)
        for limb in range(numbers.shape[1]):
            borrow = (
                np.int64(numbers[row, limb]) - p[(EDGE_LIMBS + limb) * MONTGOMERY_LANES] + borrow
            ) >> bits
        keeps = borrow  # −1: it is below the modulus
        borrow = np.int64(0)
        for limb in range(numbers.shape[1]):
            less = np.int64(p[(EDGE_LIMBS + limb) * MONTGOMERY_LANES]) & ~keeps
            borrow += np.int64(numbers[row, limb]) - less
            value = U(borrow & mask)
            borrow >>= bits
            place, within = limb * bits // 64, limb * bits % 64
            words[row, place] |= value << U(within)
            if within + bits > 64 and place + 1 < words.shape[1]:
                words[row, place + 1] |= value >> U(64 - within)
