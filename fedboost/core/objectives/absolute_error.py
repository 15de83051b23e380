"""reg:absoluteerror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary


@dataclass(frozen=True)
class AbsoluteError(Objective):
    """reg:absoluteerror: g = w·sign(m − y), h = w; leaves take the median of their residuals."""

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> AbsoluteError:
        """Return the loss; base score: the weighted median."""
        score = summary.median if params.base_score is None else params.base_score
        return cls(np.array([score]))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        w = weight[:, None]
        return w * np.sign(margin - y[:, None]), w + np.zeros_like(margin)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max


ABSOLUTE_ERROR_RECORD = ObjectiveRecord(
    name="reg:absoluteerror",
    predicts="number",
    start=AbsoluteError.start,
    link=links.IDENTITY,
    labels=labels.NUMBERS,
    metrics=("mae",),
    has_median_leaves=True,
    hessians_are_weights=True,
    instead="reg:squarederror",
)
