"""Paillier in bulk: the same as phe's, one number at a time."""

import itertools

import numpy as np
import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import fixed_base, modular, paillier
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.blinding import count_bases
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier import PaillierKey, PaillierSecret
from fedboost.crypto.paillier_keys import SecretPrimes
from fedboost.ground.errors import ConfigError, PeerError, ProtocolError
from fedboost.ground.workers import Serial
from fedboost.runtime.process.workers import ProcessWorkers
from tests import tiers
from tests.support.ciphertexts import arrived, encrypted, gradients, naive_sums, single

ROWS = 40


class Pair:
    """One key as ours and as phe's."""

    def __init__(self, private, workers):
        self.private = private
        secret = private._secret.primes
        self.n = secret.n
        self.public = ModularPublic(PaillierKey(secret.n), workers)
        self.phe_public = phe.PaillierPublicKey(secret.n)
        self.phe_private = phe.PaillierPrivateKey(self.phe_public, secret.p, secret.q)
        self.layout = GhLayout(30, ROWS, self.public.plaintext_bits)

    def by_phe(self, ciphertexts):
        """Decrypted by phe, as signed numbers."""
        plain = [self.phe_private.raw_decrypt(int(c)) for c in numbers(ciphertexts.data)]
        return [m - self.n if m > self.n // 2 else m for m in plain]

    def phe_encrypts(self, values):
        raw = [self.phe_public.raw_encrypt(int(v) % self.n) for v in values]
        width = self.public.width
        return received(b"".join(c.to_bytes(width, "big") for c in raw), len(raw), width)


received = Ciphertexts.received


@pytest.fixture(scope="module")
def key():
    """A real key."""
    return Pair(paillier.generate(2048, Serial()), Serial())


@pytest.fixture(scope="module")
def small():
    """A key too short for any check, so that many cases fit in a second."""
    _, private = phe.generate_paillier_keypair(n_length=512)
    return Pair(
        ModularPrivate(PaillierSecret(SecretPrimes(private.p, private.q)), Serial()), Serial()
    )


def test_phe_decrypts_what_we_encrypt(key):
    gh = gradients(ROWS)
    fields = [(g << key.layout.h_bits) + h for g, h in gh.tolist()]
    assert key.by_phe(encrypted(key.private, gh, key.layout)) == fields


def test_encryptions_with_tables_are_right_and_fresh(small):
    """Beyond the rows for which no tables are built."""
    rows = 3 * fixed_base.ENCRYPT_DIRECT
    gh = np.tile(np.array([[-3, 3]], dtype=np.int64), (rows, 1))
    layout = GhLayout(3, rows, small.public.plaintext_bits)
    ciphertexts = encrypted(small.private, gh, layout)
    assert small.by_phe(ciphertexts) == [(-3 << layout.h_bits) + 3] * rows
    assert len({bytes(row) for row in ciphertexts.data}) == rows


def test_we_decrypt_what_phe_encrypts(key):
    gh = gradients(ROWS, seed=1)
    layout = GhLayout(30, ROWS, key.public.plaintext_bits, compress=False)
    fields = [(g << layout.h_bits) + h for g, h in gh.tolist()]
    headroom = 1 << layout.lanes[0].package_bits
    packages = key.phe_encrypts([headroom + field for field in fields])
    assert key.private.decrypt(packages, layout, [ROWS]).tolist() == gh.tolist()


@settings(max_examples=tiers.examples(25), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), max_size=30),
)
def test_segment_sums_equal_the_naive_ones(small, seed, cells):
    values = [-5, 0, 1, 2**40, -(2**70)]
    ciphertexts = small.phe_encrypts(values)
    rows = np.random.default_rng(seed).integers(0, len(values), len(cells))
    cells = np.array(cells, dtype=np.int32).reshape(-1, 3)
    sums = small.public.segment_sum(ciphertexts, rows, cells, 8)
    assert small.by_phe(sums) == naive_sums(values, rows, cells, 8)


