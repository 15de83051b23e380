"""What objectives ask of labels and weights, and what to do about others."""

from __future__ import annotations

import numpy as np

from fedboost.core.params import CLASSIFYING, COUNTING, BoostingParams
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError

CLASSES_SHOWN = 10  # in an error
ROWS_MIN = 2  # a label of fewer rows is in no error
# The greatest weight of a row in the least above 0, where hosts add up encrypted gradients. Weights
# of powers of two mark rows: a sum says of each whether it is in it. Exposures of a day in a year
# and inverse probabilities of a thousandth stay below.
WEIGHT_RATIO_MAX = 2.0**10


def check_weight(y: Floats, weight: Floats) -> None:
    """Check what every objective asks of weights; a DataError names the count of rows at fault."""
    if len(y) == 0:
        raise DataError(
            "there are no rows to train on",
            todo="check the tables, and how many rows validation holds out",
        )
    if weight.shape != y.shape:
        raise DataError(
            f"{len(weight)} weights came for {len(y)} rows", todo="give one weight for each row"
        )
    bad = int(np.count_nonzero(~(np.isfinite(weight) & (weight >= 0.0))))
    if bad:
        raise DataError(
            f"{bad} of {len(y)} weights are negative, infinite or not numbers",
            todo="write weights as numbers of 0 or more",
        )


def check_weight_ratio(weight: Floats) -> None:
    """Check that weights (n,) mark no rows in sums; a DataError says by how much they differ."""
    positive = weight[weight > 0.0]
    if len(positive) and float(positive.max()) > WEIGHT_RATIO_MAX * float(positive.min()):
        raise DataError(
            f"the greatest weight is {positive.max() / positive.min():.3g} times the least above "
            f"0, and {WEIGHT_RATIO_MAX:g} times is the most",
            todo="cut the weights to a narrower range, or give rows of almost no weight 0",
            kind="weights differ by more than a vertical job allows",
        )


def _classes_remedy(y: Floats, classes: int, name: str) -> str:
    """Return what to do about labels (n,) that are not numbered from 0."""
    values, counts = np.unique(y, return_counts=True)
    if len(values) != classes or classes > CLASSES_SHOWN or counts.min() < ROWS_MIN:
        return f"number the classes from 0, list label_values, or use another objective than {name}"
    listed = ", ".join(f"{value:g}" for value in values)
    second = ", of two the positive one last" if len(values) == 2 else ""
    return f"name the classes in their order{second}, beside the label: label_values: [{listed}]"


def check_labels(params: BoostingParams, y: Floats, learn: bool = True) -> None:
    """Check what each objective asks of labels; a DataError names the count of rows at fault.

    Rows to `learn` from must show more than one class; rows to validate on need not.
    """
    n, name = len(y), params.objective
    bad = int(np.count_nonzero(~np.isfinite(y)))
    if bad:
        raise DataError(f"{bad} of {n} labels are missing or infinite", todo="leave those rows out")
    if name in CLASSIFYING:
        classes = params.num_class or 2
        bad = int(np.count_nonzero(~((y >= 0.0) & (y < classes) & (y == np.floor(y)))))
        if bad:
            raise DataError(
                f"{bad} of {n} labels are not one of the whole numbers 0 to {classes - 1}",
                todo=_classes_remedy(y, classes, name),
                kind=f"labels are not the classes that {name} needs",
            )
        if learn and bool(np.all(y == y[0])):
            raise DataError(
                f"all {n} labels are the same class, so there is nothing to learn",
                todo="check the label column and the rows chosen",
            )
    if name in COUNTING:
        bad = int(np.count_nonzero(y < 0.0))
        if bad:
            raise DataError(
                f"{bad} of {n} labels are negative; {name} needs 0 or more",
                todo="check the label column, or use reg:squarederror",
            )
