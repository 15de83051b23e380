"""Steps of HybridTree on a party's rows: bottom nodes, and the residuals below (Li et al., 2023).

Here, as everywhere, the guest holds the labels and the hosts further columns; the paper has these
two words the other way round. A guest's tree ends in bottom nodes. Below each of them every host
grows a subtree on its rows, with its columns:

    guest's rows ─► top of the tree ─► bottom node b ─► w_b = −G/(H + λ) over all rows
    host's rows in b ─► g + h·w_b ─► host_depth layers ─► leaf ─► δ = −G'/(H' + λ)

A row's tree value is w_b plus the mean of δ over the hosts that have the row; rows without a host
keep w_b. The paper's hosts start again from g (its equation 8). Started from w_b, a host with too
few rows or without a signal adds 0, while the paper's host replaces the information of all rows by
that of few, and a subtree's gain is its improvement on the guest's leaf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedboost.core import (
    fixed_point,
    local,
    sampling,
    split,
)
from fedboost.core.bins import Bins
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.growth import GrowingTree
from fedboost.core.objectives import Objective, Summary
from fedboost.core.params import MAX_DEPTH, TreeParams
from fedboost.core.partition import ROOT
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.core.tree import Node, Tree, tree_of_nodes
from fedboost.ground.arrays import Bits, Floats, Rows, Sums

COUNTED_MAX = 64.0  # limit of gradients for counting hosts, in units of the greatest |g|
VALUE_MAX = 16.0  # limit of a bottom node's value, in units of greatest |g| / greatest h


class HybridParams(TreeParams):
    """Settings of HybridTree: numbers of layers that the guest grows, and the hosts below."""

    guest_depth: int = Field(2, ge=1, lt=MAX_DEPTH)  # layers of the guest, on its own columns
    host_depth: int = Field(1, ge=1, lt=MAX_DEPTH)  # layers below, of each host on its columns
    split: Literal["scored", "unscored"] = "scored"  # whether the guest scores the hosts' splits

    @model_validator(mode="after")
    def _depths_fit(self) -> Self:
        depth = self.guest_depth + self.host_depth
        if depth > MAX_DEPTH:
            raise ValueError(
                f"guest_depth and host_depth make {depth} layers; {MAX_DEPTH} is the most"
            )
        if "max_depth" in self.model_fields_set and self.max_depth != depth:
            raise ValueError(
                f"max_depth is {self.max_depth}, guest_depth and host_depth make {depth}: "
                "leave max_depth out"
            )
        if self.colsample_bynode < 1.0:
            raise ValueError(
                "colsample_bynode draws by the number of a node, which is another at each host of "
                "hybridtree: use colsample_bylevel"
            )
        if self.monotone_constraints:
            raise ValueError(
                "monotone_constraints ends at the guest's layers, below which hosts of hybridtree "
                "add further values: leave it out"
            )
        if self.max_leaves:
            raise ValueError(
                "max_leaves compares the gains of all layers, and hosts of hybridtree grow below "
                "a tree that is whole: leave max_leaves out"
            )
        if self.forest is not None:
            raise ValueError("hybridtree grows one tree a round for each class: leave forest out")
        return self


def encoding(params: HybridParams, objective: Objective, summary: Summary) -> FixedPoint:
    """Return the encoding of gradients that leaves room for g + h·w_b (see
    `residual_gradients`).
    """
    g_bound, h_bound = objective.bounds(summary)
    factor = 1.0 if params.goss is None else params.goss.factor
    bound = factor * g_bound * (1.0 + VALUE_MAX)
    return fixed_point.encoding_for_rows(
        summary.rows, params.precision_bits, bound, factor * h_bound
    )


def grow_top(
    rules: Rules, bins: Bins, gh: Sums, rows: Rows, columns: TreeColumns, depth: int
) -> Tree:
    """Grow the guest's part of a tree: at most `depth` layers on its columns, perhaps none.

    As `growth.GrowingTree`; the leaves' values are w_b without learning_rate, cut at VALUE_MAX.
    """
    if len(columns.all):
        tree = local.grow_tree(GrowingTree(rules, bins, gh, rows, columns, depth))
    else:
        total = gh[rows].sum(axis=0)
        value = split.leaf_value(total[0::2], total[1::2], rules.params, rules.fixed)
        tree = tree_of_nodes({ROOT: Node(value, float(split.cover(total[1::2], rules.fixed)))})
    most = value_max(rules.fixed)
    value = np.clip(tree.value / rules.params.learning_rate, -most, most)
    return replace(tree, value=value)


def value_max(fixed: FixedPoint) -> float:
    """Return the greatest value of a bottom node."""
    return VALUE_MAX * fixed.g_bound / (1.0 + VALUE_MAX) / fixed.h_bound


def residual_gradients(gh: Sums, value: Floats, fixed: FixedPoint) -> Sums:
    """Return g + h·w of each row and its h; w is its bottom node's value. int64 (n, 2·outputs).

    value float64 (n, outputs).
    """
    moved = gh.copy()
    moved[:, 0::2] += np.rint(fixed.decode_h(gh[:, 1::2]) * value / fixed.g_unit).astype(np.int64)
    return moved


def counted_unit(fixed: FixedPoint, bits: int) -> float:
    """Return the value of 1 in a `counted_gradients` gradient of `bits` bits."""
    return math.ldexp(COUNTED_MAX * fixed.g_bound / (1.0 + VALUE_MAX), -bits)


def counted_gradients(moved: Sums, factor: Floats, rules: Rules, bits: int) -> Sums:
    """Return gradients for hosts that divide by counts: int64 (n, outputs) in units of
    `counted_unit`.

    `moved` as from `residual_gradients`; factor float64 (n, outputs) is the factor of each row's
    bottom node (`count_factors`). Gradients are cut at 64 times the objective's bound.
    """
    unit = counted_unit(rules.fixed, bits)
    most = math.ldexp(unit, bits)
    g = rules.fixed.decode_g(moved[:, 0::2]) * factor
    return np.rint(np.clip(g, -most, most) / unit).astype(np.int64)


def count_factors(gh: Sums, tree: Tree, leaves: Rows, rules: Rules) -> Floats:
    """Return the factor that replaces hessians at each leaf of a tree, float64 (nodes, outputs).

    A host that cannot see Σh takes −Σg / (|I| + λ) of a leaf's rows I. So rows of bottom node b are
    scaled by (n_b + λ) / (H_b + λ), with its training rows and their hessians; then a host without
    a signal adds the same as with hessians. If h is 1, the factor is 1. gh int64 (n, 2·outputs) and
    leaves int32 (n,), indices in `tree`, are of the training rows of the tree. See
    `counted_gradients`.
    """
    h, lam = rules.fixed.decode_h(gh[:, 1::2]), rules.params.reg_lambda
    rows = np.bincount(leaves, minlength=tree.n_nodes)[:, None]
    weight = np.stack(
        [np.bincount(leaves, column, minlength=tree.n_nodes) for column in h.T], axis=1
    )
    below = weight + lam
    return np.divide(rows + lam, below, out=np.ones_like(below), where=below > 0.0)


@dataclass(frozen=True)
class HeldRows:
    """Sample of one host's training rows that its subtrees of a round learn from."""

    learns: Bits  # (m,)
    gh: Sums  # (m, columns) gradients in the guest's units, 0 outside the sample
    fractions: Floats  # (sampled rows, columns) that round the gradients

    @classmethod
    def draw_rows(
        cls,
        params: HybridParams,
        fixed: FixedPoint,
        gradients: tuple[Floats, Floats],
        round_number: int,
        host: int,
    ) -> Self:
        """Draw from the m training rows of host number `host`, independently of the guest's draws.

        So a host can draw the same without knowing the guest's rows. gradients float64 (m, outputs)
        each; `fixed` are the guest's units.
        """
        g, _ = gradients
        sample = sampling.round_sample(params, g, round_number, round_number, host)
        learns, gh = np.zeros(len(g), np.bool_), np.zeros((len(g), 2 * g.shape[1]), np.int64)
        learns[sample.rows], gh[sample.rows] = True, sample.encoded_gradients(fixed, gradients)
        return cls(learns, gh, sample.fractions(gh.shape[1]))

    def columns_of_tree(self, pairs: slice) -> HeldRows:
        """Return the columns of one tree, contiguous."""
        gh = np.ascontiguousarray(self.gh[:, pairs])
        return HeldRows(self.learns, gh, self.fractions[:, pairs])

    def rounded_gradients(self, moved: Sums, own: FixedPoint, hosts: FixedPoint) -> Sums:
        """Return gradients `moved` by their bottom nodes as the host adds them up, int64 of the
        same shape: in units of `hosts`, not the guest's `own`.
        """
        if own == hosts:
            return moved
        rows = np.flatnonzero(self.learns)
        g, h = own.decode_g(moved[rows, 0::2]), own.decode_h(moved[rows, 1::2])
        rounded = np.zeros_like(moved)
        rounded[rows] = hosts.encode(g, h, lambda _: self.fractions)
        return rounded
