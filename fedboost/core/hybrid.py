"""HybridTree on pooled data: the yardstick whose trees the protocol must grow (Li et al., 2023).

Here, as everywhere, the guest holds the labels and the hosts further columns; the paper has these
two words the other way round. A guest's tree ends in bottom nodes; below each of them every host
grows a subtree on the rows that it has, with its own columns:

    guest's rows ─► top of the tree ─► bottom node b ─► w_b = −G/(H + λ) over all rows
    host's rows in b ─► g + h·w_b ─► host_depth layers ─► leaf ─► δ = −G'/(H' + λ)

A row's tree value is w_b plus the mean of δ over the hosts that have the row; rows that nobody has
keep w_b. The paper's hosts start again from g (its equation 8). Started from w_b, a host that has
too few rows or nothing to say adds 0, where the paper's replaces what all rows tell by what few do,
and a subtree's gain is what it adds to the guest's leaf.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedboost.core import (
    binning,
    fixed_point,
    groups,
    histogram,
    local,
    objectives,
    sampling,
    split,
)
from fedboost.core.binning import Binning, Values
from fedboost.core.bins import Bins, of_rows
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.groups import Minimum
from fedboost.core.growth import GrowingTree, choose
from fedboost.core.local import TrainingTable, Watched
from fedboost.core.objectives import Objective, Summary
from fedboost.core.params import MAX_DEPTH, TreeParams
from fedboost.core.partition import ROOT, Partition, left_child, right_child
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.core.tree import Node, Split, Tree, grown
from fedboost.ground.arrays import Bits, Floats, Rows, Sums

COUNTED_MAX = 64.0  # a gradient for hosts that count rows is cut at so many times the greatest |g|
VALUE_MAX = 16.0  # a bottom node's value is cut at so many times the greatest |g| / the greatest h


class HybridParams(TreeParams):
    """Settings of HybridTree: how many layers the guest grows, and how many the hosts below."""

    guest_depth: int = Field(5, ge=1, lt=MAX_DEPTH)
    host_depth: int = Field(2, ge=1, lt=MAX_DEPTH)
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
                "add values of their own: leave it out"
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
    """Return how gradients become integers that leave room for g + h·w_b (see `residual`)."""
    g_bound, h_bound = objective.bounds(summary)
    factor = 1.0 if params.goss is None else params.goss.factor
    bound = factor * g_bound * (1.0 + VALUE_MAX)
    return fixed_point.for_rows(summary.rows, params.precision_bits, bound, factor * h_bound)


def top(rules: Rules, bins: Bins, gh: Sums, rows: Rows, columns: TreeColumns, depth: int) -> Tree:
    """The guest's part of a tree: at most `depth` layers on its own columns, perhaps none.

    As `growth.GrowingTree`; the leaves' values are w_b without learning_rate, cut at VALUE_MAX.
    """
    if len(columns.all):
        tree = local.grow(GrowingTree(rules, bins, gh, rows, columns, depth))
    else:
        total = gh[rows].sum(axis=0)
        value = split.leaf_value(total[0::2], total[1::2], rules.params, rules.fixed)
        tree = grown({ROOT: Node(value, float(split.cover(total[1::2], rules.fixed)))})
    most = value_max(rules.fixed)
    value = np.clip(tree.value / rules.params.learning_rate, -most, most)
    return replace(tree, value=value)


def value_max(fixed: FixedPoint) -> float:
    """The greatest value of a bottom node."""
    return VALUE_MAX * fixed.g_bound / (1.0 + VALUE_MAX) / fixed.h_bound


def residual(gh: Sums, value: Floats, fixed: FixedPoint) -> Sums:
    """g + h·w of each row, whose bottom node's value is w, and its h; int64 (n, 2·outputs).

    value float64 (n, outputs).
    """
    moved = gh.copy()
    moved[:, 0::2] += np.rint(fixed.decode_h(gh[:, 1::2]) * value / fixed.g_unit).astype(np.int64)
    return moved


def counted_unit(fixed: FixedPoint, bits: int) -> float:
    """Return what 1 in a `counted` gradient of `bits` bits is worth."""
    return math.ldexp(COUNTED_MAX * fixed.g_bound / (1.0 + VALUE_MAX), -bits)


def counted(moved: Sums, factor: Floats, rules: Rules, bits: int) -> Sums:
    """Gradients for hosts that divide by counts: int64 (n, outputs) in units of `counted_unit`.

    `moved` as from `residual`, factor float64 (n, outputs) that of each row's bottom node
    (`count_factors`). Cut at 64 times the objective's bound.
    """
    unit = counted_unit(rules.fixed, bits)
    most = math.ldexp(unit, bits)
    g = rules.fixed.decode_g(moved[:, 0::2]) * factor
    return np.rint(np.clip(g, -most, most) / unit).astype(np.int64)


def count_factors(gh: Sums, tree: Tree, leaves: Rows, rules: Rules) -> Floats:
    """What makes up for hessians at each leaf of a tree, float64 (nodes, outputs); see `counted`.

    A host that cannot see Σh takes −Σg / (|I| + λ) of a leaf's rows I. Rows of bottom node b are
    therefore scaled by (n_b + λ) / (H_b + λ), its training rows and their hessians, so that a host
    with nothing to say adds what it would add with hessians; where h is 1 nothing changes. gh int64
    (n, 2·outputs) and leaves int32 (n,), places in `tree`, are those of the rows that it learns
    from.
    """
    h, lam = rules.fixed.decode_h(gh[:, 1::2]), rules.params.reg_lambda
    rows = np.bincount(leaves, minlength=tree.n_nodes)[:, None]
    weight = np.stack(
        [np.bincount(leaves, column, minlength=tree.n_nodes) for column in h.T], axis=1
    )
    below = weight + lam
    return np.divide(rows + lam, below, out=np.ones_like(below), where=below > 0.0)


@dataclass(frozen=True)
class HostColumns:
    """What one host has of a table's rows."""

    values: Values  # float32 (m, its columns), NaN where missing; dense or sparse
    rows: Rows  # (m,) ascending: which rows of the table they are
    categorical: tuple[int, ...] = ()
    group_rows_min: int = 1  # of the host's policy (core.groups)


