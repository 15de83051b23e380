"""reg:squarederror."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedboost.core.fixed_point import power_of_two_above
from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord, XgboostForm
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary


def mean_and_clip(params: ObjectiveSettings, summary: Summary) -> tuple[float, float]:
    """Return the base score and the distance from a label that cuts margins.

    The base score is the weighted mean unless given. The distance is the least power of two that is
    twice the labels' spread, and twice any label's distance from the base score.
    """
    score = summary.mean if params.base_score is None else params.base_score
    reach = max(summary.high - summary.low, summary.high - score, score - summary.low)
    return score, power_of_two_above(2.0 * reach) if reach else 1.0


@dataclass(frozen=True)
class SquaredError(Objective):
    """reg:squarederror: g = w(m − y), cut at ±w·clip; h = w.

    Only a margin as far outside the labels as they are wide is cut (`mean_and_clip`), and then
    still moves in the right direction.
    """

    clip: float = field(repr=False)

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> SquaredError:
        """Return the loss; base score: the weighted mean."""
        score, clip = mean_and_clip(params, summary)
        return cls(np.array([score]), clip)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.clip(margin - y[:, None], -self.clip, self.clip), w + np.zeros_like(margin)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max * self.clip, summary.weight_max


SQUARED_ERROR_RECORD = ObjectiveRecord(
    name="reg:squarederror",
    predicts="number",
    start=SquaredError.start,
    link=links.IDENTITY,
    labels=labels.NUMBERS,
    metrics=("rmse",),
    xgboost=XgboostForm("reg_loss_param", lambda params, outputs: {"scale_pos_weight": "1"}),
    hessians_are_weights=True,
)
