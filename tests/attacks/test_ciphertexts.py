"""What a curious party reads from ciphertexts, and what it would read without what hides it."""

import functools
import os

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from fedboost.crypto import blinding
from fedboost.crypto.blinding import Blinding, count_bases
from fedboost.crypto.fixed_base import PrimePowers
from fedboost.crypto.limbs import as_bytes
from fedboost.crypto.modular import BlinderPool, ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.moduli import small_primes
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier import PaillierKey
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import PRIMES, encrypted, short_keys, single
from tests.support.many_primes import KEY_BITS, ORDER, many_primes, reduced
from tests.unit.crypto.test_keys import P, Q

ROWS = 32
TRIALS = 10
DRAW_POWER = Blinding._draw_power


# Equal gradients


def rows_like_the_first(scheme):
    """In a first tree gradients have two values, one a label: which rows look like row 0?"""
    labels = np.random.default_rng(1).integers(0, 2, ROWS)
    gh = np.stack([2**8 - 2**9 * labels, np.full(ROWS, 2**7)], axis=1)
    private, public = short_keys(scheme)
    rows = encrypted(private, gh, GhLayout(9, ROWS, public.plaintext_bits)).each
    return (rows == rows[0]).all(axis=1).tolist(), (labels == labels[0]).tolist()


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_equal_gradients_do_not_show_in_ciphertexts(scheme):
    alike, _ = rows_like_the_first(scheme)
    assert alike == [True] + [False] * (ROWS - 1)


def test_equal_gradients_show_the_labels_where_encryption_is_not_fresh(monkeypatch):
    monkeypatch.setattr(PrimePowers, "make_powers", lambda _, count: [(mpz(1), mpz(0))] * count)
    alike, same_label = rows_like_the_first("paillier")
    assert alike == same_label


# Randomness of the guest's choice


def ones(_, count):
    """Blinding factors that blind nothing."""
    width = short_keys("paillier")[1].width
    return as_bytes([mpz(1)] * count, width)


def rows_by_small_primes():
    """The guest encrypts row i with the i-th prime for randomness, and factors what comes back.

    Gives the rows of a random cell and those that the guest reads.
    """
    _, host = short_keys("paillier")
    n, phi = PRIMES.n, (PRIMES.p - 1) * (PRIMES.q - 1)
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=False)
    primes = [int(p) for p in small_primes()[1 : ROWS + 1]]
    rows = single(as_bytes([gmpy2.powmod(p, n, n * n) for p in primes], host.width))
    members = np.flatnonzero(np.random.default_rng().random(ROWS) < 0.5)
    sums = host.segment_sum(rows, members, np.zeros((len(members), 1), np.int32), 1)
    released = host.release(sums, layout, host.blinders()).to_bytes()
    root = gmpy2.powmod(int.from_bytes(released, "big") % n, gmpy2.invert(n, phi), n)
    return members.tolist(), [i for i, p in enumerate(primes) if root % p == 0]


def test_rows_are_not_read_from_randomness_that_the_guest_chose():
    assert all(truth != read for truth, read in (rows_by_small_primes() for _ in range(TRIALS)))


def test_rows_are_read_from_randomness_that_the_guest_chose_where_nothing_is_rerandomised(
    monkeypatch,
):
    monkeypatch.setattr(BlinderPool, "take", ones)
    for _ in range(TRIALS):
        truth, read = rows_by_small_primes()
        assert truth == read


# A key under which blinding is void


def rows_by_a_void_key(p, q):
    """A guest whose key has few n-th residues modulo q sends a small prime for each row.

    Where r^n is 1 or −1 modulo q, what comes back is ± the product of the cell's primes.
    """
    n = p * q
    host = ModularPublic(PaillierKey(n), Serial())
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=False)
    primes = [int(prime) for prime in small_primes()[1 : ROWS + 1]]
    rows = single(as_bytes([mpz(prime) for prime in primes], host.width))
    host.check(rows)
    members = np.flatnonzero(np.random.default_rng().random(ROWS) < 0.5)
    sums = host.segment_sum(rows, members, np.zeros((len(members), 1), np.int32), 1)
    (value,) = numbers(single_of(host.release(sums, layout, host.blinders())))
    product = min(value % q, q - value % q)
    return members.tolist(), [i for i, prime in enumerate(primes) if product % prime == 0]


def single_of(released):
    return np.frombuffer(released.to_bytes(), np.uint8).reshape(-1, released.width)


def test_rows_are_read_under_a_key_that_makes_blinding_void():
    """What the proof of the key keeps out: see `unit/test_crypto_keys`."""
    for _ in range(TRIALS):
        truth, read = rows_by_a_void_key(P, Q)
        assert truth == read


def test_rows_are_not_read_in_the_same_way_under_a_proved_key():
    for _ in range(TRIALS):
        truth, read = rows_by_a_void_key(PRIMES.p, PRIMES.q)
        assert truth != read


