"""Gradients as exact as sums can be, for leaf values where divisions come from few bits.

Rounding at random has no bias, and a division compares sums of many rows. But the value of a small
leaf would keep the noise, and so would a leaf whose hessians are far below their bound. A party
that knows the gradients and the rows of a leaf adds these gradients up instead; they stay with the
party.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedboost.core import fixed_point, histogram, split
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.ground.arrays import Floats, Rows, Sums


@dataclass(frozen=True, eq=False)
class LeafGradients:
    """Gradients and hessians of all own rows, 0 for rows outside the sample."""

    gh: Sums  # (n, 2·outputs), contiguous
    fixed: FixedPoint

    @classmethod
    def of(cls, coarse: FixedPoint, g: Floats, h: Floats, at: Rows, n_rows: int) -> Self:
        """Return exact gradients for divisions in units of `coarse`: g and h float64 (m, outputs)
        of the rows `at`, out of `n_rows`.
        """
        fixed = fixed_point.widest_encoding(coarse, n_rows)
        encoded = fixed.encode(g, h)
        if len(encoded) == n_rows:
            return cls(encoded, fixed)
        gh = np.zeros((n_rows, encoded.shape[1]), np.int64)
        gh[at] = encoded
        return cls(gh, fixed)

    def total(self, rows: Rows) -> Sums:
        """Return the sum of some rows, int64 (2·outputs,)."""
        return histogram.signed_total(self.gh, rows)

    def values(self, sums: Sums, params: TreeParams) -> Floats:
        """Return leaf values float64 (leaves, outputs) of sums int64 (leaves, 2·outputs)."""
        return split.leaf_value(sums[:, 0::2], sums[:, 1::2], params, self.fixed)
