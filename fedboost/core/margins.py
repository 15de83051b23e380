"""Checks of the margins after a round: margins and predictions must be finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.core.params import BoostingParams
from fedboost.ground.errors import JobError


def check_finite(params: BoostingParams, margin: NDArray[np.float64], number: int) -> None:
    """Check the margins of a part of the rows, float64 (n, outputs), after round `number`, from 1.

    A JobError if a margin is not a number, or if its prediction would leave float64.
    """
    if bool(np.all(np.abs(margin) <= params.record.link.margin_max)):
        return
    raise JobError(
        f"training diverged in round {number}: predictions are infinite or not numbers",
        todo="lower learning_rate, raise reg_lambda, set max_delta_step, and look for labels that "
        "are far from the others",
    )
