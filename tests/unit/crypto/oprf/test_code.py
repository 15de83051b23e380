"""The code: its generator has the roots that its distance follows from, its tables are products."""

import numpy as np

from fedboost.crypto.oprf.code import (
    CODE_ROOTS,
    FIELD_POLYNOMIAL,
    LENGTH,
    VALUE_MASK,
    code_tables,
    generator,
)
from fedboost.crypto.oprf.rows import add_words
from fedboost.crypto.oprf.sizes import CODE_COLUMNS, VALUE_BITS
from tests.support.oprf_pairs import naive_word, number

DISTANCE = CODE_ROOTS + 1 - (LENGTH - CODE_COLUMNS)


def times(a, b):
    """Product in the field of 512 elements."""
    product = 0
    for bit in range(9):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(17, 8, -1):
        if product >> bit & 1:
            product ^= FIELD_POLYNOMIAL << bit - 9
    return product


def powers():
    """α^0, α^1, …"""
    found = [1]
    for _ in range(LENGTH):
        found.append(times(found[-1], 2))
    return found


def words_of(values):
    words = np.zeros((len(values), 8), np.uint64)
    add_words(values, code_tables(), words)
    return words


def random_values(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64) & VALUE_MASK


def test_alpha_generates_the_field():
    assert len(set(powers()[:LENGTH])) == LENGTH
    assert powers()[LENGTH] == 1


def test_170_consecutive_powers_of_alpha_are_roots_of_the_generator():
    """So that words differ in 171 columns at least: a determinant of Vandermonde is not zero."""
    alpha = powers()
    coefficients = [i for i in range(LENGTH) if generator() >> i & 1]
    for root in range(1, CODE_ROOTS + 1):
        value = 0
        for i in coefficients:
            value ^= alpha[root * i % LENGTH]
        assert value == 0
    assert generator().bit_length() - 1 == LENGTH - VALUE_BITS
    assert DISTANCE == 132


def test_words_are_products_with_the_generator():
    values = random_values(300)
    words = words_of(values)
    assert [number(word) for word in words] == [naive_word(number(value)) for value in values]
    assert not (words[:, 7] >> np.uint64(CODE_COLUMNS - 448)).any()


def test_words_add_up_as_their_values_do():
    a, b = random_values(1000, 1), random_values(1000, 2)
    assert (words_of(a ^ b) == words_of(a) ^ words_of(b)).all()


def test_no_word_of_many_is_lighter_than_the_distance():
    words = words_of(random_values(200_000, 3))
    assert np.bitwise_count(words).sum(axis=1).min() >= DISTANCE
    few = np.zeros((VALUE_BITS * (VALUE_BITS - 1) // 2 + VALUE_BITS, 2), np.uint64)
    at = 0
    for i in range(VALUE_BITS):
        for j in range(i, VALUE_BITS):
            value = 1 << i | 1 << j
            few[at] = value & 2**64 - 1, value >> 64
            at += 1
    assert np.bitwise_count(words_of(few)).sum(axis=1).min() >= DISTANCE
