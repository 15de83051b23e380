"""Okamoto-Uchiyama: the textbook's numbers, sound keys, and forged ones refused."""

import secrets

import gmpy2
import numpy as np
import pytest

from fedboost.crypto import fixed_base, okamoto_uchiyama
from fedboost.crypto.blinding import count_bases
from fedboost.crypto.limbs import as_bytes
from fedboost.crypto.modular import ModularPrivate, ModularPublic
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.moduli import check_modulus, drawn_prime
from fedboost.crypto.okamoto_uchiyama import OuKey, OuSecret, read_public
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.secrets import SYSTEM_SOURCE
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import arrived, encrypted, gradients, single

BITS = 768
ROWS = 32


class Textbook:
    """The published scheme on Python's numbers: c = g^m · h^r with h = g^n."""

    def __init__(self, secret):
        self.p, self.g, self.n = secret.p, secret.g, secret.key.n
        self.h = pow(self.g, self.n, self.n)

    def encrypt(self, m):
        r = secrets.randbelow(self.n)
        return pow(self.g, m % self.p, self.n) * pow(self.h, r, self.n) % self.n

    def decrypt(self, c):
        logs = [(pow(x, self.p - 1, self.p**2) - 1) // self.p for x in (c, self.g)]
        m = logs[0] * pow(logs[1], -1, self.p) % self.p
        return m - self.p if m > self.p // 2 else m


@pytest.fixture(scope="module")
def secret():
    return okamoto_uchiyama.draw_secret(BITS)


@pytest.fixture(scope="module")
def keys(secret):
    return ModularPrivate(secret, Serial()), ModularPublic(secret.key, Serial())


def test_the_textbook_decrypts_what_we_encrypt_with_and_without_tables(secret, keys):
    book = Textbook(secret)
    rows = fixed_base.ENCRYPT_DIRECT + 50
    layout = GhLayout(30, rows, keys[1].plaintext_bits)
    gh = gradients(rows)
    ciphertexts = encrypted(keys[0], gh, layout)
    plain = [book.decrypt(int(c)) for c in numbers(ciphertexts.data)]
    assert plain == [(g << layout.h_bits) + h for g, h in gh.tolist()]
    again = encrypted(keys[0], gh, layout)
    assert not (again.each == ciphertexts.each).all(axis=1).any()


def test_we_decrypt_what_the_textbook_encrypts(secret, keys):
    book = Textbook(secret)
    values = [0, 1, -1, 2**200, -(2**200), secret.p - 1]
    found = secret.decrypt([gmpy2.mpz(book.encrypt(m)) for m in values])
    assert found == [m % secret.p for m in values]


def test_arithmetic_equals_that_of_numbers(secret, keys):
    book, public = Textbook(secret), keys[1]
    values = [-5, 0, 1, 2**40, -(2**70)]
    x = single(as_bytes([gmpy2.mpz(book.encrypt(v)) for v in values], public.width))
    opened = lambda c: [book.decrypt(int(v)) for v in numbers(c.data)]  # noqa: E731
    assert opened(public.add(x, x)) == [2 * v for v in values]
    assert opened(public.subtract(x, x[::-1])) == [
        a - b for a, b in zip(values, values[::-1], strict=True)
    ]
    cells = np.array([[0], [1], [0], [1], [0]], dtype=np.int32)
    sums = public.segment_sum(x, np.arange(5), cells, 2)
    assert opened(sums) == [values[0] + values[2] + values[4], values[1] + values[3]]
    assert [book.decrypt(int(c)) for c in secret.key.bare_encryptions([0, 1, 3 << 100])] == [
        0,
        1,
        3 << 100,
    ]


def test_keys_have_their_exact_length_and_room(secret):
    for bits in (BITS, 1024, 1040):
        drawn = okamoto_uchiyama.draw_secret(bits)
        assert drawn.key.n.bit_length() == bits
        assert drawn.p > drawn.key.plaintext_space == 1 << (bits // 3 - 1)
        assert gmpy2.is_prime(drawn.p)
        assert gmpy2.is_prime(drawn.q)
        assert drawn.p.bit_length() - drawn.q.bit_length() in (0, 1, 2)


def test_a_proved_key_is_read_back_and_always_the_same(secret):
    """Two different roots of one number would give p away."""
    data = secret.proved_key()
    assert read_public(data, BITS) == secret.key
    assert secret.proved_key() == data
    assert OuSecret(secret.p, secret.q, secret.g).proved_key() == data


def test_the_proofs_roots_are_not_all_n_th_powers(secret):
    """Were they, they would show a structure that nobody but the owner could have made."""
    width, short = BITS // 8, BITS // 24
    data = secret.proved_key()[2 * width :]
    roots = [
        int.from_bytes(data[i + short : i + short + width], "big")
        for i in range(0, len(data), short + width)
    ]
    assert len(roots) == okamoto_uchiyama.OU_PROOF_ROOTS
    assert all(pow(root, secret.p - 1, secret.p**2) != 1 for root in roots)


def proof_with(key, parts):
    width, short = BITS // 8, BITS // 24
    data = key.n.to_bytes(width, "big") + key.g.to_bytes(width, "big")
    return data + b"".join(m.to_bytes(short, "big") + r.to_bytes(width, "big") for m, r in parts)


def test_a_key_with_a_larger_plaintext_space_has_no_proof():
    """p of half the key: a guest could write above every headroom a host knows of."""
    p, q = drawn_prime(BITS // 3 + 40, SYSTEM_SOURCE), drawn_prime(BITS // 3 - 80, SYSTEM_SOURCE)
    while (p * p * q).bit_length() != BITS:
        q = drawn_prime(BITS // 3 - 80, SYSTEM_SOURCE)
    forged = OuSecret(p, q, 3)
    check_modulus(forged.key.n, BITS)
    drawn = [gmpy2.mpz(okamoto_uchiyama._challenge(forged.key, i)) for i in range(32)]
    exponents = forged.decrypt(drawn)
    assert exponents is not None
    assert max(m.bit_length() for m in exponents) > BITS // 3  # it would have to say too much
    short = [m % (1 << (BITS // 3)) for m in exponents]
    with pytest.raises(PeerError, match="proof"):
        read_public(proof_with(forged.key, [(m, 2) for m in short]), BITS)


def test_exponents_a_little_too_long_are_refused():
    """Where bytes leave room for some bits: plaintexts of 264 bits, in a key that promises 260."""
    bits = 784
    while True:
        p, q = drawn_prime(264, SYSTEM_SOURCE), drawn_prime(bits - 2 * 264, SYSTEM_SOURCE)
        forged = OuSecret(p, q, 3)
        if forged.key.n.bit_length() == bits:
            break
    data = forged.proved_key()  # whole, and true
    assert len(data) == 2 * bits // 8 + okamoto_uchiyama.OU_PROOF_ROOTS * (33 + bits // 8)
    with pytest.raises(PeerError, match="proof"):
        read_public(data, bits)


def test_a_key_whose_blinding_would_leave_something_has_no_proof(secret):
    """g without a part outside the n-th powers, or powers that a prime factor thins out."""
    n = secret.key.n
    idle = OuSecret(secret.p, secret.q, pow(7, n, n))
    with pytest.raises(ZeroDivisionError):
        idle.proved_key()
    parts = [(0, 2)] * okamoto_uchiyama.OU_PROOF_ROOTS
    with pytest.raises(PeerError, match="proof"):
        read_public(proof_with(idle.key, parts), BITS)


def test_changed_proofs_are_refused(secret):
    good, width = secret.proved_key(), BITS // 8
    other = okamoto_uchiyama.draw_secret(BITS).proved_key()
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    swapped = good[: 2 * width] + other[2 * width :]
    other_g = good[:width] + other[width : 2 * width] + good[2 * width :]
    for bad in (flipped, swapped, other_g, good[:-width] + bytes(width)):
        with pytest.raises(PeerError, match="proof"):
            read_public(bad, BITS)
    for bad in (b"", good[:-1], good + b"\0"):
        with pytest.raises(PeerError, match="and its proof"):
            read_public(bad, BITS)
    with pytest.raises(PeerError, match="small prime factor"):
        read_public((secret.key.n & ~1).to_bytes(width, "big") + good[width:], BITS)
    square = drawn_prime(BITS // 2, SYSTEM_SOURCE) ** 2
    with pytest.raises(PeerError, match="a prime or a power"):
        read_public(square.to_bytes(width, "big") + good[width:], BITS)


@pytest.mark.parametrize("bad", ["zero", "n", "p", "q", "all ones"])
def test_what_is_no_ciphertext_is_refused(secret, keys, bad):
    private, public = keys
    layout = GhLayout(30, ROWS, public.plaintext_bits)
    n, width = secret.key.n, public.width
    number = {"zero": 0, "n": n, "p": secret.p, "q": 5 * secret.q, "all ones": 256**width - 1}
    data = encrypted(private, gradients(ROWS), layout).data.copy()
    data[20, 0] = np.frombuffer(number[bad].to_bytes(width, "big"), dtype=np.uint8)
    with pytest.raises(PeerError, match="out of range or shares a factor"):
        public.check(single(data[:, 0]))
    assert secret.decrypt(numbers(data[19:21])) is None
    with pytest.raises(PeerError, match="does not decrypt into the declared range"):
        private.decrypt(single(data[20:21, 0]), layout, [1])


def test_releases_never_wrap_and_fill_the_headroom(secret, keys):
    private, public = keys
    layout = GhLayout(8, ROWS, public.plaintext_bits)
    (lane,) = layout.lanes
    bound = layout.bound
    book, blinders = Textbook(secret), public.blinders()
    filled = []
    for G, H in ((-bound, 0), (bound, bound)):
        rows = as_bytes(secret.encrypt([(G << layout.h_bits) + H] * lane.capacity), public.width)
        for _ in range(10):
            released = arrived(public.release(single(rows), layout, blinders))
            (value,) = secret.decrypt(numbers(released.data))
            assert book.decrypt(int(numbers(released.data)[0])) % secret.p == value
            assert 0 < value < 1 << public.plaintext_bits
            filled.append(value >> lane.package_bits)
            sums = private.decrypt(released, layout, [lane.capacity])
            assert sums.tolist() == [[G, H]] * lane.capacity
    assert len(set(filled)) == len(filled)
    assert max(filled).bit_length() >= public.plaintext_bits - lane.package_bits - 4


def test_rows_marked_above_the_declared_package_are_not_read_back(secret, keys):
    """One bit a row in spare plaintext: sums show it, released packages do not (SECURITY.md)."""
    public = keys[1]
    layout = GhLayout(8, ROWS, public.plaintext_bits)
    (lane,) = layout.lanes
    free = public.plaintext_bits - lane.package_bits
    if free < 80:  # some room for marks below the topmost 41 bits
        layout = GhLayout(8, ROWS, public.plaintext_bits, compress=False)
        (lane,) = layout.lanes
        free = public.plaintext_bits - lane.package_bits
    marks = [lane.package_bits + i * (free - 42) // ROWS for i in range(ROWS)]
    rows = single(as_bytes(secret.encrypt([1 << mark for mark in marks]), public.width))
    rng, blinders, right, whole = np.random.default_rng(1), public.blinders(), 0, 0
    for _ in range(20):
        members = rng.random(ROWS) < 0.5
        chosen = np.flatnonzero(members)
        sums = public.segment_sum(rows, chosen, np.zeros((len(chosen), 1), np.int32), 1)
        (clear,) = secret.decrypt(numbers(sums.data))
        assert clear == sum(1 << marks[i] for i in chosen)  # unblinded, all of it is read
        (value,) = secret.decrypt(numbers(arrived(public.release(sums, layout, blinders)).data))
        guess = np.array([value >> mark & 1 for mark in marks], dtype=bool)
        whole += bool((guess == members).all())
        right += int((guess == members).sum())
    assert whole == 0
    assert abs(right / (20 * ROWS) - 0.5) < 0.2


def test_the_guest_cannot_recognise_the_rows_by_their_own_randomness(secret, keys):
    """Modulo q a ciphertext says nothing of m, and the guest knows it of every row."""
    public, q = keys[1], secret.q
    layout = GhLayout(8, ROWS, public.plaintext_bits, compress=False)
    rows = single(as_bytes(secret.encrypt([0] * ROWS), public.width))
    members = np.arange(0, ROWS, 3)
    sums = public.segment_sum(rows, members, np.zeros((len(members), 1), np.int32), 1)
    fingerprint = 1
    for value in numbers(rows[members].data):
        fingerprint = fingerprint * int(value) % q
    assert numbers(sums.data)[0] % q == fingerprint  # unblinded, the subset is recognised
    values = {
        int(numbers(arrived(public.release(sums, layout, public.blinders())).data)[0]) % q
        for _ in range(4)
    }
    assert len(values) == 4
    assert fingerprint not in values


def test_blinders_are_n_th_powers_in_every_coset_of_their_base(secret, keys):
    """With and without tables: they decrypt to zero, and are squares and not modulo p and q."""
    blinders = keys[1].blinders()
    count = count_bases(BITS) + 150
    taken = [int(c) for c in numbers(blinders.take(count))]
    assert len(set(taken)) == count
    assert secret.decrypt([gmpy2.mpz(c) for c in taken]) == [0] * count
    kinds = {(gmpy2.jacobi(c, secret.p), gmpy2.jacobi(c, secret.q)) for c in taken}
    assert len(kinds) == 4


def test_keys_with_equal_numbers_are_one_key(secret):
    assert OuKey(secret.key.n, secret.g) == secret.key
    assert str(secret.p)[:20] not in repr(secret) + str(ModularPrivate(secret, Serial()))
