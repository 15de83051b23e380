"""Margins after a round: finite, and of predictions that are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.core.objectives import MARGIN_MAX
from fedboost.core.params import COUNTING, BoostingParams
from fedboost.ground.errors import JobError


def check(params: BoostingParams, margin: NDArray[np.float64], number: int) -> None:
    """Check the margins of a part of the rows, float64 (n, outputs), after round `number`, from 1.

    A JobError where one is no number, or where its prediction would leave float64.
    """
    most = MARGIN_MAX if params.objective in COUNTING else np.finfo(np.float64).max
    if bool(np.all(np.abs(margin) <= most)):
        return
    raise JobError(
        f"training diverged in round {number}: predictions are infinite or not numbers",
        todo="lower learning_rate, raise reg_lambda, set max_delta_step, and look for labels that "
        "are far from the others",
    )
