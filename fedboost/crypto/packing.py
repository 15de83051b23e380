"""How gradients share plaintexts: the (G, H) pairs of a sum in lanes, many sums in a package.

SecureBoost+, sections 4.2 and 4.4 and Algorithm 7, without the offset of equation 12: G is signed,
H is not, so that row counts need not travel with the sums.

    pair     x = G · 2^h_bits + H                                    |x| < 2^(n_bit − 1)
    lane     one ciphertext of a row or a sum: s = x_0 + x_1 · 2^n_bit + ...
    package  S = s_0 + s_1 · 2^lane.bits + ...,  below headroom for blinding

A row, a cell and a candidate are as many ciphertexts as there are lanes, one after the other.
Without GH packing every G and every H is a lane of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.limbs import (
    LIMB_BITS,
    Limbs,
    Octets,
    deposit,
    digits_at,
    limbs_of,
    octets_of,
)
from fedboost.errors import ConfigError

HEADROOM_BITS = 41  # blinding above the package: what lies there is hidden below 2^-40 of it
SUM_BITS_MAX = 62  # sums are handed out as int64

Sums = NDArray[np.int64]  # (n, 2·outputs): g_0 h_0 g_1 h_1 ...


@dataclass(frozen=True)
class Digit:
    """Where the sum of one column lies in a lane."""

    column: int  # of (n, 2·outputs)
    shift: int
    bits: int
    signed: bool


@dataclass(frozen=True)
class Lane:
    """One of the ciphertexts that a sum takes."""

    digits: tuple[Digit, ...]
    bits: int  # what one sum takes of a package
    capacity: int  # sums in a package

    @property
    def package_bits(self) -> int:
        """Declared width of a package; above it is headroom."""
        return self.capacity * self.bits


@dataclass(frozen=True, eq=False)
class Packages:
    """The packages of consecutive groups of sums: group after group, in each lane after lane."""

    lane: NDArray[np.int64]  # (packages,)
    first: NDArray[np.int64]  # its first sum, counted over all groups
    size: NDArray[np.int64]  # how many sums it holds, the first one lowest

    def __len__(self) -> int:
        return len(self.lane)

    def members(self, lanes: int) -> NDArray[np.int64]:
        """Places of all packages' ciphertexts among those of the sums, package after package."""
        starts = np.cumsum(self.size) - self.size
        within = np.arange(int(self.size.sum())) - np.repeat(starts, self.size)
        sums = np.repeat(self.first, self.size) + within
        return sums * lanes + np.repeat(self.lane, self.size)


