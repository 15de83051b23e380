"""One grown tree as flat arrays, which finds a row's leaf from raw values or from bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.bins import Bins, Dense, SparseBins, bins_of_rows
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, SET_BYTES, Sets, as_sets, set_holds
from fedboost.core.params import MAX_DEPTH
from fedboost.core.partition import ROOT, Partition, layer_of, left_child, right_child
from fedboost.core.split import goes_right, right_masks
from fedboost.core.threads import Threads, run_shared
from fedboost.ground.errors import DataError
from fedboost.ground.kernels import kernel

DenseValues = NDArray[np.float32]
Positions = NDArray[np.int32]
Margins = NDArray[np.float64]

LEAF = -1  # feature, bin and children of a leaf
WALK_WORK = 8  # cells that can be added up in the time of a row's walk
NODES_MAX = 2 ** (MAX_DEPTH + 1) - 1


@dataclass(frozen=True)
class Split:
    """Division of a node: bins up to `bin`, that is values below `threshold`, go left.

    In a categorical column the bins in `left_bins` do, with BY_CATEGORY as `bin` and NO_THRESHOLD.
    """

    column: int
    bin: int
    threshold: np.float32
    missing_left: bool
    gain: float
    left_bins: bytes = b""  # categories.as_set


def divide_rows(
    partition: Partition,
    bins: Bins,
    splits: Mapping[int, Split],
    missing: int,
    threads: Threads | None = None,
) -> None:
    """Move the rows of a layer's nodes into their children; `splits` by heap id, bins (n, all
    columns).
    """
    made = list(splits.values())
    last = np.array([division.bin for division in made], np.int16)
    on_left = np.array([division.missing_left for division in made], np.bool_)
    right = right_masks(last, on_left, as_sets([division.left_bins for division in made]), missing)
    if not isinstance(bins, SparseBins):
        columns = np.array([division.column for division in made], np.int32)
        partition.divide_layer(list(splits), bins, columns, right, threads)
        return
    for (node, division), of_cells in zip(splits.items(), right, strict=True):
        column = bins_of_rows(bins, division.column, partition.rows(node))
        partition.divide(node, of_cells[column])


@dataclass(frozen=True)
class Node:
    """A node while its tree grows: `value` counts only if `split` is None."""

    value: NDArray[np.float64]  # (outputs,), with learning_rate
    cover: float  # hessian sum of its training rows
    split: Split | None = None


def divided_nodes(gains: Mapping[int, float], max_leaves: int) -> set[int]:
    """Return the nodes, by heap ids, that a tree with at most `max_leaves` leaves divides; 0: all
    of `gains`.

    The tree always divides its open node of greatest gain, the first of equal ones, as XGBoost's
    `lossguide` does. Further gains, of nodes further down, never add a node that was left out.
    """
    if not max_leaves:
        return set(gains)
    divided: set[int] = set()
    queue = [(-gains[ROOT], 0, ROOT)] if ROOT in gains else []
    while queue and len(divided) < max_leaves - 1:
        _, _, node = heappop(queue)
        divided.add(node)
        for number, child in enumerate((left_child(node), right_child(node)), 2 * len(divided)):
            if child in gains:
                heappush(queue, (-gains[child], number, child))
    return divided


def divided_above(gains: Mapping[int, float], max_leaves: int) -> set[int]:
    """Return the nodes of `divided_nodes` whose children such a tree can divide, for any gains of
    these.
    """
    return divided_nodes(gains, max_leaves - 1) if max_leaves else set(gains)


@dataclass(frozen=True)
class Tree:
    """Nodes in order of their heap ids, so layer by layer; all arrays have one entry per node.

    Raw values of a categorical column are its bins.
    """

    node: NDArray[np.int32]  # heap id: root 0, children 2i+1 and 2i+2
    left: NDArray[np.int32]  # index of the left child, the right one is next; −1: leaf
    feature: NDArray[np.int32]  # column in canonical order; −1: a leaf
    bin: NDArray[np.int16]  # BY_CATEGORY if a set of bins goes left
    threshold: NDArray[np.float32]  # values below go left; NO_THRESHOLD if a set of bins does
    missing_left: NDArray[np.bool_]
    value: NDArray[np.float64]  # (nodes, outputs), 0 within the tree
    gain: NDArray[np.float64]
    cover: NDArray[np.float64]
    left_bins: NDArray[np.uint8]  # (nodes, SET_BYTES) the sets, empty if a threshold divides

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.node)

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Mask of the leaves, bool (nodes,)."""
        return self.left == LEAF

    def leaf_of_values(self, values: DenseValues) -> Positions:
        """Return each row's leaf as index in the arrays; float32 (n, columns), NaN: missing."""
        self._check_columns(values.shape[1])
        return _walk_values(
            values, self.left, self.feature, self.threshold, self.missing_left, self.left_bins
        )

    def leaf_of_bins(self, bins: Bins, missing: int) -> Positions:
        """Return each row's leaf as index in the arrays; bins (n, columns), `missing` for NaN."""
        self._check_columns(bins.shape[1])
        if isinstance(bins, SparseBins):
            return self._leaf_of_sparse(bins, missing)
        leaves = np.empty(len(bins), np.int32)
        _walk_bins(np.ascontiguousarray(bins), self._walk_tables(missing), leaves)
        return leaves

    def _leaf_of_sparse(self, bins: SparseBins, missing: int) -> Positions:
        """Return the same, node by node: a column's entries lie together, a row's do not."""
        at = {0: np.arange(bins.n_rows, dtype=np.int32)}
        leaves = np.empty(bins.n_rows, np.int32)
        for node, left in enumerate(self.left.tolist()):  # children come after their parents
            rows = at.pop(node)
            if left == LEAF:
                leaves[rows] = node
                continue
            held = self.left_bins[node].tobytes() if self.bin[node] == BY_CATEGORY else b""
            right = goes_right(
                bins_of_rows(bins, int(self.feature[node]), rows),
                bin_number=int(self.bin[node]),
                missing_left=bool(self.missing_left[node]),
                missing=missing,
                left_bins=held,
            )
            at[left], at[left + 1] = rows[~right], rows[right]
        return leaves

    def predict(self, values: DenseValues) -> NDArray[np.float64]:
        """Return this tree's part of the margins; float32 (n, columns) to float64 (n, outputs)."""
        return self.value[self.leaf_of_values(values)]

    def add_to_margin(
        self, margin: Margins, bins: Bins, missing: int, threads: Threads | None = None
    ) -> None:
        """Add the leaves' values to margins, float64 (n, outputs); bins (n, columns) as above."""
        if isinstance(bins, SparseBins):
            margin += self.value[self.leaf_of_bins(bins, missing)]
            return
        self._check_columns(bins.shape[1])
        turns, rows = self._walk_tables(missing), np.ascontiguousarray(bins)

        def task(part: slice) -> tuple[Any, ...]:
            return rows[part], turns, self.value, margin[part]

        run_shared(threads, _add_leaves, task, len(rows), WALK_WORK * len(rows))

    def _walk_tables(self, missing: int) -> tuple[Positions, Positions, NDArray[np.uint8], int]:
        """Return tables for walks without a branch: each node's left child, itself at a leaf; its
        column, 0 at a leaf; for each cell of the column 1 if rows go right; and the number of
        layers below the root.
        """
        right = right_masks(self.bin, self.missing_left, self.left_bins, missing)
        right[self.is_leaf] = False
        left = np.where(self.is_leaf, np.arange(self.n_nodes, dtype=np.int32), self.left)
        layers = layer_of(int(self.node[-1]))
        return left, np.maximum(self.feature, 0), right.view(np.uint8), layers

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays by name, for npz; their `tolist` is JSON with infinite numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> Tree:
        """Return the tree of `to_arrays`; a DataError if the arrays are not one tree."""
        names = {f.name for f in fields(cls)}
        if set(arrays) != names:
            raise DataError(f"a tree has the arrays {sorted(names)}, got {sorted(arrays)}")
        tree = cls(**{name: np.asarray(arrays[name], dtype=DTYPES[name]) for name in sorted(names)})
        tree._check_arrays()
        return tree

    def _check_arrays(self) -> None:
        """Check that every walk ends in a leaf: ids rise, and children fit their ids."""
        n = self.n_nodes
        if not 1 <= n <= NODES_MAX or any(
            len(array) != n or array.ndim != (2 if name in ("value", "left_bins") else 1)
            for name, array in self.to_arrays().items()
        ):
            raise DataError(f"the arrays of a tree have different lengths, or not 1 to {NODES_MAX}")
        if self.left_bins.shape[1] != SET_BYTES:
            raise DataError(f"sets of bins have {SET_BYTES} bytes, not {self.left_bins.shape[1]}")
        inner = np.flatnonzero(~self.is_leaf)
        left = self.left[inner]
        within = bool(np.all((left > inner) & (left < n - 1)))
        if not within or self.node[0] != ROOT or np.any(np.diff(self.node) <= 0):
            raise DataError("the nodes of a tree are not in the order of their ids")
        if (
            np.any(self.node[left] != 2 * self.node[inner] + 1)
            or np.any(self.node[left + 1] != 2 * self.node[inner] + 2)
            or np.any(self.feature[inner] < 0)
        ):
            raise DataError("a node of a tree has a child or a column that it cannot have")

    def _check_columns(self, n_columns: int) -> None:
        """Refuse a foreign tree that splits on an absent column: the walks do not check columns."""
        if self.feature.max() >= n_columns:
            raise DataError(
                f"a tree splits on column number {self.feature.max()} and there are {n_columns}",
                todo="give the columns the model was trained on",
            )


