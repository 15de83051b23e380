"""Kernels on rows of 512 bits, and columns from keys, beside naive twins."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from fedboost.crypto.oprf.extension import (
    check_seed,
    check_sums,
    check_weights,
    rows_of,
    stretch,
)
from fedboost.crypto.oprf.rows import add_selected, sum_weighted, transpose
from fedboost.crypto.oprf.sizes import CHECK_ROWS, CODE_COLUMNS, CODE_WORD_BYTES
from tests.support.oprf_pairs import number


def random_words(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, shape, np.uint64)


@pytest.mark.parametrize("words", [1, 2, 7])
def test_columns_become_rows(words):
    columns = random_words(512, words + 2)  # two words more than there are rows for
    rows = np.empty((64 * words, 8), np.uint64)
    transpose(columns, rows)
    plain = [number(column) for column in columns]
    for i, row in enumerate(rows):
        assert number(row) == sum((column >> i & 1) << j for j, column in enumerate(plain))


@pytest.mark.parametrize("width", [2, 8])
def test_sums_are_those_of_each_bit_of_the_weights(width):
    rows, weights = random_words(50, width), random_words(40, 2).view(np.uint8)
    sums = np.empty((128, width), np.uint64)
    sum_weighted(weights, rows, sums)
    for bit in range(128):
        expected = 0
        for row, weight in zip(rows, weights, strict=False):
            if weight[bit // 8] >> bit % 8 & 1:
                expected ^= number(row)
        assert number(sums[bit]) == expected


def test_the_checks_sums_hold_a_row_of_the_check_each():
    rows, weights = random_words(64 + CHECK_ROWS, 8), random_words(64, 2).view(np.uint8)
    bare = np.empty((CHECK_ROWS, 8), np.uint64)
    sum_weighted(weights, rows, bare)
    assert (check_sums(weights, rows) == bare ^ rows[64:]).all()


def test_selected_columns_of_packed_rows_are_added():
    rows, selection = random_words(30, 8), random_words(8, seed=1)
    packed = np.random.default_rng(2).integers(0, 256, (30, CODE_WORD_BYTES), np.uint8)
    expected = [
        number(row) ^ int.from_bytes(one.tobytes(), "little") & number(selection)
        for row, one in zip(rows, packed, strict=True)
    ]
    add_selected(packed, selection, rows)
    assert [number(row) for row in rows] == expected


def test_keys_stretch_to_blocks_of_part_and_counter():
    keys = [bytes([j % 256, j // 256]) * 8 for j in range(CODE_COLUMNS)]
    for part in (0, 1, 2**40):
        columns = stretch(keys, part, 128 * 64)
        for j in (0, 1, CODE_COLUMNS - 1):
            blocks = b"".join(part.to_bytes(8, "big") + i.to_bytes(8, "big") for i in range(64))
            expected = Cipher(AES(keys[j]), ECB()).encryptor().update(blocks)
            assert columns[j].tobytes()[: len(expected)] == expected
        assert not columns[CODE_COLUMNS:].any()
        assert not rows_of(columns, 128 * 64)[:, 7].max() >> np.uint64(CODE_COLUMNS - 448)


def test_weights_depend_on_the_run_the_part_and_its_words():
    seeds = {
        check_seed(session, part, words)
        for session in (bytes(32), b"1" * 32)
        for part in (0, 1)
        for words in (b"words", b"wordz")
    }
    assert len(seeds) == 8
    seed = hashlib.sha256(b"fb-psi check" + bytes(32) + bytes(4) + b"words").digest()
    stream = Cipher(AES(seed[:16]), CTR(bytes(16))).encryptor().update(bytes(16 * 5))
    assert check_weights(check_seed(bytes(32), 0, b"words"), 5).tobytes() == stream
