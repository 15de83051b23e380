"""How gradients share a plaintext: one signed (G, H) field a sum, many sums a package.

SecureBoost+, sections 4.2 and 4.4, without the offset of equation 12: G is signed, H is not, so
that row counts need not travel with the sums.

    field    x = G · 2^h_bits + H                      |x| < 2^(n_bit − 1)
    package  S = x_0 + x_1 · 2^n_bit + x_2 · 2^(2·n_bit) + ...,  below headroom for blinding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.errors import ConfigError

HEADROOM_BITS = 41  # blinding above the package: what lies there is hidden below 2^-40 of it
SUM_BITS_MAX = 62  # sums are handed out as int64


@dataclass(frozen=True)
class GhLayout:
    """Where G and H lie in a plaintext, for sums of up to `n_rows` rows.

    Values are fixed point: |g| ≤ 2^value_bits and 0 ≤ h ≤ 2^value_bits for every row. A ConfigError
    where a sum would not fit an int64, or one field and the headroom do not fit the plaintext.
    `compress=False` puts one field in a package (SecureBoost+ without section 4.4).
    """

    value_bits: int
    n_rows: int
    plaintext_bits: int
    compress: bool = True

    def __post_init__(self) -> None:
        if self.value_bits < 1 or self.n_rows < 1:
            raise ConfigError(f"cannot pack {self.n_rows} rows of {self.value_bits} bits")
        # Every field must hold the sum of all rows: value_bits + ⌈log2 n⌉.
        sum_bits = self.value_bits + (self.n_rows - 1).bit_length()
        if sum_bits > SUM_BITS_MAX:
            raise ConfigError(
                f"sums of {self.n_rows} values of {self.value_bits} bits need {sum_bits} bits, "
                f"and {SUM_BITS_MAX} is the most",
                todo="lower value_bits",
            )
        if self._fitting < 1:
            raise ConfigError(
                f"a packed gradient of {self.n_bit} bits and {HEADROOM_BITS} bits of blinding "
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
        """Width of one field."""
        return self.g_bits + self.h_bits

    @cached_property
    def capacity(self) -> int:
        """Fields in a package."""
        return self._fitting if self.compress else 1

    @cached_property
    def package_bits(self) -> int:
        """Declared width of a package; above it is headroom."""
        return self.capacity * self.n_bit

    @property
    def _fitting(self) -> int:
        return (self.plaintext_bits - HEADROOM_BITS) // self.n_bit

    def package_sizes(self, counts: Sequence[int]) -> list[int]:
        """How many fields each package holds, for consecutive groups of `counts` sums."""
        sizes: list[int] = []
        for count in counts:
            full, rest = divmod(int(count), self.capacity)
            sizes.extend([self.capacity] * full + [rest] * (rest > 0))
        return sizes

    def pack(self, g: NDArray[np.int64], h: NDArray[np.int64]) -> list[int]:
        """One field for each row, signed; see `check_values` for what the caller guarantees."""
        shift = self.h_bits
        return [(a << shift) + b for a, b in zip(g.tolist(), h.tolist(), strict=True)]

    def check_values(self, g: NDArray[np.int64], h: NDArray[np.int64]) -> None:
        """A ConfigError unless g and h, int64 (n,), keep the declared bounds and row count."""
        if g.dtype != np.int64 or h.dtype != np.int64 or g.ndim != 1 or g.shape != h.shape:
            raise ConfigError(f"g and h must be int64 (n,), got {g.dtype} and {h.dtype}")
        if len(g) > self.n_rows:
            raise ConfigError(f"{len(g)} rows do not fit a layout for {self.n_rows}")
        most = 1 << self.value_bits
        if len(g) and (g.max() > most or g.min() < -most or h.max() > most or h.min() < 0):
            raise ConfigError(
                f"a gradient or hessian is outside the declared {self.value_bits} bits",
                todo="bound the objective, the weights and the amplification, or raise value_bits",
            )

    def unpack(self, value: int, size: int) -> list[tuple[int, int]] | None:
        """The (G, H) of a package's first `size` fields; None if anything is out of range.

        `value` is the whole plaintext, not negative: the headroom above the package is ignored, the
        fields beyond `size` must be zero. H = x mod 2^h_bits, G = ⌊x / 2^h_bits⌋.
        """
        half = 1 << (self.n_bit - 1)
        rest = (value + self._halves) & ((1 << self.package_bits) - 1)
        mask = (1 << self.n_bit) - 1
        sums: list[tuple[int, int]] = []
        for place in range(self.capacity):
            x = ((rest >> (place * self.n_bit)) & mask) - half
            if place >= size:
                if x != 0:
                    return None
                continue
            G, H = x >> self.h_bits, x & ((1 << self.h_bits) - 1)
            if abs(G) > self.bound or self.bound < H:
                return None
            sums.append((G, H))
        return sums

    @cached_property
    def _halves(self) -> int:
        """Half a field in each field: added, it makes every signed field's digits non-negative."""
        return sum(1 << (place * self.n_bit + self.n_bit - 1) for place in range(self.capacity))