DTYPES: dict[str, type[np.generic]] = {
    "node": np.int32,
    "left": np.int32,
    "feature": np.int32,
    "bin": np.int16,
    "threshold": np.float32,
    "missing_left": np.bool_,
    "value": np.float64,
    "gain": np.float64,
    "cover": np.float64,
    "left_bins": np.uint8,
}


def tree_of_nodes(nodes: Mapping[int, Node]) -> Tree:
    """Return the tree of finished nodes, by heap id, with both children of every split."""
    ids = sorted(nodes)
    position = {node: i for i, node in enumerate(ids)}
    splits = [nodes[node].split for node in ids]
    zero = np.zeros_like(nodes[ROOT].value)
    return Tree.from_arrays(
        {
            "node": np.array(ids),
            "left": np.array(
                [position[left_child(i)] if s else LEAF for i, s in zip(ids, splits, strict=True)]
            ),
            "feature": np.array([s.column if s else LEAF for s in splits]),
            "bin": np.array([s.bin if s else LEAF for s in splits]),
            "threshold": np.array([s.threshold if s else 0.0 for s in splits], dtype=np.float32),
            "missing_left": np.array([bool(s and s.missing_left) for s in splits]),
            "value": np.array([zero if nodes[i].split else nodes[i].value for i in ids]),
            "gain": np.array([s.gain if s else 0.0 for s in splits]),
            "cover": np.array([nodes[i].cover for i in ids]),
            "left_bins": as_sets([s.left_bins if s else b"" for s in splits]),
        }
    )


