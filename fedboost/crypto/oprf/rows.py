"""Kernels on rows of 512 bits: eight words each, with 472 bits of the code's columns."""

from __future__ import annotations

import numpy as np

from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.oprf.sizes import CODE_WORD_BYTES
from fedboost.ground.arrays import Words
from fedboost.ground.kernels import kernel

WEIGHT_BYTES = 16  # of a row in the check: one bit for each of its sums


@kernel
def add_words(values: Words, tables: Words, rows: Words) -> None:
    """Add to each row the word of its value, uint64 (n, 2), from tables, uint64 (10, 256, 8)."""
    for i in range(len(values)):
        for b in range(10):
            byte = (values[i, b >> 3] >> np.uint64(8 * (b & 7))) & np.uint64(255)
            for w in range(8):
                rows[i, w] ^= tables[b, byte, w]


@kernel
def sum_weighted(weights: ByteArray, rows: Words, sums: Words) -> None:
    """Write the sum of the rows, uint64 (128, w), for each bit of their weights, uint8 (n, 16).

    The first n of the rows, uint64 (m, w), count.
    """
    width = rows.shape[1]
    each = np.zeros((WEIGHT_BYTES, 256, width), np.uint64)  # the sum for each byte of the weights
    for i in range(len(weights)):
        for b in range(WEIGHT_BYTES):
            byte = weights[i, b]
            for w in range(width):
                each[b, byte, w] ^= rows[i, w]
    sums[:] = np.uint64(0)
    for b in range(WEIGHT_BYTES):
        for byte in range(256):
            for bit in range(8):
                if (byte >> bit) & 1:
                    for w in range(width):
                        sums[8 * b + bit, w] ^= each[b, byte, w]


@kernel
def add_selected(packed: ByteArray, selection: Words, rows: Words) -> None:
    """Add to each row the selected columns of a packed one, uint8 (n, 59)."""
    for i in range(len(packed)):
        for w in range(8):
            word = np.uint64(0)
            for k in range(min(8, CODE_WORD_BYTES - 8 * w)):
                word |= np.uint64(packed[i, 8 * w + k]) << np.uint64(8 * k)
            rows[i, w] ^= word & selection[w]


@kernel
def transpose(columns: Words, rows: Words) -> None:
    """Turn columns, uint64 (512, m) with bit i of a column at i, into rows, uint64 (64·m, 8).

    Squares of 64 bits, by exchanging halves, quarters and so on (Hacker's Delight, section 7-3).
    """
    square = np.empty(64, np.uint64)
    for m in range(len(rows) // 64):
        for w in range(8):
            for k in range(64):
                square[k] = columns[64 * w + k, m]
            half, mask = 32, np.uint64(0xFFFFFFFF)
            while half:
                shift = np.uint64(half)
                for start in range(0, 64, 2 * half):
                    for k in range(start, start + half):
                        moved = ((square[k] >> shift) ^ square[k + half]) & mask
                        square[k] ^= moved << shift
                        square[k + half] ^= moved
                half >>= 1
                mask ^= mask << np.uint64(half)
            for k in range(64):
                rows[64 * m + k, w] = square[k]
