"""Trees whose splits belong to several parties: the guest has the shape, every owner its splits.

All nodes of all trees stand in flat arrays, tree after tree, by heap id within a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import left_child, right_child
from fedboost.errors import DataError

LEAF = -1  # owner of a leaf
GUEST = 0  # owner of the guest's own splits; k is the k-th host's


@dataclass(frozen=True)
class OwnSplit:
    """A split as its owner knows it."""

    tree: int
    node: int  # heap id
    feature: int  # column of the owner's table
    threshold: np.float32  # values below go left
    missing_left: bool


@dataclass(frozen=True)
class GuestNode:
    """A node as the guest knows it; `split` is None for a leaf and for another party's split."""

    tree: int
    node: int
    owner: int
    value: NDArray[np.float64]  # (outputs,), zeros unless a leaf
    gain: float
    cover: float
    split: OwnSplit | None = None


Arrays = dict[str, NDArray[np.generic]]


def splits_to_arrays(splits: Sequence[OwnSplit]) -> Arrays:
    """A host's shard: its splits, sorted by tree and node."""
    own = sorted(splits, key=lambda s: (s.tree, s.node))
    return {
        "tree": np.array([s.tree for s in own], np.int32),
        "node": np.array([s.node for s in own], np.int32),
        "feature": np.array([s.feature for s in own], np.int32),
        "threshold": np.array([s.threshold for s in own], np.float32),
        "missing_left": np.array([s.missing_left for s in own], np.bool_),
    }


def arrays_to_splits(arrays: Mapping[str, NDArray[np.generic]]) -> list[OwnSplit]:
    """What `splits_to_arrays` wrote."""
    names = ("tree", "node", "feature", "threshold", "missing_left")
    columns = [arrays[name] for name in names]
    return [
        OwnSplit(int(t), int(n), int(f), np.float32(x), bool(m))  # type: ignore[call-overload]
        for t, n, f, x, m in zip(*columns, strict=True)
    ]


def nodes_to_arrays(nodes: Sequence[GuestNode], n_outputs: int) -> Arrays:
    """The guest's shard: every node of every tree, its own splits filled in."""
    own = [
        n.split or OwnSplit(n.tree, n.node, -1, np.float32(0), missing_left=False) for n in nodes
    ]
    value = np.array([n.value for n in nodes], np.float64).reshape(len(nodes), n_outputs)
    return {
        "tree": np.array([n.tree for n in nodes], np.int32),
        "node": np.array([n.node for n in nodes], np.int32),
        "owner": np.array([n.owner for n in nodes], np.int16),
        "feature": np.array([s.feature for s in own], np.int32),
        "threshold": np.array([s.threshold for s in own], np.float32),
        "missing_left": np.array([s.missing_left for s in own], np.bool_),
        "value": value,
        "gain": np.array([n.gain for n in nodes], np.float64),
        "cover": np.array([n.cover for n in nodes], np.float64),
    }


def arrays_to_nodes(arrays: Mapping[str, NDArray[np.generic]]) -> list[GuestNode]:
    """What `nodes_to_arrays` wrote."""
    splits = arrays_to_splits(arrays)
    rows = zip(
        splits, arrays["owner"], arrays["value"], arrays["gain"], arrays["cover"], strict=True
    )
    return [
        GuestNode(
            tree=split.tree,
            node=split.node,
            owner=int(owner),  # type: ignore[call-overload]
            value=np.asarray(value, np.float64),
            gain=float(gain),  # type: ignore[arg-type]
            cover=float(cover),  # type: ignore[arg-type]
            split=split if owner == GUEST else None,
        )
        for split, owner, value, gain, cover in rows
    ]


@dataclass(frozen=True)
class Shape:
    """Where a row goes from each node: places in the flat arrays."""

    roots: NDArray[np.int64]  # (trees,)
    left: NDArray[np.int64]  # (nodes,), −1 at leaves
    right: NDArray[np.int64]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.generic]]) -> Shape:
        """The shape of a guest's shard; a DataError where a split's children are missing."""
        tree = arrays["tree"].astype(np.int64).tolist()
        node = arrays["node"].astype(np.int64).tolist()
        place = {key: i for i, key in enumerate(zip(tree, node, strict=True))}
        left = np.full(len(node), -1, np.int64)
        right = left.copy()
        try:
            for i, owner in enumerate(arrays["owner"].tolist()):
                if owner != LEAF:
                    left[i] = place[tree[i], left_child(node[i])]
                    right[i] = place[tree[i], right_child(node[i])]
            roots = np.array([place[t, 0] for t in range(max(tree, default=-1) + 1)], np.int64)
        except KeyError:
            raise DataError(
                "the model's trees are not whole", todo="train the model again"
            ) from None
        return cls(roots, left, right)


def goes_right(
    values: NDArray[np.float32], threshold: NDArray[np.generic], missing_left: NDArray[np.generic]
) -> NDArray[np.bool_]:
    """Which values go right; all (n,), NaN where missing: those not below the threshold."""
    return np.where(np.isnan(values), ~missing_left.astype(np.bool_), ~(values < threshold))
