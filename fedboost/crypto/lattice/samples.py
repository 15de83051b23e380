"""Secret bytes as samples: ternary numbers, errors, and the flood of an answer.

The bytes come from `crypto.secrets.Secrets`, which starts from the operating system's randomness;
equal bytes give equal samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.limbs import ByteArray
from fedboost.ground.errors import FedboostError
from fedboost.ground.kernels import inlined, kernel

ERROR_BYTES = 6  # 48 bits of each error; 2 · error_bits of them count
FLOOD_BYTES = 16  # two uniform numbers of 53 bits
_TRITS = 5  # a byte below 3^5 holds five ternary numbers
_ACCEPTED = 3**_TRITS
_SPARE = 32

Small = NDArray[np.int8]


def ternary_bytes(ring: int) -> int:
    """Return the bytes for a ternary polynomial: with so many, one in 2^160 runs out of them."""
    return ring // 4 + _SPARE


def ternary(data: ByteArray, ring: int) -> Small:
    """Return uniform −1, 0, 1, int8 (n, ring), from uint8 (n, ternary_bytes(ring)).

    Each byte below 243 gives its five digits in base 3, lowest first; others are skipped.
    """
    drawn = np.empty((len(data), ring), dtype=np.int8)
    if not _fill_ternary(data, drawn):
        raise FedboostError("the bytes of a ternary polynomial ran out")
    return drawn


def binomial_errors(data: ByteArray, error_bits: int) -> Small:
    """Return centred binomial errors, int8 (n, k), from uint8 (n, 6·k): σ² = error_bits / 2.

    Of each 48 bits, little-endian, the number of ones among the lowest `error_bits` minus the
    number among as many above them (Alkim, Ducas, Pöppelmann, Schwabe, 2016, section 4.1).
    """
    count = data.shape[1] // ERROR_BYTES
    drawn = np.empty((len(data), count), dtype=np.int8)
    _fill_errors(data, error_bits, drawn)
    return drawn


def gaussian_flood(data: ByteArray, sigma: float) -> NDArray[np.int64]:
    """Return Gaussian numbers rounded to integers, int64 (n, k), from uint8 (n, 16·k).

    Box and Muller's cosine of two uniform numbers with 53 bits; 8.6 σ is the most that comes out.
    """
    words = np.ascontiguousarray(data).view("<u8").astype(np.uint64) >> np.uint64(11)
    radius = (words[:, 0::2].astype(np.float64) + 1) * 2.0**-53
    angle = words[:, 1::2].astype(np.float64) * (2 * np.pi * 2.0**-53)
    drawn = sigma * np.sqrt(-2 * np.log(radius)) * np.cos(angle)
    return np.rint(drawn).astype(np.int64)


@kernel
def _fill_ternary(data: ByteArray, drawn: Small) -> bool:
    digits = np.empty((_ACCEPTED, _TRITS), dtype=np.int8)
    for byte in range(_ACCEPTED):
        rest = byte
        for place in range(_TRITS):
            digits[byte, place] = rest % 3 - 1
            rest //= 3
    ring = drawn.shape[1]
    for n in range(len(data)):
        filled = 0
        for byte in data[n]:
            if byte < _ACCEPTED:
                for place in range(min(_TRITS, ring - filled)):
                    drawn[n, filled + place] = digits[byte, place]
                filled = min(filled + _TRITS, ring)
        if filled < ring:
            return False
    return True


@kernel
def _fill_errors(data: ByteArray, error_bits: int, drawn: Small) -> None:
    mask = np.uint64((1 << error_bits) - 1)
    shift = np.uint64(error_bits)
    for n in range(drawn.shape[0]):
        row = data[n]
        for i in range(drawn.shape[1]):
            word = np.uint64(0)
            for byte in range(ERROR_BYTES):
                word |= np.uint64(row[ERROR_BYTES * i + byte]) << np.uint64(8 * byte)
            drawn[n, i] = _count_ones(word & mask) - _count_ones((word >> shift) & mask)


@inlined
def _count_ones(word: np.uint64) -> np.int64:
    """Count the bits that are set (Warren, Hacker's Delight, section 5-1)."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
