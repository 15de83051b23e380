"""A tree whose hosts' splits stand below all others, and leaf values taken from given rows.

HybridTree calls the party with the labels *host* and the others *guests*; here it is the other way
round: the guest has the labels, and its columns stay on top (Theorems 2 and 3, figures 3b and 7).

        host's a                    guest's b
        ├ yes: 1                    ├ yes: host's a ─ yes: 1, no: 2
        └ no: guest's b      ──►    └ no:  host's a ─ yes: 1, no: 3
              ├ yes: 2
              └ no: 3
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fedboost.core.params import MAX_DEPTH
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.core.tree import Node, Split, Tree, grown
from fedboost.errors import ConfigError
from fedboost.model.conditions import Known, questions, ways


def hosts_last(tree: Tree, hosts: Collection[int]) -> Tree:
    """The same function of the columns with every split on a column of `hosts` below all others.

    Every row, missing values and categories included, gets the value it got before, to the bit: a
    leaf whose region is divided further leaves its value to all parts. Splits keep their order
    among the guest's and among the hosts', and one that the path has answered is left out. Gains
    and covers, which are sums over training rows, are not known of the new nodes and 0.
    A ConfigError where the tree would be deeper than MAX_DEPTH.
    """
    return _Reordering(tree, frozenset(hosts)).run()


class _Reordering:
    """One tree on its way: the guest's splits that are still open are asked one after the other,
    the one nearest to the root first; what is then left of the tree are the hosts' splits.
    """

    def __init__(self, tree: Tree, hosts: frozenset[int]) -> None:
        self._tree, self._hosts = tree, hosts
        self._left, self._feature = tree.left.tolist(), tree.feature.tolist()
        self._asked = questions(tree.to_arrays())
        self._nodes: dict[int, Node] = {}  # of the new tree, by heap id
        self._zero = np.zeros(tree.value.shape[1])

    def run(self) -> Tree:
        self._grow(ROOT, {})
        return grown(self._nodes)

    def _grow(self, node: int, known: Known) -> None:
        """Makes the new node and all below it, for rows of which `known` says something."""
        at = self._open_of_guest(known)
        if at is None:
            self._copy(node, 0, known)
            return
        self._divide(node, at)
        for child, more in zip(_children(node), self._ways(at, known), strict=True):
            assert more is not None
            self._grow(child, more)

    def _copy(self, node: int, at: int, known: Known) -> None:
        """Makes the new node and all below it from the old one `at`, which has hosts' splits only
        where not all is known.
        """
        if self._tree.is_leaf[at]:
            self._nodes[node] = Node(self._tree.value[at], 0.0)
            return
        left = self._left[at]
        found = self._ways(at, known)
        going = [(left + i, more) for i, more in enumerate(found) if more is not None]
        if len(going) == 1:
            self._copy(node, *going[0])
            return
        self._divide(node, at)
        for child, (below, more) in zip(_children(node), going, strict=True):
            self._copy(child, below, more)

    def _divide(self, node: int, at: int) -> None:
        """Gives the new node the split of the old one `at`."""
        if (node + 1).bit_length() > MAX_DEPTH:
            raise ConfigError(
                f"with the hosts' splits last the tree would be deeper than {MAX_DEPTH} layers",
                todo="train with a lower max_depth, or name fewer columns as the hosts'",
            )
        tree, asked = self._tree, self._asked[at]
        held = b"" if asked.categories is None else tree.left_bins[at].tobytes()
        won = Split(
            column=self._feature[at],
            bin=int(tree.bin[at]),
            threshold=tree.threshold[at],
            missing_left=asked.missing_left,
            gain=0.0,
            left_bins=held,
        )
        self._nodes[node] = Node(self._zero, 0.0, won)

    def _open_of_guest(self, known: Known) -> int | None:
        """The first split of the guest's, layer by layer, that some rows pass on either side."""
        reached: list[tuple[int, Known]] = [(0, known)]
        for at, seen in reached:
            left = self._left[at]
            if self._tree.is_leaf[at]:
                continue
            found = self._ways(at, seen)
            if None not in found and self._feature[at] not in self._hosts:
                return at
            reached += [(left + i, more) for i, more in enumerate(found) if more is not None]
        return None

    def _ways(self, at: int, known: Known) -> tuple[Known | None, Known | None]:
        return ways(known, self._feature[at], self._asked[at])


def _children(node: int) -> tuple[int, int]:
    return left_child(node), right_child(node)
