"""count:poisson."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedboost.core.fixed_point import power_of_two_above
from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import (
    Gradients,
    Objective,
    ObjectiveRecord,
    StepRule,
    XgboostForm,
    positive_mean,
)
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary

STEP_DEFAULT = 0.7  # XGBoost's default of max_delta_step
STEP_MAX = 100.0  # hessians have a factor of e^step, and their sums must stay finite


@dataclass(frozen=True)
class Poisson(Objective):
    """count:poisson with log link: μ = exp(m) cut at mean_max, g = w(μ − y), h = w·μ·e^step.

    `step` is max_delta_step, the most that a leaf moves a margin (core.split). `mean_max` is a
    power of two at least twice every label: beyond it g is still positive.
    """

    mean_max: float = field(repr=False)
    step: float

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> Poisson:
        """Return the loss; base score: the weighted mean."""
        score = positive_mean(params, summary)
        limit = power_of_two_above(2.0 * max(score, summary.high))
        return cls(np.array([math.log(score)]), limit, params.step_max)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        mean = np.minimum(links.exponential(margin), self.mean_max)
        return w * (mean - y[:, None]), w * (mean * math.exp(self.step))

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        w = summary.weight_max
        return w * self.mean_max, w * (self.mean_max * math.exp(self.step))


def _content(params: Mapping[str, Any], outputs: int) -> dict[str, str]:
    step = params.get("max_delta_step")
    return {"max_delta_step": repr(STEP_DEFAULT if step is None else step)}


POISSON_RECORD = ObjectiveRecord(
    name="count:poisson",
    predicts="count",
    start=Poisson.start,
    link=links.LOG,
    labels=labels.COUNTS,
    metrics=("rmse", "poisson-nloglik"),
    xgboost=XgboostForm("poisson_regression_param", _content),
    steps=StepRule(STEP_DEFAULT, STEP_MAX, "a factor of e^{step:g} on counts"),
)
