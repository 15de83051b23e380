"""Checks of weights, and advice about wrong ones."""

from __future__ import annotations

import numpy as np

from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError

# Greatest weight of a row, in units of the least one above 0, for encrypted gradients. Weights of
# powers of two mark rows: a sum tells which rows are in it. Exposures of a day in a year and
# inverse probabilities of a thousandth stay below.
WEIGHT_RATIO_MAX = 2.0**10


def check_weight(y: Floats, weight: Floats) -> None:
    """Check weights and their number; a DataError names the count of rows at fault."""
    if len(y) == 0:
        raise DataError(
            "there are no rows to train on",
            todo="check the tables, and how many rows validation holds out",
        )
    if weight.shape != y.shape:
        raise DataError(
            f"got {len(weight)} weights for {len(y)} rows", todo="give one weight for each row"
        )
    bad = int(np.count_nonzero(~(np.isfinite(weight) & (weight >= 0.0))))
    if bad:
        raise DataError(
            f"{bad} of {len(y)} weights are negative, infinite or not numbers",
            todo="write weights as numbers of 0 or more",
        )


def check_weight_ratio(weight: Floats) -> None:
    """Check that weights (n,) mark no rows in sums; a DataError names the ratio of extremes."""
    positive = weight[weight > 0.0]
    if len(positive) and float(positive.max()) > WEIGHT_RATIO_MAX * float(positive.min()):
        raise DataError(
            f"the greatest weight is {positive.max() / positive.min():.3g} times the least above "
            f"0, and {WEIGHT_RATIO_MAX:g} times is the most",
            todo="cut the weights to a narrower range, or give rows of almost no weight 0",
            kind="weights differ by more than a vertical job allows",
        )
