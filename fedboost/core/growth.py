"""Growth of trees from sums, over one table's rows or over many parties'.

own rows ─► sums ─► (added up over parties) ─► take: gains ─► splits ─► rows divide ─► next layer

Sums are integers, so the same trees grow for every distribution of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedboost.core import categories, gains, groups, histogram, monotone, split
from fedboost.core.bins import Bins
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD
from fedboost.core.groups import GroupNumbers, Minimum, MinimumState, Segments
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.monotone import Bounds
from fedboost.core.own_rows import OwnRows
from fedboost.core.partition import ROOT, Partition, layers_of, left_child, parent, right_child
from fedboost.core.row_parts import SharedTree
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.core.split import UNLIMITED, Limits
from fedboost.core.tree import (
    Node,
    Split,
    Tree,
    divide_rows,
    divided_above,
    divided_nodes,
    tree_of_nodes,
)
from fedboost.ground.arrays import Rows, Sums
from fedboost.ground.state import restore_into, state_class

BestSplit = tuple[Split, Sums]  # a node's split and the sums (2·outputs,) on its left


@state_class
class GrowingState:
    """State after the layers so far, and the sums that the next ones are subtracted from."""

    partition: Partition  # of the own rows that the tree learns from
    depth: int  # layers grown so far
    asked: list[int]  # nodes of the next sums, by their heap ids
    divided: list[int]  # nodes of the layer above with children
    cells: Sums  # (divided, columns, n_cells, 2·outputs) of them
    totals: dict[int, Sums]
    splits: dict[int, Split]
    bounds: dict[int, Bounds]  # of weights below nodes with bounds
    minimum: MinimumState | None


class GrowingTree(GrowingState):
    """A growing tree. In every layer take its `sums`, then `take` the sums of all parties."""

    def __init__(
        self,
        rules: Rules,
        bins: Bins,
        gh: Sums,
        rows: Rows,
        columns: TreeColumns,
        depth: int | None = None,
    ) -> None:
        """bins (n, columns), dense or sparse; gh int64 (n, 2·outputs) in units of rules.fixed; rows
        int32 ascending, the own rows that the tree learns from; `columns`, at least one, that it
        may use; `depth` is the most layers, max_depth if absent.
        """
        assert len(columns.all) > 0
        self.rows, self.gh, self.partition = rows, gh, Partition.at_root(rows)
        self._rules, self._bins, self._drawn = rules, bins, columns
        self._columns, self._depth = columns.all, depth or rules.params.max_depth
        # Gradients of all rows for leaf values; None: `gh`.
        self.leaf_gradients: LeafGradients | None = None
        self.depth, self.asked, self.divided = 0, [ROOT], []
        self.cells = np.empty(0, np.int64)
        self.totals = {ROOT: np.zeros(gh.shape[1], np.int64)}
        self.splits, self.bounds = {}, {}
        self.minimum: Minimum | None = Minimum.of(rules.binning, bins, columns.all, rules.least)
        self._views: Sequence[OwnRows | SharedTree] = (
            rules.own_rows(bins, gh, rows, columns.all)
            if rules.elsewhere is None
            else [rules.elsewhere.plant_tree(gh, rows, columns.all)]
        )

    @property
    def is_over(self) -> bool:
        """Return whether the tree has grown to its end and needs no more sums."""
        return not self.asked

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the next sums: (nodes, usable columns, n_cells, 2·outputs); 0 nodes: the end."""
        n_cells = self._rules.binning.n_cells
        return len(self.asked), len(self._columns), n_cells, self.gh.shape[1]

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns that the tree may use."""
        return tuple(self._columns.tolist())

    def sums(self) -> Sums:
        """Return the own rows' part of the sums of the next layer, int64 `shape`.

        They are the sums of the root, then of the child of each divided node with the smaller
        hessian sum over all parties' rows, the left one if they are equal; in order of heap ids.
        """
        if self._views:
            return np.sum([view.sums(self.asked) for view in self._views], axis=0)
        rows_of_nodes = [self.partition.rows(node) for node in self.asked]
        n_cells = self._rules.binning.n_cells
        threads = self._rules.threads
        return histogram.build(self._bins, rows_of_nodes, self.gh, n_cells, self._columns, threads)

    def take(self, sums: Sums) -> None:
        """Grow one layer from the sums int64 `shape` over all parties' rows."""
        assert not self.is_over
        assert sums.shape == self.shape
        nodes, cells = self._layer_histograms(sums)
        totals = self._seen_totals(nodes, cells)
        limits = Limits(self._released_groups(nodes), self._rules.bounds(nodes, self.bounds))
        won = best_splits(self._rules, cells, totals, self._columns, limits)
        gains = self._known_gains()
        gains |= {n: best[0].gain for n, best in zip(nodes, won, strict=True) if best}
        leaves = self._rules.params.max_leaves
        divides = divided_nodes(gains, leaves)
        self.depth += 1
        for node, node_cells, best in zip(nodes, cells, won, strict=True):
            if best is not None and node in divides:
                if self._rules.own_rows_min:  # the children add up to the column's own totals
                    column = np.searchsorted(self._columns, best[0].column)
                    self.totals[node] = node_cells[column].sum(axis=0)
                self._settle_split(node, *best)
        if self.depth == self._depth:
            self.close()
            return
        splits = {node: self.splits[node] for node in nodes if node in self.splits}
        missing, threads = self._rules.binning.missing, self._rules.threads
        divide_rows(self.partition, self._bins, splits, missing, threads)
        for view in self._views:
            view.divide(splits)
        above = divided_above(gains, leaves)
        kept = [place for place, node in enumerate(nodes) if node in above]
        self.divided = [nodes[place] for place in kept]
        self.cells = cells if len(kept) == len(nodes) else cells[kept]
        self.asked = self._lighter_children()

    def load_state(self, kept: GrowingState) -> None:
        """Resume the tree of an earlier attempt; the gradients must be the same."""
        restore_into(self, kept)
        for layer in layers_of(self.splits):
            for view in self._views:
                view.divide({node: self.splits[node] for node in layer})

    def close(self) -> None:
        """End the tree at its last complete layer: nodes without sums stay leaves.

        Without the root's sums it is a single leaf of value 0.
        """
        self.asked, self.divided, self.cells = [], [], np.empty(0, np.int64)

    def tree(self) -> Tree:
        """Return the tree, once it is over."""
        assert self.is_over
        rules, nodes = self._rules, list(self.totals)
        for node in sorted(self.splits, reverse=True):  # the sum of its leaves
            self.totals[node] = self.totals[left_child(node)] + self.totals[right_child(node)]
        divided = divided_nodes(self._known_gains(), rules.params.max_leaves)
        nodes = [node for node in nodes if node == ROOT or parent(node) in divided]
        totals = np.array([self.totals[node] for node in nodes])
        G, H = totals[:, 0::2], totals[:, 1::2]
        values = split.leaf_value(G, H, rules.params, rules.fixed)
        covers = split.cover(H, rules.fixed).tolist()
        tree = tree_of_nodes(
            {
                node: Node(value, cover, self.splits[node] if node in divided else None)
                for node, value, cover in zip(nodes, values, covers, strict=True)
            }
        )
        if self.leaf_gradients is not None:
            tree = self._with_exact_leaves(tree, self.leaf_gradients)
        bounds = rules.bounds(tree.node.tolist(), self.bounds)
        if bounds is None:
            return tree
        within = monotone.clip_to_bounds(tree.value, bounds, rules.params.learning_rate)
        return replace(tree, value=np.where(tree.is_leaf[:, None], within, tree.value))

    def _with_exact_leaves(self, tree: Tree, exact: LeafGradients) -> Tree:
        """Return the tree with its leaves' values from the exact gradients of their rows."""
        places = tree.leaf_of_bins(self._bins, self._rules.binning.missing)[self.rows]
        sums = np.zeros((tree.n_nodes, self.gh.shape[1]), np.int64)
        np.add.at(sums, places, exact.gh[self.rows])
        values = exact.values(sums, self._rules.params)
        return replace(tree, value=np.where(tree.is_leaf[:, None], values, tree.value))

    def _layer_histograms(self, sums: Sums) -> tuple[list[int], Sums]:
        """Return the open nodes, ascending, and their histograms."""
        if not self.divided:
            # Every row has one cell in every column, perhaps the missing one.
            self.totals[ROOT] = sums[0, 0].sum(axis=0)
            return [ROOT], sums
        nodes = [c for node in self.divided for c in (left_child(node), right_child(node))]
        asked = set(self.asked)
        came = np.array([node in asked for node in nodes])
        cells = np.empty((len(nodes), *sums.shape[1:]), np.int64)
        cells[came] = sums
        cells[~came] = self.cells - sums
        return nodes, cells

    def _known_gains(self) -> dict[int, float]:
        return {node: best.gain for node, best in self.splits.items()}

    def _seen_totals(self, nodes: Sequence[int], cells: Sums) -> Sums:
        """Return the open nodes' sums, (nodes, 2·outputs), or (nodes, columns, 2·outputs)."""
        if self._rules.own_rows_min:
            totals: Sums = cells.sum(axis=2)
            return totals[:, 0] if (totals == totals[:, :1]).all() else totals
        return np.array([self.totals[node] for node in nodes])

    def _released_groups(self, nodes: Sequence[int]) -> GroupNumbers | None:
        """Return the groups of the open nodes, None without minimum groups and column sampling."""
        held = None
        if self.minimum is not None:
            self.minimum.open(nodes, self.partition)
            held = self.minimum.stacked_groups(nodes)
        return groups.usable_groups(self._rules.binning, self._drawn, nodes, held)

    def _settle_split(self, node: int, won: Split, left: Sums) -> None:
        """Store a split and the totals of its children."""
        self.splits[node] = won
        self.totals[left_child(node)] = left
        self.totals[right_child(node)] = right = self.totals[node] - left
        if self._rules.directions is not None:
            self._rules.bound(self.bounds, node, (won.column, won.bin), np.stack([left, right]))
        if self.minimum is not None:
            self.minimum.divide(node, won.column, won.bin, won.missing_left, won.left_bins)

    def _lighter_children(self) -> list[int]:
        """Return the child of each divided node whose histogram is summed; the other's is the
        difference.

        Children are compared by hessian sums, which are the same for all parties, unlike row
        counts. With equal hessians they are proportional to row counts.
        """
        if not self.divided:
            return []
        pairs = [(left_child(node), right_child(node)) for node in self.divided]
        sides = np.array([[self.totals[child] for child in pair] for pair in pairs])
        weight = split.cover(sides[..., 1::2], self._rules.fixed)
        return [pair[int(right < left)] for pair, (left, right) in zip(pairs, weight, strict=True)]


