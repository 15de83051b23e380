"""binary:logistic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedboost.core.objectives import labels, links
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord, XgboostForm
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.ground.kernels import kernel

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary


@dataclass(frozen=True)
class Logistic(Objective):
    """binary:logistic: g = w(p − y), h = w·p(1 − p); w holds scale_pos_weight for label 1."""

    scale_pos_weight: float

    @classmethod
    def start(cls, params: ObjectiveSettings, summary: Summary) -> Logistic:
        """Return the loss; base score: the weighted share of label 1.

        With scale_pos_weight it is one Newton step from the margin 0, as in XGBoost.
        """
        score = params.base_score
        if score is not None:
            return cls(np.array([math.log(score / (1.0 - score))]), params.scale_pos_weight)
        if not 0.0 < summary.mean < 1.0:
            raise DataError(
                "all rows with a weight above 0 have the same label",
                todo="check the label column, the weights and the rows chosen",
            )
        if params.scale_pos_weight != 1.0:
            margin = 4.0 * summary.mean - 2.0  # −Σg / Σh, where p is 1/2 in every row
        else:
            margin = math.log(summary.mean / (1.0 - summary.mean))
        return cls(np.array([margin]), params.scale_pos_weight)

    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """See Objective."""
        return _logistic_gradients(links.sigmoid(margin), y, weight, self.scale_pos_weight)

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """See Objective."""
        return summary.weight_max, summary.weight_max / 4.0


@kernel
def _logistic_gradients(p: Floats, y: Floats, weight: Floats, factor: float) -> Gradients:
    """Return both gradients of probabilities (n, 1), in one pass."""
    g, h = np.empty_like(p), np.empty_like(p)
    for i in range(len(p)):
        w = (factor if y[i] > 0.5 else 1.0) * weight[i]
        g[i, 0] = w * (p[i, 0] - y[i])
        h[i, 0] = w * (p[i, 0] * (1.0 - p[i, 0]))
    return g, h


LOGISTIC_RECORD = ObjectiveRecord(
    name="binary:logistic",
    predicts="chance",
    start=Logistic.start,
    link=links.LOGIT,
    labels=labels.CLASSES,
    metrics=("auc", "logloss"),  # most users ask for the AUC first
    # Gradients held scale_pos_weight when the model learned.
    xgboost=XgboostForm("reg_loss_param", lambda params, outputs: {"scale_pos_weight": "1"}),
    settings=("scale_pos_weight",),
)
