"""Candidate splits in canonical order, and the leaf values, from exact integer sums.

Listing candidates needs no gradients, so a host lists them over ciphertexts; scoring needs no
columns, so a guest scores sums of unknown columns. Equal sums give bit-equal gains on every machine
and in every order.
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
    """Splits of one node: present values in bins up to `bin` go left, missing ones by
    `missing_left`.

    Canonical order: by column, then bin, then missing right before missing left.
    """

    column: NDArray[np.int32]
    bin: NDArray[np.int16]
    missing_left: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.column)


@dataclass(frozen=True)
class Limits:
    """Limits of the splits of some nodes."""

    # uint16 (nodes, columns, n_cells): groups that splits keep together; None: single cells.
    groups: NDArray[np.uint16] | None = None
    bounds: Floats | None = None  # (nodes, 2) of weights (core.monotone); None: any

    def of(self, node: int, column: int) -> Limits:
        """Return the limits of one node and one column, by their indices."""
        groups = None if self.groups is None else self.groups[node, column]
        return Limits(groups, None if self.bounds is None else self.bounds[node])


UNLIMITED = Limits()


def candidates(
    n_bins: NDArray[np.int32],
    has_missing: NDArray[np.bool_],
    columns: NDArray[np.int32] | None = None,
) -> Candidates:
    """Return all splits of a node at thresholds, in canonical order.

    n_bins int32 (columns,); has_missing bool (columns,): whether training rows of the node miss the
    column; `columns` (int32, ascending) are the columns it may use, no categorical ones. Without
    missing rows: bins 0..n_bins-2, missing right. With them: the same, each also with missing left,
    and last all present left against missing right.
    """
    if columns is None:
        columns = np.arange(len(n_bins), dtype=np.int32)
    bins, missing = n_bins[columns].astype(np.int64), has_missing[columns]
    # Candidate p of a column with missing rows is bin p/2, with missing left if p is odd.
    each = np.where(missing, 2 * bins - 1, bins - 1)
    column = np.repeat(columns, each)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    doubled = np.repeat(missing, each)
    return Candidates(
        column.astype(np.int32),
        np.where(doubled, place // 2, place).astype(np.int16),
        doubled & (place % 2 == 1),
    )


def best_candidate(gain: Floats, params: TreeParams) -> int:
    """Return the first of the greatest gains in canonical order, or −1 if none is worth a split.

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
    """Return −G/(H + λ) with reg_alpha, within ±max_delta_step, times learning_rate; int64 (…,
    outputs) to float64 (…, outputs).

    SecureBoost+, eq. 17. 0 if H + λ is 0.
    """
    return (
        leaf_weight(G, fixed.decode_h(H) + params.reg_lambda, params, fixed) * params.learning_rate
    )


def cover(H: Sums, fixed: FixedPoint) -> Floats:
    """Return the hessian sum over the outputs: int64 (…, outputs) to float64 (…)."""
    total = fixed.decode_h(H[..., 0])
    for k in range(1, H.shape[-1]):  # one after the other: the same bits for every n
        total = total + fixed.decode_h(H[..., k])
    return total


def right_masks(
    last: NDArray[np.integer[Any]], missing_left: NDArray[np.bool_], sets: Sets, missing: int
) -> NDArray[np.bool_]:
    """Return whether rows in each cell of a node's column go right, bool (nodes, missing + 1).

    Bins up to `last` go left, or the bins of its set, uint8 (nodes, SET_BYTES), if that is
    BY_CATEGORY; rows without a value, in the cell `missing`, go left if `missing_left`.
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
    """Return whether rows, given by their bins (n,) in the split's column, go right, bool (n,).

    `left_bins` (categories.as_set) is for a categorical column. See `right_masks`.
    """
    last = np.array([categories.BY_CATEGORY if left_bins else bin_number])
    sets = categories.as_sets([left_bins])
    return right_masks(last, np.array([missing_left]), sets, missing)[0][column_bins]


def leaf_weight(G: Sums, below: Floats, params: TreeParams, fixed: FixedPoint) -> Floats:
    """Return −T(G) / below, 0 if `below` is 0 (no hessian and reg_lambda 0), within ±max_delta_step
    if there is one; T moves the sum towards 0 by reg_alpha, not beyond it.
    """
    pull = fixed.decode_g(G)
    if params.reg_alpha:
        pull = np.sign(pull) * np.maximum(np.abs(pull) - params.reg_alpha, 0.0)
    step = -np.divide(pull, below, out=np.zeros_like(pull), where=below > 0.0)
    return np.clip(step, -params.step_max, params.step_max) if params.step_max else step
