"""Keyed BLAKE2s (RFC 7693) of many messages: a 32-byte key, digests of 32 bytes.

`BLAKE2S_LANES` messages are hashed at once: word w of lane l is array[w, l], so that each addition,
exclusive or and rotation is one instruction for several messages. Digests are eight 32-bit words,
whose bytes in memory are the digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.kernels import kernel

BLAKE2S_LANES = 16
BLAKE2S_BLOCK_BYTES = 64
BLAKE2S_KEY_BYTES = 32
INITIAL_STATE = np.array(
    [
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
    ],
    np.uint32,
)  # fmt: skip
PARAMETERS = np.uint32(0x01010000 | BLAKE2S_KEY_BYTES << 8 | 32)  # of the state's first word
LAST = np.uint32(0xFFFFFFFF)
ZERO = np.uint32(0)

Words32 = NDArray[np.uint32]


def key_state(key: bytes) -> Words32:
    """Return the state behind the block that holds the key, uint32 (8,)."""
    if len(key) != BLAKE2S_KEY_BYTES:
        raise ValueError(f"keys have {BLAKE2S_KEY_BYTES} bytes, got {len(key)}")
    state = np.repeat(INITIAL_STATE, BLAKE2S_LANES)
    state[:BLAKE2S_LANES] ^= PARAMETERS
    block = np.zeros(16 * BLAKE2S_LANES, np.uint32)
    block[: 8 * BLAKE2S_LANES] = np.repeat(np.frombuffer(key, "<u4"), BLAKE2S_LANES)
    counts = np.full(BLAKE2S_LANES, BLAKE2S_BLOCK_BYTES, np.uint32)
    _compress(state, block, counts, np.zeros(BLAKE2S_LANES, np.uint32))
    return state[::BLAKE2S_LANES].copy()


def digest_messages(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], start: Words32, digests: Words32
) -> None:
    """Write digest i, uint32 (n, 8), of data[offsets[i] : offsets[i + 1]], none of them empty.

    `start` is the state behind the key's block.
    """
    # The compiler gives arrays that may be written to another type.
    offsets, data = offsets.view(), data.view()
    offsets.setflags(write=False)
    data.setflags(write=False)
    _digest_lanes(offsets, data, start, digests)


@kernel
def _digest_lanes(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], start: Words32, digests: Words32
) -> None:
    """See `digest_messages`."""
    n = len(offsets) - 1
    state = np.empty(8 * BLAKE2S_LANES, np.uint32)
    block = np.empty(16 * BLAKE2S_LANES, np.uint32)
    before = np.empty(8 * BLAKE2S_LANES, np.uint32)
    counts = np.empty(BLAKE2S_LANES, np.uint32)
    flags = np.empty(BLAKE2S_LANES, np.uint32)
    for first in range(0, n, BLAKE2S_LANES):
        most = 0
        for lane in range(BLAKE2S_LANES):
            i = min(first + lane, n - 1)
            most = max(most, offsets[i + 1] - offsets[i])
        _spread_state(start, state)
        for number in range((most + BLAKE2S_BLOCK_BYTES - 1) // BLAKE2S_BLOCK_BYTES):
            _load_block(offsets, data, first, number, block)
            _count_bytes(offsets, first, number, counts, flags)
            before[:] = state
            _compress(state, block, counts, flags)
            if number:
                _keep_finished(offsets, first, number, before, state)
        for lane in range(min(BLAKE2S_LANES, n - first)):
            for word in range(8):
                digests[first + lane, word] = state[word * BLAKE2S_LANES + lane]


@kernel
def digest_rows(rows: NDArray[np.uint64], ends: Words32, start: Words32, digests: Words32) -> None:
    """Write digest i, uint32 (n, 8), of rows[i], uint64 (8,), followed by ends[i], uint32 (8,)."""
    n = len(rows)
    state = np.empty(8 * BLAKE2S_LANES, np.uint32)
    block = np.empty(16 * BLAKE2S_LANES, np.uint32)
    last_block = np.zeros(16 * BLAKE2S_LANES, np.uint32)
    counts = np.full(BLAKE2S_LANES, np.uint32(2 * BLAKE2S_BLOCK_BYTES))
    last_counts = np.full(BLAKE2S_LANES, np.uint32(2 * BLAKE2S_BLOCK_BYTES + 32))
    flags = np.zeros(BLAKE2S_LANES, np.uint32)
    last_flags = np.full(BLAKE2S_LANES, LAST)
    for first in range(0, n, BLAKE2S_LANES):
        for lane in range(BLAKE2S_LANES):
            i = min(first + lane, n - 1)
            for word in range(8):
                block[2 * word * BLAKE2S_LANES + lane] = np.uint32(
                    rows[i, word] & np.uint64(0xFFFFFFFF)
                )
                block[(2 * word + 1) * BLAKE2S_LANES + lane] = np.uint32(
                    rows[i, word] >> np.uint64(32)
                )
                last_block[word * BLAKE2S_LANES + lane] = ends[i, word]
        _spread_state(start, state)
        _compress(state, block, counts, flags)
        _compress(state, last_block, last_counts, last_flags)
        for lane in range(min(BLAKE2S_LANES, n - first)):
            for word in range(8):
                digests[first + lane, word] = state[word * BLAKE2S_LANES + lane]


@kernel
def _spread_state(start: Words32, state: Words32) -> None:
    """Give every lane the same state."""
    for word in range(8):
        for lane in range(BLAKE2S_LANES):
            state[word * BLAKE2S_LANES + lane] = start[word]


@kernel
def _load_block(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], first: int, number: int, block: Words32
) -> None:
    """Read block `number` of each lane's message, with zeros behind its end."""
    block[:] = ZERO
    for lane in range(BLAKE2S_LANES):
        i = min(first + lane, len(offsets) - 2)
        at = offsets[i] + BLAKE2S_BLOCK_BYTES * number
        size = min(max(offsets[i + 1] - at, 0), BLAKE2S_BLOCK_BYTES)
        for word in range(size >> 2):
            a = at + 4 * word
            low = np.uint32(data[a]) | np.uint32(np.uint32(data[a + 1]) << np.uint32(8))
            high = np.uint32(data[a + 2]) | np.uint32(np.uint32(data[a + 3]) << np.uint32(8))
            block[word * BLAKE2S_LANES + lane] = np.uint32(low | np.uint32(high << np.uint32(16)))
        for k in range(size & ~3, size):
            shift = np.uint32(8 * (k & 3))
            block[(k >> 2) * BLAKE2S_LANES + lane] |= np.uint32(np.uint32(data[at + k]) << shift)


