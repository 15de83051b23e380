"""Rows of each node of a tree: heap ids (root 0, children 2i+1 and 2i+2), rows ascending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.bins import Dense
from fedboost.core.threads import Threads, run_shared
from fedboost.ground.arrays import Indices, Rows
from fedboost.ground.kernels import kernel
from fedboost.ground.state import state_class

ROOT = 0
DIVIDING_WORK = 3  # cells that can be added up in the time of moving a row


def left_child(node: int) -> int:
    """Return the heap id of the left child."""
    return 2 * node + 1


def right_child(node: int) -> int:
    """Return the heap id of the right child."""
    return 2 * node + 2


def parent(node: int) -> int:
    """Return the heap id of the parent; not for the root."""
    return (node - 1) // 2


def sibling(node: int) -> int:
    """Return the heap id of the other child of the same parent; not for the root."""
    return node + 1 if node % 2 else node - 1


def layer_of(node: int) -> int:
    """Return the layer of a heap id; the root's is 0."""
    return (node + 1).bit_length() - 1


def layers_of(nodes: Iterable[int]) -> list[list[int]]:
    """Return heap ids layer by layer from the root down, ascending."""
    ranked = sorted(nodes)
    return [list(layer) for _, layer in groupby(ranked, layer_of)]


@state_class
class Partition:
    """Rows of one tree's current leaves, either training or validation rows."""

    by_leaf: dict[int, Rows]  # int32, ascending

    @classmethod
    def at_root(cls, rows: Rows) -> Partition:
        """Return a partition with all `rows` (int32, ascending) in the root."""
        return cls(by_leaf={ROOT: rows})

    @classmethod
    def from_nodes(cls, rows: Rows, nodes: Rows, leaves: Iterable[int]) -> Partition:
        """Return a partition of `rows` (int32, ascending) into `nodes`, int32 (rows,)."""
        order = np.argsort(nodes, kind="stable")
        held, starts = np.unique(nodes[order], return_index=True)
        parts = dict(zip(held.tolist(), np.split(rows[order], starts[1:]), strict=False))
        return cls(by_leaf={leaf: parts.get(leaf, rows[:0]) for leaf in leaves})

    def rows(self, node: int) -> Rows:
        """Return the rows of a current leaf; int32, ascending. A KeyError for any other node."""
        return self.by_leaf[node]

    def rows_below(self, node: int) -> Rows:
        """Return the rows of a node, divided or not; int32, ascending."""
        layer, held = layer_of(node), self.by_leaf.get(node)
        if held is not None:
            return held
        parts = [
            rows
            for leaf, rows in self.by_leaf.items()
            if leaf > node and (leaf + 1) >> (layer_of(leaf) - layer) == node + 1
        ]
        return np.sort(np.concatenate(parts))

    def leaves(self) -> list[int]:
        """Return the heap ids of the current leaves, ascending; some may hold no rows."""
        return sorted(self.by_leaf)

    def divide(self, node: int, goes_right: NDArray[np.bool_]) -> None:
        """Move the rows of a leaf into its two children; goes_right bool (rows of the node,)."""
        rows = self.by_leaf[node]
        assert goes_right.shape == rows.shape
        del self.by_leaf[node]
        self.by_leaf[left_child(node)], self.by_leaf[right_child(node)] = _split_rows(
            rows, goes_right
        )

    def divide_layer(
        self,
        nodes: Sequence[int],
        bins: Dense,
        columns: Rows,
        turns: NDArray[np.bool_],
        threads: Threads | None = None,
    ) -> None:
        """Move the rows of some leaves into their children.

        bins (n, all columns), row after row; columns int32 (nodes,) and turns (nodes, cells) of
        their splits, as in `split.right_masks`. Each of the `threads` divides different nodes.
        """
        starts = np.cumsum([0, *(len(self.by_leaf[node]) for node in nodes)])
        rows = np.concatenate([np.empty(0, np.int32), *map(self.by_leaf.pop, nodes)])
        divided, right = np.empty_like(rows), turns.view(np.uint8)

        def task(part: slice) -> tuple[Any, ...]:
            bounds = slice(part.start, part.stop + 1)
            return bins, rows, starts[bounds], (columns[part], right[part]), divided

        parts = run_shared(threads, _divide_layer, task, len(nodes), DIVIDING_WORK * len(rows))
        middles = np.concatenate(parts)
        for node, start, middle, stop in zip(
            nodes, starts.tolist(), middles.tolist(), starts[1:].tolist(), strict=False
        ):
            self.by_leaf[left_child(node)] = divided[start:middle]
            self.by_leaf[right_child(node)] = divided[middle:stop]

    def node_of_rows(self, n_rows: int) -> Rows:
        """Return each row's leaf as heap id, −1 for rows outside the tree; int32 (n_rows,)."""
        nodes = np.full(n_rows, -1, dtype=np.int32)
        for node, rows in self.by_leaf.items():
            nodes[rows] = node
        return nodes


def smaller_child(partition: Partition, node: int) -> int:
    """Return the child of a divided node with fewer rows, the left one if they are equal.

    Only its histogram needs adding up: the sibling's is the parent's minus this one.
    """
    left, right = left_child(node), right_child(node)
    return left if len(partition.rows(left)) <= len(partition.rows(right)) else right


@kernel
def _split_rows(rows: Rows, goes_right: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Return the rows that go left and the rows that go right, in their order."""
    on_right = goes_right.sum()
    left, right = np.empty(len(rows) - on_right, np.int32), np.empty(on_right, np.int32)
    lefts = rights = 0
    for i in range(len(rows)):
        if goes_right[i]:
            right[rights] = rows[i]
            rights += 1
        else:
            left[lefts] = rows[i]
            lefts += 1
    return left, right


@kernel
def _divide_layer(
    bins: Dense,
    rows: Rows,
    starts: Indices,
    splits: tuple[Rows, NDArray[np.uint8]],
    divided: Rows,
) -> Indices:
    """Write the rows of each node, rows[starts[i]:starts[i + 1]], left ones first, in their order;
    return the start of the right ones.
    """
    (columns, turns), nodes = splits, len(starts) - 1
    rights, middles = np.empty(starts[nodes] - starts[0], np.int32), np.empty(nodes, np.int64)
    for node in range(nodes):
        column, turn = columns[node], turns[node]
        left, right = starts[node], 0
        for i in range(starts[node], starts[node + 1]):  # both written, without a branch
            divided[left] = rights[right] = rows[i]
            on_right = turn[bins[np.uint32(rows[i]), column]]
            left += 1 - on_right
            right += on_right
        divided[left : left + right] = rights[:right]
        middles[node] = left
    return middles
