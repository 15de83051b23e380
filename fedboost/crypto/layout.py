"""Layouts of numbers in plaintexts: the columns of a row in lanes, many rows or sums in a package.

    digit    one column's signed or unsigned number, at its place in a lane
    lane     one ciphertext of a row or a sum: s = Σ digit_j · 2^shift_j
    package  S = s_0 + s_1 · 2^lane.bits + ...,  below headroom for blinding

Each layout defines its columns and their widths: `packing.GhLayout`, `leaf_values.LeafLayout`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.limbs import (
    LIMB_BITS,
    ByteArray,
    Limbs,
    bytes_of,
    deposit,
    digits_at,
    limbs_of,
)
from fedboost.crypto.masking import Masks
from fedboost.ground.errors import ConfigError

HEADROOM_BITS = 41  # blinding above the package: it hides the bits there below 2^-40 of it
SUM_BITS_MAX = 62  # sums are returned as int64
WORD_BITS = 64  # bits of a digit's number that are returned
ENCRYPTED_BLOCK_BYTES = (
    1 << 19
)  # rows that are encrypted in one go: 0.4 s of a worker, and one message

Sums = NDArray[np.int64]  # (n, columns)

_WORD = (1 << WORD_BITS) - 1


@dataclass(frozen=True)
class Digit:
    """The position and bounds of one column's sum in a lane."""

    column: int
    shift: int
    bits: int
    least: int  # a sum below or above these is refused; negative if sums are signed
    most: int
    noise: int = 0  # the part of that range for noise at either end


@dataclass(frozen=True)
class Lane:
    """One of the ciphertexts of a sum."""

    digits: tuple[Digit, ...]
    bits: int  # of one sum in a package
    capacity: int  # sums in a package

    @property
    def package_bits(self) -> int:
        """Declared width of a package; above it is headroom."""
        return self.capacity * self.bits

    def placed_digits(self) -> Iterator[tuple[int, Digit, int]]:
        """Yield each position of a package with its digits and their first bits in the package."""
        for place in range(self.capacity):
            for digit in self.digits:
                yield place, digit, place * self.bits + digit.shift


@dataclass(frozen=True, eq=False)
class Packages:
    """The packages of consecutive groups of sums: group after group, in each lane after lane."""

    lane: NDArray[np.int64]  # (packages,)
    first: NDArray[np.int64]  # its first sum, counted over all groups
    size: NDArray[np.int64]  # how many sums it holds, the first one lowest

    def __len__(self) -> int:
        return len(self.lane)

    def members(self, lanes: int) -> NDArray[np.int64]:
        """Return the indices of all packages' ciphertexts among those of the sums, package after
        package.
        """
        starts = np.cumsum(self.size) - self.size
        within = np.arange(int(self.size.sum())) - np.repeat(starts, self.size)
        sums = np.repeat(self.first, self.size) + within
        return sums * lanes + np.repeat(self.lane, self.size)


def fitting(plaintext_bits: int, bits: int) -> int:
    """Return the number of fields of this width that fit a plaintext below its headroom."""
    return (plaintext_bits - HEADROOM_BITS) // bits


def lanes_of(
    groups: Sequence[tuple[Digit, ...]], bits: int, plaintext_bits: int, *, compress: bool = True
) -> tuple[Lane, ...]:
    """Put as many groups of digits into each lane as fit, the last fewer; `bits` are a group's
    width.

    Each group counts its digits from zero. Without `compress` a package holds one sum.
    """
    each = fitting(plaintext_bits, bits)
    lanes = []
    for first in range(0, len(groups), each):
        held = groups[first : first + each]
        digits = tuple(
            replace(digit, shift=digit.shift + place * bits)
            for place, group in enumerate(held)
            for digit in group
        )
        wide = len(held) * bits
        lanes.append(Lane(digits, wide, fitting(plaintext_bits, wide) if compress else 1))
    return tuple(lanes)


