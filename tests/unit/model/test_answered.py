"""Answers about splits place rows by what they add, whichever splits and trees ask."""

import math

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core.categories import NO_THRESHOLD
from fedboost.core.placement import SAMPLE_ROWS_MAX
from fedboost.flow import Charge, Spent
from fedboost.model.answered import AnsweredRows

ROWS = 3200
VALUES = np.arange(ROWS, dtype=np.float32)[:, None] // 100  # 32 values, of a hundred rows each
EVERY = np.arange(ROWS, dtype=np.int64)


def shard(*thresholds, missing_left=False):
    """The splits of one column, each in a tree of its own."""
    return {
        "feature": np.zeros(len(thresholds), np.int64),
        "threshold": np.array(thresholds, np.float32),
        "missing_left": np.full(len(thresholds), missing_left),
    }


def asked(answered, split, rows=EVERY):
    """What an answer about some rows at a split is charged."""
    threshold = answered.arrays["threshold"][split]
    answered.note(split, rows, ~(VALUES[rows, 0] < threshold))
    return sum(one.amount for one in answered.charges())


def test_a_split_by_halves_is_a_bit_of_five_and_told_once():
    answered = AnsweredRows.of(shard(15.5, 15.5), ["income"], VALUES)
    answered.note(0, EVERY, VALUES[:, 0] >= 15.5)
    [charge] = answered.charges()
    assert charge == Charge(Spent.PLACED, charge.amount, "income")
    assert charge.amount == pytest.approx(1 / 5, rel=1e-3)
    assert asked(answered, 1) == 0.0
    assert answered.charges() == ()


def test_splits_add_up_to_what_their_thresholds_tell_together_in_any_order():
    thresholds = [7.5, 15.5, 23.5, math.inf]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]):
        answered = AnsweredRows.of(shard(*thresholds), ["income"], VALUES)
        told = sum(asked(answered, split) for split in order)
        assert told == pytest.approx(2 / 5, rel=1e-3)


def test_rows_that_are_not_asked_about_are_not_told():
    answered = AnsweredRows.of(shard(15.5), ["income"], VALUES)
    assert asked(answered, 0, EVERY[:320]) == pytest.approx(0.1 / 5, rel=1e-3)


def test_categories_count_by_how_uncertain_their_sides_are():
    answered = AnsweredRows.of(shard(NO_THRESHOLD), ["income"], VALUES)
    answered.note(0, EVERY, VALUES[:, 0] >= 16)
    assert sum(one.amount for one in answered.charges()) == pytest.approx(1 / 5, rel=1e-3)


@pytest.mark.parametrize("form", [np.asarray, csc_array])
def test_who_has_a_value_of_few_rows_is_told_in_full(form):
    values = np.zeros((2 * SAMPLE_ROWS_MAX, 2), np.float32)
    few = np.arange(1, len(values), 6000)  # of every other row a sample has none
    values[few] = [1.0, np.nan]
    answered = AnsweredRows.of(shard(0.5), ["smoker", "other"], form(values))
    answered.note(0, np.arange(len(values)), values[:, 0] > 0.5)
    [charge] = answered.charges()
    assert charge.amount >= 1.0
    answered = AnsweredRows.of({**shard(0.5), "feature": np.ones(1, int)}, "ab", form(values))
    answered.note(0, np.arange(len(values)), np.isnan(values[:, 1]))
    [charge] = answered.charges()
    assert charge.amount >= 1.0
