"""Candidate splits in canonical order, their gains and the leaf values, from exact integer sums.

Listing candidates needs no gradients, so a host lists them over ciphertexts; scoring needs no
columns, so a guest scores sums whose columns it does not know. Equal sums give bit-equal gains
wherever and in whatever order they are scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import categories
from fedboost.core.bins import Dense
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import MAX_BIN, TreeParams

Floats = NDArray[np.float64]
Sums = NDArray[np.int64]

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


def left_sums(histogram: Sums, listed: Candidates) -> Sums:
    """int64 (…, candidates, 2·outputs): what goes left, of histograms int64 (…, columns, n_cells,
    2·outputs). The last cell of a column is the one of its missing rows.
    """
    up_to = np.cumsum(histogram[..., :-1, :], axis=-2)
    place = listed.column * np.int64(up_to.shape[-2]) + listed.bin
    shape = (*up_to.shape[:-3], -1, up_to.shape[-1])
    sums = up_to.reshape(shape).take(place, axis=-2)
    (lost,) = np.nonzero(listed.missing_left)
    if len(lost):
        sums[..., lost, :] += histogram[..., listed.column[lost], -1, :]
    return sums


def gains(
    G_left: Sums, H_left: Sums, G: Sums, H: Sums, params: TreeParams, fixed: FixedPoint
) -> Floats:
    """float64 (…, n): score(left) + score(right) − score(node), summed over the outputs.

    G_left, H_left int64 (…, n, outputs) of the candidates, G, H int64 (outputs,) of their node or
    (…, 1, outputs) of each, in units of `fixed`. XGBoost's gain without the factor 1/2; several
    outputs as in SecureBoost+, eq. 18–19. −inf where either child's hessian sum over the outputs
    is below min_child_weight. Swapping left and right gives the same bits.
    """
    G_right, H_right = G - G_left, H - H_left
    gain = (
        _score(G_left, H_left, params, fixed) + _score(G_right, H_right, params, fixed)
    ) - _score(G, H, params, fixed)
    light = (cover(H_left, fixed) < params.min_child_weight) | (
        cover(H_right, fixed) < params.min_child_weight
    )
    gain[light] = -np.inf
    return gain


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


def goes_right(
    column_bins: Dense,
    bin_number: int,
    missing_left: bool,
    missing: int,
    left_bins: bytes = b"",
) -> NDArray[np.bool_]:
    """bool (n,): which rows, given by their bins (n,) in the split's column, go right.

    Bins up to `bin_number` go left, or those of the set `left_bins` (categories.as_set) where the
    column is categorical; rows without a value as told.
    """
    if left_bins:
        right = np.ones(MAX_BIN + 1, np.bool_)
        right[categories.members(left_bins)] = False
    else:
        right = np.arange(MAX_BIN + 1) > bin_number
    right[missing] = not missing_left
    return right[column_bins]


def _score(G: Sums, H: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """Σ over outputs of T(G)² / (H + λ); int64 (…, outputs) to float64 (…).

    With max_delta_step it is −2Gw − (H + λ)w² of the weight w within it, as XGBoost has it: there
    reg_alpha shrinks w alone.
    """
    total = np.zeros(G.shape[:-1])
    for k in range(G.shape[-1]):  # one after the other: the same bits for every n
        below = fixed.decode_h(H[..., k]) + params.reg_lambda
        if params.step_max:
            own = weight(G[..., k], below, params, fixed)
            total -= 2.0 * fixed.decode_g(G[..., k]) * own + below * (own * own)
        else:
            pull = _shrunk(G[..., k], params, fixed)
            total += _divided(pull * pull, below)
    return total


def weight(G: Sums, below: Floats, params: TreeParams, fixed: FixedPoint) -> Floats:
    """−T(G) / below, within ±max_delta_step where there is one."""
    found = -_divided(_shrunk(G, params, fixed), below)
    return np.clip(found, -params.step_max, params.step_max) if params.step_max else found


def _shrunk(G: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """The gradient sum pulled towards 0 by reg_alpha, not beyond it."""
    pull = fixed.decode_g(G)
    if params.reg_alpha == 0.0:
        return pull
    return np.sign(pull) * np.maximum(np.abs(pull) - params.reg_alpha, 0.0)


def _divided(top: Floats, bottom: Floats) -> Floats:
    """top / bottom, 0 where bottom is 0 (no hessian and reg_lambda 0)."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0.0)
