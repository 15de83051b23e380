"""reg:pseudohubererror."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedboost.core.metrics import HUBER_SLOPE
from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord, XgboostForm
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.core.objectives.squared_error import mean_and_clip
from fedboost.ground.arrays import Floats
from fedboost.ground.settings import Settings

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary

SLOPE = "huber_slope"
SLOPES_MAX = 1e100  # farther from a label, in slopes, squares would leave float64


class PseudoHuberParams(Settings):
    """Settings of reg:pseudohubererror."""

    huber_slope: float = Field(HUBER_SLOPE, ge=1e-9, le=1e9)  # greater errors count linearly


@dataclass(frozen=True)
class PseudoHuber(Objective):
    """reg:pseudohubererror with slope δ: with z = m − y, s = √(1 + z²/δ²), g = w·z/s, h = w/s³.

    |g| stays below w·δ. It is cut at `g_max`, its value at the clip of reg:squarederror, if that is
    less, so that a slope far above the labels' spread costs no bits.
    """

    slope: float
    g_max: float = field(repr=False)

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> PseudoHuber:
        """Return the loss; base score: the weighted mean.

        XGBoost takes one Newton step from 0, and so starts far beyond labels that are many slopes
        from 0: at 5e8 for labels around 1000 and a slope of 1.
        """
        score, clip = mean_and_clip(params, summary)
        slope, slopes = params.huber_slope, min(clip / params.huber_slope, SLOPES_MAX)
        return cls(np.array([score]), slope, slope * (slopes / math.sqrt(1.0 + slopes * slopes)))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        far = SLOPES_MAX * self.slope
        slopes = np.clip(margin - y[:, None], -far, far) / self.slope
        scale = np.sqrt(1.0 + slopes * slopes)
        g = np.clip(self.slope * (slopes / scale), -self.g_max, self.g_max)
        return w * g, w * (1.0 / (scale * scale * scale))

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max * self.g_max, summary.weight_max


def _content(params: Mapping[str, Any], outputs: int) -> dict[str, str]:
    return {SLOPE: repr(params[SLOPE])}


PSEUDO_HUBER_RECORD = ObjectiveRecord(
    name="reg:pseudohubererror",
    predicts="number",
    start=PseudoHuber.start,
    link=links.IDENTITY,
    labels=labels.NUMBERS,
    metrics=("mphe",),
    xgboost=XgboostForm("pseudo_huber_param", _content, estimates_base_alike=False),
    settings=(SLOPE,),
)