@dataclass(frozen=True)
class HeldRows:
    """Of the training rows that one host has, those that its subtrees of a round learn from."""

    learns: Bits  # (m,)
    gh: Sums  # (m, columns) gradients in units of the guest's, 0 where it does not learn
    fractions: Floats  # (rows that it learns from, columns) that round what it adds up

    @classmethod
    def drawn(
        cls,
        params: HybridParams,
        fixed: FixedPoint,
        gradients: tuple[Floats, Floats],
        round_number: int,
        host: int,
    ) -> Self:
        """Draw among the m training rows of host number `host`, whatever the guest's layers draw.

        So a host can draw the same without knowing the guest's rows. gradients float64 (m, outputs)
        each; `fixed` are the guest's units.
        """
        g, _ = gradients
        sample = sampling.of_round(params, g, round_number, round_number, host)
        learns, gh = np.zeros(len(g), np.bool_), np.zeros((len(g), 2 * g.shape[1]), np.int64)
        learns[sample.rows], gh[sample.rows] = True, sample.encoded(fixed, gradients)
        return cls(learns, gh, sample.fractions(gh.shape[1]))

    def of_tree(self, pairs: slice) -> HeldRows:
        """Return the columns of one tree, contiguous."""
        gh = np.ascontiguousarray(self.gh[:, pairs])
        return HeldRows(self.learns, gh, self.fractions[:, pairs])

    def rounded(self, moved: Sums, own: FixedPoint, hosts: FixedPoint) -> Sums:
        """Return what the host adds up of gradients `moved` by their bottom nodes, int64 as those:
        in units of `hosts`, not the guest's `own`.
        """
        if own == hosts:
            return moved
        rows = np.flatnonzero(self.learns)
        g, h = own.decode_g(moved[rows, 0::2]), own.decode_h(moved[rows, 1::2])
        rounded = np.zeros_like(moved)
        rounded[rows] = hosts.encode(g, h, lambda _: self.fractions)
        return rounded


