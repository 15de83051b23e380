"""Products of many numbers at once are those of Python's numbers, one by one."""

import random

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import fixed_base
from fedboost.crypto.fixed_base import FixedBase, PrimePowers
from fedboost.crypto.limbs import as_bytes
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.montgomery import MONTGOMERY_LANES, montgomery
from tests import tiers

LENGTHS = (3, 28, 64, 255, 683, 1024, 2048, 4096, 16384)


def odd(bits, seed=0):
    return mpz(random.Random(seed).getrandbits(bits) | 1 << (bits - 1) | 1)


def drawn(modulus, count, seed=0):
    """Random numbers below the modulus, the extremes first."""
    draw = random.Random(seed)
    rest = [mpz(draw.randrange(int(modulus))) for _ in range(count)]
    return [mpz(0), mpz(1), modulus - 1, *rest][:count]


@pytest.mark.parametrize("bits", LENGTHS)
def test_products_are_those_of_numbers_divided_by_r(bits):
    modulus = odd(bits)
    field, count = montgomery(modulus), MONTGOMERY_LANES + 5  # a second group that is not full
    a, b = drawn(modulus, count), drawn(modulus, count, 1)
    first, second = np.arange(count), np.arange(count)[::-1]
    back = gmpy2.invert(field.radix, modulus)
    made = field.products(field.of(a), first, field.of(b), second)
    expected = [a[i] * b[j] * back % modulus for i, j in zip(first, second, strict=True)]
    assert numbers(field.data(made)) == expected


@pytest.mark.parametrize("bits", LENGTHS)
def test_numbers_up_to_twice_the_modulus_become_bytes_below_it(bits):
    modulus = odd(bits)
    field, width = montgomery(modulus), (bits + 7) // 8 + 1
    values = [0, modulus - 1, modulus, modulus + 1, 2 * modulus - 1]
    found = field.data(field.numbers(as_bytes(map(mpz, values), width)))
    assert found.shape[1] == field.width
    assert numbers(found) == [value % modulus for value in values]


@settings(max_examples=tiers.examples(25), deadline=None)
@given(st.lists(st.integers(1, 150), max_size=9), st.integers(0, 2**32))
def test_runs_come_to_their_products(lengths, seed):
    modulus = odd(255, seed)
    field, total = montgomery(modulus), sum(lengths)
    values = drawn(modulus - 1, total, seed)
    order = np.random.default_rng(seed).permutation(total)
    counts = np.array(lengths, dtype=np.int64)
    made = field.restored(field.run_products(field.of(values), order, counts), counts)
    expected, ends = [], np.cumsum(counts).tolist()
    for length, end in zip(lengths, ends, strict=True):
        product = mpz(1)
        for place in order[end - length : end]:
            product = product * values[place] % modulus
        expected.append(product)
    assert numbers(field.data(made)) == expected


@pytest.mark.parametrize("times", [0, 1, 90])
def test_squares_are_those_of_numbers(times):
    modulus = odd(768)
    field, values = montgomery(modulus), drawn(modulus, MONTGOMERY_LANES + 1)
    scaled = field.of([value * field.radix % modulus for value in values])
    found = numbers(field.data(field.squared(scaled, times)))
    squares = [gmpy2.powmod(value, 1 << times, modulus) for value in values]
    assert found == [square * field.radix % modulus for square in squares]


def test_powers_of_a_fixed_base_are_those_of_numbers():
    modulus, base = odd(768), mpz(3)
    powers = FixedBase(base, modulus, 70, 8)
    exponents = [0, 1, 255, 256, 2**70 - 1, 2**69 + 12345]
    expected = [gmpy2.powmod(base, e, modulus) * powers.field.radix % modulus for e in exponents]
    assert numbers(powers.field.data(powers.base_powers(exponents))) == expected


@pytest.mark.parametrize("bits", [24, 255, 683, 1024])
def test_powers_modulo_a_square_from_tables_are_those_of_numbers(bits, monkeypatch):
    """The base is what its own table says: the power with exponent 1."""
    monkeypatch.setattr(fixed_base, "ENCRYPT_WINDOW_BITS", 5)
    prime = gmpy2.next_prime(odd(bits))
    powers = PrimePowers(prime)
    powers._table = powers._make_table()
    exponents = [mpz(1), mpz(0), prime - 2, *drawn(prime - 1, MONTGOMERY_LANES)]
    found = [(z + prime * w) % powers.square for z, w in powers._powers_from_table(exponents)]
    expected = [gmpy2.powmod(found[0], exponent, powers.square) for exponent in exponents]
    assert found == expected
    assert gmpy2.powmod(found[0], prime - 1, powers.square) == 1


def test_random_numbers_reach_every_place_below_their_bound():
    found = fixed_base.uniform(mpz(5), 1000)
    assert min(np.bincount(np.array(found, dtype=np.int64), minlength=5)) > 100
    assert len(found) == 1000
