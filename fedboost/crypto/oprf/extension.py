"""Functions of both sides on the keys of the base transfers: columns, and the weights of the check.

The keys of column j stretch to bits of that column in every row of every part: AES-128 in counter
mode, with the part's number in the first half of the counter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from fedboost.crypto.oprf.rows import WEIGHT_BYTES, sum_weighted, transpose
from fedboost.crypto.oprf.sizes import CHECK_ROWS
from fedboost.ground.arrays import Words

AES_BLOCK_BYTES = 16


def stretch(keys: Sequence[bytes], part: int, rows: int) -> Words:
    """Return the columns of a part, uint64 (512, rows / 64 and an unused rest)."""
    # Older releases of the cipher's library want room for one more block than they write.
    columns = np.zeros((512, rows // 8 + AES_BLOCK_BYTES), np.uint8)
    zeros = bytes(rows // 8)
    counter = part.to_bytes(8, "big") + bytes(8)
    for key, column in zip(keys, columns, strict=False):
        Cipher(AES(key), CTR(counter)).encryptor().update_into(zeros, column.data)
    return columns.view(np.uint64)


def rows_of(columns: Words, rows: int) -> Words:
    """Return the columns as rows, uint64 (rows, 8)."""
    turned = np.empty((rows, 8), np.uint64)
    transpose(columns, turned)
    return turned


def check_seed(session: bytes, part: int, words: bytes) -> bytes:
    """Return the seed of the check's weights, 32 bytes: a hash of run, part and words."""
    return hashlib.sha256(b"fb-psi check" + session + part.to_bytes(4, "little") + words).digest()


def check_weights(seed: bytes, count: int) -> NDArray[np.uint8]:
    """Return the random weights of `count` rows in the check, uint8 (count, 16).

    They depend on the guest's whole part (Fiat and Shamir, 1986): it cannot choose the part by
    them.
    """
    cipher = Cipher(AES(seed[:16]), CTR(bytes(AES_BLOCK_BYTES)))
    drawn = cipher.encryptor().update(bytes(WEIGHT_BYTES * count))
    return np.frombuffer(drawn, np.uint8).reshape(count, WEIGHT_BYTES)


def check_sums(weights: NDArray[np.uint8], rows: Words) -> Words:
    """Return 128 weighted sums of rows, uint64 (128, w), each hidden by a row of the check."""
    sums = np.empty((CHECK_ROWS, rows.shape[1]), np.uint64)
    sum_weighted(weights, rows, sums)
    sums ^= rows[len(weights) :]
    return sums
