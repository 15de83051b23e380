"""Summary of labels and weights, the start of an objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from fedboost.core.objectives.averages import median, scale_weights, weighted_mean
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.core.weight_checks import check_weight
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError


@dataclass(frozen=True)
class Summary:
    """Summary of the training rows' labels and weights, from which objectives start.

    Weights hold scale_pos_weight on rows of label 1. With rows at many parties, nobody may know all
    labels: `low`, `high` and `weight_max` may be wider than the rows, say by powers of two. That
    costs bits of the encoding, and losses are cut at other margins.
    """

    rows: int
    weight_sum: float = field(repr=False)
    weight_max: float = field(repr=False)  # or an upper bound
    mean: float = field(repr=False)  # weighted
    low: float = field(repr=False)  # the least label, or a lower bound
    high: float = field(repr=False)  # the greatest label, or an upper bound
    shares: tuple[float, ...] = field(default=(), repr=False)  # weighted, one for each class
    median: float = field(default=math.nan, repr=False)  # weighted, if leaves take medians

    @classmethod
    def of(cls, params: ObjectiveSettings, y: Floats, weight: Floats) -> Self:
        """Return the exact summary of rows; y and weight float64 (n,).

        A DataError names labels or weights that cannot be used for the objective.
        """
        check_weight(y, weight)
        check_labels(params, y)
        weight = scale_weights(weight, y, params.scale_pos_weight)
        classes = range(params.num_class or 0)
        has_median = params.record.has_median_leaves
        return cls(
            rows=len(y),
            weight_sum=math.fsum(weight),
            weight_max=float(weight.max()),
            mean=weighted_mean(y, weight),
            low=float(y.min()),
            high=float(y.max()),
            shares=tuple(weighted_mean((y == c).astype(np.float64), weight) for c in classes),
            median=median(y, weight) if has_median else math.nan,
        )


def check_labels(params: ObjectiveSettings, y: Floats, learn: bool = True) -> None:
    """Check labels by the objective's rule; a DataError names the count of rows at fault.

    Rows to `learn` from must show more than one class; rows to validate on need not.
    """
    bad = int(np.count_nonzero(~np.isfinite(y)))
    if bad:
        raise DataError(
            f"{bad} of {len(y)} labels are missing or infinite", todo="leave those rows out"
        )
    params.record.labels.check(params.objective, y, params.num_class or 2, learn)
