"""Sketches of sets of ids, beside the sets themselves."""

import random

import pytest

from fedboost.runtime.policy.differences import (
    DIFFERENCE_MAX,
    MeasuredRows,
    difference,
    sketch,
)
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store

TABLE = Owned("credit", "file:credit")


def people(numbers):
    return [f"p{n}".encode() for n in numbers]


@pytest.mark.parametrize("only_left", [0, 1, 3, 40])
@pytest.mark.parametrize("only_right", [0, 1, 2, 60])
def test_two_sketches_tell_how_many_ids_are_in_one_of_them_only(only_left, only_right):
    numbers = random.Random(only_left * 100 + only_right).sample(range(10**6), 5100)
    both, left, right = numbers[:5000], numbers[5000:5040], numbers[5040:]
    one = sketch(people([*both, *left[:only_left]]))
    other = sketch(people([*right[:only_right], *reversed(both)]))
    assert difference(one, other) == only_left + only_right


@pytest.mark.parametrize("count", [DIFFERENCE_MAX, 200, 300, 400, 1000, 100_000])
def test_many_ids_are_never_told_as_few(count):
    for part in range(5):
        ids = people(range(part * count, (part + 1) * count))
        assert DIFFERENCE_MAX <= difference(sketch(ids), sketch(())) <= count


@pytest.fixture
def measured(tmp_path):
    with Store(tmp_path / "store", "party bank", lambda: 1_700_000_000.0) as store:
        yield MeasuredRows(store)


def test_the_same_rows_are_held_out_again_and_nearly_the_same_are_not(measured):
    first = {"0": people(range(50)), "1": people(range(50, 90))}
    assert measured.differs(TABLE, first.items(), 10)
    assert measured.differs(TABLE, first.items(), 10)
    one_more = {**first, "1": people(range(50, 91))}
    assert not measured.differs(TABLE, one_more.items(), 10)
    assert measured.differs(TABLE, one_more.items(), 1)
    assert measured.differs(Owned("other", "file:other"), {"1": people(range(51, 90))}.items(), 10)


def test_sets_differ_by_many_rows_of_each_class_in_which_they_differ(measured):
    first = {"0": people(range(50)), "1": people(range(50, 90))}
    assert measured.differs(TABLE, first.items(), 10)
    assert not measured.differs(
        TABLE, {"0": people(range(30)), "1": people(range(51, 90))}.items(), 10
    )
    assert measured.differs(TABLE, {"0": people(range(30)), "1": first["1"]}.items(), 10)
    assert not measured.differs(TABLE, {"": people(range(89))}.items(), 10)  # by another objective


def test_a_table_is_the_same_under_another_name(measured):
    assert measured.differs(TABLE, {"": people(range(90))}.items(), 10)
    assert not measured.differs(Owned("loans", TABLE.source), {"": people(range(91))}.items(), 10)
