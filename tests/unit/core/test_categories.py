"""Divisions of categories: every cut of their ranking, and the best of all ways to divide them."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import categories
from fedboost.core.categories import SET_BYTES, as_set, as_sets, divisions, set_holds, set_members
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import MAX_BIN, TreeParams

FIXED = FixedPoint(20, 1.0, 0.25)
LAMBDAS = st.sampled_from([0.0, 0.5, 1.0])

pairs = st.tuples(st.integers(-6, 6), st.integers(0, 4))  # few values, so that scores are equal
large = st.tuples(st.integers(-(2**20), 2**20), st.integers(1, 2**20))


def tables(cells, outputs=1, most=7):
    """Sums of categories, (k, 2·outputs), and of missing rows or None."""
    row = st.lists(cells, min_size=outputs, max_size=outputs).map(
        lambda listed: [number for pair in listed for number in pair]
    )
    return st.tuples(st.lists(row, min_size=0, max_size=most), st.one_of(st.none(), row))


def found_in(rows, lacking, params, outputs=1):
    """What `divisions` lists, as (set of bins, missing left, sums on the left)."""
    sums = np.array(rows, np.int64).reshape(len(rows), 2 * outputs)
    absent = None if lacking is None else np.array(lacking, np.int64)
    found = divisions(sums, absent, params, FIXED)
    assert len(found) == len(found.ends) == len(found.missing_left) == len(found.left)
    return [
        (frozenset(found.bins(i).tolist()), bool(found.missing_left[i]), found.left[i].tolist())
        for i in range(len(found))
    ]


def ratio(pair, reg_lambda):
    """G/(H + λ), exactly."""
    g, h = pair
    bottom = Fraction(FIXED.h_unit) * h + Fraction(reg_lambda)
    return Fraction(FIXED.g_unit) * g / bottom if bottom else Fraction(0)


def naive(rows, lacking, reg_lambda, outputs):
    """Rank, cut between different values, put the missing rows on either side."""
    present = [bin_ for bin_, row in enumerate(rows) if any(row)]
    spread, own = Fraction(-1), 0
    for k in range(outputs):
        seen = [ratio(rows[b][2 * k : 2 * k + 2], reg_lambda) for b in present]
        if seen and max(seen) - min(seen) > spread:
            spread, own = max(seen) - min(seen), k
    score = {b: ratio(rows[b][2 * own : 2 * own + 2], reg_lambda) for b in present}
    listed = []
    for cut in sorted(set(score.values()))[:-1]:
        left = frozenset(b for b in present if score[b] <= cut)
        listed += [(left, side) for side in ((False, True) if lacking is not None else (False,))]
    if lacking is not None and present:
        listed.append((frozenset(present), False))

    def total(left, side):
        taken = [rows[b] for b in left] + [lacking] * side
        return [sum(row[i] for row in taken) for i in range(2 * outputs)]

    return [(left, side, total(left, side)) for left, side in listed]


@pytest.mark.parametrize("outputs", [1, 3])
@given(st.data(), LAMBDAS)
def test_divisions_are_every_cut_of_the_exact_ranking(outputs, data, reg_lambda):
    rows, lacking = data.draw(tables(st.one_of(pairs, large), outputs))
    found = found_in(rows, lacking, TreeParams(reg_lambda=reg_lambda), outputs)
    assert found == naive(rows, lacking, reg_lambda, outputs)


@given(st.data(), LAMBDAS)
def test_the_order_in_which_categories_are_listed_changes_no_division(data, reg_lambda):
    rows, lacking = data.draw(tables(pairs, outputs=2, most=9))
    order = data.draw(st.permutations(range(len(rows))))
    params = TreeParams(reg_lambda=reg_lambda)
    here = found_in(rows, lacking, params, 2)
    moved = found_in([rows[i] for i in order], lacking, params, 2)
    back = [(frozenset(order[b] for b in left), side, sums) for left, side, sums in moved]
    assert back == here


def exact_score(sums, reg_lambda):
    """Σ G²/(H + λ) over the outputs."""
    return sum(
        ratio(pair, reg_lambda) * Fraction(FIXED.g_unit) * pair[0]
        for pair in zip(sums[0::2], sums[1::2], strict=True)
    )


@given(
    tables(
        st.one_of(
            st.tuples(st.integers(-6, 6), st.integers(1, 4)),
            large,
        ),
        most=6,
    )
)
def test_without_lambda_the_best_of_all_divisions_is_among_them(table):
    """Fisher, 1958: of the 2^(k−1) ways to divide k categories none is better than a cut."""
    rows, lacking = table
    total = [sum(column) for column in zip(*rows, [0, 0], lacking or [0, 0], strict=True)]

    def gain(left):
        right = [whole - part for whole, part in zip(total, left, strict=True)]
        return exact_score(left, 0) + exact_score(right, 0)

    every = [
        [sum(column) for column in zip([0, 0], *taken, strict=True)]
        for sides in product([False, True], repeat=len(rows) + (lacking is not None))
        for taken in [[row for row, side in zip([*rows, lacking], sides, strict=False) if side]]
        if 0 < len(taken) < len(sides)
    ]
    nothing = exact_score(total, 0)
    found = found_in(rows, lacking, TreeParams(reg_lambda=0.0))
    best = max((gain(left) for _, _, left in found), default=nothing)
    assert best == max(map(gain, every), default=nothing)


def test_categories_without_rows_are_nowhere():
    rows = [[0, 0], [3, 4], [0, 0], [-3, 4]]
    assert found_in(rows, None, TreeParams()) == [(frozenset({3}), False, [-3, 4])]
    assert found_in(rows, [1, 1], TreeParams()) == [
        (frozenset({3}), False, [-3, 4]),
        (frozenset({3}), True, [-2, 5]),
        (frozenset({1, 3}), False, [0, 8]),
    ]


@pytest.mark.parametrize("lacking", [None, [5, 5]])
def test_a_column_in_which_all_rows_lack_a_value_has_no_division(lacking):
    assert found_in([[0, 0], [0, 0]], lacking, TreeParams()) == []
    assert found_in([], lacking, TreeParams()) == []


def test_equal_scores_fall_on_one_side():
    rows = [[2, 4], [-1, 3], [1, 2], [-1, 3]]
    equal = TreeParams(reg_lambda=0.0)
    assert found_in(rows, None, equal) == [(frozenset({1, 3}), False, [-2, 6])]
    # λ tells the heavier of two apart.
    assert len(found_in(rows, None, TreeParams())) == 2


def test_several_outputs_rank_by_the_one_that_differs_most():
    rows = [[1, 8, 0, 8], [2, 8, 90, 8], [3, 8, -90, 8]]
    cuts = [left for left, _, _ in found_in(rows, None, TreeParams(), 2)]
    assert cuts == [frozenset({2}), frozenset({0, 2})]


bins = st.sets(st.integers(0, MAX_BIN - 1), max_size=MAX_BIN)


@given(bins)
def test_a_set_of_bins_comes_back_and_is_held_number_by_number(own):
    held = as_set(np.array(sorted(own), np.int64))
    assert len(held) == SET_BYTES
    assert set_members(held) == sorted(own)
    sets = as_sets([b"", held])
    assert sets.shape == (2, SET_BYTES)
    assert sets.dtype == np.uint8
    for number in range(-3, 8 * SET_BYTES + 3):
        assert set_holds(sets, 1, number) == (number in own)
        assert not set_holds(sets, 0, number)


@pytest.mark.parametrize("number", [0, 7, 8, 253, MAX_BIN - 1])
def test_bits_of_a_set_stand_where_other_programs_look_for_them(number):
    held = as_set(np.array([number]))
    assert held[number // 8] == 1 << (number % 8)
    assert sum(held) == held[number // 8]


def test_every_bin_that_a_column_can_have_fits_into_a_set():
    assert set_members(as_set(np.arange(MAX_BIN))) == list(range(MAX_BIN))
    assert 8 * categories.SET_BYTES >= MAX_BIN
    assert as_sets([]).shape == (0, SET_BYTES)
