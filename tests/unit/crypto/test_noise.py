"""Randomised response: do its frequencies keep the promise, and would another mechanism be seen?"""

import math

import numpy as np
import pytest
from scipy import stats

from fedboost.crypto import noise
from fedboost.crypto.secrets import Secrets
from fedboost.ground.ids import EncodedIds

SECRET = Secrets(bytes(range(32)))
P_LEAST = 1e-4  # secrets are fixed, so a right mechanism fails never or always
SETTINGS = [(2, 0.5), (3, 1.0), (16, 4.0), (16, 1.0), (17, 8.0), (64, 3.0), (255, 4.0)]


def told(true, values, epsilon, *purpose, secrets=SECRET):
    """What a mechanism tells of so many rows with the same true value, uint8 (rows,)."""
    ids = EncodedIds.of(b"row %d" % number for number in range(len(true)))
    return noise.ValueNoise(secrets, ids).randomised(true, values, epsilon, *purpose)


def transition_p_value(mechanism, values, epsilon, rows=60_000):
    """How likely frequencies this far from p and p' are: the least of three tests, three times."""
    stay = math.exp(epsilon) / (math.exp(epsilon) + values - 1)
    each = max(2000, rows // values)
    true = np.repeat(np.arange(values), each).astype(np.uint8)
    found = mechanism(true, values, epsilon)
    stayed = int((found == true).sum())
    counts = np.zeros((values, values))
    np.add.at(counts, (true, found), 1)
    expected = np.full((values, values), each * (1 - stay) / (values - 1))
    np.fill_diagonal(expected, each * stay)
    chi = ((counts - expected) ** 2 / expected).sum()
    steps = np.bincount((found.astype(int) - true)[found != true] % values, minlength=values)[1:]
    apart = stats.chisquare(steps).pvalue if values > 2 else 1.0
    whole = stats.chi2.sf(chi, values * (values - 1))
    return 3 * min(stats.binomtest(stayed, len(true), stay).pvalue, apart, whole)


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize(("values", "epsilon"), SETTINGS)
def test_values_stay_and_move_as_often_as_they_should(values, epsilon):
    assert transition_p_value(told, values, epsilon) > P_LEAST


def stays_too_often(true, values, epsilon):
    return told(true, values, epsilon + 0.1)


def moves_to_itself(true, values, epsilon):
    """Draws a moved value from all of them, the true one among them."""
    draw = np.random.default_rng(1)
    other = draw.integers(0, values, len(true)).astype(np.uint8)
    return np.where(told(true, values, epsilon) == true, true, other)


def moves_to_neighbours(true, values, epsilon):
    found = told(true, values, epsilon)
    step = np.where(found > true, 1, values - 1)
    return np.where(found == true, true, (true + step) % values).astype(np.uint8)


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("wrong", [stays_too_often, moves_to_itself, moves_to_neighbours])
@pytest.mark.parametrize(("values", "epsilon"), [(16, 1.0), (16, 4.0), (64, 3.0)])
def test_a_wrong_mechanism_is_found_out(wrong, values, epsilon):
    assert transition_p_value(wrong, values, epsilon) < P_LEAST / 100


def test_at_epsilon_4_and_16_buckets_22_percent_move():
    assert noise.move_chance(4.0, 16) == pytest.approx(0.2155, abs=1e-4)
    true = np.full(100_000, 7, np.uint8)
    assert (told(true, 16, 4.0) != true).mean() == pytest.approx(0.2155, abs=0.005)


@pytest.mark.parametrize("values", [2, 3, 16, 128, 254, 255])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 8.0, 30.0, 700.0, 1e300])
def test_what_is_told_is_one_of_the_values(values, epsilon):
    true = np.arange(values, dtype=np.uint8).repeat(20)
    found = told(true, values, epsilon)
    assert found.dtype == np.uint8
    assert found.shape == true.shape
    assert found.max() < values
    assert true.tolist() == np.arange(values).repeat(20).tolist()  # nobody's array is written to


def test_a_tiny_epsilon_tells_nothing():
    true = np.repeat(np.array([0, 15], np.uint8), 40_000)
    found = told(true, 16, 1e-12).reshape(2, -1)
    counts = np.array([np.bincount(row, minlength=16) for row in found])
    assert stats.chi2_contingency(counts).pvalue > P_LEAST


def test_a_huge_epsilon_moves_nearly_nothing_and_its_chance_is_still_exact():
    true = np.zeros(10_000, np.uint8)
    assert (told(true, 16, 40.0) == true).all()
    assert noise.move_chance(40.0, 16) == pytest.approx(15 * math.exp(-40), rel=1e-12)
    assert noise.move_chance(1e300, 16) == 0.0


def test_one_value_has_nowhere_to_move_to_and_no_rows_tell_nothing():
    true = np.zeros(50, np.uint8)
    assert told(true, 1, 0.1).tolist() == true.tolist()
    assert told(np.zeros(0, np.uint8), 16, 1.0).shape == (0,)


# Independence


def moved(*purpose, rows=40_000, secrets=SECRET):
    """Which of so many equal values move."""
    true = np.full(rows, 3, np.uint8)
    return told(true, 16, 2.0, *purpose, secrets=secrets) != true


