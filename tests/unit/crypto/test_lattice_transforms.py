"""Number-theoretic transforms: the values they say, exact, also of numbers as large as they get."""

import numpy as np
import pytest

from fedboost.crypto.lattice.transforms import (
    BLOCK_VALUES,
    DEGREE,
    MODULI,
    MODULUS,
    PRIMES,
    TRANSFORM_LANES,
    fold_word,
    forward,
    inverse_across,
    inverse_within,
    reversed_bits,
    root_of_unity,
)

NUMBERS = range(len(PRIMES))
START_MOST = int(1.01 * 2**28)  # that forward takes


def drawn(seed, most=2**28):
    return (
        np.random.default_rng(seed).integers(0, most, (DEGREE, TRANSFORM_LANES)).astype(np.uint32)
    )


def values_of(coefficients, n):
    """Values of polynomials, uint32 (M, 16), below p."""
    values = coefficients.copy()
    forward(values.reshape(-1), n)
    assert values.max() < START_MOST
    return values % MODULI[n]


def coefficients_of(values, n, last=DEGREE):
    """Back again: polynomials of uint32 (M, polynomials), times M, below p."""
    small = np.ascontiguousarray(values.reshape(BLOCK_VALUES, BLOCK_VALUES, -1).transpose(1, 2, 0))
    inverse_within(small, n)
    lines = np.ascontiguousarray(small.transpose(1, 2, 0)).reshape(-1, DEGREE)
    for line in lines:
        inverse_across(line, last, n)
    assert lines.max(initial=0) < 2 * PRIMES[n]
    return (lines % MODULI[n]).T


def test_the_primes_are_those_of_the_specification():
    assert [prime % (2 * DEGREE) for prime in PRIMES] == [1, 1, 1]
    assert all(pow(2, prime - 1, prime) == 1 and prime < 2**28 for prime in PRIMES)
    assert [root_of_unity(prime) for prime in PRIMES] == [262383721, 254305944, 185870865]
    assert MODULUS < 2**84


@pytest.mark.parametrize("n", NUMBERS)
def test_values_are_those_at_the_odd_powers_of_the_root_in_bit_reversed_order(n):
    coefficients, prime = drawn(n), PRIMES[n]
    values = values_of(coefficients, n)
    for x in (0, 1, 5, 2048, 4095):
        point, value = pow(root_of_unity(prime), 2 * reversed_bits(x) + 1, prime), 0
        for coefficient in coefficients[::-1, 3].tolist():
            value = (value * point + coefficient) % prime
        assert value == values[x, 3]


@pytest.mark.parametrize("n", NUMBERS)
@pytest.mark.parametrize("kind", ["random", "largest", "prime less one", "alternating"])
def test_there_and_back_is_m_times_the_polynomial(n, kind):
    coefficients = {
        "random": drawn(7),
        "largest": np.full((DEGREE, TRANSFORM_LANES), START_MOST - 1, np.uint32),
        "prime less one": np.full((DEGREE, TRANSFORM_LANES), PRIMES[n] - 1, np.uint32),
        "alternating": np.tile(
            np.array([0, PRIMES[n] - 1], np.uint32), DEGREE * TRANSFORM_LANES // 2
        ),
    }[kind].reshape(DEGREE, TRANSFORM_LANES)
    back = coefficients_of(values_of(coefficients, n), n)
    assert (back == coefficients.astype(np.uint64) * DEGREE % PRIMES[n]).all()


@pytest.mark.parametrize("n", NUMBERS)
def test_values_as_large_as_they_get_come_back_as_what_they_stand_for(n):
    large = np.full((DEGREE, 3), 2 * PRIMES[n] - 1, np.uint32)
    assert (coefficients_of(large, n) == coefficients_of(large % MODULI[n], n)).all()


@pytest.mark.parametrize("last", [64, 128, 512])
def test_the_first_coefficients_are_the_sums_of_runs(last):
    coefficients = drawn(3)
    runs = coefficients_of(values_of(coefficients, 1), 1, last).astype(np.uint64)
    sums = runs.reshape(DEGREE // last, last, TRANSFORM_LANES).sum(axis=0) % PRIMES[1]
    assert (sums == coefficients[:last].astype(np.uint64) * DEGREE % PRIMES[1]).all()


def test_values_multiply():
    a, b = drawn(1), np.zeros((DEGREE, TRANSFORM_LANES), np.uint32)
    b[DEGREE - 1] = 5  # times 5·X^4095: turned by one, with a sign
    product = values_of(a, 2).astype(np.uint64) * values_of(b, 2) % PRIMES[2]
    back = coefficients_of(product.astype(np.uint32), 2)
    whole = a.astype(np.int64)
    expected = np.concatenate([-5 * whole[1:], 5 * whole[:1]]) * DEGREE % PRIMES[2]
    assert (back == expected).all()


@pytest.mark.parametrize("n", NUMBERS)
def test_any_word_is_folded_below_the_start(n):
    words = [0, 2**28 - 1, 2**28, 2**32 - 1, 15 << 28, PRIMES[n]]
    for word in words:
        folded = int(fold_word(np.uint32(word), MODULI[n]))
        assert folded < START_MOST
        assert (folded - word) % PRIMES[n] == 0
