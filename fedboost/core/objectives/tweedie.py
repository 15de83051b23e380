"""reg:tweedie."""

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

POWER = "tweedie_variance_power"
PREDICTION_RANGE_MIN = (
    2.0**-10
)  # smaller predictions, in units of the mean, have the gradient of this one


@dataclass(frozen=True)
class Tweedie(Objective):
    """reg:tweedie with log link and variance power ρ: with a = y·μ^(1−ρ), b = μ^(2−ρ), g = w(b −
    a), h = w((ρ − 1)a + (2 − ρ)b); μ = exp(m) is cut to mean_min..mean_max.

    The range goes from 2^-10 of the base score to a power of two at least twice every label.
    """

    power: float
    mean_min: float = field(repr=False)
    mean_max: float = field(repr=False)

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> Tweedie:
        """Return the loss; base score: the weighted mean."""
        score = positive_mean(params, summary)
        limit = power_of_two_above(2.0 * max(score, summary.high))
        return cls(
            np.array([math.log(score)]),
            params.tweedie_variance_power,
            score * PREDICTION_RANGE_MIN,
            limit,
        )

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.clip(links.exponential(margin), self.mean_min, self.mean_max)
        a = y[:, None] * mean ** (1.0 - self.power)
        b = mean ** (2.0 - self.power)
        return w * (b - a), w * ((self.power - 1.0) * a + (2.0 - self.power) * b)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        w = summary.weight_max
        a = summary.high * self.mean_min ** (1.0 - self.power)
        b = self.mean_max ** (2.0 - self.power)
        room = 1.0 + 2.0**-40  # machines round powers differently
        return w * max(a, b) * room, w * ((self.power - 1.0) * a + (2.0 - self.power) * b) * room


TWEEDIE_RECORD = ObjectiveRecord(
    name="reg:tweedie",
    predicts="amount",
    start=Tweedie.start,
    link=links.LOG,
    labels=labels.AMOUNTS,
    metrics=("rmse", "tweedie-nloglik"),
    xgboost=XgboostForm(
        "tweedie_regression_param", lambda params, outputs: {POWER: repr(params[POWER])}
    ),
    settings=(POWER,),
)
