"""SHA-256 of many strings with a common prefix, sixteen at a time in vector registers (FIPS 180-4).

For a million short strings, hashlib spends most of its time on calls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.ids import EncodedIds
from fedboost.ground.kernels import kernel

Bytes = NDArray[np.uint8]
HashWords = NDArray[
    np.uint32
]  # of all lanes, (words * LANES,): flat, so that LLVM sees their distance

HASH_LANES = 16
BLOCK_BYTES, DIGEST_BYTES, ROUNDS = 64, 32, 64
PADDING_BYTES = 9  # the least padding: a bit, and the string's length
_PRIMES = [p for p in range(2, 312) if all(p % q for q in range(2, p))]
_FRACTION = 2**32  # of a root: its first 32 bits, which floats hold exactly
FIRST = np.array([int(p**0.5 % 1 * _FRACTION) for p in _PRIMES[:8]], np.uint32)
ROUND_CONSTANTS = np.array([int(p ** (1 / 3) % 1 * _FRACTION) for p in _PRIMES[:ROUNDS]], np.uint32)


def sha256_each(prefix: bytes, rows: EncodedIds) -> Bytes:
    """Return SHA-256 of the prefix and each row behind it, uint8 (n, 32)."""
    out = np.empty((len(rows), DIGEST_BYTES), np.uint8)
    _hash_rows(np.frombuffer(prefix, np.uint8), rows.data, rows.offsets, out)
    return out


@kernel
def _hash_rows(prefix: Bytes, data: Bytes, offsets: NDArray[np.int64], out: Bytes) -> None:
    n, before = len(out), len(prefix)
    begun, state = np.empty(8 * HASH_LANES, np.uint32), np.empty(8 * HASH_LANES, np.uint32)
    words, old = np.empty(ROUNDS * HASH_LANES, np.uint32), np.empty(8 * HASH_LANES, np.uint32)
    text = np.empty(BLOCK_BYTES, np.uint8)
    for i in range(8 * HASH_LANES):
        begun[i] = FIRST[i // HASH_LANES]
    for start in range(0, before - BLOCK_BYTES + 1, BLOCK_BYTES):
        for lane in range(HASH_LANES):
            _fill_block(text, start, prefix, data, 0, 0)
            _load_lane(text, words, lane)
        _compress(begun, words, old)
    for base in range(0, n, HASH_LANES):
        end, block, is_open = min(base + HASH_LANES, n), before // BLOCK_BYTES, True
        for i in range(8 * HASH_LANES):
            state[i] = begun[i]
        while is_open:
            for row in range(base, end):
                _fill_block(text, block * BLOCK_BYTES, prefix, data, offsets[row], offsets[row + 1])
                _load_lane(text, words, row - base)
            _compress(state, words, old)
            block += 1
            is_open = False
            for row in range(base, end):
                left = _block_count(before + offsets[row + 1] - offsets[row]) - block
                is_open |= left > 0
                if left == 0:
                    _write_digest(state, row - base, out, row)


@kernel
def _block_count(size: int) -> int:
    return (size + PADDING_BYTES + BLOCK_BYTES - 1) // BLOCK_BYTES


@kernel
def _fill_block(text: Bytes, start: int, prefix: Bytes, data: Bytes, first: int, last: int) -> None:
    """Fill `text` with the block from byte `start` of prefix, data[first:last] and padding."""
    before = len(prefix) - start
    size = before + last - first
    for k in range(BLOCK_BYTES):
        text[k] = 0
    for k in range(min(BLOCK_BYTES, before)):
        text[k] = prefix[start + k]
    for k in range(max(0, before), min(BLOCK_BYTES, size)):
        text[k] = data[first + k - before]
    if 0 <= size < BLOCK_BYTES:
        text[size] = 0x80
    if size + PADDING_BYTES <= BLOCK_BYTES:
        for k in range(8):
            text[BLOCK_BYTES - 1 - k] = np.uint8(((8 * (size + start)) >> (8 * k)) & 0xFF)


@kernel
def _load_lane(text: Bytes, words: HashWords, lane: int) -> None:
    """Write a block's 16 words, big endian, into a lane."""
    for k in range(16):
        words[k * HASH_LANES + lane] = np.uint32(
            (np.uint32(text[4 * k]) << np.uint32(24))
            | (np.uint32(text[4 * k + 1]) << np.uint32(16))
            | (np.uint32(text[4 * k + 2]) << np.uint32(8))
            | np.uint32(text[4 * k + 3])
        )


@kernel
def _write_digest(state: HashWords, lane: int, out: Bytes, row: int) -> None:
    for k in range(DIGEST_BYTES):
        word = state[k // 4 * HASH_LANES + lane]
        out[row, k] = np.uint8((word >> np.uint32(24 - 8 * (k % 4))) & np.uint32(0xFF))


@kernel
def _rotate_right(x: np.uint32, bits: int) -> np.uint32:
    return np.uint32(np.uint32(x >> np.uint32(bits)) | np.uint32(x << np.uint32(32 - bits)))


@kernel
def _compress(state: HashWords, words: HashWords, old: HashWords) -> None:
    """Add the block in the first 16 words of each lane to the state; `old` holds a copy."""
    for i in range(8 * HASH_LANES):
        old[i] = state[i]
    for i in range(16 * HASH_LANES, ROUNDS * HASH_LANES):
        x, y = words[i - 15 * HASH_LANES], words[i - 2 * HASH_LANES]
        words[i] = np.uint32(
            words[i - 16 * HASH_LANES] + words[i - 7 * HASH_LANES]
            + (_rotate_right(x, 7) ^ _rotate_right(x, 18) ^ np.uint32(x >> np.uint32(3)))
            + (_rotate_right(y, 17) ^ _rotate_right(y, 19) ^ np.uint32(y >> np.uint32(10)))
        )  # fmt: skip
    for k in range(0, ROUNDS, 4):
        for i in range(HASH_LANES):
            a, b = state[i], state[i + HASH_LANES]
            c, d = state[i + 2 * HASH_LANES], state[i + 3 * HASH_LANES]
            e, f = state[i + 4 * HASH_LANES], state[i + 5 * HASH_LANES]
            g, h = state[i + 6 * HASH_LANES], state[i + 7 * HASH_LANES]
            for r in range(k, k + 4):
                turned = _rotate_right(e, 6) ^ _rotate_right(e, 11) ^ _rotate_right(e, 25)
                first = np.uint32(
                    h
                    + ROUND_CONSTANTS[r]
                    + words[r * HASH_LANES + i]
                    + turned
                    + (g ^ (e & (f ^ g)))
                )
                turned = _rotate_right(a, 2) ^ _rotate_right(a, 13) ^ _rotate_right(a, 22)
                second = np.uint32(turned + ((a & b) | (c & (a | b))))
                e, f, g, h = np.uint32(d + first), e, f, g
                a, b, c, d = np.uint32(first + second), a, b, c
            state[i], state[i + HASH_LANES] = a, b
            state[i + 2 * HASH_LANES], state[i + 3 * HASH_LANES] = c, d
            state[i + 4 * HASH_LANES], state[i + 5 * HASH_LANES] = e, f
            state[i + 6 * HASH_LANES], state[i + 7 * HASH_LANES] = g, h
    for i in range(8 * HASH_LANES):
        state[i] = np.uint32(state[i] + old[i])
