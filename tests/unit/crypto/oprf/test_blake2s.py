"""Hashes of many messages at once are those of Python's library."""

import hashlib

import numpy as np
import pytest

from fedboost.crypto.oprf.blake2s import BLAKE2S_LANES, digest_messages, digest_rows, key_state
from fedboost.ground.ids import EncodedIds

KEY = bytes(range(32))


def hashed(messages, key=KEY):
    digests = np.empty((len(messages), 8), np.uint32)
    ids = EncodedIds.of(messages)
    digest_messages(ids.offsets, ids.data, key_state(key), digests)
    return [row.tobytes() for row in digests]


def of_library(messages, key=KEY):
    return [hashlib.blake2s(message, key=key).digest() for message in messages]


def test_messages_of_1_to_300_bytes_are_hashed_as_by_the_library():
    rng = np.random.default_rng(0)
    messages = [rng.bytes(length) for length in range(1, 301)]
    for key in (KEY, bytes(32), rng.bytes(32)):
        assert hashed(messages, key) == of_library(messages, key)


def test_long_messages_beside_short_ones_do_not_change_them():
    rng = np.random.default_rng(1)
    for _ in range(50):
        lengths = rng.choice([1, 3, 63, 64, 65, 127, 128, 129, 1000], rng.integers(1, 40))
        messages = [rng.bytes(int(length)) for length in lengths]
        assert hashed(messages) == of_library(messages)


@pytest.mark.parametrize(
    "count", [1, BLAKE2S_LANES - 1, BLAKE2S_LANES, BLAKE2S_LANES + 1, 5 * BLAKE2S_LANES + 3]
)
def test_any_number_of_rows_is_hashed_as_by_the_library(count):
    rng = np.random.default_rng(count)
    rows = rng.integers(0, 2**64, (count, 8), np.uint64)
    ends = rng.integers(0, 2**32, (count, 8), np.uint32)
    digests = np.empty((count, 8), np.uint32)
    digest_rows(rows, ends, key_state(KEY), digests)
    messages = [row.tobytes() + end.tobytes() for row, end in zip(rows, ends, strict=True)]
    assert [row.tobytes() for row in digests] == of_library(messages)


def test_a_key_of_another_size_is_refused():
    with pytest.raises(ValueError, match="keys have 32 bytes"):
        key_state(bytes(31))
