"""Blinding is uniform among all n-th powers, whatever modulus a guest has chosen."""

import os
import threading

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from fedboost.crypto import blinding, okamoto_uchiyama, paillier_keys
from fedboost.crypto.blinding import Blinding, count_bases
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.moduli import KEY_BITS_MAX
from fedboost.crypto.paillier import PaillierKey
from tests.support.ciphertexts import PRIMES
from tests.support.many_primes import KEY_BITS, many_primes, reduced

SCHEMES = ["paillier", "okamoto_uchiyama"]
FEW = 4  # bases, where a test computes all powers itself


def few_bases(monkeypatch, count=FEW):
    monkeypatch.setattr(blinding, "count_bases", lambda _: count)


def test_there_are_bases_for_every_prime_that_a_modulus_can_have():
    """See the module's text: 160 bits above the group's, and 2^-148 that a coset is missed."""
    for key_bits in range(2048, KEY_BITS_MAX + 1, 16):
        bases, primes_most = count_bases(key_bits), key_bits // 16
        assert bases * blinding.EXPONENT_BITS >= key_bits + 160
        assert bases - primes_most >= 148


def test_a_byte_of_exponent_is_as_far_from_uniform_as_the_proof_says():
    """ρ(c), the probability that c divides the difference of two random bytes."""
    bytes_ = np.arange(256)
    differences = bytes_[:, None] - bytes_
    rho = {c: np.mean(differences % c == 0) for c in range(2, 1000)}
    assert all(rho[c] == 2**-8 for c in range(256, 1000))
    assert all(rho[c] <= 1.25 / c for c in range(2, 256))
    primes, bases = 127, count_bases(2048)
    orders = [c for c in range(3, 256) if c & (c - 1)]
    logs = [primes * np.log2(c) + bases * np.log2(rho[c]) for c in orders]
    assert np.log2(np.sum(np.exp2(logs))) < -230
    assert orders[int(np.argmax(logs))] == 3
    for power in range(1, 9):  # E χ is 0 unless χ(g) = 1
        roots = np.exp(2j * np.pi * np.outer(np.arange(1, 2**power), bytes_) / 2**power)
        assert abs(roots.mean(axis=1)).max() < 1e-12


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blinders_are_products_of_powers_of_the_first_ones(scheme, monkeypatch):
    few_bases(monkeypatch)
    key = getattr(many_primes(), scheme)()
    source = Blinding(key)
    bases = numbers(source.make_factors(FEW))
    drawn = bytes(range(256)) * FEW
    monkeypatch.setattr(os, "urandom", lambda count: drawn[:count])
    found = numbers(source.make_factors(100))
    exponents = np.frombuffer(drawn[: 100 * FEW], np.uint8).reshape(FEW, 100)
    expected = []
    for column in exponents.T.tolist():
        product = mpz(1)
        for base, exponent in zip(bases, column, strict=True):
            product = product * gmpy2.powmod(base, exponent, key.modulus) % key.modulus
        expected.append(product)
    assert found == expected


@pytest.mark.parametrize("counts", [[1, FEW - 1, 1], [FEW + 3], [0, FEW, 0, 5], [2, FEW, 2]])
def test_full_powers_come_first_and_then_products(counts, monkeypatch):
    few_bases(monkeypatch)
    source = Blinding(PaillierKey(PRIMES.n))
    full, products = [], []
    draw_power, draw_products = source._draw_power, source._draw_products

    def counted_power():
        full.append(1)
        return draw_power()

    def counted_products(count):
        products.append(count)
        return draw_products(count)

    monkeypatch.setattr(source, "_draw_power", counted_power)
    monkeypatch.setattr(source, "_draw_products", counted_products)
    made = [bytes(row) for count in counts for row in source.make_factors(count)]
    assert len(full) == FEW
    assert sum(products) == sum(counts) - FEW
    assert len(set(made)) == sum(counts)


def test_blinders_are_uniform_in_a_group_that_no_two_numbers_generate():
    """The n-th powers modulo n = 3 · 5 · 7 · 11 · 13 are five cyclic groups, all of even order."""
    n = 3 * 5 * 7 * 11 * 13
    group = {int(gmpy2.powmod(r, n, n)) for r in range(n) if gmpy2.gcd(r, n) == 1}
    source = Blinding(okamoto_uchiyama.OuKey(n, 2))
    assert len(group) == 128
    draws = 400 * len(group)
    source.make_factors(source.base_count)
    found = np.bincount([int(c) for c in numbers(source.make_factors(draws))], minlength=n)
    assert set(np.flatnonzero(found).tolist()) == group
    chi_square = ((found[list(group)] - 400) ** 2 / 400).sum()
    freedom = len(group) - 1
    assert abs(chi_square - freedom) < 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blinders_reach_every_coset_modulo_many_primes(scheme):
    """The proof of such a key holds; 65 directions were not enough."""
    guest = many_primes()
    proof = getattr(guest, f"{scheme}_proof")()
    module = paillier_keys if scheme == "paillier" else okamoto_uchiyama
    read = module.read_public(proof, KEY_BITS)
    assert (read if scheme == "paillier" else read.n) == guest.n
    source = Blinding(getattr(guest, scheme)())
    source.make_factors(source.base_count)
    rows = [guest.logs(c) for c in numbers(source.make_factors(len(guest.primes) + 40))]
    _, pivots = reduced(rows)
    assert len(pivots) == len(guest.primes) > 65


def test_threads_share_the_tables_of_one_key(monkeypatch):
    few_bases(monkeypatch, 40)
    source, made = Blinding(PaillierKey(PRIMES.n)), []
    threads = [
        threading.Thread(target=lambda: made.append(source.make_factors(30))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = np.concatenate(made)
    assert len({bytes(row) for row in together}) == 180
    assert len(source._bases) == 40
    n = mpz(PRIMES.n)
    phi = mpz(PRIMES.p - 1) * (PRIMES.q - 1)
    assert all(gmpy2.powmod(c, phi, n * n) == 1 for c in numbers(together))
