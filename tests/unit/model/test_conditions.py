"""What splits ask of one column, taken together: the same whatever their order, and in words."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.model.conditions import (
    ANYTHING,
    CATEGORIES,
    NOTHING_PRESENT,
    Condition,
    Question,
    condition_text,
    narrowed_sides,
)

GRID = (-math.inf, -1.5, 0.0, 1.0, 2.5, math.inf, None)  # None: a missing value
thresholds = st.builds(Question, st.sampled_from([-1.5, 0.0, 1.0, 2.5, math.inf]), st.booleans())
sets = st.builds(Question, st.just(-math.inf), st.booleans(), st.integers(0, 15))


def goes_left(asked, value):
    if value is None:
        return asked.missing_left
    if asked.categories is not None:
        return bool(asked.categories >> int(value) & 1)
    return value < asked.threshold


def lets_through(condition, value):
    """Whether the condition has the value, seen by hand."""
    if condition is None:
        return False
    if value is None:
        return condition.missing
    below = condition.high is None or value < condition.high
    return condition.low <= value and below


def narrowed(asked, sides):
    condition: Condition | None = ANYTHING
    for one, right in zip(asked, sides, strict=True):
        if condition is not None:
            condition = condition.divided(one)[right]
    return condition


@given(st.lists(st.tuples(thresholds, st.booleans()), max_size=4))
def test_a_condition_lets_through_what_every_split_sends_its_way(path):
    asked, sides = [one for one, _ in path], [right for _, right in path]
    condition = narrowed(asked, sides)
    by_hand = {value: all(goes_left(one, value) != right for one, right in path) for value in GRID}
    assert {value: lets_through(condition, value) for value in GRID} == by_hand
    assert (condition is None) == (not any(by_hand.values()))


@given(st.lists(st.tuples(sets, st.booleans()), max_size=4))
def test_categories_are_those_that_every_split_sends_their_way(path):
    condition = narrowed([one for one, _ in path], [right for _, right in path])
    for value in (None, 0, 1, 2, 3):
        by_hand = all(goes_left(one, value) != right for one, right in path)
        if condition is None:
            assert not by_hand
        elif value is None:
            assert condition.missing == by_hand
        else:
            assert bool(condition.categories >> value & 1) == by_hand


@given(st.lists(st.tuples(thresholds, st.booleans()), min_size=2, max_size=3))
def test_the_order_of_splits_does_not_count(path):
    found = {
        narrowed([one for one, _ in order], [right for _, right in order])
        for order in itertools.permutations(path)
    }
    assert len(found) == 1


def test_a_split_that_is_answered_above_goes_one_way():
    asked = Question(3.0, missing_left=False)
    left, right = narrowed_sides({}, 7, asked)
    assert left == {7: Condition(high=3.0, missing=False)}
    assert right == {7: Condition(low=3.0)}
    assert narrowed_sides(left, 7, Question(5.0, missing_left=False)) == (left, None)
    assert narrowed_sides(left, 7, Question(5.0, missing_left=True)) == (left, None)
    assert narrowed_sides(right, 7, Question(2.0, missing_left=False)) == (None, right)
    only_missing = {7: NOTHING_PRESENT}
    assert narrowed_sides(right, 7, Question(2.0, missing_left=True)) == (
        only_missing,
        {7: Condition(low=3.0, missing=False)},
    )
    assert narrowed_sides(left, 8, asked)[0] == {**left, 8: Condition(high=3.0, missing=False)}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (Condition(high=np.float32(0.1).item(), missing=False), "age < 0.1"),
        (Condition(low=0.5), "age >= 0.5 (or missing)"),
        (Condition(0.5, 4.0, missing=False), "0.5 <= age < 4.0"),
        (Condition(high=math.inf, missing=False), "age is present"),
        (Condition(low=2.0, high=math.inf, missing=False), "age >= 2.0"),
        (Condition(low=math.inf), "age is missing"),
        (Condition(low=math.inf, missing=False), "age is infinite"),
        (NOTHING_PRESENT, "age is missing"),
        (Condition(categories=5, missing=False), "age in {'young', 'old'}"),
        (Condition(categories=CATEGORIES & ~2), "age not in {'grown'} (or missing)"),
        (Condition(categories=8, missing=False), "age in {number 3}"),
    ],
)
def test_a_condition_reads_as_a_sentence(condition, words):
    assert condition_text("age", condition, ("young", "grown", "old")) == words