@kernel
def _count_bytes(
    offsets: NDArray[np.int64], first: int, number: int, counts: Words32, flags: Words32
) -> None:
    """Set each lane's bytes up to the end of this block, the key's included, and the last flag."""
    for lane in range(BLAKE2S_LANES):
        i = min(first + lane, len(offsets) - 2)
        size = offsets[i + 1] - offsets[i]
        counts[lane] = np.uint32(
            BLAKE2S_BLOCK_BYTES + min(size, BLAKE2S_BLOCK_BYTES * (number + 1))
        )
        flags[lane] = LAST if size <= BLAKE2S_BLOCK_BYTES * (number + 1) else ZERO


@kernel
def _keep_finished(
    offsets: NDArray[np.int64], first: int, number: int, before: Words32, state: Words32
) -> None:
    """Undo the block in lanes whose messages had ended before it."""
    for lane in range(BLAKE2S_LANES):
        i = min(first + lane, len(offsets) - 2)
        if offsets[i + 1] - offsets[i] <= BLAKE2S_BLOCK_BYTES * number:
            for word in range(8):
                state[word * BLAKE2S_LANES + lane] = before[word * BLAKE2S_LANES + lane]


@kernel
def _compress(state: Words32, block: Words32, counts: Words32, flags: Words32) -> None:
    """Take in one block for all lanes; section 3.2.

    Straight code over flat arrays, which the compiler turns into instructions for several lanes.
    """
    for i in range(BLAKE2S_LANES):
        v = (
            state[i],
            state[BLAKE2S_LANES + i],
            state[2 * BLAKE2S_LANES + i],
            state[3 * BLAKE2S_LANES + i],
            state[4 * BLAKE2S_LANES + i],
            state[5 * BLAKE2S_LANES + i],
            state[6 * BLAKE2S_LANES + i],
            state[7 * BLAKE2S_LANES + i],
            INITIAL_STATE[0],
            INITIAL_STATE[1],
            INITIAL_STATE[2],
            INITIAL_STATE[3],
            INITIAL_STATE[4] ^ counts[i],
            INITIAL_STATE[5],
            INITIAL_STATE[6] ^ flags[i],
            INITIAL_STATE[7],
        )
        m0, m1, m2, m3 = (
            block[i],
            block[BLAKE2S_LANES + i],
            block[2 * BLAKE2S_LANES + i],
            block[3 * BLAKE2S_LANES + i],
        )
        m4, m5 = block[4 * BLAKE2S_LANES + i], block[5 * BLAKE2S_LANES + i]
        m6, m7 = block[6 * BLAKE2S_LANES + i], block[7 * BLAKE2S_LANES + i]
        m8, m9 = block[8 * BLAKE2S_LANES + i], block[9 * BLAKE2S_LANES + i]
        m10, m11 = block[10 * BLAKE2S_LANES + i], block[11 * BLAKE2S_LANES + i]
        m12, m13 = block[12 * BLAKE2S_LANES + i], block[13 * BLAKE2S_LANES + i]
        m14, m15 = block[14 * BLAKE2S_LANES + i], block[15 * BLAKE2S_LANES + i]
        v = _round(v, (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15))
        v = _round(v, (m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3))
        v = _round(v, (m11, m8, m12, m0, m5, m2, m15, m13, m10, m14, m3, m6, m7, m1, m9, m4))
        v = _round(v, (m7, m9, m3, m1, m13, m12, m11, m14, m2, m6, m5, m10, m4, m0, m15, m8))
        v = _round(v, (m9, m0, m5, m7, m2, m4, m10, m15, m14, m1, m11, m12, m6, m8, m3, m13))
        v = _round(v, (m2, m12, m6, m10, m0, m11, m8, m3, m4, m13, m7, m5, m15, m14, m1, m9))
        v = _round(v, (m12, m5, m1, m15, m14, m13, m4, m10, m0, m7, m6, m3, m9, m2, m8, m11))
        v = _round(v, (m13, m11, m7, m14, m12, m1, m3, m9, m5, m0, m15, m4, m8, m6, m2, m10))
        v = _round(v, (m6, m15, m14, m9, m11, m3, m0, m8, m12, m2, m13, m7, m1, m4, m10, m5))
        v = _round(v, (m10, m2, m8, m4, m7, m6, m1, m5, m15, m11, m9, m14, m3, m12, m13, m0))
        state[i] ^= v[0] ^ v[8]
        state[BLAKE2S_LANES + i] ^= v[1] ^ v[9]
        state[2 * BLAKE2S_LANES + i] ^= v[2] ^ v[10]
        state[3 * BLAKE2S_LANES + i] ^= v[3] ^ v[11]
        state[4 * BLAKE2S_LANES + i] ^= v[4] ^ v[12]
        state[5 * BLAKE2S_LANES + i] ^= v[5] ^ v[13]
        state[6 * BLAKE2S_LANES + i] ^= v[6] ^ v[14]
        state[7 * BLAKE2S_LANES + i] ^= v[7] ^ v[15]


@kernel
def _round(v: Any, m: Any) -> Any:
    """Apply G to the four columns of v and to its four diagonals."""
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15 = v
    v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[0], m[1])
    v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[2], m[3])
    v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[4], m[5])
    v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[6], m[7])
    v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[8], m[9])
    v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[10], m[11])
    v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[12], m[13])
    v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[14], m[15])
    return (v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15)


@kernel
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    """Return the output of G, section 3.1, for four words."""
    a = np.uint32(np.uint32(a + b) + x)
    d = np.uint32(d ^ a)
    d = np.uint32(np.uint32(d >> np.uint32(16)) | np.uint32(d << np.uint32(16)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32(np.uint32(b >> np.uint32(12)) | np.uint32(b << np.uint32(20)))
    a = np.uint32(np.uint32(a + b) + y)
    d = np.uint32(d ^ a)
    d = np.uint32(np.uint32(d >> np.uint32(8)) | np.uint32(d << np.uint32(24)))
    c = np.uint32(c + d)
    b = np.uint32(b ^ c)
    b = np.uint32(np.uint32(b >> np.uint32(7)) | np.uint32(b << np.uint32(25)))
    return a, b, c, d
