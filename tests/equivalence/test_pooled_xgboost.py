"""Is the pooled trainer as good as XGBoost `hist`, and where cuts coincide, the same model?"""

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedboost.core import local, metrics
from fedboost.core.local import TrainingTable
from fedboost.core.params import TreeParams

xgb = pytest.importorskip("xgboost")

ROUNDS = 25
PARAMS = TreeParams(n_estimators=ROUNDS, max_depth=5, eval_metric="auc")
XGB_PARAMS = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 5,
    "learning_rate": 0.3,
    "max_bin": 32,
    "reg_lambda": 1.0,
    "nthread": 1,
}
MONOTONE = {"monotone_constraints": {"f0": 1, "f1": -1, "f2": -1}}
FEW_LEAVES = {"max_leaves": 7, "grow_policy": "lossguide"}
AUC_GAP_MAX = 0.005  # docs: every lossless protocol stays this near


def load(path):
    table = pq.read_table(path)
    columns = [table[name].to_numpy().astype(np.float32) for name in table.column_names[2:]]
    return np.column_stack(columns), table["y"].to_numpy().astype(np.float64)


@pytest.mark.parametrize("name", ["breast", "default_credit", "give_credit", "susy_30k"])
def test_auc_is_within_half_a_percent_of_xgboosts(data_file, name):
    values, y = load(data_file(f"{name}.parquet"))
    order = np.random.Generator(np.random.Philox(7)).permutation(len(y))
    train, held = np.split(order, [int(0.7 * len(y))])
    ours = local.train(
        TrainingTable(values[train], y[train]), PARAMS, TrainingTable(values[held], y[held])
    )
    theirs = xgb.train(XGB_PARAMS, xgb.DMatrix(values[train], y[train]), ROUNDS)
    for part, rows in (("train", train), ("validation", held)):
        scores = theirs.predict(xgb.DMatrix(values[rows])).astype(np.float64)
        expected = metrics.evaluate("auc", y[rows], scores)
        assert abs(ours.history[-1][part]["auc"] - expected) <= AUC_GAP_MAX


