"""Objectives: gradients are derivatives, bounds hold for every margin, labels are checked."""

import math
from dataclasses import replace

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import objectives
from fedboost.core.objectives import OBJECTIVES, Summary, links
from fedboost.core.params import TreeParams
from fedboost.ground.errors import ConfigError, DataError
from tests import tiers

RHO = 1.3
DELTA = 2.0


def params_for(name, **more):
    if name == "multi:softprob":
        more["num_class"] = 3
    if name == "reg:tweedie":
        more["tweedie_variance_power"] = RHO
    if name == "reg:pseudohubererror":
        more["huber_slope"] = DELTA
    return TreeParams(objective=name, **more)


def begun(params, y, weight):
    """The objective that rows start."""
    return objectives.start_objective(params, Summary.of(params, y, weight))


def labels_for(name, n, rng):
    if name == "binary:logistic":
        return np.arange(n) % 2.0
    if name == "multi:softprob":
        return np.arange(n) % 3.0
    if name in ("count:poisson", "reg:tweedie"):
        return rng.poisson(3.0, n).astype(float) + np.eye(n)[0]
    if name == "reg:gamma":
        return rng.gamma(2.0, 3.0, n) + 0.1
    return rng.normal(5.0, 3.0, n)


def log_softmax(m):
    return m - m.max(1, keepdims=True) - np.log(np.exp(m - m.max(1, keepdims=True)).sum(1))[:, None]


def loss(name, m, y):
    """The loss of every row, straight from its definition."""
    if name == "binary:logistic":
        return np.logaddexp(0.0, m[:, 0]) - y * m[:, 0]
    if name == "multi:softprob":
        return -log_softmax(m)[np.arange(len(y)), y.astype(int)]
    if name == "reg:squarederror":
        return (m[:, 0] - y) ** 2 / 2
    if name == "reg:absoluteerror":
        return np.abs(m[:, 0] - y)
    if name == "count:poisson":
        return np.exp(m[:, 0]) - y * m[:, 0]
    m = m[:, 0]
    if name == "reg:gamma":
        return m + y * np.exp(-m)
    if name == "reg:pseudohubererror":
        return DELTA**2 * (np.sqrt(1 + ((m - y) / DELTA) ** 2) - 1)
    return -y * np.exp((1 - RHO) * m) / (1 - RHO) + np.exp((2 - RHO) * m) / (2 - RHO)


HESSIAN_FACTOR = {"multi:softprob": 2.0, "count:poisson": math.exp(0.7)}  # XGBoost's own


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_the_derivatives_of_the_weighted_loss(name):
    rng = np.random.default_rng(1)
    n, step = 40, 1e-4
    y, weight = labels_for(name, n, rng), rng.uniform(0.5, 2.0, n)
    objective = begun(params_for(name), y, weight)
    margin = objective.base_margin + rng.normal(0, 0.5, (n, objective.n_outputs))
    g, h = objective.gradients(margin, y, weight)
    assert g.shape == h.shape == margin.shape
    for k in range(objective.n_outputs):
        up, down = margin.copy(), margin.copy()
        up[:, k] += step
        down[:, k] -= step
        slope = weight * (loss(name, up, y) - loss(name, down, y)) / (2 * step)
        np.testing.assert_allclose(g[:, k], slope, rtol=1e-5, atol=1e-5)
        if name == "reg:absoluteerror":
            continue  # has no curvature: h is the weight
        bend = loss(name, up, y) - 2 * loss(name, margin, y) + loss(name, down, y)
        bend = weight * bend / step**2 * HESSIAN_FACTOR.get(name, 1.0)
        np.testing.assert_allclose(h[:, k], bend, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=tiers.examples(40), deadline=None)
@given(seed=st.integers(0, 2**32), spread=st.sampled_from([0.1, 3.0, 50.0, 1e6]))
def test_no_margin_leaves_the_bounds(name, seed, spread):
    rng = np.random.default_rng(seed)
    y, weight = labels_for(name, 12, rng), rng.uniform(0.0, 3.0, 12)
    weight[1] = 1.0
    objective = begun(params_for(name), y, weight)
    g_bound, h_bound = objective.bounds(Summary.of(params_for(name), y, weight))
    margin = rng.normal(0.0, spread, (12, objective.n_outputs))
    g, h = objective.gradients(margin, y, weight)
    assert np.all(np.abs(g) <= g_bound)
    assert np.all((h >= 0.0) & (h <= h_bound))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_wider_summary_starts_alike_and_its_bounds_hold_too(name):
    rng = np.random.default_rng(8)
    y, weight = labels_for(name, 30, rng), rng.uniform(0.5, 2.0, 30)
    exact = Summary.of(params_for(name), y, weight)
    wide = replace(exact, low=min(exact.low, -64.0), high=64.0, weight_max=2.0 * exact.weight_max)
    objective = objectives.start_objective(params_for(name), wide)
    assert np.array_equal(objective.base_margin, begun(params_for(name), y, weight).base_margin)
    bounds, least = objective.bounds(wide), begun(params_for(name), y, weight).bounds(exact)
    assert bounds[0] > least[0]
    assert bounds[1] > least[1]
    for spread in (0.1, 3.0, 1e3):
        margin = rng.normal(0.0, spread, (30, objective.n_outputs))
        g, h = objective.gradients(margin, y, weight)
        assert np.all(np.abs(g) <= bounds[0])
        assert np.all(h <= bounds[1])
    encoded = objectives.encoding(params_for(name), objective, wide)
    assert (encoded.g_bound >= bounds[0], encoded.h_bound >= bounds[1]) == (True, True)