def dependence_p_value(one, other):
    counts = np.zeros((2, 2))
    np.add.at(counts, (one.astype(int), other.astype(int)), 1)
    return stats.chi2_contingency(counts, correction=False).pvalue


@pytest.mark.parametrize("apart", [1, 2, 8, 64])
def test_rows_move_independently_of_one_another(apart):
    own = moved(0)
    assert dependence_p_value(own[:-apart], own[apart:]) > P_LEAST


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("other", [1, 2, 255])
def test_columns_move_independently_of_one_another(other):
    assert dependence_p_value(moved(0), moved(other)) > P_LEAST


def test_where_a_value_moves_to_does_not_depend_on_the_row_before():
    found = told(np.zeros(200_000, np.uint8), 4, 0.0001)
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (found[:-1], found[1:]), 1)
    assert stats.chi2_contingency(pairs).pvalue > P_LEAST


def test_dependence_is_found_where_there_is_some():
    own = moved(0)
    assert dependence_p_value(own, own | moved(1)) < P_LEAST / 100


def test_the_same_secret_and_purpose_tell_the_same_and_others_do_not():
    again = Secrets(bytes(range(32)))
    assert np.array_equal(moved(4), moved(4, secrets=again))
    assert not np.array_equal(moved(4), moved(5))
    assert not np.array_equal(moved(4), moved(4, secrets=SECRET.child("another job")))


def test_two_values_of_an_id_move_independently_and_the_same_value_in_the_same_way():
    """Told a second value, nobody knows by the first answer how it was moved."""
    steps = {}
    for value in (3, 4, 11):
        found = told(np.full(40_000, value, np.uint8), 16, 0.0001)
        steps[value] = (found.astype(int) - value) % 16
        assert np.array_equal(found, told(np.full(40_000, value, np.uint8), 16, 0.0001))
    for one, other in ((3, 4), (3, 11), (4, 11)):
        counts = np.zeros((16, 16))
        np.add.at(counts, (steps[one], steps[other]), 1)
        assert stats.chi2_contingency(counts).pvalue > P_LEAST


def test_codes_of_an_ids_values_differ_and_hide_them():
    ids = EncodedIds.of(b"row %d" % number for number in range(20_000))
    own = noise.ValueNoise(SECRET, ids)
    codes = np.stack([own.codes(np.full(len(ids), value, np.uint8), "c") for value in range(255)])
    assert (np.sort(codes, axis=0) == np.arange(255)[:, None]).all()  # each id: all, once
    assert noise.NO_CODE not in codes
    assert stats.chisquare(np.bincount(codes[3], minlength=255)).pvalue > P_LEAST
    assert not np.array_equal(codes[3], own.codes(np.full(len(ids), 3, np.uint8), "d"))
    assert len(np.unique(own.ids)) == len(ids)


# An attack: which of two values is the true one?

ADVANTAGE_GAP = 0.02  # of 40,000 guesses each, four standard deviations


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize(("values", "epsilon"), [(2, 0.5), (2, 1.0), (2, 4.0), (3, 1.0)])
def test_the_best_guess_between_two_values_gains_no_more_than_epsilon_allows(values, epsilon):
    rows = 40_000
    found = [told(np.full(rows, own, np.uint8), values, epsilon, "attack", own) for own in (0, 1)]
    # The likelihood ratio is e^ε, 1 or e^-ε: 0 speaks for 0, 1 for 1, anything else for neither.
    right, wrong = (found[0] == 0).mean(), (found[1] == 0).mean()
    advantage = right - wrong
    bound = (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
    assert advantage < bound + ADVANTAGE_GAP
    exact = (math.exp(epsilon) - 1) / (math.exp(epsilon) + values - 1)
    assert abs(advantage - exact) < ADVANTAGE_GAP
    if values == 2:
        assert advantage > 0.9 * bound - ADVANTAGE_GAP


def test_a_mechanism_that_moves_too_little_is_caught_by_the_attack():
    found = [told(np.full(40_000, own, np.uint8), 2, 2.0, "attack", own) == 0 for own in (0, 1)]
    claimed = (math.e - 1) / (math.e + 1)  # of ε = 1
    assert found[0].mean() - found[1].mean() > claimed + ADVANTAGE_GAP


@pytest.mark.some(10, of="distributions")
@pytest.mark.parametrize("columns", [1, 3, 6])
def test_several_columns_together_gain_no_more_than_their_epsilons_added_up(columns):
    """Each column holds 0 or 1 for the whole person; the guess is whichever more columns say."""
    epsilon, rows = 0.4, 40_000
    votes = []
    for own in (0, 1):
        true = np.full(rows, own, np.uint8)
        heard = [told(true, 2, epsilon, own, c) for c in range(columns)]
        votes.append(np.sum(heard, axis=0))
    ones = [np.bincount(own, minlength=columns + 1) / rows for own in votes]
    advantage = np.abs(ones[0] - ones[1]).sum() / 2  # the most that any guess could gain
    whole = columns * epsilon
    bound = (math.exp(whole) - 1) / (math.exp(whole) + 1)
    assert advantage < bound + ADVANTAGE_GAP
    one = (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
    assert advantage > one * columns**0.3 - ADVANTAGE_GAP  # together they tell more than one
