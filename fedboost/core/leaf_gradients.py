"""Gradients as exact as sums can be, for leaf values where divisions come from few bits.

Rounding at random has no bias, and a division compares sums of many rows. The value of a small leaf
would keep the noise, and so would a leaf whose hessians are far below their bound. Whoever knows
the gradients and which rows stand in a leaf adds these up instead; nothing of it leaves.
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
    """Gradients and hessians of all own rows, 0 where a row takes no part."""

    gh: Sums  # (n, 2·outputs), contiguous
    fixed: FixedPoint

    @classmethod
    def of(cls, coarse: FixedPoint, g: Floats, h: Floats, at: Rows, n_rows: int) -> Self:
        """Return those whose divisions are in units of `coarse`: g and h float64 (m, outputs) of
        the rows `at`, of `n_rows`.
        """
        fixed = fixed_point.widest(coarse, n_rows)
        encoded = fixed.encode(g, h)
        if len(encoded) == n_rows:
            return cls(encoded, fixed)
        gh = np.zeros((n_rows, encoded.shape[1]), np.int64)
        gh[at] = encoded
        return cls(gh, fixed)

    def total(self, rows: Rows) -> Sums:
        """int64 (2·outputs,): the sum of some rows."""
        return histogram.total(self.gh, rows)

    def values(self, sums: Sums, params: TreeParams) -> Floats:
        """Leaf values float64 (leaves, outputs) of sums int64 (leaves, 2·outputs)."""
        return split.leaf_value(sums[:, 0::2], sums[:, 1::2], params, self.fixed)
