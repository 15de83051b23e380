"""scikit-learn's own checks of estimators, on single tables that are dealt to simulated parties."""

import numpy as np
import pytest

from fedboost.sdk import (
    FederBoostClassifier,
    FederBoostRegressor,
    GBUNClassifier,
    GBUNRegressor,
    HybridTreeClassifier,
    HybridTreeRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)
from tests import tiers

checks = pytest.importorskip("sklearn.utils.estimator_checks")
model_selection = pytest.importorskip("sklearn.model_selection")

# As quick as jobs may honestly be: no encryption and no noise, few and small trees. Tables of 20
# rows have no buckets that isolate nobody, so that the search of horizontal jobs has to be exact.
PLAIN = {"encryption": {"scheme": "plain"}, "n_estimators": 4}
TWO_PARTS = {"guest_depth": 2, "host_depth": 2, **PLAIN}
NOISELESS = {"n_estimators": 4, "max_depth": 3, "epsilon": None}
BY_ROWS = {"n_estimators": 4, "max_depth": 3, "max_bin": 8, "quantile_tolerance": 0}
NETWORKS = {"n_estimators": 10, "outputs": 8}

# The jobs of one with the fewest messages, since each of 60 checks fits several times.
ALWAYS = [
    GBUNClassifier(**NETWORKS),
    GBUNRegressor(**NETWORKS),
    FederBoostClassifier(**NOISELESS),
]
IN_SHORT = [
    SecureBoostClassifier(max_depth=3, **PLAIN),
    FederBoostClassifier(layout="horizontal", **BY_ROWS),
    HybridTreeClassifier(**TWO_PARTS),
]
LONG = [
    *IN_SHORT,
    SecureBoostRegressor(max_depth=3, **PLAIN),
    FederBoostRegressor(**NOISELESS),
    FederBoostRegressor(layout="horizontal", **BY_ROWS),
    HybridTreeRegressor(**TWO_PARTS),
]
SHORT = (
    "check_n_features_in",
    "check_classifier_data_not_an_array",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
)

UNWEIGHTED = "bins and normalised outputs are those of the rows, whatever their weights are"


def expected(_):
    """What scikit-learn asks for and these estimators do not promise, and why."""
    return {
        "check_sample_weight_equivalence_on_dense_data": UNWEIGHTED,
        "check_sample_weight_equivalence_on_sparse_data": UNWEIGHTED,
    }


@pytest.mark.some(4)
@checks.parametrize_with_checks(tiers.sampled(ALWAYS, 1), expected_failed_checks=expected)
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.some(1)
@pytest.mark.parametrize("estimator", IN_SHORT, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("check", SHORT)
def test_estimators_of_other_protocols_pass_some_of_them(estimator, check):
    getattr(checks, check)(type(estimator).__name__, estimator)


@pytest.mark.long
@checks.parametrize_with_checks(LONG, expected_failed_checks=expected)
def test_estimators_of_all_protocols_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_grid_search_finds_the_better_of_two_federated_settings():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = (x[:, 0] * x[:, 3] > 0).astype(int)
    model = SecureBoostClassifier(max_depth=1, **PLAIN)
    grid = model_selection.GridSearchCV(model, {"max_depth": np.array([1, 3])}, cv=2)
    grid.fit(x, y)
    assert grid.best_params_["max_depth"] == 3
    assert grid.best_estimator_.disclosure_.bytes
