"""Gains of splits from exact integer sums, and the best splits of nodes: one formula, compiled.

With constrained weights (core.monotone) a gain is computed within the bounds of its node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.core.split import Limits
from fedboost.ground.arrays import Bits, Floats, Indices, Sums
from fedboost.ground.kernels import kernel

CellGroups = NDArray[np.uint16]
Moves = NDArray[np.signedinteger[Any]]
Listed = NDArray[np.int16]
GainRule = tuple[float, float, float, float, float, float]
CandidateColumns = tuple[
    Indices, Indices, Moves
]  # indices among the cells, bins in use, directions

CANDIDATES_AT_ONCE = 1024  # candidates scored together: their arrays fit a core's cache
NO_BOUNDS: Floats = np.empty((0, 2))
NO_GROUPS: CellGroups = np.empty((0, 0, 0), np.uint16)
NO_MOVES: Moves = np.zeros(1, np.int16)


def split_gains(
    left: Sums,
    total: Sums,
    params: TreeParams,
    fixed: FixedPoint,
    bounds: Floats = NO_BOUNDS,
    moves: Moves = NO_MOVES,
) -> Floats:
    """Return score(left) + score(right) − score(node), summed over the outputs; float64 (n,).

    left int64 (n, 2·outputs) of the candidates, total (2·outputs,) of their node, in units of
    `fixed`; bounds (1, 2) of the node's weights, moves (n,) or (1,) of the candidates' columns. The
    gain is XGBoost's without the factor 1/2; several outputs as in SecureBoost+, eq. 18–19. It is
    −inf if either child's hessian sum over the outputs is below min_child_weight, or if the weights
    contradict `moves`. Swapping left and right gives the same bits.
    """
    arrays = np.ascontiguousarray(left), np.ascontiguousarray(total)
    return _split_gains(*arrays, bounds, moves, _gain_rule(params, fixed))


def best_at_thresholds(
    cells: Sums,
    totals: Sums,
    columns: CandidateColumns,
    limits: Limits,
    params: TreeParams,
    fixed: FixedPoint,
) -> tuple[Floats, Indices, Sums]:
    """Find the best split of each node at thresholds of some columns.

    Return its gain, −inf for none; int64 (nodes, 3) with the index of its column, its last bin on
    the left, and 1 if missing rows go left; and the sums on the left, (nodes, 2·outputs).

    cells int64 (nodes, all columns, n_cells, 2·outputs); totals (nodes, 1 or all columns,
    2·outputs). Of equal gains the first in canonical order wins. A node misses a column if its cell
    of missing values is not 0. Missing rows that add up to 0 change no gain on either side and go
    right, the first of equal gains, as in nodes without missing rows.
    """
    groups = NO_GROUPS if limits.groups is None else limits.groups
    bounds = NO_BOUNDS if limits.bounds is None else limits.bounds
    arrays = np.ascontiguousarray(cells), np.ascontiguousarray(totals)
    return _best_splits(*arrays, columns, (groups, bounds), _gain_rule(params, fixed))


def _gain_rule(params: TreeParams, fixed: FixedPoint) -> GainRule:
    units = fixed.g_unit, fixed.h_unit
    return (*units, params.reg_lambda, params.reg_alpha, params.step_max, params.min_child_weight)


@kernel
def _score_sums(sums: Sums, rule: GainRule, bounds: Floats) -> tuple[Floats, Floats]:
    """Return Σ over outputs of T(G)² / (H + λ) of sums (n, 2·outputs), 0 if H + λ is 0, and
    weights.

    With max_delta_step or bounds, (1, 2), it is −2Gw − (H + λ)w² of the weight w within them, as in
    XGBoost, where reg_alpha then shrinks only w.
    """
    g_unit, h_unit, reg_lambda, alpha, step, _ = rule
    totals, weights = np.zeros(len(sums)), np.zeros(len(sums))
    for k in range(0, sums.shape[1], 2):  # one after the other: the same bits for every n
        for i in range(len(sums)):
            g = sums[i, k] * g_unit
            pull = np.sign(g) * max(abs(g) - alpha, 0.0) if alpha != 0.0 else g
            below = sums[i, k + 1] * h_unit + reg_lambda
            if step == 0.0 and len(bounds) == 0:
                totals[i] += np.divide(pull * pull, below) if below > 0.0 else 0.0
                continue
            weight = -np.divide(pull, below) if below > 0.0 else 0.0
            weight = min(max(weight, -step), step) if step != 0.0 else weight
            if len(bounds):
                weight = min(max(weight, bounds[0, 0]), bounds[0, 1])
            totals[i] -= 2.0 * g * weight + below * (weight * weight)
            weights[i] = weight
    return totals, weights


@kernel
def _is_light(sums: Sums, rule: GainRule) -> Bits:
    """Return whether the hessians of all outputs are too few for a child."""
    cover = sums[:, 1] * rule[1]
    for k in range(3, sums.shape[1], 2):
        cover += sums[:, k] * rule[1]
    return cover < rule[5]


@kernel
def _split_gains(left: Sums, total: Sums, bounds: Floats, moves: Moves, rule: GainRule) -> Floats:
    """See `split_gains`."""
    right = total - left
    (gains, on_left), (others, on_right) = (
        _score_sums(left, rule, bounds),
        _score_sums(right, rule, bounds),
    )
    whole = _score_sums(total.reshape(1, -1), rule, bounds)[0][0]
    light = _is_light(left, rule) | _is_light(right, rule)
    for i in range(len(left)):
        move = moves[i] if len(moves) > 1 else moves[0]
        if light[i] or (on_right[i] - on_left[i]) * move < 0:
            gains[i] = -np.inf
        else:
            gains[i] = (gains[i] + others[i]) - whole
    return gains


@kernel
def _is_cut(group_of: CellGroups, b: int, last: int, on_left: bool) -> bool:
    """Return whether a candidate divides between groups, not within one."""
    apart = group_of[-1] != group_of[last]
    return group_of[b] != group_of[b + 1] and (apart or not on_left) if b < last else apart


@kernel
def _list_candidates(cells: Sums, last: int, move: int, left: Sums, listed: Listed) -> int:
    """List the candidates of a column in a node, cells (n_cells, 2·outputs), in canonical order:
    left sums, bins, side of the missing rows, and directions. Return their number.
    """
    each = 2 if np.any(cells[-1] != 0) else 1  # candidates of each bin: missing rows right, or left
    for b in range(last + each - 1):
        at = each * b
        for k in range(cells.shape[1]):
            left[at, k] = cells[b, k] + (left[at - each, k] if b else 0)
            left[at + each - 1, k] = left[at, k] + (each - 1) * cells[-1, k]
        for i in range(each):
            listed[at + i, 0], listed[at + i, 1], listed[at + i, 2] = b, i, move
    n = each * last + each - 1
    if each == 2:  # the last one, present against missing rows, has no direction
        listed[n - 1, 2] = 0
    return n


@kernel
def _best_splits(
    cells: Sums,
    totals: Sums,
    columns: CandidateColumns,
    limits: tuple[CellGroups, Floats],
    rule: GainRule,
) -> tuple[Floats, Indices, Sums]:
    """See `best_at_thresholds`."""
    (indices, n_bins, moves), (groups, bounds) = columns, limits
    nodes, _, n_cells, width = cells.shape
    best, where = np.full(nodes, -np.inf), np.zeros((nodes, 3), np.int64)
    won, left = (
        np.zeros((nodes, width), np.int64),
        np.empty((CANDIDATES_AT_ONCE + 2 * n_cells, width), np.int64),
    )
    listed = np.empty((len(left), 3), np.int16)
    owner = np.empty(len(left), np.int32)
    for node in range(nodes):
        own_bounds, n = bounds[node : node + 1], 0
        for place in range(len(indices)):
            c, last = indices[place], n_bins[place] - 1
            more = _list_candidates(cells[node, c], last, moves[place], left[n:], listed[n:])
            owner[n : n + more] = place
            n += more
            differ = totals.shape[1] > 1
            if n < CANDIDATES_AT_ONCE and not differ and place + 1 < len(indices):
                continue
            total = totals[node, c if differ else 0]
            gain = _split_gains(left[:n], total, own_bounds, listed[:n, 2], rule)
            for i in range(n):
                if not gain[i] > best[node]:
                    continue
                c, b, on_left = indices[owner[i]], listed[i, 0], listed[i, 1]
                last_bin = n_bins[owner[i]] - 1
                if not len(groups) or _is_cut(groups[node, c], b, last_bin, on_left == 1):
                    best[node], won[node] = gain[i], left[i]
                    where[node, 0], where[node, 1], where[node, 2] = c, b, on_left
            n = 0
    return best, where, won