def best_splits(
    rules: Rules, cells: Sums, totals: Sums, columns: Rows, limits: Limits = UNLIMITED
) -> list[BestSplit | None]:
    """Return the best split of each node, None if no split is worth it.

    cells int64 (nodes, columns, n_cells, 2·outputs) of `columns`, int32 ascending, which may divide
    the nodes; totals int64 (nodes, 2·outputs), or (nodes, columns, 2·outputs) if columns differ
    (own_rows). Of equal gains the first in canonical order wins.
    """
    by_category = rules.binning.is_categorical[columns]
    ordered = np.flatnonzero(~by_category)
    totals = totals.reshape(len(totals), -1, totals.shape[-1])  # for all columns, or each
    won = _at_thresholds(rules, cells, totals, columns, ordered, limits)
    for place in np.flatnonzero(by_category).tolist():
        for node, each in enumerate(totals):
            total = each[place % len(each)]
            interval = limits.of(node, place)
            candidate = _by_categories(
                rules, cells[node, place], total, int(columns[place]), interval
            )
            won[node] = _better_split(won[node], candidate)
    return won


def _at_thresholds(
    rules: Rules,
    cells: Sums,
    totals: Sums,
    columns: Rows,
    indices: NDArray[np.int64],
    limits: Limits,
) -> list[BestSplit | None]:
    """Return the best splits of all nodes at thresholds of the columns at `indices`."""
    binning = rules.binning
    moves = (
        np.zeros(len(columns), np.int8) if rules.directions is None else rules.directions[columns]
    )
    usable = indices, binning.n_bins[columns[indices]].astype(np.int64), moves[indices]
    best, where, left = gains.best_at_thresholds(
        cells, totals, usable, limits, rules.params, rules.fixed
    )
    won: list[BestSplit | None] = []
    for node, (gain, (place, last, lost)) in enumerate(
        zip(best.tolist(), where.tolist(), strict=True)
    ):
        if not split.is_worth(gain, rules.params):
            won.append(None)
            continue
        column = int(columns[place])
        threshold = binning.threshold(column, last)
        won.append((Split(column, last, threshold, bool(lost), gain), left[node]))
    return won


