"""Products of a polynomial modulo q and ternary ones, by a Fourier transform of half the length.

A real polynomial p modulo x^N + 1 is determined by p modulo x^M − i, M = N/2: the M complex numbers
p_k + i·p_{k+M}, whose values at the roots e^(iπ/N)·e^(−2πij/M) are one transform after a twist by
e^(iπk/N). Values multiply; the way back gives both halves at once. (Bernstein, "Fast multiplication
and its applications", 2008, section 5.)

Transforms are of float64. The polynomial is cut into signed limbs so short that every coefficient
of a limb's product is exact after rounding: see `error_bound`.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.ground.arrays import Words
from fedboost.ground.kernels import kernel

BOUND_MOST = 2.0**-6  # proven distance to an integer; 1/2 would be wrong
_ROUNDOFF = 2.0**-53
_LEVEL_NORM = 1 + 4 * math.sqrt(2) + 1  # of a level: Higham, 2002, theorem 24.2, μ = one roundoff
_LEVEL_EACH = 1 + math.sqrt(5) + 1  # addition, product (Brent, Percival, Zimmermann, 2007), twiddle
_OUTSIDE = 4 * (math.sqrt(5) + 1)  # three twists and the values' product

Spectrum = NDArray[np.complex128]


def error_bound(ring: int, limb_bits: int, more: float = 0.0) -> float:
    """Return the most that a coefficient of a limb's product is off before it is rounded.

    |limb| ≤ 2^(limb_bits − 1) and |ternary| ≤ 1 have norms 2^(limb_bits − 1)·√N and √N. A transform
    of M = 2^t numbers is off by at most t·_LEVEL_NORM roundoffs of its norm, the way back by
    t·_LEVEL_EACH roundoffs of Σ|values| / M for each coefficient. The norms' product bounds this
    (Cauchy and Schwarz), as it does every other part; `more` are further roundoffs of the caller.
    """
    levels = (ring // 2).bit_length() - 1
    relative = levels * (2 * _LEVEL_NORM + _LEVEL_EACH) + _OUTSIDE + more
    return relative * _ROUNDOFF * 2.0 ** (limb_bits - 1) * ring


class Multiplier:
    """Products in one ring; `multiplier` keeps one for each."""

    def __init__(self, ring: int, modulus_bits: int) -> None:
        self.ring = ring
        self.modulus_bits = modulus_bits
        self.half = ring // 2
        self.limbs = next(
            count
            for count in range(1, modulus_bits + 1)
            if error_bound(ring, -(-modulus_bits // count)) <= BOUND_MOST
        )
        self.limb_bits = -(-modulus_bits // self.limbs)
        assert error_bound(ring, self.limb_bits) <= BOUND_MOST < 0.5
        self._twist = np.exp(1j * np.pi * np.arange(self.half) / ring)
        self._untwist = self._twist.conj()

    def fixed(self, polynomial: Words) -> Spectrum:
        """Return the values of the limbs of a polynomial, complex128
        (limbs, M), from uint64 (N,).
        """
        return self.values(self.split(polynomial))

    def split(self, polynomial: Words) -> NDArray[np.int64]:
        """Return the signed limbs, int64 (limbs, N): Σ limb_i ·
        2^(limb_bits·i) is equal modulo q.
        """
        unused = 64 - self.modulus_bits
        rest = polynomial.view(np.int64) << unused >> unused  # signed modulo q
        parts = np.empty((self.limbs, self.ring), dtype=np.int64)
        for number in range(self.limbs - 1):
            parts[number] = rest << (64 - self.limb_bits) >> (64 - self.limb_bits)
            rest = (rest - parts[number]) >> self.limb_bits
        parts[-1] = rest
        return parts

    def values(self, polynomials: NDArray[np.integer]) -> Spectrum:
        """Return the values of small polynomials, complex128 (n, M), from integers (n, N)."""
        from scipy import fft

        folded = np.empty((len(polynomials), self.half), dtype=np.complex128)
        folded.real = polynomials[:, : self.half]
        folded.imag = polynomials[:, self.half :]
        folded *= self._twist
        return fft.fft(folded, axis=1, overwrite_x=True)

    def multiply(self, fixed: Spectrum, values: Spectrum) -> Words:
        """Return products modulo 2^64, uint64 (n, N), with values (n, M) of ternary polynomials.

        Modulo q they are those of the polynomial in `fixed`; bits above q's are overflow.
        """
        products = np.zeros((len(values), self.ring), dtype=np.uint64)
        scratch = np.empty_like(values)
        for number, limb in enumerate(fixed):
            np.multiply(values, limb, out=scratch)
            self.add_back(scratch, number, products)
        return products

    def add_back(self, values: Spectrum, number: int, products: Words) -> None:
        """Add to products uint64 (n, N), modulo 2^64, those of limb `number` with these values."""
        from scipy import fft

        back = fft.ifft(values, axis=1, overwrite_x=True)
        _add_rounded(back, self._untwist, np.uint64(number * self.limb_bits), products)

    def first(self, fixed: Spectrum, values: Spectrum, count: int) -> Words:
        """Return the lowest `count` ≤ M coefficients of the same products, uint64 (n, count)."""
        from scipy import fft

        products = np.zeros((len(values), count), dtype=np.uint64)
        for number, limb in enumerate(fixed):
            back = fft.ifft(values * limb, axis=1, overwrite_x=True)
            _add_first(back, self._untwist, np.uint64(number * self.limb_bits), products)
        return products

    def distance(self, fixed: Spectrum, values: Spectrum) -> float:
        """Return the greatest distance of the limbs' products' coefficients from integers before
        rounding.
        """
        from scipy import fft

        most = 0.0
        for limb in fixed:
            back = fft.ifft(values * limb, axis=1) * self._untwist
            for part in (back.real, back.imag):
                most = max(most, float(np.abs(part - np.rint(part)).max(initial=0.0)))
        return most


@cache
def multiplier_of(ring: int, modulus_bits: int) -> Multiplier:
    """Return the multiplier of polynomials of so many coefficients modulo 2^modulus_bits."""
    return Multiplier(ring, modulus_bits)


def multiplier(parameters: LatticeParameters) -> Multiplier:
    """Return the multiplier of these parameters' ring."""
    return multiplier_of(parameters.ring, parameters.modulus_bits)


@kernel
def _add_rounded(back: Spectrum, untwist: Spectrum, shift: np.uint64, products: Words) -> None:
    """Add 2^shift · rounded coefficients to `products`, modulo 2^64."""
    half = back.shape[1]
    for n in range(back.shape[0]):
        total = products[n]
        for k in range(half):
            value = back[n, k] * untwist[k]
            total[k] += np.uint64(np.int64(np.rint(value.real))) << shift
            total[half + k] += np.uint64(np.int64(np.rint(value.imag))) << shift


@kernel
def _add_first(back: Spectrum, untwist: Spectrum, shift: np.uint64, products: Words) -> None:
    """Add only the coefficients that `products` have room for, as `_add_rounded` does."""
    for n in range(back.shape[0]):
        for k in range(products.shape[1]):
            value = back[n, k] * untwist[k]
            products[n, k] += np.uint64(np.int64(np.rint(value.real))) << shift