def test_a_summary_is_what_its_rows_come_to():
    y, weight = np.array([0.0, 1.0, 2.0, 1.0]), np.array([1.0, 2.0, 4.0, 1.0])
    found = Summary.of(params_for("multi:softprob"), y, weight)
    assert (found.rows, found.weight_sum, found.weight_max) == (4, 8.0, 4.0)
    assert (found.low, found.high, found.shares) == (0.0, 2.0, (1 / 8, 3 / 8, 4 / 8))
    assert Summary.of(params_for("reg:absoluteerror"), y, weight).median == 1.5
    scaled = Summary.of(TreeParams(scale_pos_weight=3.0), y[:2], weight[:2])
    assert (scaled.weight_sum, scaled.weight_max, scaled.mean) == (7.0, 6.0, 6 / 7)


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"reg:pseudohubererror"}))  # the mean
def test_the_base_margin_is_where_the_gradient_sum_vanishes(name):
    rng = np.random.default_rng(2)
    y, weight = labels_for(name, 301, rng), rng.uniform(0.5, 2.0, 301)
    objective = begun(params_for(name), y, weight)
    margin = np.tile(objective.base_margin, (301, 1))
    g, _ = objective.gradients(margin, y, weight)
    slack = 2.0 if name == "reg:absoluteerror" else 1e-9  # one row may lie on the median
    assert np.all(np.abs(g.sum(axis=0)) <= slack)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_given_base_score_is_the_first_prediction(name):
    rng = np.random.default_rng(3)
    y, weight = labels_for(name, 30, rng), np.ones(30)
    objective = begun(params_for(name, base_score=0.25), y, weight)
    first = objectives.transform(name, objective.base_margin[None, :])
    expected = 1 / 3 if name == "multi:softprob" else 0.25
    np.testing.assert_allclose(first, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["reg:squarederror", "count:poisson", "reg:tweedie", "reg:gamma", "reg:pseudohubererror"],
)
def test_nothing_is_cut_while_margins_stay_near_the_labels(name):
    rng = np.random.default_rng(4)
    y, weight = labels_for(name, 50, rng) + 1.0, np.ones(50)
    objective = begun(params_for(name), y, weight)
    margin = y if OBJECTIVES[name].link is links.IDENTITY else np.log(y)
    mirrored = margin.max() + margin.min() - margin
    for at in (margin, mirrored):
        g, _ = objective.gradients(at[:, None], y, weight)
        a, b = y * np.exp(at * (1 - RHO)), np.exp(at * (2 - RHO))
        exact = {
            "reg:squarederror": at - y,
            "count:poisson": np.exp(at) - y,
            "reg:tweedie": b - a,
            "reg:gamma": 1 - y / np.exp(at),
            "reg:pseudohubererror": (at - y) / np.hypot(1, (at - y) / DELTA),
        }[name]
        np.testing.assert_allclose(g[:, 0], exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("factor", [0.25, 5.0])
def test_scale_pos_weight_begins_with_xgboosts_newton_step(factor):
    y = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    model = xgb.XGBClassifier(n_estimators=1, scale_pos_weight=factor).fit(y[:, None], y)
    margin = begun(TreeParams(scale_pos_weight=factor), y, np.ones(5)).base_margin
    assert 1.0 / (1.0 + np.exp(-margin[0])) == pytest.approx(float(model.intercept_[0]), abs=1e-5)


def test_scale_pos_weight_weighs_label_one():
    y, weight = np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 2.0, 1.0, 1.0])
    margin = np.array([[0.3], [0.1], [-2.0], [1.0]])
    scaled = begun(TreeParams(scale_pos_weight=3.0), y, weight)
    plain = begun(TreeParams(), y, np.where(y > 0, 3.0, 1.0) * weight)
    for one, two in zip(
        scaled.gradients(margin, y, weight),
        plain.gradients(margin, y, np.where(y > 0, 3.0, 1.0) * weight),
        strict=True,
    ):
        assert np.array_equal(one, two)


