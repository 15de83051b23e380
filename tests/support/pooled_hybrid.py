"""HybridTree on pooled data: the yardstick whose trees the protocol must grow (Li et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
from fedboost.core.binning import Binning, FeatureValues
from fedboost.core.bins import Bins, bins_of_rows
from fedboost.core.groups import Minimum
from fedboost.core.growth import best_splits
from fedboost.core.hybrid import HeldRows, HybridParams, encoding, grow_top, residual_gradients
from fedboost.core.local import TrainingTable, Watched
from fedboost.core.objectives import Summary
from fedboost.core.partition import Partition, left_child, right_child
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.core.tree import Split, Tree
from fedboost.ground.arrays import Floats, Rows, Sums


@dataclass(frozen=True)
class HostColumns:
    """What one host has of a table's rows."""

    values: FeatureValues  # float32 (m, its columns), NaN where missing; dense or sparse
    rows: Rows  # (m,) ascending: which rows of the table they are
    categorical: tuple[int, ...] = ()
    group_rows_min: int = 1  # of the host's policy (core.groups)


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
            column = bins_of_rows(bins, cut.column, rows.astype(np.int32))
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
    objective = objectives.start_objective(params, summary)
    fixed = encoding(params, objective, summary)
    own = fixed_point.widest_encoding(fixed, summary.rows) if fixed.is_coarse else fixed
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
        sample = sampling.round_sample(params, g, this, this)
        gh = np.zeros((len(g), 2 * g.shape[1]), np.int64)
        gh[sample.rows] = sample.encoded_gradients(own, (g, h))
        held = [
            HeldRows.draw_rows(params, own, (g[part.rows], h[part.rows]), this, party)
            for party, part in enumerate(hosts, start=1)
        ]
        trees: list[HybridTree] = []
        for k in range(params.trees_per_round):
            columns = [
                TreeColumns.draw_columns(params, number, (side.shape[1],), first=party)
                for party, side in enumerate(bins)
            ]
            pairs = slice(None) if params.trees_per_round == 1 else slice(2 * k, 2 * k + 2)
            mine = np.ascontiguousarray(gh[:, pairs])
            grower = _Grower(rules, bins, mine, sample.rows, columns)
            below = [part.columns_of_tree(pairs) for part in held]
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
        above = grow_top(
            guest, self.bins[0], self.gh, self.rows, self.columns[0], params.guest_depth
        )
        leaves = above.leaf_of_bins(self.bins[0], guest.binning.missing)
        subtrees = []
        for k, (mine, below) in enumerate(zip(rows, held, strict=True), start=1):
            moved = residual_gradients(below.gh, above.value[leaves[mine]], guest.fixed)
            sent = below.rounded_gradients(moved, guest.fixed, self.rules[k].fixed)
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
        standing = Partition.from_nodes(rows.astype(np.int32), at[rows], open_nodes)
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
                released = minimum.stacked_groups(open_nodes)
            # The host's own numbers of nodes begin below all of the guest's layers.
            drawn = [(1 << layer) - 1] * len(node_rows)
            released = groups.usable_groups(rules.binning, self.columns[k], drawn, released)
            won = (
                best_splits(rules, cells, totals, columns, split.Limits(released))
                if node_rows
                else []
            )
            divided = []
            for node, some, division in zip(open_nodes, node_rows, won, strict=True):
                if division is None:
                    continue
                best, _ = division
                column = bins_of_rows(self.bins[k], best.column, some)
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
