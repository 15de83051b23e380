"""Products of polynomials: exact, and far from where rounding would go wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto.lattice.product import BOUND_MOST, error_bound, multiplier
from tests import tiers
from tests.support.lattices import LATTICE, LATTICE_4096, TINY, negacyclic

RINGS = [LATTICE, LATTICE_4096]


def exact(a, v, bits):
    """a·v modulo x^N + 1 and 2^bits, by adding up shifted polynomials, modulo 2^64."""
    ring = len(a)
    wide = np.zeros(2 * ring, np.uint64)
    for place in np.flatnonzero(v):
        wide[place : place + ring] += a if v[place] > 0 else np.uint64(0) - a
    return (wide[:ring] - wide[ring:]) & np.uint64(2**bits - 1)


@given(
    st.lists(st.integers(0, 2**53 - 1), min_size=16, max_size=16),
    st.lists(st.integers(-1, 1), min_size=16, max_size=16),
)
def test_a_product_is_that_of_pythons_numbers(a, v):
    product = multiplier(TINY)
    fixed = product.fixed(np.array(a, np.uint64))
    found = product.multiply(fixed, product.values(np.array([v], np.int8)))
    expected = [value % 2**53 for value in negacyclic(a, v)]
    assert (found[0] & TINY.mask).tolist() == expected


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
@given(st.integers(0, 2**32))
@settings(max_examples=tiers.examples(5))
def test_limbs_add_up_to_the_polynomial_and_are_short(own, seed):
    product = multiplier(own)
    a = np.random.default_rng(seed).integers(0, 2**64, own.ring, np.uint64) & own.mask
    limbs = product.split(a)
    assert np.abs(limbs).max() <= 2 ** (product.limb_bits - 1)
    whole = np.zeros(own.ring, np.uint64)
    for number, limb in enumerate(limbs):
        whole += limb.view(np.uint64) << np.uint64(number * product.limb_bits)
    assert ((whole & own.mask) == a).all()


def extremes(own):
    """Polynomials whose limbs are as large as they get, and ternary ones of full size."""
    bits, limb = own.modulus_bits, multiplier(own).limb_bits
    halves = sum(1 << (limb * k + limb - 1) for k in range(multiplier(own).limbs)) % 2**bits
    words = [2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, halves, halves - 1]
    sign = np.where(np.arange(own.ring) % 2 == 0, 1, -1)
    ternary = [np.ones(own.ring), -np.ones(own.ring), sign, np.r_[1, -np.ones(own.ring - 1)]]
    for word in words:
        yield np.full(own.ring, word, np.uint64), np.array(ternary, np.int8)


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_all_maximal_products_are_exact_and_near_integers(own):
    product = multiplier(own)
    for a, ternary in extremes(own):
        fixed, values = product.fixed(a), product.values(ternary)
        assert product.distance(fixed, values) < 1e-2
        found = product.multiply(fixed, values) & own.mask
        for v, row in zip(ternary, found, strict=True):
            assert (row == exact(a, v, own.modulus_bits)).all()


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_random_products_are_exact_and_nearer_than_proven(own):
    draw = np.random.default_rng(7)
    product = multiplier(own)
    a = draw.integers(0, 2**64, own.ring, np.uint64) & own.mask
    ternary = draw.integers(-1, 2, (20, own.ring)).astype(np.int8)
    fixed, values = product.fixed(a), product.values(ternary)
    assert product.distance(fixed, values) < error_bound(own.ring, product.limb_bits)
    found = product.multiply(fixed, values) & own.mask
    for v, row in zip(ternary, found, strict=True):
        assert (row == exact(a, v, own.modulus_bits)).all()
    for count in (1, 100, own.ring // 2):
        assert (product.first(fixed, values, count) & own.mask == found[:, :count]).all()


def test_the_proven_distance_is_small_and_longer_limbs_would_not_do():
    for own in RINGS:
        assert error_bound(own.ring, multiplier(own).limb_bits) <= BOUND_MOST
    assert error_bound(2048, 27) < 3.2e-3
    assert error_bound(2048, 53) > 0.5  # why there are limbs
    product = multiplier(LATTICE)
    whole = product.values(np.full((1, 2048), 2**52 - 1))
    assert product.distance(whole, product.values(np.ones((1, 2048), np.int8))) > 0.25
