"""Curves of a binary prediction for reports: ROC, precision-recall and KS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedboost.core.metrics import ranking
from fedboost.ground.arrays import Floats


@dataclass(frozen=True)
class Curves:
    """Points of the ROC, precision-recall and KS curves; all float64 (points,), same order."""

    threshold: Floats  # rows with a score at or above it are called positive; falling
    share: Floats  # weight of the rows called positive, of all
    true_positive_rate: Floats  # recall
    false_positive_rate: Floats
    precision: Floats


def curves(y: Floats, prediction: Floats, points_max: int = 200) -> Curves:
    """Return at most `points_max` (3 or more) points of the curves of a binary prediction.

    They are evenly spaced in the share of rows; the first, the last and the point of greatest KS
    stay.
    """
    assert points_max >= 3
    ranks = ranking(y, prediction, np.ones(len(y)))
    true_rate = ranks.positive[1:] / ranks.positive[-1]
    false_rate = ranks.negative[1:] / ranks.negative[-1]
    called = ranks.positive[1:] + ranks.negative[1:]
    # The first point and the greatest KS take two of the points.
    wanted = np.linspace(called[0], called[-1], points_max - 1)
    even = np.searchsorted(called, wanted)
    kept = np.unique(np.append(even, np.argmax(np.abs(true_rate - false_rate))))
    return Curves(
        ranks.score[kept],
        called[kept] / called[-1],
        true_rate[kept],
        false_rate[kept],
        ranks.positive[1:][kept] / called[kept],
    )