@settings(max_examples=tiers.examples(15), deadline=None)
@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), max_size=8), st.data())
def test_arithmetic_equals_that_of_numbers(small, pairs, data):
    a, b = ([pair[i] for pair in pairs] for i in (0, 1))
    empty = received(b"", 0, small.public.width)
    x, y = (small.phe_encrypts(v) if v else empty for v in (a, b))
    assert small.by_phe(small.public.add(x, y)) == [i + j for i, j in pairs]
    assert small.by_phe(small.public.subtract(x, y)) == [i - j for i, j in pairs]
    inner = sorted(data.draw(st.lists(st.integers(0, len(a)), max_size=4)))
    offsets = np.array([0, *inner, len(a)])
    expected = [
        total for i, j in itertools.pairwise(offsets) for total in itertools.accumulate(a[i:j])
    ]
    assert small.by_phe(small.public.prefix_sums(x, offsets)) == expected


def test_workers_and_one_process_give_the_same_bytes(small):
    values = list(range(200))
    ciphertexts = small.phe_encrypts(values)
    rng = np.random.default_rng(7)
    cells = (rng.integers(0, 5, (200, 4)) + 5 * np.arange(4)).astype(np.int32)
    with ProcessWorkers(2) as workers:
        parallel = ModularPublic(PaillierKey(small.n), workers)
        results = []
        for public in (parallel, small.public):
            sums = public.segment_sum(ciphertexts, np.arange(200), cells, 20)
            public.check(sums)
            prefixes = public.prefix_sums(sums, np.arange(0, 21, 5))
            results.append(public.subtract(prefixes, sums).data.tobytes())
        assert results[0] == results[1]
        blinders = parallel.blinders()
        blinders.prepare(50)
        assert len({bytes(row) for row in np.concatenate([blinders.take(30) for _ in "ab"])}) == 60


def test_sums_do_not_depend_on_the_order_or_split_of_rows(small, monkeypatch):
    ciphertexts = small.phe_encrypts(range(100))
    cells = np.random.default_rng(8).integers(-1, 9, (100, 3)).astype(np.int32)
    rows = np.arange(100)
    whole = small.public.segment_sum(ciphertexts, rows, cells, 9)
    monkeypatch.setattr(modular, "SUM_ROWS_MAX", 7)
    cut = small.public.segment_sum(ciphertexts, rows[::-1], cells[::-1], 9)
    assert whole.data.tobytes() == cut.data.tobytes()


def test_an_empty_sum_is_an_encryption_of_zero(small):
    none = np.empty((0, 2), dtype=np.int32)
    sums = small.public.segment_sum(small.phe_encrypts([1]), np.empty(0, np.int64), none, 3)
    assert small.by_phe(sums) == [0, 0, 0]
    assert len(small.public.segment_sum(small.phe_encrypts([1]), np.empty(0, int), none, 0)) == 0


@pytest.mark.parametrize("compress", [True, False])
def test_packages_hold_what_was_released(small, compress):
    layout = GhLayout(30, ROWS, small.public.plaintext_bits, compress=compress)
    assert layout.lanes[0].capacity == (6 if compress else 1)
    gh = gradients(ROWS, seed=3)
    ciphertexts = encrypted(small.private, gh, layout)
    counts = [13, 1, 6, 20]
    released = small.public.release(ciphertexts, layout, small.public.blinders(), counts)
    assert len(released) == (3 + 1 + 1 + 4 if compress else ROWS)
    got = small.private.decrypt(arrived(released), layout, counts)
    assert got.tolist() == gh.tolist()
    assert got.dtype == np.int64


