"""Numbers modulo powers of two as bytes: whole words of a message, and fields of any width."""

from __future__ import annotations

import numpy as np

from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.limbs import ByteArray
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError
from fedboost.ground.kernels import kernel

_CHUNK = 32  # bits written or read at once: with a remainder they fit one machine word


def low_bits(bits: int) -> np.uint64:
    """Return 2^bits − 1, for up to 64 bits."""
    return np.uint64((1 << bits) - 1)


def bytes_of(words: Words, parameters: LatticeParameters) -> ByteArray:
    """Return numbers below q, uint64 (n, k), as uint8 (n, k · word_bytes): little-endian."""
    count, each = words.shape
    data = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(count, each, 8)
    return data[:, :, : parameters.word_bytes].reshape(count, -1)


def words_of(
    data: bytes, shape: tuple[int, int], parameters: LatticeParameters, what: str
) -> Words:
    """Return the numbers that `bytes_of` wrote; a PeerError unless all are there and below q."""
    width = parameters.word_bytes
    if len(data) != shape[0] * shape[1] * width:
        raise PeerError(
            f"expected {shape[0]} times {shape[1]} numbers of {width} bytes as {what}, "
            f"got {len(data)} bytes in all"
        )
    raw = np.zeros((shape[0] * shape[1], 8), dtype=np.uint8)
    raw[:, :width] = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    words = raw.view("<u8").astype(np.uint64).reshape(shape)
    if (words > parameters.mask).any():
        raise PeerError(f"a number is out of range, of the {what}")
    return words


def field_bytes(count: int, bits: int) -> int:
    """Return the bytes of that many fields of that width, the last one filled up with zeros."""
    return -(-count * bits // 8)


@kernel
def pack_fields(values: Words, bits: int, data: ByteArray) -> None:
    """Write values below 2^bits, uint64 (n, k), one after the other into uint8 (n, ⌈k·bits/8⌉).

    Lowest bit first, in bytes from their lowest bit on.
    """
    for n in range(values.shape[0]):
        row = data[n]
        held, filled, place = np.uint64(0), 0, 0
        for k in range(values.shape[1]):
            rest, left = values[n, k], bits
            while left > 0:
                taken = min(left, _CHUNK)
                chunk = rest & np.uint64((1 << taken) - 1)
                held |= chunk << np.uint64(filled)
                rest >>= np.uint64(taken)
                left -= taken
                filled += taken
                if filled >= _CHUNK:
                    for byte in range(4):
                        row[place + byte] = np.uint8((held >> np.uint64(8 * byte)) & 0xFF)
                    held >>= np.uint64(_CHUNK)
                    filled -= _CHUNK
                    place += 4
        while filled > 0:
            row[place] = np.uint8(held & np.uint64(0xFF))
            held >>= np.uint64(8)
            filled -= 8
            place += 1


@kernel
def unpack_fields(data: ByteArray, bits: int, values: Words) -> bool:
    """Read the fields that `pack_fields` wrote; return whether only zeros fill up the last byte."""
    clean = True
    for n in range(values.shape[0]):
        row = data[n]
        held, filled, place = np.uint64(0), 0, 0
        for k in range(values.shape[1]):
            value, got = np.uint64(0), 0
            while got < bits:
                taken = min(bits - got, _CHUNK)
                while filled < taken:
                    held |= np.uint64(row[place]) << np.uint64(filled)
                    filled += 8
                    place += 1
                value |= (held & np.uint64((1 << taken) - 1)) << np.uint64(got)
                held >>= np.uint64(taken)
                filled -= taken
                got += taken
            values[n, k] = value
        clean = clean and held == np.uint64(0)
    return clean