def _by_categories(
    rules: Rules, cells: Sums, total: Sums, column: int, limits: Limits
) -> BestSplit | None:
    """Return the best division of a node by the categories of a column.

    cells int64 (n_cells, 2·outputs); `limits` of the node and the column. The node misses the
    column if its cell of missing values is not 0, as at thresholds.
    """
    absent = cells[-1] if cells[-1].any() else None
    n_bins, sums, released = int(rules.binning.n_bins[column]), cells[:-1], limits.groups
    segments = Segments.one_per_bin(n_bins) if released is None else Segments.of(released, n_bins)
    if released is not None:
        sums = np.add.reduceat(cells[:n_bins], segments.bounds[:-1], axis=0)
    if absent is not None and not segments.apart:
        sums[-1] += absent
        absent = None
    divisions = categories.divisions(sums, absent, rules.params, rules.fixed)
    left = divisions.left
    gain = rules.candidate_gains(left, total, limits.bounds)
    best = split.best_candidate(gain, rules.params)
    if best < 0:
        return None
    chosen = divisions.bins(best)
    missing_left = bool(divisions.missing_left[best]) or segments.holds_missing(chosen)
    left_bins = categories.as_set(segments.members(chosen))
    won = Split(
        column=column,
        bin=BY_CATEGORY,
        threshold=NO_THRESHOLD,
        missing_left=missing_left,
        gain=float(gain[best]),
        left_bins=left_bins,
    )
    return won, left[best].copy()


def _better_split(first: BestSplit | None, second: BestSplit | None) -> BestSplit | None:
    """Return the split of greater gain, or of the lower column if gains are equal."""
    candidates = [won for won in (first, second) if won is not None]
    return min(candidates, key=lambda won: (-won[0].gain, won[0].column), default=None)
