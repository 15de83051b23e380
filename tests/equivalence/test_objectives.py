"""Every objective learns what XGBoost learns, and learns the same on columns of many parties."""

import json
from typing import Any

import numpy as np
import pytest

from fedboost.core import local, objectives
from fedboost.core.local import TrainingTable
from fedboost.core.objectives import OBJECTIVES
from fedboost.core.params import TreeParams
from tests.equivalence.test_secureboost_pooled import Pooled, assert_equivalent
from tests.equivalence.test_secureboost_pooled import pooled as pooled_table

xgb = pytest.importorskip("xgboost")

SHARED: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.3}
ROUNDS = 8


def said_of(name, **more):
    """The parameters of an objective, its own settings among them at values that nobody has by
    default."""
    record = OBJECTIVES[name]
    own = {key: 1.2 * TreeParams.model_fields[key].default for key in record.settings}
    return {
        "objective": name,
        **own,
        **({"num_class": 3} if record.has_many_classes else {}),
        **more,
    }


def table_of(name, n=1500):
    """Whole numbers, so that every value has its bin in both; some are missing."""
    draw = np.random.default_rng(4)
    values = draw.integers(-9, 10, (n, 4)).astype(np.float32)
    pull = 0.1 * values[:, 0] - 0.01 * values[:, 1] ** 2 + draw.normal(0, 0.2, n)
    values[draw.random(values.shape) < 0.1] = np.nan
    return values, OBJECTIVES[name].labels.sample(pull, 3 if name.startswith("multi") else 2)


def theirs_of(name, said, values, y):
    """XGBoost's booster, and the values of its metric by round."""
    record = OBJECTIVES[name]
    history: dict[str, Any] = {}
    settings = {**SHARED, **said, "tree_method": "hist", "nthread": 1}
    metric = record.metrics[-1]
    if name == "reg:tweedie":
        metric += f"@{said['tweedie_variance_power']:g}"
    settings["eval_metric"] = metric
    rows = xgb.DMatrix(values, y)
    booster = xgb.train(
        settings, rows, ROUNDS, evals=[(rows, "train")], evals_result=history, verbose_eval=False
    )
    return booster, history["train"][metric]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_what_xgboost_learns(name):
    record, said = OBJECTIVES[name], said_of(name)
    values, y = table_of(name)
    params = TreeParams(**SHARED, **said, n_estimators=ROUNDS)
    ours = local.train(TrainingTable(values, y), params)
    first = objectives.transform(name, ours.base_margin[None, :])[0]
    alike = record.xgboost.estimates_base_alike
    said |= {} if alike else {"base_score": float(first[0])}
    theirs, history = theirs_of(name, said, values, y)
    if alike:
        base = json.loads(theirs.save_config())["learner"]["learner_model_param"]["base_score"]
        base_score = np.array(json.loads(base))
        if record.has_many_classes:  # margins, of which XGBoost's add up to 0
            base_score = objectives.transform(name, base_score[None, :])[0]
        np.testing.assert_allclose(base_score, first, rtol=1e-4)
    expected = theirs.predict(xgb.DMatrix(values)).reshape(len(y), -1).astype(np.float64)
    found = ours.predict(values)
    close = np.isclose(found, expected, rtol=2e-3, atol=2e-3 * np.ptp(expected))
    assert close.all(axis=1).mean() > 0.99
    assert np.corrcoef(found[:, -1], expected[:, -1])[0, 1] > 0.999
    told = [one["train"][record.metrics[-1]] for one in ours.history]
    np.testing.assert_allclose(told, history, rtol=2e-3)
    assert told[-1] < told[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_grows_the_pooled_trees_on_columns_of_three_parties(name):
    rows = pooled_table((2, 3, 2), 150, missing=0.1, label="numbers")
    pull = (rows.y - rows.y.mean()) / rows.y.std()
    y = OBJECTIVES[name].labels.sample(pull, 3 if OBJECTIVES[name].has_many_classes else 2)
    vectors = {"multi_output": True} if OBJECTIVES[name].has_many_classes else {}
    trained = assert_equivalent(Pooled(rows.columns, y, rows.ids), said_of(name, **vectors))
    assert sum(tree.n_nodes for (tree,) in trained.rounds) > 10