class Layout(ABC):
    """The positions of a row's and a sum's columns in plaintexts; `encrypt`, `release` and
    `decrypt` use it.
    """

    value_bits: int  # a row's numbers are at most 2^value_bits either way
    n_rows: int  # the most rows that are encrypted
    plaintext_bits: int  # of the keys it is made for

    @property
    @abstractmethod
    def columns(self) -> int:
        """Number of columns of a row."""

    @property
    @abstractmethod
    def lanes(self) -> tuple[Lane, ...]:
        """The ciphertexts of one row or sum."""

    @property
    def field_widths(self) -> NDArray[np.float64]:
        """Bits of each column's field, (columns,)."""
        widths = np.zeros(self.columns)
        for _, digit in self._all_digits():
            widths[digit.column] = digit.bits
        return widths

    @property
    def sums_together(self) -> NDArray[np.int64]:
        """Number of sums in a package that has each column, (columns,)."""
        together = np.ones(self.columns, np.int64)
        for lane, digit in self._all_digits():
            together[digit.column] = lane.capacity
        return together

    def _all_digits(self) -> Iterator[tuple[Lane, Digit]]:
        return ((lane, digit) for lane in self.lanes for digit in lane.digits)

    def takes(self, masks: Masks | None) -> bool:
        """Return whether answers can leave under such masks, with room for them; here none can."""
        return masks is None

    def block_rows(self, width: int) -> int:
        """Return the number of rows to encrypt in one go, for ciphertexts of so many bytes."""
        return max(1, ENCRYPTED_BLOCK_BYTES // (width * len(self.lanes)))

    def package_count(self, counts: Sequence[int]) -> int:
        """Count the packages of consecutive groups of `counts` sums, without laying them out."""
        return sum(-(-count // lane.capacity) for lane in self.lanes for count in counts)

    def packages(self, counts: Sequence[int]) -> Packages:
        """Put consecutive groups of `counts` sums into packages; none straddles groups."""
        sums = np.asarray(counts, dtype=np.int64)
        capacity = np.array([lane.capacity for lane in self.lanes], dtype=np.int64)
        full = -(-sums[:, None] // capacity)  # packages of each group and lane
        group, lane = (
            np.repeat(axis, full.ravel()) for axis in np.indices(full.shape).reshape(2, -1)
        )
        number = np.arange(len(lane)) - np.repeat(np.cumsum(full) - full.ravel(), full.ravel())
        within = number * capacity[lane]
        start = np.cumsum(sums) - sums
        return Packages(
            lane=lane.astype(np.int64),
            first=start[group] + within,
            size=np.minimum(capacity[lane], sums[group] - within),
        )

    def check_values(self, values: Sums) -> None:
        """Raise a ConfigError unless the rows, int64 (n, columns), keep the declared bounds and
        count.
        """
        if values.dtype != np.int64 or values.ndim != 2 or values.shape[1] != self.columns:
            raise ConfigError(
                f"gradients must be int64 (n, {self.columns}), got {values.dtype} {values.shape}"
            )
        if len(values) > self.n_rows:
            raise ConfigError(f"{len(values)} rows do not fit a layout for {self.n_rows}")
        most = 1 << self.value_bits
        least = np.zeros(self.columns, dtype=np.int64)
        for lane in self.lanes:
            for digit in lane.digits:
                least[digit.column] = -most if digit.least < -digit.noise else 0
        if (values > most).any() or (values < least).any():
            raise ConfigError(
                f"a gradient or hessian is outside the declared {self.value_bits} bits",
                todo="bound the objective, the weights and the amplification, or raise value_bits",
            )

    def row_plaintexts(self, values: Sums) -> ByteArray:
        """Return the rows' plaintexts, signed, uint8 (rows·lanes, width); `check_values` has passed
        them.

        Two's complement of one width for all lanes.
        """
        width = max(lane.bits for lane in self.lanes) // LIMB_BITS + 3
        limbs = np.zeros((len(values), len(self.lanes), width), dtype=np.int64)
        for number, lane in enumerate(self.lanes):
            for digit in lane.digits:
                deposit(limbs[:, number], values[:, digit.column], digit.shift)
        return bytes_of(limbs.reshape(-1, width), 4 * width)

    def packed(self, masks: Masks, packages: Packages) -> ByteArray:
        """Return the masks as summands of the packages' plaintexts, signed, uint8 (packages,
        width).

        One mask for each sum and column, which the layout takes.
        """
        width = max(lane.package_bits for lane in self.lanes) // LIMB_BITS + 3
        limbs = np.zeros((len(packages), width), dtype=np.int64)
        for number, lane in enumerate(self.lanes):
            chosen = np.flatnonzero(packages.lane == number)
            rows = np.zeros((len(chosen), width), dtype=np.int64)
            first, size = packages.first[chosen], packages.size[chosen]
            for place, digit, shift in lane.placed_digits():
                there = size > place
                held = masks.limbs[first + place * there, digit.column] * there[:, None]
                for limb in range(held.shape[1]):
                    deposit(rows, held[:, limb], shift + limb * LIMB_BITS)
            limbs[chosen] = rows
        return bytes_of(limbs, 4 * width)

    def unpack_sums(self, plaintexts: ByteArray, counts: Sequence[int]) -> Sums | None:
        """Return the sums in packages modulo 2^64, int64 (sum(counts), columns); None if any is out
        of its digit's range.

        `plaintexts` uint8 (packages, width) are whole plaintexts, in the order of `packages`: bits
        above a package are ignored, the fields beyond its size must be zero.
        """
        packages = self.packages(counts)
        sums = np.zeros((int(np.sum(counts, dtype=np.int64)), self.columns), dtype=np.int64)
        for number, lane in enumerate(self.lanes):
            chosen = np.flatnonzero(packages.lane == number)
            limbs = _lifted_packages(plaintexts[chosen], lane)
            first, size = packages.first[chosen], packages.size[chosen]
            for place, digit, shift in lane.placed_digits():
                there = size > place
                low, high = _wide_digits(limbs, shift, digit.bits)
                within = _at_most(low, high, digit.most - digit.least)
                zero = (low == _low_word(-digit.least)) & (high == _high_word(-digit.least))
                if not np.where(there, within, zero).all():
                    return None
                values = (low + _low_word(digit.least)).view(np.int64)
                sums[first[there] + place, digit.column] = values[there]
        return sums


def _lifted_packages(plaintexts: ByteArray, lane: Lane) -> Limbs:
    """Return packages with each field raised by its lower bound, so that no digit is negative."""
    lift = sum(-digit.least << shift for _, digit, shift in lane.placed_digits())
    width = -(-max(8 * plaintexts.shape[1], lane.package_bits) // LIMB_BITS)
    added = limbs_of(np.frombuffer(lift.to_bytes(4 * width, "big"), np.uint8).reshape(1, -1))
    limbs = np.broadcast_to(added, (len(plaintexts), width)).copy()
    held = limbs_of(plaintexts)
    limbs[:, : held.shape[1]] += held
    return limbs_of(bytes_of(limbs, 4 * width))


def _wide_digits(
    limbs: Limbs, shift: int, bits: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the lowest 64 of a digit's bits and those above, at most 64,
    uint64 (packages,) each.
    """
    low = digits_at(limbs, shift, min(bits, WORD_BITS))
    if bits <= WORD_BITS:
        return low, np.zeros_like(low)
    return low, digits_at(limbs, shift + WORD_BITS, bits - WORD_BITS)


def _at_most(low: NDArray[np.uint64], high: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
    return (high < _high_word(most)) | ((high == _high_word(most)) & (low <= _low_word(most)))


def _low_word(number: int) -> np.uint64:
    return np.uint64(number & _WORD)


def _high_word(number: int) -> np.uint64:
    return np.uint64(number >> WORD_BITS)
