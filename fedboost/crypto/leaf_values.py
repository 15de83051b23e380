"""Layout of leaf values in plaintexts that a host computes without seeing them.

HybridTree, unscored splits: a host adds up the encrypted gradients of a leaf's rows I, multiplies
the sum by a number it knows, s = round(2^fraction_bits / (|I| + λ)), and answers for each row with
its leaf's value; at prediction, with the sum over `terms` trees.

    digit    v + masks of the pairs of holders that share the row      v = s · Σ_{i∈I} g_i
    lane     one ciphertext of a row: d_0 + d_1 · 2^width + ..., one digit for each output
    package  S = s_0 + s_1 · 2^lane.bits + ...,  below headroom for blinding

The rows' own encryptions are in the same lanes, so that sums and products are answers without
being moved.

Masks hide single values. Each pair of a row's holders has a mask for it, which one adds and the
other subtracts, so that the sum of all holders' answers, and no other, is free of masks. A mask is
uniform below 2^mask_bits, 2^40 times more than any value: the distribution of some holders' answers
is within 2^-40 of a distribution independent of their values. A row with one holder has no mask:
its value is seen. That holds for gradients inside the declared bits. A guest that encrypts larger
ones reads, of a field and by overflow of the next, the topmost 40 bits of a mask's range and the
few above it, instead of all the field's bits (`modular`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
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
from fedboost.ground.errors import ConfigError

MASK_SLACK_BITS = 40  # a mask this much wider than a value hides it but for 2^-40


@dataclass(frozen=True)
class LeafLayout(Layout):
    """The positions of a row's `outputs` values in plaintexts, and the masks among its holders.

    Gradients are fixed point, |g| ≤ 2^value_bits, and leaves have at most `n_rows` rows; a value is
    worth 2^-fraction_bits of a gradient. An answer adds up `terms` leaf values, and a row's holders
    are at most `holders`. A ConfigError if the holders' sum would not fit an int64, or one value
    with its masks and the headroom do not fit the plaintext.
    """

    value_bits: int
    n_rows: int
    fraction_bits: int
    plaintext_bits: int
    outputs: int = 1
    holders: int = 1
    terms: int = 1

    def __post_init__(self) -> None:
        counted = (self.value_bits, self.n_rows, self.outputs, self.holders, self.terms)
        if min(counted) < 1 or self.fraction_bits < 0:
            raise ConfigError(
                f"cannot pack {self.outputs} leaf values of {self.value_bits} and "
                f"{self.fraction_bits} bits for {self.n_rows} rows, {self.holders} holders and "
                f"{self.terms} trees"
            )
        if self.holders * self.bound >= 1 << SUM_BITS_MAX:
            sum_bits = (self.holders * self.bound).bit_length()
            raise ConfigError(
                f"leaf values of {self.terms} trees and {self.holders} holders need {sum_bits} "
                f"bits, and {SUM_BITS_MAX} is the most",
                todo="lower value_bits or fraction_bits",
            )
        if fitting(self.plaintext_bits, self.width) < 1:
            raise ConfigError(
                f"a leaf value's field of {self.width} bits and {HEADROOM_BITS} bits of blinding "
                f"do not fit a plaintext of {self.plaintext_bits} bits",
                todo="lower value_bits or fraction_bits, or take a longer key",
            )

    @property
    def columns(self) -> int:
        """Number of columns: one value for each output."""
        return self.outputs

    @cached_property
    def bound(self) -> int:
        """The bound of answers without their masks, either way.

        s ≤ 2^fraction_bits / (|I| + λ) + 1/2, and |Σ g_i| ≤ |I| · 2^value_bits with |I| ≤ n_rows:

            |s · Σ g_i| ≤ |I| / (|I| + λ) · 2^(value_bits + fraction_bits) + |I| · 2^(value_bits−1)
                        ≤ 2^(value_bits + fraction_bits) + n_rows · 2^(value_bits − 1)

        and `terms` times that.
        """
        exact = 1 << (self.value_bits + self.fraction_bits)
        return self.terms * (exact + (self.n_rows << (self.value_bits - 1)))

    @cached_property
    def mask_bits(self) -> int:
        """Bits of masks, which are uniform below 2^mask_bits."""
        return self.bound.bit_length() + MASK_SLACK_BITS

    @cached_property
    def most(self) -> int:
        """The bound of answers with their masks, one a pair, either way."""
        return self.bound + ((self.holders - 1) << self.mask_bits)

    @cached_property
    def width(self) -> int:
        """Width of an answer, which is signed."""
        return self.most.bit_length() + 1

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The ciphertexts of one row: as many outputs in each as fit, the last fewer."""
        digits = [
            (Digit(output, 0, self.width, least=-self.most, most=self.most),)
            for output in range(self.outputs)
        ]
        return lanes_of(digits, self.width, self.plaintext_bits)

    def takes(self, masks: Masks | None) -> bool:
        """Return whether these are the masks that fields have room for: at most one a pair of
        holders.

        If rows may have several holders no answer leaves without masks (a row with a single holder
        has a mask of zero); with one holder in all there are none.
        """
        if masks is None or self.holders == 1:
            return masks is None and self.holders == 1
        return masks.bits == self.mask_bits and masks.streams < self.holders

    def factors(
        self, sizes: Sequence[int] | NDArray[np.integer], reg_lambda: float
    ) -> NDArray[np.int64]:
        """Return s for leaves of these sizes, at least one row each, int64 (leaves,), rounded
        exactly.

        A ConfigError if one is zero: such a leaf's value would be lost.
        """
        whole = 1 << self.fraction_bits
        added = Fraction(reg_lambda)
        rounded = [round(whole / (size + added)) for size in np.asarray(sizes).tolist()]
        if min(rounded, default=1) < 1:
            raise ConfigError(
                f"a leaf of {max(np.asarray(sizes).tolist())} rows has no value in "
                f"{self.fraction_bits} bits of fraction",
                todo="raise fraction_bits or lower reg_lambda",
            )
        return np.array(rounded, dtype=np.int64)
