"""Monotone constraints: no prediction moves against its column, whatever the rows are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import fixed_point, gains, local, monotone
from fedboost.core.local import TrainingTable
from fedboost.core.params import TreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from tests import tiers

KINDS: dict[str, dict[str, Any]] = {
    "binary:logistic": {},
    "reg:squarederror": {"reg_alpha": 0.5, "max_delta_step": 0.5},
    "count:poisson": {},
    "reg:tweedie": {"forest": {"n_trees": 2, "subsample": 0.7}},
    "multi:softprob": {"num_class": 3, "colsample_bynode": 0.6},
}


@settings(max_examples=tiers.examples(30), deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    directions=st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3),
    depth=st.integers(1, 5),
    leaves=st.sampled_from([0, 4]),
    seed=st.integers(0, 10**6),
)
def test_predictions_move_as_the_constraints_say_at_every_row(
    kind, directions, depth, leaves, seed
):
    draw = np.random.default_rng(seed)
    values = np.round(draw.normal(size=(150, 3)), 1).astype(np.float32)
    values[draw.random(values.shape) < 0.1] = np.nan
    y = np.nan_to_num(values).sum(axis=1) + draw.normal(size=150)
    y = {"binary:logistic": y > 0, "multi:softprob": np.digitize(y, [-1, 1])}.get(kind, y)
    y = np.abs(np.round(y)) if kind in ("count:poisson", "reg:tweedie") else y * 1.0
    more = {"max_leaves": leaves, "grow_policy": "lossguide"} if leaves else {}
    params = TreeParams(
        objective=kind, n_estimators=3, max_depth=depth, min_child_weight=0.1, **KINDS[kind], **more
    )
    table = TrainingTable(values, y.astype(np.float64), monotone=tuple(directions))
    trained = local.train(table, params)
    for column, direction in enumerate(directions):
        grid = np.sort(values[~np.isnan(values[:, column]), column])
        probes = np.repeat(values[:20], len(grid), axis=0)
        probes[:, column] = np.tile(grid, 20)
        moves = np.diff(trained.margins(probes).reshape(20, len(grid), -1), axis=1)
        assert (moves * direction >= -1e-12).all()


def test_without_bounds_and_directions_the_gains_are_the_usual_ones():
    draw = np.random.default_rng(1)
    fixed, params = (
        fixed_point.encoding_for_rows(100, None, 4.0, 1.0),
        TreeParams(min_child_weight=0.0),
    )
    sums = fixed.encode(draw.normal(size=(40, 1)), draw.uniform(0.1, 1.0, (40, 1)))
    total = sums.sum(axis=0)
    free = np.array([monotone.ANY])
    found = gains.split_gains(sums, total, params, fixed, free)
    usual = gains.split_gains(sums, total, params, fixed)
    np.testing.assert_allclose(found, usual, rtol=1e-9, atol=1e-9)
    with_direction = [
        gains.split_gains(sums, total, params, fixed, free, np.full(40, sign, np.int8))
        for sign in (1, -1)
    ]
    assert (np.isfinite(with_direction[0]) ^ np.isfinite(with_direction[1])).all()


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_children_share_their_nodes_bounds_at_the_middle_of_their_weights(direction):
    fixed = fixed_point.encoding_for_rows(10, None, 4.0, 1.0)
    params = TreeParams(reg_lambda=0.0)
    sides = fixed.encode(np.array([[1.0], [-3.0]]), np.ones((2, 1)))
    found = monotone.child_bounds(sides, direction, (-1.5, 2.0), params, fixed)
    if direction == 0:
        assert found == ((-1.5, 2.0), (-1.5, 2.0))
        return
    middle = (-1.0 + 2.0) / 2  # the right weight, 3, is cut at its node's bound
    assert direction == -1 or found == monotone.child_bounds(
        sides, monotone.BY_WEIGHT, (-1.5, 2.0), params, fixed
    )
    lower, upper = found[::direction]
    assert lower == pytest.approx((-1.5, middle))
    assert upper == pytest.approx((middle, 2.0))


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"monotone_constraints": [1, 0]}, "write it by name: {COLUMN: 1}"),
        ({"monotone_constraints": "(1,-1)"}, "write it by name: {COLUMN: 1}"),
        ({"monotone_constraints": {"a": 2}}, "monotone_constraints"),
        (
            {"monotone_constraints": {"a": 1}, "objective": "reg:absoluteerror"},
            "use reg:squarederror",
        ),
        (
            {
                "monotone_constraints": {"a": 1},
                "objective": "multi:softprob",
                "num_class": 3,
                "multi_output": True,
            },
            "use one of them",
        ),
    ],
)
def test_constraints_that_cannot_hold_are_refused(raw, word):
    with pytest.raises(ConfigError) as refused:
        parse_settings(TreeParams, raw)
    assert word in " ".join(refused.value.lines())