@dataclass(frozen=True)
class Subtrees:
    """What one host has grown below the bottom nodes of a tree: splits, and δ at the leaves."""

    splits: Mapping[int, Split]  # by heap id
    values: Mapping[int, Floats]  # by heap id: (outputs,) of every node that is no split

    def leaves(self, bins: Bins, at: Rows, missing: int) -> Rows:
        """The leaf of each row, int32 (m,), that begins at the bottom node `at`, int32 (m,)."""
        nodes = at.copy()
        for node, cut in sorted(self.splits.items()):
            (rows,) = np.nonzero(nodes == node)
            column = of_rows(bins, cut.column, rows.astype(np.int32))
            right = split.goes_right(column, cut.bin, cut.missing_left, missing, cut.left_bins)
            nodes[rows] = np.where(right, right_child(node), left_child(node))
        return nodes

    def predict(self, bins: Bins, at: Rows, missing: int) -> Floats:
        """δ of each row, float64 (m, outputs); 0 below bottom nodes that the host never saw."""
        width = len(next(iter(self.values.values())))
        values = np.zeros((len(at), width))
        leaves = self.leaves(bins, at, missing)
        for leaf, value in self.values.items():
            values[leaves == leaf] = value
        return values


@dataclass(frozen=True)
class HybridTree:
    """One tree: the guest's top, whose leaves are bottom nodes, and what each host grew below."""

    top: Tree
    hosts: tuple[Subtrees, ...]


@dataclass(frozen=True)
class TrainedHybrid:
    """The result of a job on pooled data."""

    trees: tuple[tuple[HybridTree, ...], ...]  # [round][class, if it has trees of its own]
    binnings: tuple[Binning, ...]  # the guest's, then each host's
    base_margin: Floats  # (outputs,)
    margin: Floats  # (n, outputs) of the training rows


def train(
    table: TrainingTable, hosts: Sequence[HostColumns], params: HybridParams
) -> TrainedHybrid:
    """HybridTree with scored splits; every host has at least one of the table's rows.

    Hosts draw columns as parties 1, 2, … in order, the guest as party 0.
    """
    summary = Summary.of(params, table.y, table.weights)
    objective = objectives.start(params, summary)
    fixed = encoding(params, objective, summary)
    own = fixed_point.widest(fixed, summary.rows) if fixed.is_coarse else fixed
    parts = [(table.values, table.categorical), *((p.values, p.categorical) for p in hosts)]
    cuts = [binning.fit(values, params.max_bin, kinds) for values, kinds in parts]
    bins = [cut.transform(values) for cut, (values, _) in zip(cuts, parts, strict=True)]
    least = [1, *(part.group_rows_min for part in hosts)]
    rules = [
        Rules(params, cut, of, np.full(cut.n_columns, rows, np.int32))
        for cut, rows, of in zip(cuts, least, [own, *[fixed] * len(hosts)], strict=True)
    ]
    watched = Watched.of(table, cuts[0], objective)
    rounds: list[tuple[HybridTree, ...]] = []
    number = 0
    for this in range(params.n_estimators):
        g, h = objective.gradients(watched.margin, watched.y, watched.weight)
        sample = sampling.of_round(params, g, this, this)
        gh = np.zeros((len(g), 2 * g.shape[1]), np.int64)
        gh[sample.rows] = sample.encoded(own, (g, h))
        held = [
            HeldRows.drawn(params, own, (g[part.rows], h[part.rows]), this, party)
            for party, part in enumerate(hosts, start=1)
        ]
        trees: list[HybridTree] = []
        for k in range(params.trees_per_round):
            columns = [
                TreeColumns.drawn(params, number, (side.shape[1],), first=party)
                for party, side in enumerate(bins)
            ]
            pairs = slice(None) if params.trees_per_round == 1 else slice(2 * k, 2 * k + 2)
            mine = np.ascontiguousarray(gh[:, pairs])
            grower = _Grower(rules, bins, mine, sample.rows, columns)
            below = [part.of_tree(pairs) for part in held]
            trees.append(grower.tree([part.rows for part in hosts], below))
            number += 1
        added = [params.learning_rate * predict(tree, rules, bins, hosts) for tree in trees]
        local.add_to_margin(watched.margin, added)
        rounds.append(tuple(trees))
    return TrainedHybrid(tuple(rounds), tuple(cuts), objective.base_margin, watched.margin)


