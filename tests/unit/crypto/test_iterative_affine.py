"""Iterative affine: it computes as the paper says, up to its true capacity, and it is broken."""

import itertools

import numpy as np
import pytest

from fedboost.crypto import iterative_affine, schemes
from fedboost.crypto.iterative_affine import AffineSecret, draw_secret
from fedboost.crypto.limbs import integers, rows_of
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.residues import ResiduePrivate, ResiduePublic
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import arrived, encrypted, short_keys, single

SCHEME = schemes.KEYED_SCHEMES["iterative-affine"]


def naive(secret, m):
    """Round after round."""
    for a, n in zip(secret.units, secret.moduli, strict=True):
        m = a * m % n
    return m


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_moduli_grow_evenly_and_rounds_undo_each_other(rounds):
    secret = draw_secret(1024, rounds)
    steps = np.diff([n.bit_length() for n in secret.moduli])
    assert (secret.moduli[0].bit_length(), secret.modulus.bit_length()) == (512, 1024)
    assert len(set(steps.tolist())) == 1 if 512 % (rounds - 1) == 0 else True
    for m in (0, 1, -1, 2**100, -(2 ** (secret.plaintext_bits))):
        assert secret.encrypt_number(m) == naive(secret, m)
        assert secret.decrypt_number(secret.encrypt_number(m)) == m


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_the_stated_capacity_is_right_and_nearly_all_there_is(rounds):
    """Plaintexts and the weights of a sum may reach 2^plaintext_bits, at the extremes."""
    secret = draw_secret(1024, rounds)
    most = 1 << secret.plaintext_bits
    rows = [secret.encrypt_number(m) for m in (most // 2, -most // 2, 1, -1)]
    # All the weight on the smallest plaintexts, of either sign.
    assert secret.decrypt_number(most * rows[2] % secret.modulus) == most
    assert secret.decrypt_number(-most * rows[2] % secret.modulus) == -most
    assert secret.decrypt_number((rows[0] - rows[1]) % secret.modulus) == most
    beyond = 1 << (secret.plaintext_bits + 4)
    wrong = [
        secret.decrypt_number(beyond * secret.encrypt_number(m) % secret.modulus) != beyond * m
        for m in range(3, 60)
    ]
    assert any(wrong)


def test_two_rounds_are_what_compressing_needs():
    """The framework's five rounds leave 128 bits between moduli: no two fields of 125 bits."""
    assert draw_secret(1024, 5).plaintext_bits <= 128
    with pytest.raises(ConfigError, match="do not fit"):
        GhLayout(44, 21_000, draw_secret(1024, 5).plaintext_bits)
    assert iterative_affine.plaintext_bits(1024) == draw_secret(1024, 2).plaintext_bits == 510
    (lane,) = GhLayout(44, 21_000, 510).lanes
    assert lane.capacity == 3
    # The paper's million rows at 53 bits would be 147 bits a field, three to a package as well.
    assert (510 - 41) // 147 == 3


def test_full_packages_of_extreme_sums_come_back():
    """Every row in one cell, every field of a package at its bound."""
    private = SCHEME.generate(1024, Serial())
    public = SCHEME.load_public(private.public_bytes(), 1024, Serial())
    rows = 64
    layout = GhLayout(56, rows, public.plaintext_bits)
    (lane,) = layout.lanes
    assert lane.capacity >= 3
    most = 1 << 56
    gh = np.array([[most, most], [-most, 0]] * (rows // 2), dtype=np.int64)
    ciphertexts = encrypted(private, gh, layout)
    cells = np.tile(np.array([[0], [1]], dtype=np.int32), (rows // 2, 1))
    sums = public.segment_sum(ciphertexts, np.arange(rows), cells, 2)
    many = sums[np.array([0, 1, 0, 1, 1, 1, 1, 0])]
    released = public.release(many, layout, public.blinders())
    half = rows // 2 * most
    up, down = [half, half], [-half, 0]
    got = private.decrypt(arrived(released), layout, [8])
    assert got.tolist() == [up, down, up, down, down, down, down, up]


def test_bad_keys_and_numbers_are_refused():
    private, public = short_keys("iterative-affine")
    layout = GhLayout(30, 5, public.plaintext_bits)
    n, width = public.modulus, public.width
    for number in (n, n + 1, 256**width - 1):
        bad = single(rows_of([number], width))
        with pytest.raises(PeerError, match="out of the key's range"):
            public.check(bad)
        with pytest.raises(PeerError, match="declared range"):
            private.decrypt(bad, layout, [1])
    wild = single(rows_of([n // 3], width))
    public.check(wild)
    with pytest.raises(PeerError, match="declared range"):
        private.decrypt(wild, layout, [1])  # of three fields, two must be empty
    good = draw_secret(1024, 2).modulus
    for bad_key in (good + 1, good >> 1):
        with pytest.raises(PeerError, match="odd number of 1024 bits"):
            SCHEME.load_public(bad_key.to_bytes(128, "big"), 1024, Serial())
    with pytest.raises(PeerError, match="odd number of 1024 bits"):
        SCHEME.load_public(good.to_bytes(129, "big"), 1024, Serial())
    with pytest.raises(ConfigError, match="two rounds and units"):
        AffineSecret((15,), (2,))
    with pytest.raises(ConfigError, match="two rounds and units"):
        AffineSecret((15, 255), (2, 5))
    with pytest.raises(ConfigError, match="must grow"):
        AffineSecret((255, 251), (2, 3))


def test_the_scheme_is_marked_insecure():
    assert not SCHEME.secure


# The break


def ciphertexts_of(gh, layout):
    secret = draw_secret(1024, 2)
    private = ResiduePrivate(secret)
    return secret, [int(c) for c in integers(encrypted(private, gh, layout).each)]


def test_labels_are_read_from_the_first_tree_without_any_key():
    """Its gradients take two values, one a label: so do the ciphertexts."""
    labels = np.random.default_rng(1).integers(0, 2, 50)
    half = 2**40
    gh = np.stack([half - 2 * half * labels, np.full(50, half // 2)], axis=1)
    _, seen = ciphertexts_of(gh, GhLayout(40, 50, 510))
    groups = [seen[i] == seen[0] for i in range(50)]
    assert groups == (labels == labels[0]).tolist()


def test_linear_relations_among_plaintexts_are_seen_in_ciphertexts():
    """A host that guesses x = y + z checks it: c_x − c_y − c_z is one of few constants.

    One relation that it knows gives a constant away; then true guesses are told from wrong ones.
    """
    rng = np.random.default_rng(2)
    y, z = rng.integers(-(2**30), 2**30, (2, 60))
    true = rng.random(60) < 0.5
    x = y + z + np.where(true, 0, rng.integers(1, 2**20, 60))
    g = np.concatenate([x, y, z])
    gh = np.stack([g, np.zeros_like(g)], axis=1)
    secret, seen = ciphertexts_of(gh, GhLayout(40, len(g), 510))
    n = secret.modulus
    left = [(seen[i] - seen[60 + i] - seen[120 + i]) % n for i in range(60)]
    known = {left[i] for i in np.flatnonzero(true)[:12]}
    assert len(known) <= 4  # t · a_2 · n_1 for |t| ≤ 2
    unit = secret.units[1] * secret.moduli[0]
    assert known <= {t * unit % n for t in range(-2, 3)}
    judged = [value in known for value in left]
    wrong = sum(a != b for a, b in zip(judged, true.tolist(), strict=True))
    assert wrong <= 2  # a constant that none of the twelve showed
    assert not any(judged[i] for i in np.flatnonzero(~true))


def test_a_known_row_lets_any_small_gradient_be_searched():
    """c_x of x = k·u is k·c_u up to the same few constants: try every k."""
    unit, factors = 2**20, [17, 3, 88, 64]
    g = np.array([unit, *[k * unit for k in factors]])
    secret, seen = ciphertexts_of(np.stack([g, np.zeros_like(g)], axis=1), GhLayout(40, 9, 510))
    n, constant = secret.modulus, secret.units[1] * secret.moduli[0] % secret.modulus
    wraps = {t * constant % n for t in range(-100, 101)}
    found = [[k for k in range(100) if (c - k * seen[0]) % n in wraps] for c in seen[1:]]
    assert list(itertools.chain(*found)) == factors


def test_a_guest_reads_rows_from_spare_bits_for_nothing_blinds_them():
    """What `release` cannot do here, and why the scheme needs every party's permission."""
    secret = draw_secret(1024, 2)
    public = ResiduePublic(secret.modulus, 510, b"", headroom=False)
    layout = GhLayout(8, 32, 510)
    marks = [layout.lanes[0].package_bits + i for i in range(32)]
    rows = single(rows_of([secret.encrypt_number(1 << mark) for mark in marks], public.width))
    members = np.arange(0, 32, 3)
    sums = public.segment_sum(rows, members, np.zeros((len(members), 1), np.int32), 1)
    released = arrived(public.release(sums, layout, public.blinders()))
    (value,) = (secret.decrypt_number(c) for c in integers(released.each))
    assert [i for i, mark in enumerate(marks) if value >> mark & 1] == members.tolist()
