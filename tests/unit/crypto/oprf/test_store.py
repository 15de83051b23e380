"""Stores: each key reads its value, and a naive reader agrees."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fedboost.crypto.oprf import store
from fedboost.crypto.oprf.sizes import DENSE_ROWS, segment_rows
from fedboost.crypto.oprf.store import StoreKeys, decode_values, encode_store
from fedboost.ground.errors import PeerError
from tests.support.oprf_pairs import naive_read, number


def drawn(count, seed=0, segment=None):
    """Keys and values at random."""
    rng = np.random.default_rng(seed)
    segment = segment or segment_rows(count)
    places = (rng.integers(0, segment, (count, 3)) + segment * np.arange(3)).astype(np.int32)
    keys = StoreKeys(places, rng.integers(0, 2**64, count, np.uint64), 3 * segment)
    return keys, rng.integers(0, 2**64, (count, 2), np.uint64)


def noise(keys, seed=9, width=2):
    shape = (keys.sparse_rows + DENSE_ROWS, width)
    return np.random.default_rng(seed).integers(0, 2**64, shape, np.uint64)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 100, 1000, 20_000])
def test_every_key_reads_its_value(count):
    for seed in range(1 if count > 1000 else 30):
        keys, values = drawn(count, seed)
        rows = noise(keys)
        encode_store(keys, values, rows)
        assert (decode_values(keys, rows) == values).all()


@pytest.mark.parametrize("width", [2, 8])
def test_what_keys_read_is_what_a_naive_reader_reads(width):
    keys, _ = drawn(300)
    rows = noise(keys, width=width)
    plain = [number(row) for row in rows]
    read = [
        naive_read(places, mask, keys.sparse_rows, plain)
        for places, mask in zip(keys.places.tolist(), keys.masks.tolist(), strict=True)
    ]
    assert [number(row) for row in decode_values(keys, rows)] == read


def test_keys_that_do_not_peel_are_solved_with_the_dense_rows():
    """In segments of a quarter of the keys nothing peels; up to 64 more keys than rows fit."""
    for seed in range(20):
        keys, values = drawn(80, seed, segment=10)
        rows = noise(keys)
        encode_store(keys, values, rows)
        assert (decode_values(keys, rows) == values).all()


def test_keys_that_no_store_holds_are_refused():
    keys, values = drawn(100, segment=8)  # 88 rows for 100 keys
    with pytest.raises(PeerError, match="fit no store"):
        encode_store(keys, values, noise(keys))
    twice = StoreKeys(keys.places[[0, 0]], keys.masks[[0, 0]], keys.sparse_rows)
    with pytest.raises(PeerError, match="fit no store"):
        encode_store(twice, values[:2], noise(keys))


def test_a_core_that_random_keys_never_have_is_refused(monkeypatch):
    monkeypatch.setattr(store, "CORE_MAX", 50)
    keys, values = drawn(80, segment=10)
    with pytest.raises(PeerError, match="fit no store"):
        encode_store(keys, values, noise(keys))


def test_rows_that_no_key_needs_stay_as_they_were_drawn():
    keys, values = drawn(50)
    rows = noise(keys)
    before = rows.copy()
    encode_store(keys, values, rows)
    assert (rows != before).any(axis=1).sum() <= 50
    assert (rows[keys.sparse_rows :] == before[keys.sparse_rows :]).all()


def test_who_is_no_key_reads_noise():
    keys, values = drawn(2000)
    rows = noise(keys)
    encode_store(keys, values, rows)
    others, _ = drawn(2000, seed=5)
    ones = np.bitwise_count(decode_values(others, rows)).sum() / (2000 * 128)
    assert 0.49 < ones < 0.51


def even_in_a_segment(count, segment):
    """The chance that so many keys at random lie at every place of a segment an even time."""
    return (
        sum(
            math.comb(segment, j) * Fraction(segment - 2 * j, segment) ** count
            for j in range(segment + 1)
        )
        / Fraction(2) ** segment
    )


@pytest.mark.parametrize("keys", [2, 5, 10, 30, 60, 100])
def test_a_store_fails_with_a_chance_of_2_to_the_minus_68(keys):
    """It fails where the places of some keys cancel and, with 2^−64, so do their masks.

    Bounded by how many such subsets of the keys there are on average, whatever their values.
    """
    segment = segment_rows(keys)
    cancelling = sum(
        math.comb(keys, size) * even_in_a_segment(size, segment) ** 3
        for size in range(2, keys + 1, 2)  # an odd number has an odd place
    )
    assert 0 < cancelling < Fraction(1, 16)


@pytest.mark.parametrize("keys", [2, 3])
def test_as_many_keys_cancel_as_the_bound_counts(keys):
    """At random places in segments of three rows, of which two keys cancel with 1/27."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 3, (200_000, keys, 3))
    pairs = [(places[:, i] == places[:, j]).all(axis=1) for j in range(keys) for i in range(j)]
    expected = math.comb(keys, 2) * float(even_in_a_segment(2, 3)) ** 3
    assert np.sum(pairs) / 200_000 == pytest.approx(expected, rel=0.05)
