"""reg:gamma."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedboost.core.fixed_point import power_of_two_above
from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import (
    Gradients,
    Objective,
    ObjectiveRecord,
    XgboostForm,
    positive_mean,
)
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary

LABEL_RANGE_MIN = (
    1 / 8
)  # smaller labels, in units of the mean, do not widen the bounds, to save bits


@dataclass(frozen=True)
class Gamma(Objective):
    """reg:gamma with log link: with r = y / exp(m), cut at ratio_max, g = w(1 − r), h = w·r.

    `ratio_max` is a power of two at least twice the greatest label by the least, or by an eighth of
    the mean if that is more: only a prediction far below its label is cut. It still moves up, by
    about the same Newton step of 1.
    """

    ratio_max: float = field(repr=False)

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> Gamma:
        """Return the loss; base score: the weighted mean."""
        score = positive_mean(params, summary)
        least = max(summary.low, summary.mean * LABEL_RANGE_MIN)
        return cls(np.array([math.log(score)]), power_of_two_above(2.0 * summary.high / least))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        ratio = np.minimum(y[:, None] / links.exponential(margin), self.ratio_max)
        return w * (1.0 - ratio), w * ratio

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        bound = summary.weight_max * self.ratio_max
        return bound, bound


GAMMA_RECORD = ObjectiveRecord(
    name="reg:gamma",
    predicts="positive",
    start=Gamma.start,
    link=links.LOG,
    labels=labels.POSITIVE,
    metrics=("gamma-deviance",),
    xgboost=XgboostForm("reg_loss_param", lambda params, outputs: {"scale_pos_weight": "1"}),
)
