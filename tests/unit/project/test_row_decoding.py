"""What sums say of single rows, beside all subsets tried one by one."""

import random
from itertools import product

import numpy as np
import pytest

from tests.support.row_decoding import SEARCHED_MOST, leverage, members


def naive_sides(numbers, total):
    """What all subsets with this sum agree on, row by row."""
    fitting = [
        chosen
        for chosen in product((0, 1), repeat=len(numbers))
        if (np.array(chosen) @ numbers == total).all()
    ]
    return [
        rows[0] if len(set(rows)) == 1 and numbers[place].any() else -1
        for place, rows in enumerate(zip(*fitting, strict=True))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_sides_are_those_that_all_subsets_with_the_sum_agree_on(seed):
    draw = np.random.default_rng(seed)
    most = int(draw.choice((2, 10, 1000)))
    numbers = draw.integers(-most, most, (7, 2), endpoint=True)
    chosen = draw.integers(0, 2, (5, 7))
    sides = members(numbers, chosen @ numbers)
    for row, total in zip(sides.tolist(), chosen @ numbers, strict=True):
        assert row == naive_sides(numbers, total)


def test_powers_of_two_say_the_side_of_every_row_however_many_they_are():
    draw = random.Random(1)
    numbers = np.array([[0, 1 << place] for place in range(60)])
    draw.shuffle(places := list(range(60)))
    numbers = numbers[places]
    chosen = np.array([[draw.randrange(2) for _ in places] for _ in range(6)])
    assert np.array_equal(members(numbers, chosen @ numbers), chosen)


def test_a_sum_and_another_decide_what_neither_does_alone():
    numbers = np.array([[4, 0], [3, 0], [3, 5], [1, 0]])
    [alone] = members(numbers[:, :1], np.array([[4]])).tolist()
    assert alone == [-1, -1, -1, -1]
    [both] = members(numbers, np.array([[4, 5]])).tolist()
    assert both == [0, 0, 1, 1]


def test_rows_of_equal_numbers_stay_open_whatever_their_sum():
    numbers = np.full((2 * SEARCHED_MOST, 2), 3)
    sides = members(numbers, np.array([[9, 9], [0, 0]]))
    assert (sides[0] == -1).all()
    assert (sides[1] == 0).all()


def test_rows_without_a_number_are_never_decided():
    [sides] = members(np.array([[0, 0], [0, 2]]), np.array([[0, 2]])).tolist()
    assert sides == [-1, 1]


def test_four_sets_that_leave_one_row_together_tell_of_it_alone():
    people = np.arange(60)
    everybody, first, second = people >= 0, people >= 10, (people < 10) | (people >= 20)
    fourth = people >= 21
    few = leverage([everybody, first, second, fourth])
    assert few.max() == pytest.approx(1.0)
    assert people[few > 0.5].tolist() == [20]
    assert leverage([everybody, first, second]).max() == pytest.approx(1 / 10)