@kernel
def _walk_values(
    values: DenseValues,
    left: Positions,
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    missing_left: NDArray[np.bool_],
    left_bins: Sets,
) -> Positions:
    leaves = np.empty(len(values), dtype=np.int32)
    for i in range(len(values)):
        at = 0
        while left[at] >= 0:
            x = values[i, feature[at]]
            if np.isnan(x):
                goes_left = missing_left[at]
            elif threshold[at] == NO_THRESHOLD:
                goes_left = set_holds(left_bins, at, int(x))
            else:
                goes_left = x < threshold[at]
            at = left[at] if goes_left else left[at] + 1
        leaves[i] = at
    return leaves


@kernel
def _add_leaves(bins: Dense, turns: tuple[Any, ...], values: Margins, margin: Margins) -> None:
    """Add the value of each row's leaf to its margin; see `Tree._walk_tables`."""
    left, feature, right, layers = turns
    for i in range(len(bins)):
        row, at = bins[i], np.uint32(0)
        for _ in range(layers):
            at = np.uint32(left[at]) + np.uint32(right[at, row[np.uint32(feature[at])]])
        for k in range(margin.shape[1]):
            margin[i, k] += values[at, k]


@kernel
def _walk_bins(bins: Dense, turns: tuple[Any, ...], leaves: Positions) -> None:
    """Write each row's leaf; see `Tree._walk_tables`."""
    left, feature, right, layers = turns
    for i in range(len(bins)):
        row, at = bins[i], np.uint32(0)
        for _ in range(layers):
            at = np.uint32(left[at]) + np.uint32(right[at, row[np.uint32(feature[at])]])
        leaves[i] = at
