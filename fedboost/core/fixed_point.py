"""Gradients as integers, so that sums are exact and the same in every order and on every thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.gradient_bits import BITS_MAX, BITS_MIN
from fedboost.core.threads import Threads, run_shared
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import ConfigError, JobError
from fedboost.ground.kernels import kernel

Integers = NDArray[np.int64]

SUM_BITS = 62  # a sum of all rows, and the difference of two such sums, stays within int64
ENCODING_WORK = 2  # cells that can be added up in the time of one number's encoding
ROUNDED_AT_ONCE = 1 << 16  # rows of few bits rounded together
FEW_BITS = 15  # with so few, nearest integers would lose all small gradients

Fractions = Callable[[int], Floats]  # of so many columns, uniform in [0, 1)


@dataclass(frozen=True)
class FixedPoint:
    """Encoding of |g| ≤ g_bound as integers within ±2^bits, 0 ≤ h ≤ h_bound within 0..2^bits.

    With few bits the greatest integer is 2^bits − 1, as a sign and so many bits hold no more.
    """

    bits: int
    g_bound: float
    h_bound: float

    @property
    def g_unit(self) -> float:
        """Value of 1 in an integer gradient."""
        return math.ldexp(self.g_bound, -self.bits)

    @property
    def h_unit(self) -> float:
        """Value of 1 in an integer hessian."""
        return math.ldexp(self.h_bound, -self.bits)

    @property
    def is_coarse(self) -> bool:
        """Return whether gradients are rounded at random, which is too coarse for leaf values."""
        return self.bits <= FEW_BITS

    def encode(
        self,
        g: Floats,
        h: Floats,
        fractions: Fractions | None = None,
        threads: Threads | None = None,
    ) -> Integers:
        """Return gradients and hessians float64 (n, k) as int64 (n, 2k): g0 h0 g1 h1 …

        Values are rounded to the nearest integer, so one value is off by at most half a unit and a
        sum of n by n/2 units. With few bits, `fractions`, float64 (n, 2k), round up or down without
        a bias; without them always to the nearest. A JobError if a value exceeds its bound or is
        not a number.
        """
        units, most = (self.g_unit, self.h_unit), (self.g_bound, self.h_bound)
        nearest = np.empty((len(g), 2 * g.shape[1]), np.int64)

        def task(part: slice) -> tuple[Any, ...]:
            return g[part], h[part], units, most, nearest[part]

        if not all(
            run_shared(threads, _encode_nearest, task, len(g), ENCODING_WORK * nearest.size)
        ):
            raise JobError(
                "gradients left the bounds declared at the start of the job",
                todo="check labels, weights and base_score, or lower learning_rate",
            )
        if fractions is None or self.bits > FEW_BITS:
            return nearest
        largest = (1 << self.bits) - 1
        drawn = fractions(nearest.shape[1])
        for first in range(0, len(g), ROUNDED_AT_ONCE):
            some = slice(first, first + ROUNDED_AT_ONCE)
            pairs = np.stack([g[some] / self.g_unit, h[some] / self.h_unit], axis=2)
            rounded = up_or_down(pairs.reshape(drawn[some].shape), drawn[some])
            np.clip(rounded, -largest, largest, out=nearest[some])
        return nearest

    def decode_g(self, sums: Integers) -> Floats:
        """Return integer gradient sums, any shape, as float64."""
        return sums.astype(np.float64) * self.g_unit

    def decode_h(self, sums: Integers) -> Floats:
        """Return integer hessian sums, any shape, as float64."""
        return sums.astype(np.float64) * self.h_unit


@kernel
def _encode_nearest(
    g: Floats,
    h: Floats,
    units: tuple[float, float],
    bounds: tuple[float, float],
    nearest: Integers,
) -> bool:
    """Write g and h in whole units; return whether they keep to their bounds."""
    fits = True
    for i in range(len(g)):
        for j in range(g.shape[1]):
            slope, curve = g[i, j], h[i, j]
            fits &= abs(slope) <= bounds[0] and 0.0 <= curve <= bounds[1]
            nearest[i, 2 * j] = np.int64(np.rint(np.divide(slope, units[0])))
            nearest[i, 2 * j + 1] = np.int64(np.rint(np.divide(curve, units[1])))
    return fits


def up_or_down(values: Floats, fractions: Floats) -> Integers:
    """Return ⌊x + r⌋ with r in [0, 1), int64 of the same shape: x on average, if r is uniform."""
    whole = np.floor(values)
    # Compared, not added: the sum of a float and a fraction would round.
    return (whole + (fractions >= 1.0 - (values - whole))).astype(np.int64)


def encoding_for_rows(
    n_rows: int, precision_bits: int | None, g_bound: float, h_bound: float
) -> FixedPoint:
    """Return the encoding of a job with `n_rows` training rows.

    `precision_bits` None means as many as fit: min(53, 62 − ⌈log2 n⌉). The bounds are rounded up to
    powers of two, which costs less than a bit and makes decoding exact below 2^53 units, except
    with few bits. A ConfigError if sums of `n_rows` values of `precision_bits` could leave int64.
    """
    fits = bits_for_rows(n_rows)
    bits = fits if precision_bits is None else precision_bits
    if not BITS_MIN <= bits <= fits:
        raise ConfigError(
            f"precision_bits is {bits}; sums of {n_rows} rows need {BITS_MIN} to {fits} bits",
            todo=f"set precision_bits to at most {fits}, or leave it out",
        )
    return encoding(bits, power_of_two_above(g_bound), power_of_two_above(h_bound))


def encoding(bits: int, g_bound: float, h_bound: float) -> FixedPoint:
    """Return the encoding with so many bits whose greatest integers are the bounds."""
    stretch = 2.0**bits / (2.0**bits - 1.0) if bits <= FEW_BITS else 1.0
    return FixedPoint(bits, stretch * g_bound, stretch * h_bound)


def widest_encoding(fixed: FixedPoint, n_rows: int) -> FixedPoint:
    """Return the encoding of the same gradients with as many bits as sums of `n_rows` rows allow;
    for sums that stay on this machine.
    """
    return encoding_for_rows(n_rows, None, fixed.g_bound, fixed.h_bound)


def bits_for_rows(n_rows: int) -> int:
    """Return the bits of one value if `n_rows` values are summed: min(53, 62 − ⌈log2 n⌉)."""
    # ⌈log2 n⌉ in integers, without rounding errors.
    return min(BITS_MAX, SUM_BITS - max(n_rows - 1, 0).bit_length())


def power_of_two_above(bound: float) -> float:
    """Return the smallest power of two that is at least `bound` (positive and finite)."""
    if not 0.0 < bound < math.inf:
        raise JobError(f"a bound of gradients must be positive and finite, not {bound}")
    fraction, exponent = math.frexp(bound)
    return math.ldexp(1.0, exponent - 1 if fraction == 0.5 else exponent)
