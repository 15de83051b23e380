"""Many fixed-width numbers at once: as rows of bytes, as Python's numbers, as rows of limbs.

Limbs are the 32-bit digits of a number, least first, in int64: sums of 2^31 numbers do not wrap,
and carries may wait until the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gmpy2 import mpz

LIMB_BITS = 32
_LIMB = (1 << LIMB_BITS) - 1

ByteArray = NDArray[np.uint8]  # (n, width): big-endian numbers, two's complement if signed
Limbs = NDArray[np.int64]  # (n, limbs)


def limbs_of(data: ByteArray) -> Limbs:
    """Return the limbs of numbers that are not negative, (n, ⌈width / 4⌉)."""
    count, width = data.shape
    padded = np.zeros((count, -(-width // 4) * 4), dtype=np.uint8)
    padded[:, padded.shape[1] - width :] = data
    return padded.view(">u4")[:, ::-1].astype(np.int64)


def bytes_of(limbs: Limbs, width: int) -> ByteArray:
    """Return the numbers modulo 2^(8·width) after carries and borrows; width a multiple of 4."""
    digits = np.empty((len(limbs), width // 4), dtype=">u4")
    carry = np.zeros(len(limbs), dtype=np.int64)
    for place in range(digits.shape[1]):
        total = limbs[:, place] + carry if place < limbs.shape[1] else carry
        digits[:, digits.shape[1] - 1 - place] = total & _LIMB
        carry = total >> LIMB_BITS
    return digits.view(np.uint8).reshape(len(limbs), width)


def deposit(limbs: Limbs, values: NDArray[np.int64], shift: int) -> None:
    """Add values · 2^shift to the numbers; there must be two limbs above 2^shift's own."""
    first, within = divmod(shift, LIMB_BITS)
    low, high = (values & _LIMB) << within, (values >> LIMB_BITS) << within
    limbs[:, first] += low & _LIMB
    limbs[:, first + 1] += (low >> LIMB_BITS & _LIMB) + (high & _LIMB)
    limbs[:, first + 2] += high >> LIMB_BITS


def digits_at(limbs: Limbs, shift: int, bits: int) -> NDArray[np.uint64]:
    """Return ⌊number / 2^shift⌋ mod 2^bits, for limbs without carries; at most 64 bits."""
    first, within = divmod(shift, LIMB_BITS)
    digits = np.zeros(len(limbs), dtype=np.uint64)
    for place in range(first, min(first + 3, limbs.shape[1])):
        limb = limbs[:, place].astype(np.uint64)
        up = (place - first) * LIMB_BITS - within
        if up < 64:
            digits |= limb << np.uint64(up) if up >= 0 else limb >> np.uint64(-up)
    return digits & np.uint64((1 << bits) - 1)


def integers(data: ByteArray, *, signed: bool = False) -> list[int]:
    """Return the numbers as Python's."""
    width = data.shape[1]
    raw = data.tobytes()
    return [
        int.from_bytes(raw[start : start + width], "big", signed=signed)
        for start in range(0, len(raw), width)
    ]


def as_bytes(values: Iterable[int | mpz], width: int) -> ByteArray:
    """Return numbers as big-endian rows, uint8 (count, width)."""
    joined = b"".join([value.to_bytes(width, "big") for value in values])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)


def rows_of(values: Iterable[int], width: int) -> ByteArray:
    """Return Python's numbers modulo 2^(8·width), uint8 (n, width)."""
    mask = (1 << (8 * width)) - 1
    return as_bytes((value & mask for value in values), width)


def resized(data: ByteArray, width: int) -> ByteArray:
    """Return the same signed numbers in another width, which holds them."""
    bytes_each = data.shape[1]
    if width <= bytes_each:
        return np.ascontiguousarray(data[:, bytes_each - width :])
    wider = np.repeat(np.where(data[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0)), width, axis=1)
    wider[:, width - bytes_each :] = data
    return wider
