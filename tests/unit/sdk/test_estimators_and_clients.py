"""Estimators for one process: the trainer of the jobs, in scikit-learn's manner and without it."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fedboost
from fedboost import sdk
from fedboost.core import gbun
from fedboost.core.gbun import GbunParams
from fedboost.ground.errors import ConfigError, DataError
from fedboost.protocols.gbun.params import GbunJobParams
from fedboost.sdk import GBUNClassifier, GBUNRegressor
from fedboost.sdk.parameters import OWN
from tests.conftest import ROOT
from tests.unit.core.test_gbun import table

FEW: dict[str, Any] = {"n_estimators": 5, "outputs": 8}


def test_binary_classes_are_those_of_the_trainer_whatever_they_are_called():
    rows = table(weighted=True)
    names = np.array(["no", "yes"])[rows.y.astype(int)]
    model = GBUNClassifier(**FEW).fit(rows.values, names, rows.weight)
    expected = gbun.train(rows, GbunParams(**FEW)).predict(rows.values)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.predict_proba(rows.values)[:, 1:], expected)
    np.testing.assert_allclose(model.predict_proba(rows.values).sum(axis=1), 1.0)
    found = model.predict(rows.values)
    assert found.tolist() == np.where(expected[:, 0] > 0.5, "yes", "no").tolist()
    hits = (found == names).astype(float)
    assert model.score(rows.values, names, rows.weight) == np.average(hits, weights=rows.weight)


@pytest.mark.parametrize("classes", [[-1, 5, 7], ["a", "c", "b"]], ids=str)
def test_several_classes_are_those_of_the_trainer(classes):
    rows = table("multi:softprob")
    ordered = np.sort(np.array(classes))
    model = GBUNClassifier(**FEW).fit(rows.values, ordered[rows.y.astype(int)])
    own = GbunParams(objective="multi:softprob", num_class=3, **FEW)
    expected = gbun.train(rows, own).predict(rows.values)
    np.testing.assert_array_equal(model.predict_proba(rows.values), expected)
    assert set(model.predict(rows.values).tolist()) <= set(classes)


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson", "reg:tweedie"])
def test_numbers_are_those_of_the_trainer(objective):
    rows = table(objective, missing=0.2)
    model = GBUNRegressor(objective=objective, **FEW).fit(rows.values, rows.y)
    expected = gbun.train(rows, GbunParams(objective=objective, **FEW)).predict(rows.values)
    np.testing.assert_array_equal(model.predict(rows.values), expected[:, 0])
    metrics = pytest.importorskip("sklearn.metrics")
    weight = np.linspace(0, 1, len(rows.y))
    theirs = metrics.r2_score(rows.y, expected[:, 0], sample_weight=weight)
    assert model.score(rows.values, rows.y, weight) == pytest.approx(theirs)


def test_sparse_rows_are_hashed_in_any_of_scipys_forms():
    rows = table(sparse=True, zero=0.6)
    model = GBUNClassifier(**FEW).fit(csr_matrix(rows.values), rows.y)
    expected = gbun.train(rows, GbunParams(**FEW)).predict(rows.values)
    assert model.trained_.reading.scale is None
    np.testing.assert_array_equal(model.predict_proba(csr_matrix(rows.values))[:, 1:], expected)
    np.testing.assert_allclose(model.predict_proba(rows.values.toarray())[:, 1:], expected)


def test_rows_held_out_decide_when_to_stop():
    rows = table(n=400)
    y = np.random.default_rng(0).integers(0, 2, 400)
    model = GBUNClassifier(n_estimators=60, outputs=8, early_stopping_rounds=3)
    model.fit(rows.values[:300], y[:300], eval_set=(rows.values[300:], y[300:]))
    assert len(model.history_) == model.best_round_ + 4 < 60
    assert set(model.history_[0]) == {"train", "validation"}
    with pytest.raises(DataError, match="1 of 2 labels of eval_set are of no class"):
        model.fit(rows.values, y, eval_set=(rows.values[:2], [0, 9]))


# What scikit-learn asks for


@pytest.mark.some(3, of="processes of their own")
def test_importing_the_estimators_imports_no_scikit_learn():
    code = "import sys, fedboost.sdk; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_parameters_are_the_jobs_under_their_names_and_defaults():
    own = GBUNRegressor().get_params()
    fields = GbunJobParams.model_fields
    assert set(own) == set(fields) - {"num_class", "scale_pos_weight"} | set(OWN)
    assert own["objective"] == "reg:squarederror"
    assert all(own[name] == fields[name].default for name in set(own) - {"objective", *OWN})
    model = GBUNClassifier(outputs=7)
    assert model.set_params(seed=3) is model
    assert (model.get_params()["outputs"], model.get_params()["seed"]) == (7, 3)
    assert repr(model) == "GBUNClassifier(seed=3, outputs=7)"
    with pytest.raises(ConfigError, match="has no parameter 'max_depth'"):
        model.set_params(max_depth=3)


def test_scikit_learn_clones_searches_and_validates_them():
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    rows = table()
    model = GBUNClassifier(**FEW, eval_metric=["logloss"])
    assert model.get_params()["columns"] == "auto"
    model.set_params(columns="standard")  # rows are too few for bins
    copy = base.clone(model.fit(rows.values, rows.y))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "trained_")
    assert base.is_classifier(model)
    assert base.is_regressor(GBUNRegressor())
    scores = selection.cross_val_score(model, rows.values, rows.y, cv=3, scoring="roc_auc")
    assert scores.min() > 0.7
    numbers = table("reg:squarederror")
    assert (
        selection.cross_val_score(
            GBUNRegressor(**FEW, columns="standard"), numbers.values, numbers.y
        ).min()
        > 0.3
    )
    grid = selection.GridSearchCV(model, {"outputs": [4, 8], "learning_rate": [0.1, 0.5]}, cv=2)
    grid.fit(rows.values, rows.y)
    assert grid.best_params_["learning_rate"] == 0.5
    steps = pipeline.make_pipeline(preprocessing.StandardScaler(), base.clone(model))
    assert steps.fit(rows.values, rows.y).score(rows.values, rows.y) > 0.7


def test_a_fitted_estimator_may_be_kept():
    rows = table()
    model = GBUNClassifier(**FEW).fit(rows.values, rows.y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict_proba(rows.values), model.predict_proba(rows.values)
    )


# What cannot be


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ([[1.0], [2.0]], [1, 1], "all 2 labels are the same class"),
        ([["a"], ["b"]], [0, 1], "columns that are text, not numbers: f0"),
        ([1.0, 2.0], [0, 1], "X has 1 dimensions"),
        ([[np.inf], [2.0]], [0, 1], "infinite values: f0 \\(1 of 2 rows\\)"),
        ([[1.0], [2.0], [3.0]], [0, 1], "X has 3 rows and y 2 labels"),
    ],
)
def test_what_networks_cannot_learn_from_is_refused_in_one_line(x, y, text):
    with pytest.raises(DataError, match=text):
        GBUNClassifier(**FEW).fit(x, y)


def test_settings_are_looked_at_when_it_comes_to_fitting():
    rows = table()
    with pytest.raises(ConfigError, match="outputs"):
        GBUNClassifier(outputs=1).fit(rows.values, rows.y)
    with pytest.raises(ConfigError, match="learns numbers, not classes"):
        GBUNRegressor(objective="binary:logistic").fit(rows.values, rows.y)
    with pytest.raises(ConfigError, match="medians"):
        GBUNRegressor(objective="reg:absoluteerror").fit(rows.values, rows.y)


def test_rows_of_another_width_and_estimators_that_never_learned_are_refused():
    rows = table()
    with pytest.raises(DataError, match="is not fitted"):
        GBUNRegressor().predict(rows.values)
    model = GBUNClassifier(**FEW).fit(rows.values, rows.y)
    with pytest.raises(DataError, match="X has 4 features, but GBUNClassifier is expecting 5"):
        model.predict(rows.values[:, :4])


@pytest.mark.some(3, of="processes of their own")
def test_the_package_has_what_the_sdk_has_and_loads_it_when_it_is_asked_for():
    code = (
        "import sys, fedboost, fedboost.ground.errors\n"
        "assert not hasattr(fedboost, 'nothing')\n"
        "assert 'fedboost.sdk' not in sys.modules\n"
        "from fedboost import SecureBoostClassifier\n"
        "assert SecureBoostClassifier is sys.modules['fedboost.sdk'].SecureBoostClassifier\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert fedboost.__all__ == sdk.__all__