def test_extreme_sums_survive_the_packages(key):
    layout = GhLayout(56, ROWS, key.public.plaintext_bits)
    most = 1 << 56
    gh = np.array([[most, most], [-most, most]] * (ROWS // 2), dtype=np.int64)
    ciphertexts = encrypted(key.private, gh, layout)
    cells = np.tile(np.array([[0], [1]], dtype=np.int32), (ROWS // 2, 1))
    sums = key.public.segment_sum(ciphertexts, np.arange(ROWS), cells, 2)
    released = key.public.release(sums, layout, key.public.blinders())
    half = ROWS // 2 * most
    got = key.private.decrypt(arrived(released), layout, [2])
    assert got.tolist() == [[half, half], [-half, half]]


def test_one_uniform_error_for_whatever_does_not_decrypt(small):
    """A decryption tells the sender nothing about why it failed."""
    layout = small.layout
    secret = small.private._secret.primes
    top = 1 << layout.lanes[0].package_bits
    bad = {
        "G too large": small.phe_encrypts([top + ((layout.bound + 1) << layout.h_bits)]),
        "H too large": small.phe_encrypts([top + layout.bound + 1]),
        "field beyond the size": small.phe_encrypts([top + (1 << layout.n_bit)]),
    }
    for name, number in (("zero", 0), ("n", small.n), ("p", secret.p), ("n²", small.n**2)):
        data = number.to_bytes(small.public.width, "big")
        bad[name] = received(data, 1, small.public.width)
    texts = set()
    for packages in bad.values():
        with pytest.raises(PeerError) as caught:
            small.private.decrypt(packages, layout, [1])
        texts.add(tuple(caught.value.lines()))
    assert len(texts) == 1


def test_wrong_counts_and_widths_are_refused(small):
    packages = small.phe_encrypts([1, 2])
    with pytest.raises(PeerError, match="expected 1 packages"):
        small.private.decrypt(packages, small.layout, [1])
    with pytest.raises(PeerError, match="in all"):
        received(b"123", 1, 4)
    narrow = received(b"1234", 1, 4)
    with pytest.raises(PeerError, match="got 4 bytes"):
        small.public.check(narrow)
    with pytest.raises(ProtocolError):
        small.public.add(packages, packages[:1])
    with pytest.raises(ProtocolError):
        small.public.prefix_sums(packages, np.array([0, 1]))
    with pytest.raises(ProtocolError):
        small.public.segment_sum(packages, np.arange(2), np.array([[0], [1]], np.int32), 1)
    with pytest.raises(ProtocolError):
        small.public.release(packages, small.layout, small.public.blinders(), [1])


@pytest.mark.parametrize("bad", ["zero", "n", "p", "n²", "all ones"])
def test_what_is_no_ciphertext_is_refused(small, bad):
    n, p = small.n, small.private._secret.primes.p
    number = {"zero": 0, "n": n, "p": 3 * p, "n²": n * n, "all ones": 256**small.public.width - 1}
    good = small.phe_encrypts(range(70))
    small.public.check(good)
    data = good.data.copy()
    bad_bytes = number[bad].to_bytes(small.public.width, "big")
    data[66, 0] = np.frombuffer(bad_bytes, dtype=np.uint8)
    with pytest.raises(PeerError, match="out of range or shares a factor"):
        small.public.check(Ciphertexts(data))


def test_values_outside_the_declared_bits_are_never_encrypted(key):
    gh = gradients(3, bits=31)
    gh[0, 0] = 2**31
    with pytest.raises(ConfigError, match="outside the declared 30 bits"):
        key.private.encrypt(gh, key.layout)


def test_keys_print_no_secret(key):
    secret = key.private._secret.primes
    for text in (repr(key.private), str(secret), repr(key.private.encrypt), repr(key.public)):
        assert str(secret.p)[:20] not in text
        assert hex(secret.q)[2:20] not in text


def test_a_private_key_survives_the_store(key):
    again = paillier.load_private(key.private.to_bytes(), Serial())
    assert again._secret == key.private._secret


def test_blinders_are_random_residues_each_given_once(small):
    """With and without tables; an n-th residue is a number that decrypts to zero."""
    blinders = small.public.blinders()
    blinders.prepare(10)
    rows = count_bases(small.n.bit_length()) + 100
    taken = [blinders.take(7), blinders.take(rows - 7), blinders.take(0)]
    together = single(np.concatenate(taken))
    assert len({bytes(row) for row in together.data}) == rows
    assert small.by_phe(together) == [0] * rows
