"""Link functions: margins as predictions, and the range of predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedboost.ground.arrays import Floats

MARGIN_MAX = 700.0  # exp of more would leave float64


@dataclass(frozen=True)
class LinkFunction:
    """Function from margins to predictions."""

    predict: Callable[[Floats], Floats]  # margins (n, k) to predictions (n, k)
    # Margin of XGBoost's base_score as XGBoost computes it, in 32 bits.
    margin_of_score: Callable[[np.float32], np.float32]
    margin_max: float = float(np.finfo(np.float64).max)  # farthest margin with a finite prediction
    above: float = -math.inf  # predictions lie between these
    below: float = math.inf
    predictions: str = ""  # in words, if not all numbers are predictions

    def gives(self, score: float) -> bool:
        """Return whether a number can be a prediction."""
        return self.above < score < self.below


def sigmoid(margin: Floats) -> Floats:
    """Return 1 / (1 + exp(−m))."""
    below = exponential(-margin)
    below += 1.0
    return np.divide(1.0, below, out=below)


def exponential(margin: Floats) -> Floats:
    """Return exp(m), finite and above 0 for every margin."""
    cut = np.clip(margin, -MARGIN_MAX, MARGIN_MAX)
    return np.exp(cut, out=cut)


def class_shares(margin: Floats) -> Floats:
    """Return exp(m_c) / Σ exp(m) of each row."""
    raised = np.exp(margin - margin.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


IDENTITY = LinkFunction(np.copy, margin_of_score=np.float32)
SOFTMAX = LinkFunction(class_shares, margin_of_score=np.float32)
LOGIT = LinkFunction(
    sigmoid,
    margin_of_score=lambda score: -np.log(np.float32(1) / score - np.float32(1)),
    above=0.0,
    below=1.0,
    predictions="one between 0 and 1",
)
LOG = LinkFunction(
    exponential,
    margin_of_score=np.log,
    margin_max=MARGIN_MAX,
    above=0.0,
    predictions="one above 0",
)