# A key of many primes, whose proof holds


def few_directions(count):
    """Full powers out of a group of so few generators, as one base and a pool of 64 were."""
    generators: list[mpz] = []

    def draw(source):
        modulus = source.modulus
        while len(generators) < count:
            generators.append(DRAW_POWER(source))
        product = mpz(1)
        for generator, exponent in zip(generators, os.urandom(count), strict=True):
            product = product * gmpy2.powmod(generator, exponent, modulus) % modulus
        return product

    return draw


def rows_by_many_primes(scheme):
    """A guest learns where blinders lie from rows without marks, and marks rows elsewhere.

    Gives which rows a random cell has and which the guest reads from one answer, None where it has
    no direction left to mark rows in. The plaintexts are 0 throughout: nobody sees anything there.
    """
    guest = many_primes()
    key = getattr(guest, scheme)()
    host, width = ModularPublic(key, Serial()), (key.modulus.bit_length() + 7) // 8
    blinders = host.blinders()
    blinders.take(count_bases(KEY_BITS))  # answers before: from now on tables blind
    layout = GhLayout(8, ROWS, host.plaintext_bits, compress=False)
    plain = np.zeros((len(guest.primes) + 20, width), np.uint8)
    plain[:, -1] = 1
    answers = numbers(single_of(host.release(single(plain), layout, blinders)))
    basis, pivots = reduced([guest.logs(answer) for answer in answers])
    free = [place for place in range(len(guest.primes)) if place not in pivots][:ROWS]
    if not free:
        return None

    marks = np.zeros((len(free), len(guest.primes)), np.int64)
    marks[np.arange(len(free)), free] = 1
    rows = [gmpy2.powmod(guest.unit(mark), guest.n, key.modulus) for mark in marks]
    held = single(as_bytes(rows, width))
    host.check(held)
    members = np.random.default_rng().random(len(free)) < 0.5
    chosen = np.flatnonzero(members)
    sums = host.segment_sum(held, chosen, np.zeros((len(chosen), 1), np.int32), 1)
    (answer,) = numbers(single_of(host.release(sums, layout, blinders)))
    logs = guest.logs(answer)
    # What blinders add in a free direction follows from what they add in those of the pivots.
    left = (logs[free] - logs[pivots] @ basis[:, free]) % ORDER
    return members.tolist(), (left != 0).tolist()


@pytest.mark.parametrize("scheme", ["paillier", "okamoto_uchiyama"])
def test_no_direction_is_left_to_mark_rows_in_under_a_key_of_many_primes(scheme):
    assert rows_by_many_primes(scheme) is None


@pytest.mark.parametrize("scheme", ["paillier", "okamoto_uchiyama"])
def test_rows_are_read_under_a_key_of_many_primes_where_blinders_have_65_directions(
    scheme, monkeypatch
):
    """One base and a pool of 64, as before."""
    monkeypatch.setattr(Blinding, "_draw_power", few_directions(65))
    monkeypatch.setattr(blinding, "_blinding", functools.lru_cache(Blinding))
    truth, read = rows_by_many_primes(scheme)
    assert len(truth) == len(many_primes().primes) - 65
    assert truth == read


# Gradients of the guest's choice, inside the declared width


def bits_read(value_bits, rows=100):
    """Row i has the gradient 2^i, as far as the host knows a field of the declared width.

    How many of the rows a guest reads from one released sum, of those it marks; the share of all.
    """
    _, host = short_keys("paillier")
    private, _ = short_keys("paillier")
    layout = GhLayout(value_bits, rows, host.plaintext_bits, compress=False)
    secret = private._secret
    marked = single(as_bytes(secret.encrypt([1 << i for i in range(rows)]), host.width))
    right = np.zeros(rows)
    blinders, draw = host.blinders(), np.random.default_rng(3)
    for _ in range(TRIALS):
        members = draw.random(rows) < 0.5
        chosen = np.flatnonzero(members)
        sums = host.segment_sum(marked, chosen, np.zeros((len(chosen), 1), np.int32), 1)
        released = single_of(host.release(sums, layout, blinders))
        (value,) = secret.decrypt(numbers(released))
        right += [(value >> i & 1) == members[i] for i in range(rows)]
    return layout.lanes[0].package_bits, int((right == TRIALS).sum())


def test_gradients_that_mark_rows_read_as_many_as_the_declared_width_and_no_more():
    """The policy's `gradient_bits_max` bounds that width; no cipher can."""
    width, read = bits_read(8)
    assert width < 50
    assert width <= read <= width + 3  # of the drowned ones one in 2^10 looks right by chance


def test_gradients_that_mark_rows_read_them_all_where_the_width_has_no_bound():
    width, read = bits_read(54)
    assert width > 100
    assert read == 100
