"""Forests per round: the schedule of the paper, and the settings that say it."""

import math

import numpy as np
import pytest

from fedboost.core import forest, sampling
from fedboost.core.params import TreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings


def said(rounds=100, **raw):
    return parse_settings(TreeParams, {"n_estimators": rounds, "forest": raw})


def dynamic(rounds=100, **raw):
    return said(rounds, dynamic=raw)


def naive(first, last, speed, b, rounds):
    """The value of round b from 1, as the paper's equations 6 and 7 must be read."""
    if rounds == 1:
        return first
    angle = math.pi * (b - 1) / (2 * speed * (rounds - 1))
    if angle >= math.pi / 2:
        return last
    least, most = min(first, last), max(first, last)
    return least + (most - least) * (math.cos(angle) if first > last else math.sin(angle))


def test_a_hundred_rounds_cost_what_the_papers_table_says():
    params = dynamic()
    alpha, trees = forest.row_rates(params), forest.trees_each_round(params)
    assert alpha.sum() == pytest.approx(22.705, abs=5e-4)
    assert (alpha * trees).sum() == pytest.approx(93.68, abs=5e-3)


@pytest.mark.parametrize("rounds", [1, 2, 7, 100])
@pytest.mark.parametrize("speed", [1.0, 0.5, 0.13])
@pytest.mark.parametrize("ends", [(5, 2), (2, 5), (4, 4)])
def test_values_move_by_quarter_turns_and_then_stay(ends, speed, rounds):
    first, last = ends
    found = forest.values_each_round(first, last, speed, rounds)
    expected = [naive(first, last, speed, b, rounds) for b in range(1, rounds + 1)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert found[0] == pytest.approx(ends[0])
    if rounds > 1:
        assert found[-1] == ends[1]


def test_trees_are_rounded_up_and_rates_are_not():
    params = dynamic(4, n_trees=[5, 2], subsample=[0.1, 0.3])
    assert forest.trees_each_round(params).tolist() == [
        5,
        5,
        4,
        2,
    ]  # 2 + 3·cos of 0, 30, 60 and 90 degrees
    np.testing.assert_allclose(forest.row_rates(params), [0.1, 0.2, 0.1 + 0.1 * math.sqrt(3), 0.3])


def test_each_value_has_a_speed_of_its_own():
    params = dynamic(9, speed={"n_trees": 0.25, "subsample": 1.0})
    assert forest.trees_each_round(params)[2:].tolist() == [2] * 7
    assert (np.diff(forest.row_rates(params)) > 0).all()


def test_a_forest_that_does_not_move_is_the_same_in_every_round():
    params = said(3, n_trees=4, subsample=0.5)
    assert forest.trees_each_round(params).tolist() == [4, 4, 4]
    assert forest.row_rates(params).tolist() == [0.5, 0.5, 0.5]
    assert forest.first_tree_numbers(params).tolist() == [0, 4, 8, 12]


def test_without_a_forest_a_round_has_a_tree_for_each_class():
    params = parse_settings(
        TreeParams, {"n_estimators": 2, "objective": "multi:softprob", "num_class": 3}
    )
    assert forest.first_tree_numbers(params).tolist() == [0, 3, 6]


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"forest": {}, "subsample": 0.5}, "subsample"),
        ({"forest": {}, "colsample_bytree": 0.5}, "colsample_bytree"),
        ({"forest": {}, "goss": {}}, "goss"),
        ({"forest": {"n_trees": 3, "dynamic": {}}}, "n_trees and dynamic"),
        ({"forest": {"subsample": 0.3, "dynamic": {}}}, "subsample and dynamic"),
        ({"forest": {"n_trees": 0}}, "n_trees"),
        ({"forest": {"n_trees": 1001}}, "n_trees"),
        ({"forest": {"dynamic": {"n_trees": [5]}}}, "n_trees"),
        ({"forest": {"dynamic": {"n_trees": [5, 0]}}}, "n_trees"),
        ({"forest": {"dynamic": {"subsample": [0.0, 0.3]}}}, "subsample"),
        ({"forest": {"dynamic": {"speed": {"n_trees": 0.0}}}}, "speed"),
        ({"forest": {"tree": 3}}, "did you mean 'n_trees'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(raw, word):
    with pytest.raises(ConfigError) as refused:
        parse_settings(TreeParams, raw)
    assert word in " ".join(refused.value.lines())


def test_every_tree_of_a_forest_draws_rows_of_its_own():
    params = said(3, n_trees=4, subsample=0.4)
    gradients = np.ones((500, 1))
    sample = sampling.round_sample(params, gradients, 1, 1)
    assert len(sample.trees) == 4
    assert all(150 < len(rows) < 250 for rows in sample.trees)
    assert len({rows.tobytes() for rows in sample.trees}) == 4
    assert sample.rows.tolist() == sorted(set(np.concatenate(sample.trees).tolist()))
    other = sampling.round_sample(params, gradients, 2, 2)
    assert not {rows.tobytes() for rows in other.trees} & {rows.tobytes() for rows in sample.trees}
