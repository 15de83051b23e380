"""Splits: the canonical candidates, XGBoost's gain from integers, and the first best."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import gains as scored
from fedboost.core import split
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from tests import tiers
from tests.support import left_sums as naive

FIXED = FixedPoint(20, 1.0, 0.25)


def naive_candidates(n_bins, has_missing):
    listed = []
    for column, bins in enumerate(n_bins):
        for b in range(bins - 1):
            listed.append((column, b, False))
            if has_missing[column]:
                listed.append((column, b, True))
        if has_missing[column]:
            listed.append((column, bins - 1, False))
    return listed


def as_tuples(listed):
    return list(
        zip(
            listed.column.tolist(),
            listed.bin.tolist(),
            listed.missing_left.tolist(),
            strict=True,
        )
    )


shapes = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=6)


@given(shapes)
def test_candidates_come_by_column_then_bin_then_missing_right_first(shape):
    n_bins = np.array([bins for bins, _ in shape], dtype=np.int32)
    missing = np.array([lacks for _, lacks in shape])
    listed = split.candidates(n_bins, missing)
    assert as_tuples(listed) == naive_candidates(n_bins.tolist(), missing.tolist())
    assert as_tuples(listed) == sorted(as_tuples(listed))
    assert len(listed) == len(listed.bin)
    assert listed.column.dtype == np.int32
    assert listed.bin.dtype == np.int16


@given(shapes, shapes)
def test_candidates_of_joined_columns_are_the_parties_candidates_joined(guest, host):
    def listed(shape):
        return as_tuples(
            split.candidates(
                np.array([bins for bins, _ in shape], dtype=np.int32),
                np.array([lacks for _, lacks in shape]),
            )
        )

    moved = [(column + len(guest), b, lacks) for column, b, lacks in listed(host)]
    assert listed(guest + host) == listed(guest) + moved


def test_columns_not_drawn_have_no_candidates():
    n_bins = np.array([3, 3, 2], dtype=np.int32)
    missing = np.array([False, True, True])
    listed = as_tuples(split.candidates(n_bins, missing, np.array([0, 2], dtype=np.int32)))
    assert listed == [c for c in naive_candidates(n_bins, missing) if c[0] != 1]


@settings(max_examples=tiers.examples(50))
@given(st.integers(0, 2**32))
def test_left_sums_are_sums_over_the_rows_that_go_left(seed):
    rng = np.random.default_rng(seed)
    n_bins, missing = np.array([4, 2, 1], dtype=np.int32), np.array([True, False, True])
    bins = np.column_stack([rng.integers(0, b, 30) for b in n_bins]).astype(np.uint8)
    bins[rng.random(30) < 0.3, 0] = 4
    bins[rng.random(30) < 0.3, 2] = 4
    gh = rng.integers(-100, 100, (30, 2))
    cells = np.zeros((3, 5, 2), dtype=np.int64)
    for row in range(30):
        for column in range(3):
            cells[column, bins[row, column]] += gh[row]
    listed = split.candidates(n_bins, missing)
    sums = naive.left_sums(cells, listed)
    for (column, b, lacks), left in zip(as_tuples(listed), sums, strict=True):
        right = split.goes_right(bins[:, column], b, lacks, 4)
        by_row = [(x > b) if x != 4 else not lacks for x in bins[:, column].tolist()]
        assert right.tolist() == by_row
        assert left.tolist() == gh[~right].sum(axis=0).tolist()


def exact_score(G, H, params):
    total = Fraction(0)
    for g, h in zip(G, H, strict=True):
        pull, alpha = Fraction(FIXED.g_unit) * g, Fraction(params.reg_alpha)
        pull = max(abs(pull) - alpha, Fraction(0))
        weight = Fraction(FIXED.h_unit) * h + Fraction(params.reg_lambda)
        total += pull * pull / weight if weight else 0
    return total


sums = st.lists(
    st.tuples(st.integers(-(2**30), 2**30), st.integers(0, 2**30)), min_size=3, max_size=3
)


@given(sums, sums, st.sampled_from([0.0, 1.0, 7.5]), st.sampled_from([0.0, 3.0]))
def test_gains_are_the_formula_in_fractions(left, right, reg_lambda, reg_alpha):
    params = TreeParams(reg_lambda=reg_lambda, reg_alpha=reg_alpha, min_child_weight=0.0)
    L, R = np.array(left), np.array(right)
    G, H = (L + R)[:, 0], (L + R)[:, 1]
    gain = scored.split_gains(L.reshape(1, -1), (L + R).ravel(), params, FIXED)
    parts = [
        exact_score([g for g, _ in side], [h for _, h in side], params) for side in (left, right)
    ]
    whole = exact_score(G.tolist(), H.tolist(), params)
    scale = float(sum(parts) + whole)
    assert gain[0] == pytest.approx(float(sum(parts) - whole), rel=1e-12, abs=1e-12 * scale)


@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 2**60)), min_size=1))
def test_gains_have_the_same_bits_mirrored_alone_and_in_any_order(pairs):
    params = TreeParams(reg_alpha=0.5)
    L = np.array(pairs, dtype=np.int64)
    total = np.array([2**60, 2**60 + 5])

    def gains(left):
        return scored.split_gains(np.ascontiguousarray(left), total, params, FIXED)

    together = gains(L)
    assert np.array_equal(together, gains(total - L))
    assert np.array_equal(together[::-1], gains(L[::-1]))
    assert np.array_equal(together, np.concatenate([gains(one[None]) for one in L]))


def test_light_children_are_ruled_out_over_all_outputs():
    params = TreeParams(min_child_weight=1.0)
    unit = round(1.0 / FIXED.h_unit)
    left = np.full((3, 4), 2**20)
    left[:, 1::2] = [[unit // 2, unit // 2 - 1], [unit // 2, unit // 2], [2 * unit, 2 * unit]]
    H = np.array([2 * unit, 2 * unit])
    gain = scored.split_gains(left, np.array([0, H[0], 0, H[1]]), params, FIXED)
    assert np.isneginf(gain).tolist() == [True, False, True]
    assert split.cover(H, FIXED) == 4.0


def test_the_first_of_equal_gains_wins_and_must_be_worth_it():
    params = TreeParams(gamma=2.0)
    assert split.best_candidate(np.array([1.0, 3.0, 3.0]), params) == 1
    assert split.best_candidate(np.array([2.0]), params) == 0
    assert split.best_candidate(np.array([1.999]), params) == -1
    assert split.best_candidate(np.array([1e-6]), TreeParams()) == -1
    assert split.best_candidate(np.array([2e-6]), TreeParams()) == 0
    assert split.best_candidate(np.array([-np.inf, -np.inf]), params) == -1
    assert split.best_candidate(np.array([]), params) == -1


def test_leaf_values_are_newton_steps_times_the_learning_rate():
    params = TreeParams(learning_rate=0.5, reg_lambda=2.0, reg_alpha=1.0)
    G = np.array([round(5 / FIXED.g_unit), round(-0.5 / FIXED.g_unit)])
    H = np.array([round(6 / FIXED.h_unit), 0])
    assert split.leaf_value(G, H, params, FIXED).tolist() == [-0.5 * 4 / 8, 0.0]
    empty = TreeParams(reg_lambda=0.0)
    assert split.leaf_value(G[:1], np.array([0]), empty, FIXED).tolist() == [0.0]


@pytest.mark.parametrize(("step", "value"), [(0.3, -0.15), (0.0, -0.25), (9.0, -0.25)])
def test_leaf_values_are_capped_before_the_learning_rate(step, value):
    params = TreeParams(learning_rate=0.5, reg_lambda=2.0, max_delta_step=step)
    G, H = np.array([round(4 / FIXED.g_unit)]), np.array([round(6 / FIXED.h_unit)])
    assert split.leaf_value(G, H, params, FIXED).tolist() == pytest.approx([value])
    assert split.leaf_value(-G, H, params, FIXED).tolist() == pytest.approx([-value])