@dataclass(frozen=True)
class GhLayout:
    """Where the `outputs` pairs (G, H) lie in plaintexts, for sums of up to `n_rows` rows.

    Values are fixed point: |g| ≤ 2^value_bits and 0 ≤ h ≤ 2^value_bits for every row, whatever it
    is weighted or amplified with. A ConfigError where a sum would not fit an int64, or one pair and
    the headroom do not fit the plaintext. The switches: without `pack` no two numbers share a
    ciphertext before compressing (no section 4.2), without `compress` no two sums share a package
    (no section 4.4).
    """

    value_bits: int
    n_rows: int
    plaintext_bits: int
    outputs: int = 1
    pack: bool = True
    compress: bool = True

    def __post_init__(self) -> None:
        if self.value_bits < 1 or self.n_rows < 1 or self.outputs < 1:
            raise ConfigError(
                f"cannot pack {self.n_rows} rows of {self.outputs} outputs "
                f"of {self.value_bits} bits"
            )
        # Every field must hold the sum of all rows: value_bits + ⌈log2 n⌉.
        sum_bits = self.value_bits + (self.n_rows - 1).bit_length()
        if sum_bits > SUM_BITS_MAX:
            raise ConfigError(
                f"sums of {self.n_rows} values of {self.value_bits} bits need {sum_bits} bits, "
                f"and {SUM_BITS_MAX} is the most",
                todo="lower value_bits",
            )
        widest = self.n_bit if self.pack else self.g_bits
        if self._fitting(widest) < 1:
            raise ConfigError(
                f"a gradient's field of {widest} bits and {HEADROOM_BITS} bits of blinding "
                f"do not fit a plaintext of {self.plaintext_bits} bits",
                todo="lower value_bits or take a longer key",
            )

    @cached_property
    def bound(self) -> int:
        """|G| and H are at most this: n_rows · 2^value_bits."""
        return self.n_rows << self.value_bits

    @cached_property
    def h_bits(self) -> int:
        """Width of H, which is not signed."""
        return self.bound.bit_length()

    @cached_property
    def g_bits(self) -> int:
        """Width of G, which is signed."""
        return self.bound.bit_length() + 1

    @cached_property
    def n_bit(self) -> int:
        """Width of a pair."""
        return self.g_bits + self.h_bits

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The ciphertexts of one sum (Algorithm 7): as many pairs in each as fit, the last fewer.

        Their number is ⌈outputs / ⌊(plaintext_bits − 41) / n_bit⌋⌉; 2·outputs without `pack`.
        """
        if not self.pack:
            return tuple(
                self._lane((Digit(2 * output + is_h, 0, bits, not is_h),), bits)
                for output in range(self.outputs)
                for is_h, bits in ((False, self.g_bits), (True, self.h_bits))
            )
        each = self._fitting(self.n_bit)
        lanes = []
        for first in range(0, self.outputs, each):
            pairs = range(min(each, self.outputs - first))
            digits = [
                digit for place in pairs for digit in self._pair(first + place, place * self.n_bit)
            ]
            lanes.append(self._lane(tuple(digits), len(pairs) * self.n_bit))
        return tuple(lanes)

    def package_count(self, counts: Sequence[int]) -> int:
        """How many packages consecutive groups of `counts` sums take, without laying them out."""
        return sum(-(-count // lane.capacity) for lane in self.lanes for count in counts)

    def packages(self, counts: Sequence[int]) -> Packages:
        """How consecutive groups of `counts` sums are put into packages; none straddles groups."""
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

    def check_values(self, gh: Sums) -> None:
        """A ConfigError unless gh, int64 (n, 2·outputs), keeps the declared bounds and row count.

        Its columns are g_0 h_0 g_1 h_1 and so on.
        """
        if gh.dtype != np.int64 or gh.ndim != 2 or gh.shape[1] != 2 * self.outputs:
            raise ConfigError(
                f"gradients must be int64 (n, {2 * self.outputs}), got {gh.dtype} {gh.shape}"
            )
        if len(gh) > self.n_rows:
            raise ConfigError(f"{len(gh)} rows do not fit a layout for {self.n_rows}")
        most = 1 << self.value_bits
        if len(gh) and (gh.max() > most or gh.min() < -most or gh[:, 1::2].min() < 0):
            raise ConfigError(
                f"a gradient or hessian is outside the declared {self.value_bits} bits",
                todo="bound the objective, the weights and the amplification, or raise value_bits",
            )

    def fields(self, gh: Sums) -> Octets:
        """The rows' plaintexts, signed, uint8 (rows·lanes, width); `check_values` has passed them.

        Two's complement of one width for all lanes.
        """
        width = max(lane.bits for lane in self.lanes) // LIMB_BITS + 3
        limbs = np.zeros((len(gh), len(self.lanes), width), dtype=np.int64)
        for number, lane in enumerate(self.lanes):
            for digit in lane.digits:
                deposit(limbs[:, number], gh[:, digit.column], digit.shift)
        return octets_of(limbs.reshape(-1, width), 4 * width)

    def unpack(self, plaintexts: Octets, counts: Sequence[int]) -> Sums | None:
        """The sums in packages, int64 (sum(counts), 2·outputs); None if any is out of range.

        `plaintexts` uint8 (packages, width) are whole plaintexts, in the order of `packages`: what
        lies above a package is ignored, the fields beyond its size must be zero.
        """
        packages = self.packages(counts)
        sums = np.zeros((int(np.sum(counts, dtype=np.int64)), 2 * self.outputs), dtype=np.int64)
        for number, lane in enumerate(self.lanes):
            chosen = np.flatnonzero(packages.lane == number)
            limbs = _with_halves(plaintexts[chosen], lane)
            first, size = packages.first[chosen], packages.size[chosen]
            for place, digit, values in _digits(limbs, lane):
                there = size > place
                least = -self.bound if digit.signed else 0
                if (values > self.bound).any() or (values < least).any() or values[~there].any():
                    return None
                sums[first[there] + place, digit.column] = values[there]
        return sums

    def _fitting(self, bits: int) -> int:
        return (self.plaintext_bits - HEADROOM_BITS) // bits

    def _lane(self, digits: tuple[Digit, ...], bits: int) -> Lane:
        return Lane(digits, bits, self._fitting(bits) if self.compress else 1)

    def _pair(self, output: int, shift: int) -> tuple[Digit, Digit]:
        h = Digit(2 * output + 1, shift, self.h_bits, signed=False)
        return h, Digit(2 * output, shift + self.h_bits, self.g_bits, signed=True)


def _with_halves(plaintexts: Octets, lane: Lane) -> Limbs:
    """Packages with half a field added to each signed field, so that no digit is negative."""
    halves = 0
    for place in range(lane.capacity):
        for digit in lane.digits:
            if digit.signed:
                halves += 1 << (place * lane.bits + digit.shift + digit.bits - 1)
    width = -(-max(8 * plaintexts.shape[1], lane.package_bits) // LIMB_BITS)
    added = limbs_of(np.frombuffer(halves.to_bytes(4 * width, "big"), np.uint8).reshape(1, -1))
    limbs = np.broadcast_to(added, (len(plaintexts), width)).copy()
    own = limbs_of(plaintexts)
    limbs[:, : own.shape[1]] += own
    return limbs_of(octets_of(limbs, 4 * width))


def _digits(limbs: Limbs, lane: Lane) -> Iterator[tuple[int, Digit, NDArray[np.int64]]]:
    """Each place's digits with the number that every package has there, int64 (packages,)."""
    for place in range(lane.capacity):
        for digit in lane.digits:
            found = digits_at(limbs, place * lane.bits + digit.shift, digit.bits)
            half = np.uint64(1 << (digit.bits - 1) if digit.signed else 0)
            yield place, digit, (found - half).view(np.int64)
