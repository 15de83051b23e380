"""Margins that diverge end training, whatever grows the trees."""

import numpy as np
import pytest

from fedboost.core import margins
from fedboost.core.params import BoostingParams
from fedboost.ground.errors import JobError


@pytest.mark.parametrize(
    ("objective", "margin"),
    [
        ("binary:logistic", np.nan),
        ("reg:squarederror", np.inf),
        ("count:poisson", 701.0),
        ("reg:tweedie", -np.inf),
        ("reg:gamma", 701.0),
    ],
)
def test_margins_without_a_prediction_are_refused(objective, margin):
    rows = np.array([[0.0], [margin], [1.0]])
    with pytest.raises(JobError, match="training diverged in round 3") as ended:
        margins.check_finite(BoostingParams(objective=objective), rows, 3)
    assert "lower learning_rate" in ended.value.todo


def test_margins_whose_predictions_are_finite_pass():
    margins.check_finite(
        BoostingParams(objective="count:poisson"), np.array([[699.0], [-699.0]]), 1
    )
    margins.check_finite(BoostingParams(objective="reg:squarederror"), np.array([[1e300]]), 1)
