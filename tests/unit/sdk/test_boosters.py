"""What XGBoost's users ask of fitted trees, beside what the estimator itself predicts."""

import numpy as np
import pytest

from fedboost.sdk import (
    FederBoostClassifier,
    GBUNClassifier,
    HybridTreeClassifier,
    SecureBoostClassifier,
    SecureBoostRegressor,
)
from fedboost.sdk.refusals import InvalidParameterError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 6))
Y = (X[:, 0] + X[:, 4] > 0).astype(int)
SMALL = {"n_estimators": 3, "max_depth": 2, "encryption": {"scheme": "lattice"}}


@pytest.fixture(scope="module")
def model():
    return SecureBoostClassifier(**SMALL).fit(X[:200], Y[:200])


def test_the_booster_of_all_parties_predicts_as_the_estimator(model):
    import xgboost

    booster = model.get_booster()
    assert booster.num_boosted_rounds() == 3
    rows = xgboost.DMatrix(X[200:], feature_names=booster.feature_names)
    found = booster.predict(rows)
    assert np.allclose(found, model.predict_proba(X[200:])[:, 1], atol=1e-6)


def test_margins_are_those_of_the_probabilities(model):
    margins = model.predict(X[200:], output_margin=True)
    assert margins.shape == (100,)
    assert np.allclose(1 / (1 + np.exp(-margins)), model.predict_proba(X[200:])[:, 1])


def test_contributions_add_up_to_margins(model):
    shares = model.predict(X[200:], pred_contribs=True)
    assert shares.shape == (100, 7)
    margins = model.predict(X[200:], output_margin=True)
    assert np.allclose(shares.sum(axis=1), margins, atol=1e-5)


def test_first_rounds_are_those_of_a_smaller_model(model):
    smaller = SecureBoostClassifier(**{**SMALL, "n_estimators": 2}).fit(X[:200], Y[:200])
    found = model.predict_proba(X[200:], iteration_range=(0, 2))
    assert np.allclose(found, smaller.predict_proba(X[200:]), atol=1e-6)
    assert np.array_equal(model.predict(X[200:], iteration_range=(0, 3)), model.predict(X[200:]))


def test_leaves_are_one_for_each_tree(model):
    leaves = model.apply(X[200:])
    assert (leaves.shape, leaves.dtype) == ((100, 3), np.int32)
    assert model.apply(X[200:], iteration_range=(0, 1)).size == 100


def test_classes_have_margins_and_contributions_of_their_own():
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    found = SecureBoostClassifier(**SMALL).fit(X, labels)
    margins = found.predict(X, output_margin=True)
    shares = found.predict(X, pred_contribs=True)
    assert (margins.shape, shares.shape) == ((300, 3), (300, 3, 7))
    assert np.allclose(shares.sum(axis=2), margins, atol=1e-5)


def test_a_regressor_has_them_too():
    found = SecureBoostRegressor(**SMALL).fit(X, X[:, 1])
    assert np.allclose(found.predict(X, output_margin=True), found.predict(X))
    assert np.allclose(found.predict(X, iteration_range=(0, 0)), found.predict(X), atol=1e-5)


def test_tables_by_party_are_answered_by_party():
    parties = {"north": X[:150], "south": X[150:]}
    found = FederBoostClassifier(layout="horizontal", n_estimators=2, max_depth=2, max_bin=3)
    found.fit(parties, {"north": Y[:150], "south": Y[150:]})
    leaves = found.apply(parties)
    assert {party: one.shape for party, one in leaves.items()} == dict.fromkeys(parties, (150, 2))
    assert found.get_booster().feature_names == [f"f{k}" for k in range(6)]


@pytest.mark.parametrize("given", [3, (1,), (0, -1), ("a", 2)])
def test_a_range_of_rounds_is_a_pair(model, given):
    with pytest.raises(InvalidParameterError, match="iteration_range is"):
        model.apply(X, iteration_range=given)


def test_contributions_are_those_of_all_rounds(model):
    with pytest.raises(InvalidParameterError, match="contributions cover all rounds"):
        model.predict(X, pred_contribs=True, iteration_range=(0, 1))


def test_models_that_xgboost_cannot_hold_are_refused():
    hybrid = HybridTreeClassifier(n_estimators=1, guest_depth=1, host_depth=1).fit(X, Y)
    networks = GBUNClassifier(n_estimators=2).fit(X, Y)
    for model in (hybrid, networks):
        with pytest.raises(ValueError, match=r"XGBoost|tree"):
            model.get_booster()


def test_a_model_is_saved_and_becomes_another_estimators(model, tmp_path):
    model.save_model(tmp_path / "model.json")
    other = SecureBoostClassifier(n_estimators=50)
    other.load_model(tmp_path / "model.json")
    assert other.get_params() == model.get_params()
    assert np.array_equal(other.predict_proba(X), model.predict_proba(X))
