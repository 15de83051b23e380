"""Telling training rows from others by the loss of the model, which training has made smaller."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.core import metrics
from fedboost.core.metrics import PROBABILITY_MIN, one_column

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]


def losses(y: Floats, prediction: Floats, *, classes: bool) -> Floats:
    """The loss of each row, float64 (rows,).

    y float64 (rows,); prediction (rows,) or (rows, outputs): with `classes` probabilities, whose
    loss is −log p of the row's own class; without, numbers and their distance from y.
    """
    own = one_column(prediction)
    if not classes:
        return np.abs(y - own)
    if own.ndim == 1:
        own = np.where(y > 0.5, own, 1.0 - own)
    else:
        own = own[np.arange(len(y)), y.astype(np.intp)]
    return -np.log(np.maximum(own, PROBABILITY_MIN))


def member_auc(loss: Floats, is_training: Bits) -> float:
    """Return the AUC with which a small loss tells training rows, bool (rows,), from the others.

    A DataError where there are only rows of one kind.
    """
    return metrics.evaluate("auc", is_training.astype(np.float64), -loss)
