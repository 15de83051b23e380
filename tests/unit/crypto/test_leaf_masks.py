"""Masks of leaf values: they cancel among a row's holders, and hide each answer by itself."""

import itertools
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import phe
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedboost.crypto.leaf_values import LeafLayout
from fedboost.crypto.limbs import LIMB_BITS, as_bytes, integers
from fedboost.crypto.masking import MaskKey, Masks, Pair, PairStream, answer_masks, wide_stream
from fedboost.crypto.modular import ModularPublic
from fedboost.crypto.paillier import PaillierKey
from fedboost.crypto.secrets import Secrets
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import (
    arrived,
    encrypted,
    masks_of,
    short_keys,
    signed_fields,
    single,
)

KEY = bytes(range(32))
SECRETS = Secrets(KEY)
P_LEAST = 1e-4
ROWS, TRIALS = 3000, 20


def whole(limbs):
    """The Python integers that limbs stand for, in an object array without the last axis."""
    return sum(limbs[..., i].astype(object) << (LIMB_BITS * i) for i in range(limbs.shape[-1]))


def naive_stream(key, count, bits):
    """Each number's words cut from one long keystream."""
    limbs = -(-bits // LIMB_BITS)
    cipher = Cipher(AES(key), CTR(bytes(16))).encryptor()
    stream = cipher.update(bytes(4 * limbs * count))
    words = [stream[4 * limbs * i : 4 * limbs * (i + 1)] for i in range(count)]
    return [int.from_bytes(word, "little") % 2**bits for word in words]


@given(st.binary(min_size=32, max_size=32), st.integers(0, 40), st.integers(1, 130))
def test_wide_numbers_are_cut_from_the_ciphers_stream(key, count, bits):
    found = wide_stream(key, count, bits)
    assert found.shape == (count, -(-bits // LIMB_BITS))
    assert found.dtype == np.int64
    assert [int(x) for x in whole(found)] == naive_stream(key, count, bits)


def test_wide_numbers_are_uniform_below_their_bound():
    bits = 77
    numbers = whole(wide_stream(KEY, 20_000, bits))
    assert max(numbers) < 2**bits
    assert stats.kstest((numbers / 2**bits).astype(float), "uniform").pvalue > P_LEAST
    for shift in (0, 8, 32, 64, bits - 8):
        counts = np.bincount(((numbers >> shift) & 255).astype(np.int64), minlength=256)
        assert stats.chisquare(counts).pvalue > P_LEAST


def pair_streams(parties, held, context=b"tree 3"):
    """Every party's pairs over the rows that both hold; the earlier of a pair adds."""
    keys = [MaskKey(SECRETS.derive("mask", party)) for party in range(parties)]
    streams: list[list[PairStream]] = [[] for _ in range(parties)]
    for party, peer in itertools.permutations(range(parties), 2):
        pair = Pair(keys[party].shared(keys[peer].public), b"job")
        indices = np.searchsorted(held[party], np.intersect1d(held[party], held[peer]))
        sign = 1 if party < peer else -1
        streams[party].append(PairStream(pair.stream_key(context), sign, indices))
    return streams


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("outputs", [1, 3])
def test_masks_over_overlapping_rows_cancel_in_every_row(parties, outputs):
    rng = np.random.default_rng(parties)
    held = [np.flatnonzero(rng.random(400) < 0.6) for _ in range(parties)]
    holders = np.bincount(np.concatenate(held), minlength=400)
    total = np.zeros((400, outputs), dtype=object)
    for rows, streams in zip(held, pair_streams(parties, held), strict=True):
        masks = answer_masks((len(rows), outputs), 90, streams)
        own = whole(masks.limbs)
        assert masks.streams == max(holders[rows]) - 1
        assert ((own != 0).all(axis=1) == (holders[rows] > 1)).all()
        total[rows] += own
    assert not total.any()


def test_a_pairs_streams_are_added_where_it_says():
    key, other = KEY, KEY[::-1]
    pairs = [PairStream(key, 1, np.array([4, 0])), PairStream(other, -1, np.array([0, 2, 1]))]
    masks = answer_masks((5, 2), 70, pairs)
    expected = np.zeros((5, 2), dtype=object)
    ours, theirs = naive_stream(key, 4, 70), naive_stream(other, 6, 70)
    expected[4] += ours[:2]
    expected[0] += ours[2:]
    for place, row in enumerate([0, 2, 1]):
        expected[row] -= theirs[2 * place : 2 * place + 2]
    assert whole(masks.limbs).tolist() == expected.tolist()
    assert (masks.bits, masks.streams) == (70, 2)
    nobody = answer_masks((3, 2), 70, [PairStream(key, 1, np.array([], dtype=np.int64))])
    assert not nobody.limbs.any()
    assert nobody.streams == 0


@pytest.mark.parametrize(
    ("rows", "sign"), [([0, 0], 1), ([-1], 1), ([3], 1), ([0], 0), ([0], 2), ([], 0)]
)
def test_rows_that_are_not_the_answers_are_refused(rows, sign):
    pair = PairStream(KEY, sign, np.array(rows, dtype=np.int64))
    with pytest.raises(ValueError, match=r"a pair's rows are \d+ different ones of 3"):
        answer_masks((3, 1), 50, [pair])


def test_masks_print_nothing():
    pair = PairStream(KEY, 1, np.arange(3))
    masks = answer_masks((3, 1), 50, [pair])
    assert repr(masks) == str(masks) == "Masks(3 rows, hidden)"
    assert repr(KEY)[2:-1] not in repr(pair)
    assert "key" not in repr(pair)


def layout_for(public, **more):
    return LeafLayout(20, 50, 16, public.plaintext_bits, **more)


def seen(value, holders, slack=None):
    """What the guest sees of ROWS answers of one value by one of the holders: whole numbers.

    `slack`: masks only so many bits wider than values, as a control.
    """
    private, public = short_keys("plain")
    layout = layout_for(public, holders=holders)
    (lane,) = layout.lanes
    ciphertexts = encrypted(private, np.array([[1]]), layout)[np.zeros(ROWS, np.int64)]
    ciphertexts = public.scale(ciphertexts, np.full(ROWS, abs(value) or 1))
    if value <= 0:
        zero = public.subtract(ciphertexts, ciphertexts)
        ciphertexts = zero if value == 0 else public.subtract(zero, ciphertexts)
    masks = None
    if holders > 1:
        held = [np.arange(ROWS)] * holders
        mine = pair_streams(holders, held)[holders // 2]
        bits = layout.mask_bits if slack is None else layout.bound.bit_length() + slack
        drawn = answer_masks((ROWS, 1), bits, mine)
        limbs = np.zeros((ROWS, 1, -(-layout.mask_bits // LIMB_BITS)), dtype=np.int64)
        limbs[:, :, : drawn.limbs.shape[2]] = drawn.limbs
        masks = Masks(limbs, layout.mask_bits, drawn.streams)
    released = public.release(ciphertexts, layout, public.blinders(), masks=masks)
    packages = integers(arrived(released).each)
    sizes = layout.packages([ROWS]).size.tolist()
    fields = [
        row[0]
        for package, size in zip(packages, sizes, strict=True)
        for row in signed_fields(package, lane, size)
    ]
    return np.array(fields, dtype=object), layout


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("share", [0, 1, -1])
def test_one_masked_answer_looks_the_same_whatever_its_value(holders, share):
    """Against masks alone: uniform low bits, and the distribution of nothing but masks."""
    layout = layout_for(short_keys("plain")[1], holders=holders)
    fields, _ = seen(share * layout.bound, holders)
    for shift in (0, 8, 32, 56):
        counts = np.bincount(((fields >> shift) & 255).astype(np.int64), minlength=256)
        assert stats.chisquare(counts).pvalue > P_LEAST
    scaled = (fields / 2**layout.mask_bits).astype(float)
    draws = np.random.default_rng(5).random((2, 20_000))
    alone = -draws[0] if holders == 2 else draws[0] - draws[1]  # the middle one of the holders
    assert stats.ks_2samp(scaled, alone).pvalue > P_LEAST


def test_masks_as_narrow_as_values_would_not_hide_them():
    """The control of the test above: it finds a difference where there is one."""
    layout = layout_for(short_keys("plain")[1], holders=2)
    zero, bound = (seen(value, 2, slack=0)[0] for value in (0, layout.bound))
    apart = stats.ks_2samp((zero / 2.0**37).astype(float), (bound / 2.0**37).astype(float))
    assert apart.pvalue < 1e-9


@pytest.mark.parametrize("share", [0, 1, -1])
def test_an_answer_of_a_single_holder_is_its_value(share):
    layout = layout_for(short_keys("plain")[1])
    fields, _ = seen(share * layout.bound, 1)
    assert set(fields.tolist()) == {share * layout.bound}


@pytest.fixture(scope="module")
def guest():
    """A guest's key (short, for many trials) as phe sees it, and the host's view of it."""
    public, private = phe.generate_paillier_keypair(n_length=1024)
    return public, private, ModularPublic(PaillierKey(public.n), Serial())


def encrypt_raw(public, host, plaintexts):
    values = [gmpy2.mpz(public.raw_encrypt(m % public.n)) for m in plaintexts]
    return single(as_bytes(values, host.width))


def test_the_headroom_is_filled_to_the_top_and_never_wraps(guest):
    """With the extremes of values and of masks at once."""
    public, private, host = guest
    layout = layout_for(host, holders=3)
    (lane,) = layout.lanes
    blinders = host.blinders()
    filled = []
    for _ in range(TRIALS):
        for value in (-layout.bound, layout.bound):
            mask = (layout.most - layout.bound) * (1 if value > 0 else -1)
            rows = encrypt_raw(public, host, [value] * lane.capacity)
            masks = masks_of([[mask]] * lane.capacity, layout.mask_bits, streams=2)
            released = arrived(host.release(rows, layout, blinders, masks=masks))
            whole_number = private.raw_decrypt(integers(released.each)[0])
            assert signed_fields(whole_number, lane, lane.capacity) == (
                [[value + mask]] * lane.capacity
            )
            filled.append(whole_number / public.n)
    assert min(filled) < 0.25
    assert max(filled) > 0.75


@pytest.mark.parametrize("scheme", ["okamoto-uchiyama", "paillier"])
@pytest.mark.parametrize("drawn", [lambda most: 0, lambda most: most - 1])
def test_the_lowest_and_highest_headroom_do_not_wrap(scheme, drawn, monkeypatch):
    private, public = short_keys(scheme)
    layout = layout_for(public, holders=2)
    (lane,) = layout.lanes
    drawing = SimpleNamespace(randbelow=drawn)
    monkeypatch.setattr("fedboost.crypto.modular_kernels.secrets", drawing)
    for sign in (1, -1):
        mask = sign * (layout.most - layout.bound)
        g = np.full((1, 1), sign * 2**20, dtype=np.int64)
        rows = encrypted(private, g, layout)[np.zeros(lane.capacity, np.int64)]
        masks = masks_of([[mask]] * lane.capacity, layout.mask_bits)
        released = arrived(public.release(rows, layout, public.blinders(), masks=masks))
        (package,) = private._secret.decrypt([gmpy2.mpz(integers(released.each)[0])])
        assert signed_fields(package, lane, lane.capacity) == (
            [[sign * 2**20 + mask]] * lane.capacity
        )


def test_rows_marked_above_the_declared_package_are_not_read_back(guest):
    """One bit a row in unused plaintext: sums show it, masked and released packages do not."""
    public, private, host = guest
    layout = layout_for(host, holders=2)
    (lane,) = layout.lanes
    free = host.plaintext_bits - lane.package_bits
    # The topmost 41 bits of the blinding range are given away, as SECURITY.md says.
    marks = [lane.package_bits + i for i in range(free - 42)]
    assert len(marks) > 8
    rows = encrypt_raw(public, host, [1 << mark for mark in marks])
    masks = masks_of([[0]], layout.mask_bits)
    rng, blinders = np.random.default_rng(1), host.blinders()
    read_back = right = 0
    for _ in range(TRIALS):
        members = rng.random(len(marks)) < 0.5
        chosen = np.flatnonzero(members)
        sums = host.segment_sum(rows, chosen, np.zeros((len(chosen), 1), np.int32), 1)
        released = arrived(host.release(sums, layout, blinders, masks=masks))
        value = private.raw_decrypt(integers(released.each)[0])
        clear = private.raw_decrypt(integers(sums.each)[0])
        assert [bool(clear >> mark & 1) for mark in marks] == members.tolist()
        guess = np.array([value >> mark & 1 for mark in marks], dtype=bool)
        read_back += bool((guess == members).all())
        right += int((guess == members).sum())
    assert read_back == 0
    assert abs(right / (TRIALS * len(marks)) - 0.5) < 0.2


def test_two_answers_of_the_same_values_differ(guest):
    public, _, host = guest
    layout = layout_for(host, holders=2)
    rows = encrypt_raw(public, host, [5] * 4)
    masks: Any = masks_of([[7]] * 4, layout.mask_bits)
    blinders = host.blinders()
    first, second = (host.release(rows, layout, blinders, masks=masks) for _ in range(2))
    assert first.to_bytes() != second.to_bytes()
