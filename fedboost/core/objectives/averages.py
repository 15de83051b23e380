"""Weighted means and medians of labels, the same for every order of the rows."""

from __future__ import annotations

import math

import numpy as np

from fedboost.ground.arrays import Floats


def weighted_mean(values: Floats, weight: Floats) -> float:
    """Return Σ w·v / Σ w, summed exactly, so the same in every order; 0 if all w are 0."""
    total = math.fsum(weight)
    return math.fsum(values * weight) / total if total else 0.0


def median(values: Floats, weight: Floats) -> float:
    """Return the weighted median, the middle of two values if the weight halves between them.

    With equal weights it is the usual median. Rows of weight 0 do not count.
    """
    used = weight > 0.0
    if not used.any():
        return 0.0
    order = np.lexsort((weight[used], values[used]))
    ranked, below = values[used][order], np.cumsum(weight[used][order])
    half = below[-1] / 2.0
    low = ranked[np.searchsorted(below, half, side="left")]
    high = ranked[min(np.searchsorted(below, half, side="right"), len(ranked) - 1)]
    return float(low / 2.0 + high / 2.0)


def scale_weights(weight: Floats, y: Floats, factor: float) -> Floats:
    """Return weights (n,) with a factor on rows of label 1."""
    return np.where(y > 0.5, factor, 1.0) * weight
