"""Monotone constraints: predictions that may only rise, or only fall, with a column, as XGBoost's.

Each node has bounds of the weights below it. A split whose sides stand against its column's
direction has no gain; one that is made divides the bounds of its node between its children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.ground.arrays import Floats, Sums

Directions = NDArray[np.int8]  # by column: 1 where predictions may not fall with it, −1 rise, 0
Bounds = tuple[float, float]

BY_WEIGHT = 2  # the direction of a split that divides missing rows from all others, as they lie
ANY: Bounds = (-math.inf, math.inf)


def directions(by_column: Sequence[int]) -> Directions | None:
    """Return them as an array; None where no column has any."""
    return np.array(by_column, np.int8) if any(by_column) else None


def of_children(
    sides: Sums, direction: int, bounds: Bounds, params: TreeParams, fixed: FixedPoint
) -> tuple[Bounds, Bounds]:
    """The bounds of the children of a split, by their sums int64 (2, 2) and its node's bounds."""
    if direction == 0:
        return bounds, bounds
    low, high = bounds
    left, right = np.clip(_weights(sides, params, fixed), low, high).tolist()
    middle = (left + right) / 2
    if direction == BY_WEIGHT:
        direction = 1 if left <= right else -1
    lower, upper = (low, middle), (middle, high)
    return (lower, upper) if direction > 0 else (upper, lower)


def within(values: Floats, bounds: Floats, learning_rate: float) -> Floats:
    """Leaf values float64 (nodes, 1) within the bounds, (nodes, 2), of their weights."""
    low, high = bounds[:, :1] * learning_rate, bounds[:, 1:] * learning_rate
    return np.clip(values, low, high)


def _weights(sums: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """−T(G) / (H + λ) of sums int64 (…, 2)."""
    below = fixed.decode_h(sums[..., 1]) + params.reg_lambda
    return split.weight(sums[..., 0], below, params, fixed)
