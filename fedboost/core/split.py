"""Candidate splits in canonical order, and the leaf values, from exact integer sums.

Listing candidates needs no gradients, so a host lists them over ciphertexts; scoring needs no
columns, so a guest scores sums whose columns it does not know. Equal sums give bit-equal gains
wherever and in whatever order they are scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import categories
from fedboost.core.bins import Dense
from fedboost.core.categories import Sets
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.ground.arrays import Floats, Sums

GAIN_MIN = 1e-6  # XGBoost's kRtEps: less is rounding, not a gain


@dataclass(frozen=True)
class Candidates:
    """Splits of one node: present values in bins up to `bin` go left, missing ones as told.

    Canonical order: by column, then bin, then missing right before missing left.
    """

    column: NDArray[np.int32]
    bin: NDArray[np.int16]
    missing_left: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.column)


@dataclass(frozen=True)
class Limits:
    """What limits the splits of some nodes."""

    # uint16 (nodes, columns, n_cells): groups of cells between which they may be; None: all cells.
    groups: NDArray[np.uint16] | None = None
    bounds: Floats | None = None  # (nodes, 2) of weights (core.monotone); None: any

    def of(self, node: int, column: int) -> Limits:
        """Return those of one node and one column, by their places."""
        groups = None if self.groups is None else self.groups[node, column]
        return Limits(groups, None if self.bounds is None else self.bounds[node])


UNLIMITED = Limits()


def candidates(
    n_bins: NDArray[np.int32],
    has_missing: NDArray[np.bool_],
    columns: NDArray[np.int32] | None = None,
) -> Candidates:
    """Return all splits of a node at thresholds, in canonical order; `columns` (int32, ascending)
    are the columns it may use, no categorical ones.

    n_bins int32 (columns,); has_missing bool (columns,): whether training rows of the node miss
    the column. Without missing rows: bins 0..n_bins-2, missing right. With them: the same, each
    also with missing left, and last all present left against missing right.
    """
    if columns is None:
        columns = np.arange(len(n_bins), dtype=np.int32)
    bins, missing = n_bins[columns].astype(np.int64), has_missing[columns]
    # Place p of a column with missing rows is bin p/2 with missing left at odd places.
    each = np.where(missing, 2 * bins - 1, bins - 1)
    column = np.repeat(columns, each)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    doubled = np.repeat(missing, each)
    return Candidates(
        column.astype(np.int32),
        np.where(doubled, place // 2, place).astype(np.int16),
        doubled & (place % 2 == 1),
    )


def best(gain: Floats, params: TreeParams) -> int:
    """The first of the greatest gains in canonical order, or −1 where none is worth a split.

    A split needs a gain above 1e-6 and of at least `gamma`.
    """
    if len(gain) == 0:
        return -1
    chosen = int(np.argmax(gain))
    return chosen if is_worth(float(gain[chosen]), params) else -1


def is_worth(gain: float, params: TreeParams) -> bool:
    """Return whether a gain justifies a split: above 1e-6 and at least `gamma`."""
    return gain > GAIN_MIN and gain >= params.gamma


def leaf_value(G: Sums, H: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """−G/(H + λ) with reg_alpha, within ±max_delta_step, times learning_rate; int64 (…, outputs) to
    float64 (…, outputs).

    SecureBoost+, eq. 17. 0 where H + λ is 0.
    """
    return weight(G, fixed.decode_h(H) + params.reg_lambda, params, fixed) * params.learning_rate


def cover(H: Sums, fixed: FixedPoint) -> Floats:
    """Hessian sum over the outputs: int64 (…, outputs) to float64 (…)."""
    total = fixed.decode_h(H[..., 0])
    for k in range(1, H.shape[-1]):  # one after the other: the same bits for every n
        total = total + fixed.decode_h(H[..., k])
    return total


def turns(
    last: NDArray[np.integer[Any]], missing_left: NDArray[np.bool_], sets: Sets, missing: int
) -> NDArray[np.bool_]:
    """bool (nodes, missing + 1): whether rows in a cell of its column's go right, for each node.

    Bins up to `last` go left, or those of its set, uint8 (nodes, SET_BYTES), where that is
    BY_CATEGORY; rows without a value, in the cell `missing`, as told.
    """
    right = np.arange(missing + 1) > last[:, None]
    (by_category,) = np.nonzero(last == categories.BY_CATEGORY)
    held = np.unpackbits(sets[by_category], axis=1, bitorder="little")
    right[by_category, :-1] = held[:, :missing] == 0
    right[:, missing] = ~missing_left
    return right


def goes_right(
    column_bins: Dense,
    bin_number: int,
    missing_left: bool,
    missing: int,
    left_bins: bytes = b"",
) -> NDArray[np.bool_]:
    """bool (n,): which rows, given by their bins (n,) in the split's column, go right; `left_bins`
    (categories.as_set) where the column is categorical. See `turns`.
    """
    last = np.array([categories.BY_CATEGORY if left_bins else bin_number])
    sets = categories.as_sets([left_bins])
    return turns(last, np.array([missing_left]), sets, missing)[0][column_bins]


def weight(G: Sums, below: Floats, params: TreeParams, fixed: FixedPoint) -> Floats:
    """−T(G) / below, 0 where that is 0 (no hessian and reg_lambda 0), within ±max_delta_step where
    there is one; T pulls the sum towards 0 by reg_alpha, not beyond it.
    """
    pull = fixed.decode_g(G)
    if params.reg_alpha:
        pull = np.sign(pull) * np.maximum(np.abs(pull) - params.reg_alpha, 0.0)
    step = -np.divide(pull, below, out=np.zeros_like(pull), where=below > 0.0)
    return np.clip(step, -params.step_max, params.step_max) if params.step_max else step