def test_the_base_margin_does_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(5)
    y, weight = rng.normal(0, 1e6, 999), rng.uniform(0, 1, 999)
    order = rng.permutation(999)
    for name in ("reg:squarederror", "reg:absoluteerror"):
        one = begun(params_for(name), y, weight).base_margin
        other = begun(params_for(name), y[order], weight[order]).base_margin
        assert one == other


def test_the_median_of_equal_weights_is_numpys():
    rng = np.random.default_rng(6)
    for n in (1, 2, 7, 10):
        values = rng.normal(0, 1, n)
        assert objectives.median(values, np.ones(n)) == pytest.approx(np.median(values))
    assert objectives.median(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 5.0])) == 9.0
    assert objectives.median(np.array([1.0, 9.0]), np.array([1.0, 0.0])) == 1.0


@pytest.mark.parametrize(
    ("name", "y", "text"),
    [
        ("binary:logistic", [0.0, 1.0, np.nan], "1 of 3 labels are missing"),
        ("reg:squarederror", [0.0, np.inf], "1 of 2 labels are missing or infinite"),
        ("binary:logistic", [0.0, 0.0, 0.0], "same class"),
        ("binary:logistic", [0.0, 1.0, 2.0], "1 of 3 labels are not"),
        ("multi:softprob", [0.0, 1.5, 2.0], "1 of 3 labels are not one of the whole numbers 0 to"),
        ("multi:softprob", [0.0, 1.0, 3.0], "0 to 2"),
        ("count:poisson", [1.0, -1.0], "1 of 2 labels are negative"),
        ("count:poisson", [0.0, 0.0], "all labels"),
        ("reg:tweedie", [2.0, -3.0, -1.0], "2 of 3 labels are negative"),
        ("reg:gamma", [2.0, 0.0, -1.0], "2 of 3 labels are 0 or less; reg:gamma needs more than 0"),
        ("reg:squarederror", [], "no rows"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(name, y, text):
    with pytest.raises(DataError, match=text):
        begun(params_for(name), np.array(y), np.ones(len(y)))


@pytest.mark.parametrize("weight", [[1.0], [1.0, -1.0], [1.0, np.nan], [0.0, 0.0], [1.0, 0.0]])
def test_weights_that_cannot_be_used_are_refused(weight):
    with pytest.raises(DataError, match=r"weight"):
        begun(TreeParams(), np.array([0.0, 1.0]), np.array(weight))


def test_an_unknown_objective_is_refused_wherever_it_comes_from():
    with pytest.raises(ConfigError, match="does not know the objective 'reg:news'") as refused:
        objectives.transform("reg:news", np.zeros((1, 1)))
    assert "reg:gamma" in refused.value.todo


@pytest.mark.parametrize("name", OBJECTIVES)
def test_labels_for_rehearsals_are_labels_of_the_objective(name):
    pull, params = np.random.default_rng(7).normal(0, 1, 90), params_for(name)
    y = OBJECTIVES[name].labels.sample(pull, params.num_class or 2)
    objectives.check_labels(params, y)
    assert np.all(np.diff(y[np.argsort(pull)]) >= 0.0)


@pytest.mark.parametrize("slope", [1e-9, 1e-3, 1.0, 1e9])
@pytest.mark.parametrize("spread", [1e-6, 1.0, 1e150])
def test_a_pseudo_huber_gradient_keeps_to_the_least_bound_of_any_slope(slope, spread):
    params = TreeParams(objective="reg:pseudohubererror", huber_slope=slope)
    y, weight = spread * np.array([-1.0, 0.5, 1.0]), np.ones(3)
    objective = begun(params, y, weight)
    bound, _ = objective.bounds(Summary.of(params, y, weight))
    assert 0.0 < bound <= min(slope, 8.0 * spread)
    for margin in (0.0, spread, 1e300):
        g, h = objective.gradients(np.full((3, 1), margin), y, weight)
        assert np.all(np.isfinite(g) & np.isfinite(h) & (np.abs(g) <= bound) & (h >= 0.0))


def test_predictions_far_below_labels_of_reg_gamma_move_up_by_a_step_of_about_one():
    y, weight = np.array([1.0, 2.0, 3.0]), np.ones(3)
    objective = begun(params_for("reg:gamma"), y, weight)
    for margin in (-5.0, -50.0, -700.0):
        g, h = objective.gradients(np.full((3, 1), margin), y, weight)
        assert np.all((-g / h > 0.85) & (-g / h < 1.0))


def test_labels_do_not_show_in_the_repr():
    y = np.array([1234567.0, 7654321.0])
    summary = Summary.of(params_for("reg:squarederror"), y, np.ones(2))
    objective = objectives.start_objective(params_for("reg:squarederror"), summary)
    assert not any(digit in repr(objective) for digit in "123456789")
    assert repr(summary) == "Summary(rows=2)"
