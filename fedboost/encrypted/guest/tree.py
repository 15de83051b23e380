"""A tree while it grows, as the guest sees it: totals, its own histograms, the splits that won."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import groups, histogram, monotone, objectives, split
from fedboost.core.bins import Bins, bins_of_rows
from fedboost.core.growth import best_splits
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.metrics import ranks_label
from fedboost.core.monotone import Bounds
from fedboost.core.partition import ROOT, left_child, parent, right_child
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.core.tree import divided_above, divided_nodes
from fedboost.encrypted.cells.candidates import Shape
from fedboost.encrypted.guest.offers import Best, best_of
from fedboost.encrypted.scheme.ciphers import NodeBounds
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.encrypted.tree.batch import STRIDE, TreeBatch
from fedboost.encrypted.tree.growth import Growth
from fedboost.ground.arrays import Sums
from fedboost.ground.errors import PeerError
from fedboost.ground.state import state_class
from fedboost.model import vertical
from fedboost.model.vertical import GuestNode, OwnSplit


@dataclass(frozen=True)
class GuestRules(Rules):
    """The rules for growing a tree whose hosts may add noise to their sums."""

    noise: NoiseScale = field(kw_only=True)


@dataclass(frozen=True)
class WinningSplit:
    """The best split of one node."""

    owner: int  # 0 the guest, k the k-th host
    gain: float
    left: Sums  # (ties, 2·outputs) the sums on its left, of all candidates that share the gain
    # (ties,) the number of a host's sums in each; 0 for the guest's own splits, without noise
    parts: Sums = field(default_factory=lambda: np.zeros(1, np.int64))
    split: OwnSplit | None = None  # the guest's own
    bin: int = 0  # of the guest's own


@state_class
class GuestTreeState:
    """Results of the layers so far: the splits that won, and the nodes of the rows."""

    growth: Growth
    opened: list[int]
    chosen: list[int]  # of this layer
    won: dict[int, WinningSplit]  # of every layer
    totals: dict[int, Sums]
    bounds: dict[int, Bounds]  # of weights below nodes that have any (core.monotone)


class GuestTree(GuestTreeState):
    """One tree. Every layer: `open_layer`, then `choose` among all offers, then `divide`."""

    def __init__(
        self,
        rules: GuestRules,
        bins: Bins,
        gh: Sums,
        growth: Growth,
        columns: TreeColumns,
    ) -> None:
        """Begin with bins (n, own columns), gh int64 (n, 2·outputs), `growth` with the first nodes
        of the rows and the rows to learn from, and the own `columns` that the tree may use.
        """
        self.growth = growth
        self.gh = gh
        self.opened, self.chosen, self.won, self.bounds = [], [], {}, {}
        start = growth.training.leaves()
        self.totals = {
            node: histogram.signed_total(gh, growth.training.rows(node)) for node in start
        }
        self._rules, self._bins = rules, bins
        self._drawn, self._columns = columns, columns.all
        self._cells: dict[int, Sums] = {}  # own histograms of the nodes that divided last

    def host_gives_away(self, label: NDArray[np.float64]) -> int:
        """Return the host, from 1, whose split at the root ranks a binary label (n,) almost
        perfectly; 0 if none does.
        """
        won, training = self.won.get(ROOT), self.growth.training
        if won is None or not won.owner:
            return 0
        rows = np.concatenate([training.rows(leaf) for leaf in training.leaves()])
        goes_right = np.zeros(len(label))
        for leaf in training.leaves():
            goes_right[training.rows(leaf)] = _is_right(leaf)
        if len(np.unique(label[rows])) != 2:
            return 0
        return won.owner * ranks_label(label[rows], goes_right[rows])

    @property
    def layers(self) -> int:
        """Number of layers that have grown so far."""
        return self.growth.layers

    @property
    def draws_within(self) -> bool:
        """Whether each layer, or node, draws its own columns."""
        return self._rules.params.draws_within_trees

    def open_layer(self) -> list[int]:
        """Return the nodes that may divide: two children of min_child_weight must fit into one.

        A tree that begins at its root opens it at any weight.
        """
        gains = {node: won.gain for node, won in self.won.items()}
        above = divided_above(gains, self._rules.params.max_leaves)
        chosen = [node for node in self.chosen if node in above]
        candidates = [child for node in chosen for child in (left_child(node), right_child(node))]
        if not self.layers:
            candidates = list(self.totals)
            if candidates == [ROOT]:
                self.opened = candidates
                return candidates
        least = 2 * self._rules.params.min_child_weight
        self.opened = [
            node
            for node in candidates
            if float(split.cover(self.totals[node][1::2], self._rules.fixed)) >= least
        ]
        return self.opened

    def next_open(self) -> list[int]:
        """Return children of this layer's winners that may divide, as far as is known before the
        rows have divided: of tied candidates one may leave enough in a child.
        """
        least, children = 2 * self._rules.params.min_child_weight, []
        for node in self.chosen:
            left = self.won[node].left
            sides = ((left_child(node), left), (right_child(node), self.totals[node] - left))
            for child, sums in sides:
                if (split.cover(sums[:, 1::2], self._rules.fixed) >= least).any():
                    children.append(child)
        return children

    def own_best(self, number: int) -> dict[int, WinningSplit]:
        """Return the best split among the guest's own columns for each open node of tree
        `number`.
        """
        best: dict[int, WinningSplit] = {}
        cells = self._histograms()
        if not self.opened:
            return best
        totals = self._totals_of(self.opened)
        stacked = np.array([cells[node] for node in self.opened])
        released = groups.usable_groups(self._rules.binning, self._drawn, self.opened)
        limits = split.Limits(released, self._rules.bounds(self.opened, self.bounds))
        winners = best_splits(self._rules, stacked, totals, self._columns, limits)
        for node, winner in zip(self.opened, winners, strict=True):
            if winner is not None:
                cut, left = winner
                rule = (cut.column, cut.threshold, cut.missing_left, cut.left_bins)
                kept = OwnSplit(number, node, *rule)
                best[node] = WinningSplit(
                    vertical.GUEST, cut.gain, left[None], split=kept, bin=cut.bin
                )
        self._cells = cells
        return best

    def best_of(self, node: int, sums: Sums, shape: Shape) -> Best | None:
        """Return the best of a host's offer for an open node; None if noise has left the node
        empty.
        """
        if not len(self.growth.training.rows(node)):
            return None
        bounds = self._rules.bounds([node], self.bounds)
        interval = None if bounds is None else bounds[0]
        return best_of(self._rules, self.totals[node], sums, shape, interval)

    def take_winners(self, won: Mapping[int, WinningSplit]) -> None:
        """Take the winners of this layer; the other open nodes stay leaves, and so do nodes that a
        tree of max_leaves will never divide.
        """
        divides = self._divided_nodes({**self.won, **won})
        self.chosen = [node for node in won if node in divides]
        self.won.update({node: won[node] for node in self.chosen})
        self._cells = {node: self._cells[node] for node in self.chosen if node in self._cells}

    def expected(self) -> list[NodeBounds]:
        """Return the bounds of the open nodes' sums."""
        rows = [self.growth.training.rows(node) for node in self.opened]
        noise = self._rules.noise.most
        most = histogram.absolute_total
        return [NodeBounds(len(inside), most(self.gh, inside) + noise) for inside in rows]

    def own_divisions(self) -> dict[int, NDArray[np.bool_]]:
        """Return the row divisions of the nodes that one of the guest's own splits won."""
        divisions = {}
        for node in self.chosen:
            won = self.won[node]
            if won.split is not None:
                division, missing = won.split, self._rules.binning.missing
                bins = bins_of_rows(self._bins, division.feature, self.growth.everyone.rows(node))
                divisions[node] = split.goes_right(
                    bins, won.bin, division.missing_left, missing, division.left_bins
                )
        return divisions

    def divide(self, divisions: Mapping[int, NDArray[np.bool_]], hosts: Sequence[str] = ()) -> None:
        """Move the rows, whose true sums count from here on; a PeerError if these differ, by more
        than noise, from the offer of one of `hosts`.
        """
        self.growth.divide([(node, divisions[node]) for node in self.chosen])
        for node in self.chosen:
            won, left = self.won[node], left_child(node)
            sums = histogram.signed_total(self.gh, self.growth.training.rows(left))
            noise = won.parts[:, None] * self._rules.noise.most
            if not (np.abs(won.left - sums) <= noise).all(axis=1).any():
                host = hosts[won.owner - 1]
                raise PeerError(
                    f"{host} divided the rows of node {node} otherwise than it offered", party=host
                )
            self.totals[left] = sums
            self.totals[right_child(node)] = rest = self.totals[node] - sums
            at = None if won.split is None else (won.split.feature, won.bin)
            self._rules.bound(self.bounds, node, at, np.stack([sums, rest]))

    def finished(self, number: int, values: Mapping[int, NDArray[np.float64]]) -> list[GuestNode]:
        """Return all nodes as tree `number` of a model; `values` (outputs,) of the leaves."""
        nodes, known = [], self._finished_nodes()
        covers = split.cover(self._totals_of(known)[:, 1::2], self._rules.fixed).tolist()
        for (node, won), cover in zip(known.items(), covers, strict=True):
            if won is None:
                nodes.append(GuestNode(number, node, vertical.LEAF, values[node], 0.0, cover))
            else:
                zero = np.zeros(self.gh.shape[1] // 2)
                nodes.append(GuestNode(number, node, won.owner, zero, won.gain, cover, won.split))
        return nodes

    def leaves(self, exact: LeafGradients | None) -> dict[int, NDArray[np.float64]]:
        """Return the leaves' values, −G/(H + λ) times learning_rate, (outputs,) each. They come
        from `exact` gradients if those of the divisions are coarse.
        """
        rules, nodes = self._rules, self._leaf_nodes()
        made_of = exact or LeafGradients(self.gh, rules.fixed)
        sums = np.array([made_of.total(self.growth.training.rows_below(node)) for node in nodes])
        values = made_of.values(sums, rules.params)
        bounds = rules.bounds(nodes, self.bounds)
        if bounds is not None:
            values = monotone.clip_to_bounds(values, bounds, rules.params.learning_rate)
        return dict(zip(nodes, values, strict=True))

    def medians(
        self, residual: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> dict[int, NDArray[np.float64]]:
        """Return the leaves' values for an objective of medians: these times learning_rate.

        residual and weight float64 (n,), of all rows.
        """
        rate, training = self._rules.params.learning_rate, self.growth.training
        rows = {node: training.rows_below(node) for node in self._leaf_nodes()}
        return {
            node: rate * np.array([objectives.median(residual[inside], weight[inside])])
            for node, inside in rows.items()
        }

    def _divided_nodes(self, won: Mapping[int, WinningSplit]) -> set[int]:
        """Return the nodes among these that the tree divides, as far as it has grown."""
        return divided_nodes(
            {node: winner.gain for node, winner in won.items()}, self._rules.params.max_leaves
        )

    def _finished_nodes(self) -> dict[int, WinningSplit | None]:
        """Return the nodes of the finished tree, ascending, each with its split; None for leaves.

        Rows of a leaf may stand below it, divided by a split that a later, greater one displaced.
        """
        divided = self._divided_nodes(self.won)
        displaced = self.won.keys() - divided
        return {
            node: self.won[node] if node in divided else None
            for node in sorted(self.totals)
            if parent(node) not in displaced
        }

    def _totals_of(self, nodes: Iterable[int]) -> Sums:
        """Return the sums of nodes, int64 (nodes, 2·outputs)."""
        return np.array([self.totals[node] for node in nodes])

    def _leaf_nodes(self) -> list[int]:
        return [node for node, won in self._finished_nodes().items() if won is None]

    def _histograms(self) -> dict[int, Sums]:
        """Return the guest's own histogram of every open node, by subtraction if the parent has
        one.
        """
        known = {parent(node) for node in self.opened} if self.layers else set()
        if known and known <= set(self._cells):
            parents = {node: self._cells[node] for node in known}
            return histogram.child_histograms(
                self._bins, self.growth.training, self.gh, parents, self._columns
            )
        rows = [self.growth.training.rows(node) for node in self.opened]
        n_cells = self._rules.binning.n_cells
        built = histogram.build(self._bins, rows, self.gh, n_cells, self._columns)
        return dict(zip(self.opened, built, strict=True))


class GuestTreeBatch(TreeBatch[GuestTree]):
    """Trees that grow at once; nodes by number (TreeBatch)."""

    @classmethod
    def at_roots(
        cls, rules: GuestRules, bins: Bins, gh: Sums, rows: Sequence[NDArray[np.int32]], first: int
    ) -> Self:
        """Return trees at their roots, one for each of `rows`, which it learns from.

        bins (n, own columns), gh int64 (n, 2·outputs); `first` is the number of the first tree.
        """
        params, trees = rules.params, []
        for number, tree_rows in enumerate(rows, start=first):
            columns = TreeColumns.draw_columns(params, number, (bins.shape[1],))
            sampled = np.zeros(len(gh), np.bool_)
            sampled[tree_rows] = True
            trees.append(GuestTree(rules, bins, gh, Growth.begun(sampled), columns))
        return cls(trees)

    @property
    def chosen_nodes(self) -> list[int]:
        """Numbers of the nodes of this layer that divide."""
        return self.numbers(tree.chosen for tree in self.trees)

    def open_layer(self) -> list[int]:
        """Return the nodes that may divide; none if every tree has grown to its end."""
        return self.numbers(tree.open_layer() for tree in self.trees)

    def own_best(self, first: int) -> dict[int, WinningSplit]:
        """Return the guest's own best splits; `first` is the number of the first tree."""
        bests = [tree.own_best(first + place) for place, tree in enumerate(self.trees)]
        return dict(
            zip(
                self.numbers(bests),
                [won for tree_best in bests for won in tree_best.values()],
                strict=True,
            )
        )

    def expected(self) -> list[NodeBounds]:
        """Return the bounds of the open nodes' sums."""
        return [node for tree in self.trees for node in tree.expected()]

    def best_of(self, number: int, sums: Sums, shape: Shape) -> Best | None:
        """Return the best of a host's offer for an open node."""
        tree, node = self.at(number)
        return tree.best_of(node, sums, shape)

    def take_winners(self, won: Mapping[int, WinningSplit]) -> None:
        """Take the winners of this layer."""
        of_trees: list[dict[int, WinningSplit]] = [{} for _ in self.trees]
        for number, winner in won.items():
            place, node = divmod(number, STRIDE)
            of_trees[place][node] = winner
        for tree, mine in zip(self.trees, of_trees, strict=True):
            tree.take_winners(mine)

    def owned(self, owner: int) -> list[int]:
        """Return the nodes of this layer that a split of this owner divides."""
        return self.numbers(
            [node for node in tree.chosen if tree.won[node].owner == owner] for tree in self.trees
        )

    def own_divisions(self) -> dict[int, NDArray[np.bool_]]:
        """Return the row divisions of the guest's own splits."""
        of_trees = [tree.own_divisions() for tree in self.trees]
        bits = [rows for divided in of_trees for rows in divided.values()]
        return dict(zip(self.numbers(of_trees), bits, strict=True))

    def divide(self, divisions: Mapping[int, NDArray[np.bool_]], hosts: Sequence[str] = ()) -> None:
        """Move the rows of every tree, and refuse as `GuestTree.divide` does."""
        for tree, divided in zip(self.trees, self.by_tree(divisions), strict=True):
            tree.divide(divided, hosts)


def _is_right(node: int) -> bool:
    """Return whether a node lies below the right child of the root."""
    while parent(node) != ROOT:
        node = parent(node)
    return node == right_child(ROOT)
