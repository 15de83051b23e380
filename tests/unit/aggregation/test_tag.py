"""Tags show a changed total, whatever it is; without their key nobody finds one that fits."""

import gmpy2
import numpy as np
import pytest

from fedboost.aggregation.standing import TAG_PRIME, TAG_WORDS, Tagging, inner_product

KEY = bytes(range(32))
LARGEST, LEAST = 2**63 - 1, -(2**63)


def naive(left, right):
    """⟨left, right⟩ in Python's own numbers."""
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))


def test_the_modulus_is_a_prime_of_89_bits():
    """Only then has a changed total one chance in 2^64 at most."""
    assert gmpy2.is_prime(TAG_PRIME, 40)
    assert TAG_PRIME.bit_length() == 89


def vectors(count, words, draw, most=2**57):
    return [draw.integers(-most, most, words) for _ in range(count)]


@pytest.mark.parametrize("words", [0, 1, 2, 5, 1000])
def test_the_inner_product_is_that_of_pythons_numbers(words):
    draw = np.random.default_rng(words)
    left = draw.integers(0, 2**64, words, dtype=np.uint64)
    for right in (
        draw.integers(LEAST, LARGEST, words, endpoint=True),
        np.full(words, LEAST),
        np.full(words, LARGEST),
        np.full(words, -1),
    ):
        assert inner_product(left, right) == naive(left, right)
    ones = np.full(words, 2**64 - 1, np.uint64)
    assert inner_product(ones, np.full(words, LEAST)) == naive(ones, np.full(words, LEAST))


@pytest.mark.parametrize("parties", [2, 3, 65])
@pytest.mark.parametrize("words", [0, 1, 7, 64])
def test_the_sum_of_tags_is_that_of_the_total(parties, words):
    own = vectors(parties, words, np.random.default_rng(parties))
    tagging = Tagging(KEY, b"sum 1", words)
    tags_of = [tagging.of(one, adds_pad=place == 0) for place, one in enumerate(own)]
    tag = np.sum(tags_of, axis=0)
    assert tag.shape == (TAG_WORDS,)
    assert tagging.fits_total(np.sum(own, axis=0), tag)
    assert not Tagging(KEY, b"sum 2", words).fits_total(np.sum(own, axis=0), tag)
    assert not Tagging(bytes(32), b"sum 1", words).fits_total(np.sum(own, axis=0), tag)


@pytest.mark.parametrize("error", [1, -1, 2**32, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_no_error_passes_however_many_zeros_it_ends_with(error):
    """2^62 in several words: modulo 2^64 a fourth of all challenges would miss it."""
    draw = np.random.default_rng(1)
    for trial in range(200):
        total = np.zeros(8, np.int64)
        tagging = Tagging(KEY, b"sum %d" % trial, 8)
        tag = tagging.of(total, adds_pad=True)
        changed = total.copy()
        changed[draw.integers(0, 8, 2)] += error
        assert not tagging.fits_total(changed, tag)


def test_a_multiple_of_a_total_does_not_have_the_multiple_of_its_tag():
    """The pad is what makes a tag tell nothing of other totals."""
    total = np.array([3, -4, 5])
    tagging = Tagging(KEY, b"a sum", 3)
    tag = tagging.of(total, adds_pad=True)
    assert tagging.fits_total(total, tag)
    assert not tagging.fits_total(2 * total, 2 * tag)
    bare = tagging.of(total, adds_pad=False)
    low, high = (2 * bare).tolist()
    assert (low + (high << 45) - inner_product(tagging._stream, 2 * total)) % TAG_PRIME == 0


def test_keys_for_tags_do_not_print():
    assert repr(Tagging(KEY, b"a sum", 3)) == "Tagging(hidden)"
