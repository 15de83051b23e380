"""Monotone constraints: predictions that may only rise, or only fall, with a column, as in XGBoost.

Each node has bounds of the weights below it. A split whose sides contradict its column's direction
has no gain; a split that is made divides the bounds of its node between its children.
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

Directions = NDArray[np.int8]  # by column: predictions may only rise (1), only fall (−1), 0: any
Bounds = tuple[float, float]

BY_WEIGHT = 2  # direction of a split between missing and present rows: that of their weights
ANY: Bounds = (-math.inf, math.inf)


def directions(by_column: Sequence[int]) -> Directions | None:
    """Return the directions as an array; None if no column has one."""
    return np.array(by_column, np.int8) if any(by_column) else None


def child_bounds(
    sides: Sums, direction: int, bounds: Bounds, params: TreeParams, fixed: FixedPoint
) -> tuple[Bounds, Bounds]:
    """Return the bounds of a split's children, by their sums int64 (2, 2) and its node's bounds."""
    if direction == 0:
        return bounds, bounds
    low, high = bounds
    left, right = np.clip(_weights(sides, params, fixed), low, high).tolist()
    middle = (left + right) / 2
    if direction == BY_WEIGHT:
        direction = 1 if left <= right else -1
    lower, upper = (low, middle), (middle, high)
    return (lower, upper) if direction > 0 else (upper, lower)


def clip_to_bounds(values: Floats, bounds: Floats, learning_rate: float) -> Floats:
    """Return leaf values float64 (nodes, 1) clipped to the bounds, (nodes, 2), of their weights."""
    low, high = bounds[:, :1] * learning_rate, bounds[:, 1:] * learning_rate
    return np.clip(values, low, high)


def _weights(sums: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """Return −T(G) / (H + λ) of sums int64 (…, 2)."""
    below = fixed.decode_h(sums[..., 1]) + params.reg_lambda
    return split.leaf_weight(sums[..., 0], below, params, fixed)
