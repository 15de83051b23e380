"""Categorical columns: bins without an order, divided in two by the gradients of their rows.

A node's categories are ranked by G/(H + λ), and candidates cut the ranking in two; with λ = 0 the
best of all divisions is among them (Fisher, 1958; XGBoost and LightGBM do the same). A ranking
needs sums but no names, so a guest ranks a host's categories without knowing them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import MAX_BIN, TreeParams
from fedboost.ground.arrays import Floats, Indices, Sums
from fedboost.ground.kernels import kernel

Sets = NDArray[np.uint8]

SET_BYTES = (MAX_BIN + 7) // 8  # a bit for each bin that a column can have
# Last bin and threshold of a split whose left side is a set of bins.
BY_CATEGORY, NO_THRESHOLD = -2, np.float32(-np.inf)


@dataclass(frozen=True)
class Divisions:
    """Candidates of one categorical column in one node, in canonical order.

    Candidate i sends the first ends[i] of `ranked` left, and missing rows left if missing_left[i].
    Bins without rows in the node are not ranked and go right. Candidates are ordered by end, then
    missing right before missing left.
    """

    ranked: Indices  # (k,) bins with rows in the node, by rising G/(H + λ)
    ends: Indices  # (n,)
    missing_left: NDArray[np.bool_]  # (n,)
    left: Sums  # (n, 2·outputs) the sums on the left

    def __len__(self) -> int:
        return len(self.ends)

    def bins(self, number: int) -> Indices:
        """Return the bins that candidate `number` sends left."""
        return self.ranked[: self.ends[number]]


def divisions(sums: Sums, missing: Sums | None, params: TreeParams, fixed: FixedPoint) -> Divisions:
    """Return all candidates of a column from sums int64 (categories, 2·outputs), and (2·outputs,)
    of missing rows.

    `missing` is None if no row of the node lacks a value. Cuts lie only between different values of
    G/(H + λ), so the candidates do not depend on the order of the categories. With several outputs,
    the output with the widest range of values ranks the categories. With missing rows, each cut
    occurs with them on either side, and the last candidate has all present rows left and the
    missing ones right.
    """
    (present,) = np.nonzero(sums.any(axis=1))
    score = _rank_scores(sums[present], params, fixed)
    order = np.argsort(score, kind="stable")
    ranked = present[order]
    ends = np.flatnonzero(np.diff(score[order]) > 0.0) + 1
    up_to = np.cumsum(sums[ranked], axis=0)
    if missing is None:
        return Divisions(ranked, ends, np.zeros(len(ends), np.bool_), up_to[ends - 1])
    every = np.repeat(ends, 2)
    on_left = np.tile([False, True], len(ends))
    if len(ranked):
        every, on_left = np.append(every, len(ranked)), np.append(on_left, False)
    left = up_to[every - 1]
    left[on_left] += missing
    return Divisions(ranked, every, on_left, left)


def _rank_scores(sums: Sums, params: TreeParams, fixed: FixedPoint) -> Floats:
    """Return G/(H + λ) of each category, of the output with the widest range; float64 (k,)."""
    if not len(sums):
        return np.empty(0)
    top = fixed.decode_g(sums[:, 0::2])
    bottom = fixed.decode_h(sums[:, 1::2]) + params.reg_lambda
    ratio = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0.0)
    return ratio[:, np.argmax(ratio.max(axis=0) - ratio.min(axis=0))]


def as_set(bins: Indices) -> bytes:
    """Return bins as SET_BYTES bytes: bit b mod 8 of byte b div 8 is set for each bin b."""
    held = np.zeros(8 * SET_BYTES, np.bool_)
    held[bins] = True
    return np.packbits(held, bitorder="little").tobytes()


def as_sets(sets: list[bytes]) -> Sets:
    """Return sets of `as_set` as uint8 (n, SET_BYTES); empty bytes stand for no bin."""
    return np.frombuffer(b"".join(codes or bytes(SET_BYTES) for codes in sets), np.uint8).reshape(
        -1, SET_BYTES
    )


def set_members(held: bytes) -> list[int]:
    """Return the bins of a set, rising."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(held, np.uint8), bitorder="little")).tolist()


@kernel
def set_holds(sets: Sets, row: int, number: int) -> bool:
    """Return whether the set in row `row` of uint8 (n, SET_BYTES) has bin `number`; False beyond
    it.
    """
    if number < 0 or number >= 8 * sets.shape[1]:
        return False
    return bool((sets[row, number >> 3] >> (number & 7)) & 1)
