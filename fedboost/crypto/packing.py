"""Layout of gradients in plaintexts: the (G, H) pairs of a sum in lanes, many sums in a package.

SecureBoost+, sections 4.2 and 4.4 and Algorithm 7, without the offset of equation 12: G is signed,
H is not, so that row counts need not travel with the sums.

    pair     x = G · 2^h_bits + H                                    |x| < 2^(n_bit − 1)
    lane     one ciphertext of a row or a sum: s = x_0 + x_1 · 2^n_bit + ...
    package  S = s_0 + s_1 · 2^lane.bits + ...,  below headroom for blinding

A row, a cell and a candidate are as many ciphertexts as there are lanes, one after the other.
Without GH packing every G and every H has a separate lane.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.layout import (
    HEADROOM_BITS,
    SUM_BITS_MAX,
    Digit,
    Lane,
    Layout,
    fitting,
    lanes_of,
)
from fedboost.crypto.masking import Masks
from fedboost.ground.arrays import Sums
from fedboost.ground.errors import ConfigError


@dataclass(frozen=True)
class GhLayout(Layout):
    """The positions of `outputs` pairs (G, H) in plaintexts, for sums of up to `n_rows` rows.

    Values are fixed point: |g| ≤ 2^value_bits and 0 ≤ h ≤ 2^value_bits for every row, with any
    weight or amplification. A ConfigError if a sum would not fit an int64, or one pair and the
    headroom do not fit the plaintext. The switches: without `pack` no two numbers share a
    ciphertext before compressing (no section 4.2), without `compress` no two sums share a package
    (no section 4.4). With noise, no sum leaves without: H is signed then, too. And of each field a
    node's sums use only the part that its own rows need: a host adds a random multiple of the
    part's modulus, which the guest subtracts again. It drowns the bits above the part.
    """

    value_bits: int
    n_rows: int
    plaintext_bits: int
    outputs: int = 1
    pack: bool = True
    compress: bool = True
    g_noise: int = 0  # bound of the noise on a G, either way
    h_noise: int = 0  # bound of the noise on an H
    has_offsets: bool = False  # sums leave with offsets that bring them into the range of sums

    def __post_init__(self) -> None:
        if self.value_bits < 1 or self.n_rows < 1 or self.outputs < 1:
            raise ConfigError(
                f"cannot pack {self.n_rows} rows of {self.outputs} outputs "
                f"of {self.value_bits} bits"
            )
        # Every field must hold the sum of all rows: value_bits + ⌈log2 n⌉, if there is no noise.
        sum_bits = (self.bound + max(self.g_noise, self.h_noise) - 1).bit_length()
        if sum_bits > SUM_BITS_MAX:
            raise ConfigError(
                f"sums of {self.n_rows} values of {self.value_bits} bits need {sum_bits} bits, "
                f"and {SUM_BITS_MAX} is the most",
                todo="lower value_bits",
            )
        widest = self.n_bit if self.pack else self.g_bits
        if fitting(self.plaintext_bits, widest) < 1:
            raise ConfigError(
                f"a gradient's field of {widest} bits and {HEADROOM_BITS} bits of blinding "
                f"do not fit a plaintext of {self.plaintext_bits} bits",
                todo="lower value_bits or take a longer key",
            )

    @property
    def columns(self) -> int:
        """Number of columns, a gradient and a hessian for each output:
        g_0 h_0 g_1 h_1 and so on.
        """
        return 2 * self.outputs

    @cached_property
    def bound(self) -> int:
        """The bound of |G| and H without noise: n_rows · 2^value_bits."""
        return self.n_rows << self.value_bits

    @cached_property
    def h_bits(self) -> int:
        """Width of H, which is signed only if it has noise."""
        return (self.bound + 2 * self.h_noise).bit_length()

    @cached_property
    def g_bits(self) -> int:
        """Width of G, which is signed."""
        return (self.bound + self.g_noise).bit_length() + 1

    @cached_property
    def n_bit(self) -> int:
        """Width of a pair."""
        return self.g_bits + self.h_bits

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The ciphertexts of one sum (Algorithm 7): as many pairs in each as fit, the last fewer.

        Their number is ⌈outputs / ⌊(plaintext_bits − 41) / n_bit⌋⌉; 2·outputs without `pack`.
        """
        digits = [(self._h_digit(output), self._g_digit(output)) for output in range(self.outputs)]
        if self.pack:
            return lanes_of(digits, self.n_bit, self.plaintext_bits, compress=self.compress)
        return tuple(
            lane
            for h, g in digits
            for digit in (replace(g, shift=0), h)
            for lane in lanes_of(
                [(digit,)], digit.bits, self.plaintext_bits, compress=self.compress
            )
        )

    def takes(self, masks: Masks | None) -> bool:
        """Return whether sums can leave with this noise and multiples: none, or as much as there is
        room for.
        """
        if self.has_offsets:
            return masks is not None and self._are_offsets(masks)
        pair = (self.g_noise, self.h_noise)
        if masks is None or not any(pair):
            return masks is None and not any(pair)
        fits = masks.limbs.shape[1:] == (self.columns, 1)
        most = np.tile(pair, self.outputs) + self.bound
        return fits and bool((np.abs(masks.limbs[..., 0]) <= most).all())

    def _are_offsets(self, masks: Masks) -> bool:
        fits = masks.limbs.shape[1:] == (self.columns, 1)
        return fits and bool(((masks.limbs >= 0) & (masks.limbs <= self.bound)).all())

    def modulus(self, rows: int) -> int:
        """Return the modulus of sums of a node with so many rows, if they have noise: a power of
        two that holds them, their noise and a sign.
        """
        most = (rows << self.value_bits) + max(self.g_noise, self.h_noise)
        return 2 << most.bit_length()

    def multiples(self, rows: int, drawn: NDArray[np.uint64]) -> Sums:
        """Return random multiples of a node's modulus, int64 (sums, columns), of random words: as
        far as they fit the fields beside the node's own sums.
        """
        most = self._multiples_most(rows)
        if not most:
            return np.zeros(drawn.shape, np.int64)
        least = np.array([-most, 0] * self.outputs)
        counts = np.array([2 * most + 1, most + 1] * self.outputs, np.uint64)
        return (least + (drawn % counts).astype(np.int64)) * self.modulus(rows)

    def reduced(self, sums: Sums, rows: int) -> Sums:
        """Return a node's sums without the multiples."""
        if not self._multiples_most(rows):
            return sums
        modulus = self.modulus(rows)
        return (sums + modulus // 2) % modulus - modulus // 2

    def _multiples_most(self, rows: int) -> int:
        return (max(0, self.n_rows - rows) << self.value_bits) // self.modulus(rows)

    def _g_digit(self, output: int) -> Digit:
        most = self.bound + self.g_noise
        return Digit(2 * output, self.h_bits, self.g_bits, -most, most, self.g_noise)

    def _h_digit(self, output: int) -> Digit:
        noise = self.h_noise
        return Digit(2 * output + 1, 0, self.h_bits, -noise, self.bound + noise, noise)
