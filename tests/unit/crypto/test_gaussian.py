"""The discrete Gaussian: are its frequencies right, and would another mechanism be seen?"""

import math

import numpy as np
import pytest
from scipy import stats

from fedboost.crypto import gaussian
from fedboost.crypto.gaussian import SIGMA_MOST, discrete_gaussian, widened
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import FedboostError

SECRET = Secrets(bytes(range(32)))
P_LEAST = 1e-4  # secrets are fixed, so a right sampler fails never or always
COUNT = 60_000


def drawn(sigma, *purpose):
    return discrete_gaussian(np.full(COUNT, sigma, np.int64), SECRET, *purpose)


def rounded(sigma, *purpose):
    """A continuous Gaussian, rounded: its variance is greater by a twelfth."""
    del purpose
    return np.rint(np.random.default_rng(1).normal(0, sigma, COUNT)).astype(np.int64)


def p_value(sampler, sigma):
    """How likely frequencies this far from exp(−x²/2σ²) are."""
    reach = math.ceil(3 * sigma)
    numbers = np.arange(-reach, reach + 1)
    chance = np.exp(-(numbers.astype(float) ** 2) / (2 * sigma**2))
    every = np.arange(-40 * sigma, 40 * sigma + 1)
    chance /= np.exp(-(every.astype(float) ** 2) / (2 * sigma**2)).sum()
    found = sampler(sigma, "frequencies")
    counts = np.array([(found == number).sum() for number in numbers])
    counts = np.append(counts, COUNT - counts.sum())
    return stats.chisquare(counts, COUNT * np.append(chance, 1 - chance.sum())).pvalue


@pytest.mark.parametrize("sigma", [1, 2, 3, 5, 16])
def test_small_numbers_come_as_often_as_they_should(sigma):
    assert p_value(drawn, sigma) > P_LEAST


def test_a_rounded_gaussian_would_be_seen():
    assert p_value(rounded, 1) < P_LEAST


@pytest.mark.parametrize("sigma", [1000, (1 << 20) + 1, 1 << 50])
def test_large_numbers_are_gaussian_and_of_their_sigma(sigma):
    found = drawn(sigma, "large")
    assert stats.kstest(found / sigma, "norm").pvalue > P_LEAST
    assert abs(found.std() / sigma - 1) < 0.01


def test_the_lowest_bits_of_a_large_number_are_as_random_as_any():
    found = drawn(1 << 50, "low bits")
    assert stats.chisquare(np.bincount(found % 16)).pvalue > P_LEAST


def test_a_purpose_has_its_own_numbers_and_has_them_again():
    sigmas = np.array([[1 << 20, 3], [1 << 30, 7]])
    once, again, other = [discrete_gaussian(sigmas, SECRET, own) for own in ("a", "a", "b")]
    assert once.shape == sigmas.shape
    assert once.tolist() == again.tolist()
    assert (once != other).any()


def test_without_sigma_nothing_is_drawn():
    assert discrete_gaussian(np.zeros((3, 2), np.int64), SECRET).tolist() == [[0, 0]] * 3
    assert discrete_gaussian(np.empty((0, 2), np.int64), SECRET).shape == (0, 2)


@pytest.mark.parametrize("sigma", [-1, SIGMA_MOST + 1])
def test_a_sigma_that_cannot_be_is_refused(sigma):
    with pytest.raises(ValueError, match="standard deviation"):
        discrete_gaussian(np.array([sigma]), SECRET)


def test_words_that_run_out_are_an_error_and_no_number(monkeypatch):
    monkeypatch.setattr(gaussian, "_WORDS_EACH", 1)
    monkeypatch.setattr(gaussian, "_WORDS_SPARE", 0)
    with pytest.raises(FedboostError, match="ran out"):
        drawn(1000)


def test_a_wider_sigma_is_rounded_up_exactly():
    sigmas = np.array([0, 1, 5, 12, 1 << 55])
    for over, under in ((2, 1), (3, 2), (1, 1), (255, 254)):
        for sigma, wide in zip(sigmas.tolist(), widened(sigmas, over, under).tolist(), strict=True):
            assert wide * wide * under >= sigma * sigma * over
            assert sigma == 0 or (wide - 1) ** 2 * under < sigma * sigma * over


def test_blocks_of_numbers_are_independent(monkeypatch):
    monkeypatch.setattr(gaussian, "_BLOCK", 1000)
    found = drawn(1 << 20, "blocks").reshape(-1, 1000) / (1 << 20)
    apart = np.corrcoef(found) - np.eye(len(found))
    assert np.abs(apart).max() < 0.2
    assert stats.kstest(found.ravel(), "norm").pvalue > P_LEAST