def predict(
    tree: HybridTree, rules: Sequence[Rules], bins: Sequence[Bins], hosts: Sequence[HostColumns]
) -> Floats:
    """float64 (n, outputs): w_b plus the mean δ of each row's hosts; without learning_rate."""
    missing = rules[0].binning.missing
    leaves = tree.top.leaf_of_bins(bins[0], missing)
    at = tree.top.node[leaves]
    total = np.zeros((len(at), tree.top.value.shape[1]))
    holders = np.zeros(len(at))
    for part, host_bins, subtrees in zip(hosts, bins[1:], tree.hosts, strict=True):
        total[part.rows] += subtrees.predict(host_bins, at[part.rows], missing)
        holders[part.rows] += 1
    return tree.top.value[leaves] + total / np.maximum(holders, 1)[:, None]


@dataclass(frozen=True)
class _Grower:
    """One tree of a round on pooled rows."""

    rules: Sequence[Rules]  # the guest's, then each host's; so are the rest
    bins: Sequence[Bins]
    gh: Sums
    rows: Rows  # the training rows that the tree learns from
    columns: Sequence[TreeColumns]

    def tree(self, rows: Sequence[Rows], held: Sequence[HeldRows]) -> HybridTree:
        """The tree; `rows` are those of each host, `held` which of them its subtrees learn from."""
        guest, params = self.rules[0], self.rules[0].params
        assert isinstance(params, HybridParams)
        above = top(guest, self.bins[0], self.gh, self.rows, self.columns[0], params.guest_depth)
        leaves = above.leaf_of_bins(self.bins[0], guest.binning.missing)
        subtrees = []
        for k, (mine, below) in enumerate(zip(rows, held, strict=True), start=1):
            moved = residual(below.gh, above.value[leaves[mine]], guest.fixed)
            sent = below.rounded(moved, guest.fixed, self.rules[k].fixed)
            subtrees.append(self._below(k, (sent, moved), above.node[leaves[mine]], below.learns))
        return HybridTree(above, tuple(subtrees))

    def _below(
        self, k: int, gradients: tuple[Sums, Sums], at: Rows, learns: NDArray[np.bool_]
    ) -> Subtrees:
        """The subtrees of host k on its rows, which stand at the bottom nodes `at`.

        Divisions come from the first of the `gradients`, leaves from the guest's own.
        """
        rules, params, (gh, exact) = self.rules[k], self.rules[k].params, gradients
        assert isinstance(params, HybridParams)
        (rows,) = np.nonzero(learns)
        open_nodes = np.unique(at[rows]).tolist()
        standing = Partition.of_nodes(rows.astype(np.int32), at[rows], open_nodes)
        splits: dict[int, Split] = {}
        columns = self.columns[k].all
        minimum = Minimum.of(rules.binning, self.bins[k], columns, rules.least)
        for layer in range(params.guest_depth, params.guest_depth + params.host_depth):
            node_rows = [standing.rows(node) for node in open_nodes]
            cells = histogram.build(self.bins[k], node_rows, gh, rules.binning.n_cells, columns)
            totals = np.array([gh[some].sum(axis=0) for some in node_rows])
            released = None
            if minimum is not None and node_rows:
                minimum.open(open_nodes, standing)
                released = minimum.stacked(open_nodes)
            # The host's own numbers of nodes begin below all of the guest's layers.
            drawn = [(1 << layer) - 1] * len(node_rows)
            released = groups.usable(rules.binning, self.columns[k], drawn, released)
            won = choose(rules, cells, totals, columns, split.Limits(released)) if node_rows else []
            divided = []
            for node, some, division in zip(open_nodes, node_rows, won, strict=True):
                if division is None:
                    continue
                best, _ = division
                column = of_rows(self.bins[k], best.column, some)
                missing = rules.binning.missing
                right = split.goes_right(
                    column, best.bin, best.missing_left, missing, best.left_bins
                )
                standing.divide(node, right)
                splits[node] = best
                if minimum is not None:
                    rule = (best.bin, best.missing_left, best.left_bins)
                    minimum.divide(node, best.column, *rule)
                divided += [left_child(node), right_child(node)]
            open_nodes = divided
        values = {}
        for leaf in standing.leaves():
            total = exact[standing.rows(leaf)].sum(axis=0)
            value = split.leaf_value(total[0::2], total[1::2], params, self.rules[0].fixed)
            values[leaf] = value / params.learning_rate
        return Subtrees(splits, values)