def few_values(seed, n=3000):
    """Whole numbers, so that every value has its bin in both; some missing."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 10, (n, 5)).astype(np.float32)
    signal = (
        0.25 * values[:, 0] - 0.04 * values[:, 1] ** 2 + 0.1 * values[:, 2] * (values[:, 3] > 0)
    )
    values[rng.random(values.shape) < 0.1] = np.nan
    return values, signal + rng.normal(0, 1, n)


@pytest.mark.parametrize(
    ("objective", "base", "more"),
    [
        ("binary:logistic", 0.4, {"scale_pos_weight": 2.0}),
        ("binary:logistic", 0.4, {"reg_alpha": 2.0, "gamma": 3.0, "min_child_weight": 20.0}),
        ("reg:squarederror", 0.5, {"reg_lambda": 10.0}),
        ("reg:squarederror", 0.5, {**FEW_LEAVES, "gamma": 3.0}),
        ("binary:logistic", 0.4, {**FEW_LEAVES, "min_child_weight": 20.0}),
        ("multi:softprob", 0.5, {"num_class": 3, **FEW_LEAVES}),
        ("reg:squarederror", 0.5, MONOTONE),
        ("binary:logistic", 0.4, {**MONOTONE, "reg_alpha": 2.0, "min_child_weight": 20.0}),
        ("binary:logistic", 0.4, {**MONOTONE, **FEW_LEAVES, "max_depth": 6}),
        ("multi:softprob", 0.5, {"num_class": 3, **MONOTONE, "max_depth": 5}),
        ("count:poisson", 2.0, MONOTONE),
        ("multi:softprob", 0.5, {"num_class": 3}),
        ("reg:tweedie", 1.2, {}),
        ("count:poisson", 2.0, {}),
        ("count:poisson", 2.0, {"max_delta_step": 0.0}),
        ("count:poisson", 2.0, {"max_delta_step": 0.2, "reg_alpha": 2.0}),
        ("binary:logistic", 0.4, {"max_delta_step": 0.3}),
        ("binary:logistic", 0.4, {"max_delta_step": 0.3, "reg_alpha": 2.0}),
        ("multi:softprob", 0.5, {"num_class": 3, "max_delta_step": 0.3}),
        ("reg:squarederror", 0.5, {"max_delta_step": 0.5, "gamma": 3.0}),
    ],
)
def test_where_cuts_coincide_the_margins_are_xgboosts(objective, base, more):
    values, signal = few_values(1)
    y = {
        "binary:logistic": (signal > 0).astype(float),
        "multi:softprob": np.digitize(signal, [-1.5, 0.5]).astype(float),
        "reg:tweedie": np.maximum(signal + 1, 0.0),
        "count:poisson": np.random.default_rng(3).poisson(np.exp(np.clip(signal, -3, 4))) * 1.0,
    }.get(objective, signal)
    shared = {"max_depth": 4, "learning_rate": 0.3, "base_score": base, **more}
    directions = tuple(shared.get("monotone_constraints", {}).get(f"f{c}", 0) for c in range(5))
    table = TrainingTable(values, y, monotone=directions)
    ours = local.train(table, TreeParams(objective=objective, n_estimators=8, **shared))
    settings = {**shared, "objective": objective, "tree_method": "hist", "nthread": 1}
    settings |= {"monotone_constraints": directions} if any(directions) else {}
    theirs = xgb.train(settings, xgb.DMatrix(values, y), 8)
    margins = theirs.predict(xgb.DMatrix(values), output_margin=True).reshape(len(y), -1)
    # XGBoost adds up in float32; a tie that falls the other way moves few rows.
    close = np.isclose(ours.margins(values), margins, atol=2e-3).all(axis=1)
    assert close.mean() > 0.99


@pytest.mark.parametrize("leaves", [2, 3, 6, 11, 40])
def test_lossguide_makes_xgboosts_splits_in_trees_of_as_many_leaves(leaves):
    values, y = few_values(leaves)
    shared = {"max_depth": 5, "learning_rate": 0.3, "base_score": 0.5, "max_leaves": leaves}
    shared["grow_policy"] = "lossguide"
    params = TreeParams(objective="reg:squarederror", n_estimators=3, **shared)
    ours = local.train(TrainingTable(values, y), params)
    theirs = xgb.train({**shared, "tree_method": "hist", "nthread": 1}, xgb.DMatrix(values, y), 3)
    their_leaves = theirs.predict(xgb.DMatrix(values), pred_leaf=True)
    nodes = theirs.trees_to_dataframe()
    for number, (tree,) in enumerate(ours.rounds):
        own = nodes[nodes.Tree == number]
        inner, split = own[own.Feature != "Leaf"], ~tree.is_leaf
        assert tree.is_leaf.sum() == len(inner) + 1 <= leaves
        assert sorted(tree.feature[split]) == sorted(inner.Feature.str[1:].astype(int))
        assert np.allclose(sorted(tree.gain[split]), sorted(inner.Gain), rtol=1e-3)
        both = {*zip(tree.leaf_of_values(values), their_leaves[:, number], strict=True)}
        assert len(both) == tree.is_leaf.sum()  # the same rows share a leaf


def test_skewed_counts_stay_near_the_counts_as_xgboosts_do():
    draw = np.random.default_rng(0)
    values = draw.normal(0, 1, (1000, 5)).astype(np.float32)
    rate = np.exp(np.clip(3 * values[:, 0] + draw.normal(0, 3, 1000) - 2, -5, 12))
    y = draw.poisson(rate).astype(np.float64)
    shared: dict[str, Any] = {"objective": "count:poisson", "learning_rate": 1.0}
    ours = local.train(TrainingTable(values, y), TreeParams(**shared, n_estimators=30))
    theirs = xgb.train({**shared, "nthread": 1}, xgb.DMatrix(values, y), 30)
    most = theirs.predict(xgb.DMatrix(values)).max()
    assert ours.predict(values).max() == pytest.approx(most, rel=0.05)
    without = TreeParams(**shared, n_estimators=1, max_delta_step=0.0)
    assert local.train(TrainingTable(values, y), without).predict(values).max() > 1e9 * y.max()
