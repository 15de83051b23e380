"""Number-theoretic transforms modulo three primes of 28 bits.

The ring is Z_p[X]/(X^M + 1), M = 4096; ψ has ψ^M = −1. A polynomial's *values* are those at the odd
powers of ψ, in bit-reversed order: number x is the value at ψ^(2·reversed(x) + 1). Values multiply.

In two layouts every level runs through neighbouring numbers, so that it can be vectorised:

    interleaved   coefficient or value x of polynomial l is number 16·x + l of a flat array
    turned        value 64·block + x of polynomial c is number [x, c, block]

`forward` works on the first, and `inverse_within` on the second, with separate factors for each
block; then `inverse_across` takes one polynomial by itself.

Factors are Shoup's pairs, w and ⌊w·2^32/p⌋ (Harvey, "Faster arithmetic for number-theoretic
transforms", 2014): y·w is reduced below 2p for any y below 2^32, without a division. Residues are
not kept below p. A level of `forward` adds 2p to their bound at most; `fold_word` takes a word of
32 bits below 1.01·2^28 again. Six levels from there stay below 13.1·2^28, and so below 2^32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.kernels import inlined, kernel

DEGREE = 4096  # M
TRANSFORM_LANES = 16  # interleaved polynomials
BLOCK_VALUES = 64  # values of a block, and blocks
RESIDUE_BITS = 28
PRIMES = (268369921, 268361729, 268271617)  # 1 modulo 2M
MODULUS = PRIMES[0] * PRIMES[1] * PRIMES[2]  # Q, below 2^84

Residues = NDArray[np.uint32]

MODULI: Residues = np.array(PRIMES, np.uint32)


def root_of_unity(prime: int) -> int:
    """Return ψ of a prime: the power of the least base that has ψ^M = −1."""
    bases = (pow(base, (prime - 1) // (2 * DEGREE), prime) for base in range(2, prime))
    return next(psi for psi in bases if pow(psi, DEGREE, prime) == prime - 1)


def reversed_bits(number: int) -> int:
    """Return an index among M with its bits from the lowest to the highest."""
    return int(f"{number:012b}"[::-1], 2)


def _factors(is_inverse: bool) -> Residues:
    """Return powers of ψ or of its inverse in bit-reversed order, uint32 (primes, 2, M): Shoup's
    pairs.
    """
    factors = np.empty((len(PRIMES), 2, DEGREE), np.uint32)
    order = [reversed_bits(place) for place in range(DEGREE)]
    for pair, prime in zip(factors, PRIMES, strict=True):
        base = pow(root_of_unity(prime), -1, prime) if is_inverse else root_of_unity(prime)
        powers = [1]
        while len(powers) < DEGREE:
            powers.append(powers[-1] * base % prime)
        pair[0] = [powers[place] for place in order]
        pair[1] = [(powers[place] << 32) // prime for place in order]
    return factors


FORWARD = _factors(is_inverse=False)
INVERSE = _factors(is_inverse=True)


def _turned_factors() -> Residues:
    """Return factors of the first six levels back, uint32 (primes, 2, rows, blocks): as blocks use
    them.

    Row q + j has those of part j of a block that is cut into q = 32, 16 … 1 parts.
    """
    factors = np.zeros((len(PRIMES), 2, BLOCK_VALUES, BLOCK_VALUES), np.uint32)
    for parts in (32, 16, 8, 4, 2, 1):
        level = INVERSE[:, :, BLOCK_VALUES * parts : 2 * BLOCK_VALUES * parts]
        by_block = level.reshape(len(PRIMES), 2, BLOCK_VALUES, parts)
        factors[:, :, parts : 2 * parts] = by_block.transpose(0, 1, 3, 2)
    return factors


TURNED = _turned_factors()


@inlined
def shoup_product(y: np.uint32, w: np.uint32, shoup: np.uint32, p: np.uint32) -> np.uint32:
    """Return y·w modulo p, below 2p."""
    quotient = np.uint32((np.uint64(y) * np.uint64(shoup)) >> np.uint64(32))
    return np.uint32(y * w - quotient * p)


@inlined
def fold_word(word: np.uint32, p: np.uint32) -> np.uint32:
    """Return a word of 32 bits modulo p, below 2^28 + 15·(2^28 − p)."""
    return np.uint32(word - (word >> np.uint32(RESIDUE_BITS)) * p)


@inlined
def _two_levels(blocks: Residues, first: int, count: int, n: int) -> None:
    """Apply two levels in one pass over some of uint32 (blocks, 4,
    numbers): halves, then quarters.
    """
    w, shoup, p = FORWARD[n, 0], FORWARD[n, 1], MODULI[n]
    twice = np.uint32(2 * p)
    for i in range(first, first + count):
        half = len(blocks) + i
        w1, s1 = w[half], shoup[half]
        w2, s2 = w[2 * half], shoup[2 * half]
        w3, s3 = w[2 * half + 1], shoup[2 * half + 1]
        for x in range(blocks.shape[2]):
            a, b = blocks[i, 0, x], blocks[i, 1, x]
            c, d = (
                shoup_product(blocks[i, 2, x], w1, s1, p),
                shoup_product(blocks[i, 3, x], w1, s1, p),
            )
            low, high = np.uint32(a + c), np.uint32(a - c + twice)
            even = shoup_product(np.uint32(b + d), w2, s2, p)
            odd = shoup_product(np.uint32(b - d + twice), w3, s3, p)
            blocks[i, 0, x], blocks[i, 1, x] = np.uint32(low + even), np.uint32(low - even + twice)
            blocks[i, 2, x], blocks[i, 3, x] = np.uint32(high + odd), np.uint32(high - odd + twice)


# Shapes are written out, one kernel each: the compiler vectorises only known shapes.


@kernel
def _stride_1024(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((1, 4, 16384)), first, count, n)


@kernel
def _stride_256(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((4, 4, 4096)), first, count, n)


@kernel
def _stride_64(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((16, 4, 1024)), first, count, n)


@kernel
def _stride_16(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((64, 4, 256)), first, count, n)


@kernel
def _stride_4(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((256, 4, 64)), first, count, n)


@kernel
def _stride_1(a: Residues, first: int, count: int, n: int) -> None:
    _two_levels(a.reshape((1024, 4, 16)), first, count, n)


@kernel
def forward(a: Residues, n: int) -> None:
    """Turn interleaved coefficients into values in place, uint32 (16·M,), modulo prime n.

    Both are below 1.01·2^28.
    """
    p = MODULI[n]
    _stride_1024(a, 0, 1, n)
    _stride_256(a, 0, 4, n)
    for block in range(16):  # of 256 coefficients, which stay in the processor's first cache
        part = a[4096 * block : 4096 * (block + 1)]
        _stride_64(a, block, 1, n)
        for x in range(len(part)):
            part[x] = fold_word(part[x], p)
        _stride_16(a, 4 * block, 4, n)
        _stride_4(a, 16 * block, 16, n)
        _stride_1(a, 64 * block, 64, n)
        for x in range(len(part)):
            part[x] = fold_word(part[x], p)


@kernel
def inverse_within(a: Residues, n: int) -> None:
    """Apply the first six levels back in place, turned, uint32 (64, polynomials, 64), modulo prime
    n.

    Values and results are below 2p.
    """
    p = MODULI[n]
    twice = np.uint32(2 * p)
    stride, parts = 1, BLOCK_VALUES // 2
    while parts:
        for j in range(parts):
            w, shoup = TURNED[n, 0, parts + j], TURNED[n, 1, parts + j]
            for i in range(2 * stride * j, 2 * stride * j + stride):
                for c in range(a.shape[1]):
                    low, high = a[i, c], a[i + stride, c]
                    for x in range(BLOCK_VALUES):
                        b, d = low[x], high[x]
                        total = np.uint32(b + d)
                        low[x] = min(total, np.uint32(total - twice))
                        high[x] = shoup_product(np.uint32(b - d + twice), w[x], shoup[x], p)
        stride, parts = 2 * stride, parts // 2


@kernel
def inverse_across(a: Residues, last: int, n: int) -> None:
    """Apply the next levels back in place, of one polynomial that is not turned, uint32 (M,).

    The last of these levels makes runs of `last` coefficients; with `last` = M, these are M times
    the polynomial's. With fewer, coefficient k of the polynomial is the sum of all runs' number k,
    divided by M. Below 2p as before.
    """
    p = MODULI[n]
    twice = np.uint32(2 * p)
    stride = BLOCK_VALUES
    while stride < last:
        half = DEGREE // (2 * stride)
        blocks = a.reshape((half, 2, stride))
        for i in range(half):
            w, shoup = INVERSE[n, 0, half + i], INVERSE[n, 1, half + i]
            for x in range(stride):
                b, d = blocks[i, 0, x], blocks[i, 1, x]
                total = np.uint32(b + d)
                blocks[i, 0, x] = min(total, np.uint32(total - twice))
                blocks[i, 1, x] = shoup_product(np.uint32(b - d + twice), w, shoup, p)
        stride *= 2
