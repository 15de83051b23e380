"""Samples: are their distributions the ones that security rests on?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedboost.crypto.lattice import samples
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import FedboostError

P_LEAST = 1e-4  # bytes are fixed, so a right sampler fails never or always
RING = 2048
SECRETS = Secrets(bytes(range(32)))


def n_bytes(count, each, *purpose):
    return np.frombuffer(SECRETS.bytes(count * each, *purpose), np.uint8).reshape(count, each)


def test_ternary_numbers_are_uniform_and_independent_of_their_neighbours():
    found = samples.ternary(n_bytes(200, samples.ternary_bytes(RING), "t"), RING)
    assert found.shape == (200, RING)
    assert stats.chisquare(np.bincount(found.ravel() + 1)).pvalue > P_LEAST
    for apart in (1, 2, 5):
        pairs = np.zeros((3, 3))
        np.add.at(pairs, (found[:, :-apart].ravel() + 1, found[:, apart:].ravel() + 1), 1)
        assert stats.chi2_contingency(pairs).pvalue > P_LEAST


@given(st.binary(min_size=40, max_size=40))
def test_ternary_numbers_are_the_bytes_digits(drawn):
    expected = []
    for octet in drawn:
        expected += [octet // 3**place % 3 - 1 for place in range(5)] if octet < 243 else []
    if len(expected) < 32:
        with pytest.raises(FedboostError, match="ran out"):
            samples.ternary(np.frombuffer(drawn, np.uint8).reshape(1, -1), 32)
    else:
        found = samples.ternary(np.frombuffer(drawn, np.uint8).reshape(1, -1), 32)
        assert found[0].tolist() == expected[:32]


@pytest.mark.parametrize("ring", [2048, 4096])
def test_bytes_of_a_ternary_polynomial_never_run_out(ring):
    enough = -(-ring // 5)
    drawn = samples.ternary_bytes(ring)
    assert stats.binom.logcdf(enough - 1, drawn, 243 / 256) < -160 * np.log(2)


def test_errors_are_centred_binomial():
    found = samples.binomial_errors(n_bytes(100, 6 * RING, "e"), 21)
    counts = np.bincount(found.ravel().astype(int) + 42, minlength=85)
    chances = stats.binom.pmf(np.arange(43), 42, 0.5)  # sum of 21 bits and of 21 bits turned over
    expected = chances * found.size
    kept = expected >= 5
    assert counts[:21].sum() == counts[64:].sum() == 0
    seen = counts[21:64][kept]
    assert (
        stats.chisquare(seen, expected[kept] * seen.sum() / expected[kept].sum()).pvalue > P_LEAST
    )
    assert found.var() == pytest.approx(10.5, rel=0.02)


@given(st.binary(min_size=60, max_size=60))
def test_errors_are_ones_less_ones(drawn):
    found = samples.binomial_errors(np.frombuffer(drawn, np.uint8).reshape(2, 30), 21)
    for place, error in enumerate(found.ravel().tolist()):
        word = int.from_bytes(drawn[6 * place : 6 * place + 6], "little")
        low, high = word & (2**21 - 1), word >> 21 & (2**21 - 1)
        assert error == low.bit_count() - high.bit_count()


@pytest.mark.parametrize("sigma", [2.0**20, 2.0**31])
def test_the_flood_is_gaussian(sigma):
    found = samples.gaussian_flood(n_bytes(1000, 16 * 50, "f"), sigma)
    assert found.dtype == np.int64
    assert stats.kstest(found.ravel() / sigma, "norm").pvalue > P_LEAST
    assert found.std() == pytest.approx(sigma, rel=0.02)


def test_the_flood_of_extreme_bytes_is_finite():
    extreme = np.array([[0] * 16, [255] * 16], np.uint8)
    assert np.abs(samples.gaussian_flood(extreme, 2.0**20)).max() < 9 * 2**20
    assert samples.gaussian_flood(np.zeros((0, 16), np.uint8), 2.0**20).shape == (0, 1)
