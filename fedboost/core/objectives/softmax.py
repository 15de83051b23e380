"""multi:softprob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord, XgboostForm
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary

PRIOR_MIN = 1e-6  # prior of a class without rows, so that its margin stays finite


@dataclass(frozen=True)
class Softmax(Objective):
    """multi:softprob: g = w(p_c − [y = c]), h = 2w·p_c(1 − p_c), XGBoost's factor 2 included."""

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> Softmax:
        """Return the loss; base margins: logarithms of weighted class shares, or as given."""
        if params.base_score is not None:
            return cls(np.full(params.n_outputs, params.base_score))
        return cls(np.log(np.maximum(np.array(summary.shares), PRIOR_MIN)))

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        p = links.class_shares(margin)
        w = weight[:, None]
        is_class = y.astype(np.intp)[:, None] == np.arange(self.n_outputs)
        return w * (p - is_class), w * (2.0 * p * (1.0 - p))

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max / 2.0


SOFTMAX_RECORD = ObjectiveRecord(
    name="multi:softprob",
    predicts="classes",
    start=Softmax.start,
    link=links.SOFTMAX,
    labels=labels.CLASSES,
    metrics=("mlogloss",),
    xgboost=XgboostForm(
        "softmax_multiclass_param", lambda params, outputs: {"num_class": str(outputs)}
    ),
)
