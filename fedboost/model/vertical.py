"""Trees whose splits belong to several parties: the guest has their shape, every owner its splits.

All nodes of all trees stand in flat arrays, tree after tree, by heap id within a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.categories import NO_THRESHOLD, as_sets
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.core.tree import Tree
from fedboost.data.frame import FrameValues, values_at
from fedboost.flow import Artefact
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.state import Arrays

LEAF = -1  # owner of a leaf
GUEST = 0  # owner of the guest's own splits; k is the k-th host's


@dataclass(frozen=True)
class OwnSplit:
    """A split as its owner knows it."""

    tree: int
    node: int  # heap id
    feature: int  # column of the owner's table
    threshold: np.float32  # values below go left; NO_THRESHOLD if a set of categories does
    missing_left: bool
    left_bins: bytes = b""  # these categories, by their indices in the model's list (as_set)


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


def splits_to_arrays(splits: Sequence[OwnSplit]) -> Arrays:
    """Return a host's shard: its splits, sorted by tree and node."""
    ordered = sorted(splits, key=lambda s: (s.tree, s.node))
    return {
        "tree": np.array([s.tree for s in ordered], np.int32),
        "node": np.array([s.node for s in ordered], np.int32),
        "feature": np.array([s.feature for s in ordered], np.int32),
        "threshold": np.array([s.threshold for s in ordered], np.float32),
        "missing_left": np.array([s.missing_left for s in ordered], np.bool_),
        "left_bins": as_sets([s.left_bins for s in ordered]),
    }


def thresholds(shard: Artefact) -> dict[str, NDArray[np.float32]]:
    """Return the thresholds of a host's splits by column of numbers, float32.

    None for a model of noisy buckets, whose cut points a job may choose.
    """
    if "telling" in shard.facts:
        return {}
    arrays, cuts = shard.arrays, shard.arrays["threshold"].astype(np.float32)
    is_number = cuts != NO_THRESHOLD
    return {
        name: cuts[(arrays["feature"] == number) & is_number]
        for number, name in enumerate(shard.facts["columns"])
    }


def arrays_to_splits(arrays: Mapping[str, NDArray[np.generic]]) -> list[OwnSplit]:
    """Return the splits that `splits_to_arrays` wrote."""
    names = ("tree", "node", "feature", "threshold", "missing_left")
    columns = [arrays[name].tolist() for name in names]
    sets = [row.tobytes() if row.any() else b"" for row in arrays["left_bins"]]
    return [
        OwnSplit(t, n, f, np.float32(x), missing_left=m, left_bins=held)
        for t, n, f, x, m, held in zip(*columns, sets, strict=True)
    ]


def nodes_to_arrays(nodes: Sequence[GuestNode], n_outputs: int) -> Arrays:
    """Return the guest's shard: every node of every tree, its own splits filled in."""
    splits = [
        n.split or OwnSplit(n.tree, n.node, -1, np.float32(0), missing_left=False) for n in nodes
    ]
    value = np.array([n.value for n in nodes], np.float64).reshape(len(nodes), n_outputs)
    return {
        "tree": np.array([n.tree for n in nodes], np.int32),
        "node": np.array([n.node for n in nodes], np.int32),
        "owner": np.array([n.owner for n in nodes], np.int16),
        "feature": np.array([s.feature for s in splits], np.int32),
        "threshold": np.array([s.threshold for s in splits], np.float32),
        "missing_left": np.array([s.missing_left for s in splits], np.bool_),
        "left_bins": as_sets([s.left_bins for s in splits]),
        "value": value,
        "gain": np.array([n.gain for n in nodes], np.float64),
        "cover": np.array([n.cover for n in nodes], np.float64),
    }


def arrays_to_nodes(arrays: Mapping[str, NDArray[np.generic]]) -> list[GuestNode]:
    """Return the nodes that `nodes_to_arrays` wrote."""
    splits = arrays_to_splits(arrays)
    lists = (arrays[name].tolist() for name in ("owner", "value", "gain", "cover"))
    rows = zip(splits, *lists, strict=True)
    return [
        GuestNode(
            tree=split.tree,
            node=split.node,
            owner=owner,
            value=np.asarray(value, np.float64),
            gain=gain,
            cover=cover,
            split=split if owner == GUEST else None,
        )
        for split, owner, value, gain, cover in rows
    ]


def tree_nodes(
    number: int, tree: Tree, owner_of: Callable[[int], tuple[int, int]], rate: float = 1.0
) -> list[GuestNode]:
    """Return the nodes of tree `number` as its guest knows them; leaf values times `rate`.

    `owner_of` gives a column's owner, and its number there.
    """
    nodes = []
    for i, node in enumerate(tree.node.tolist()):
        owner, split = LEAF, None
        if not tree.is_leaf[i]:
            owner, column = owner_of(int(tree.feature[i]))
            held = tree.left_bins[i].tobytes() if tree.left_bins[i].any() else b""
            rule = tree.threshold[i], bool(tree.missing_left[i]), held
            split = OwnSplit(number, node, column, *rule) if owner == GUEST else None
        gain, cover = float(tree.gain[i]), float(tree.cover[i])
        nodes.append(GuestNode(number, node, owner, rate * tree.value[i], gain, cover, split))
    return nodes


def gain_by_column(nodes: Iterable[GuestNode]) -> dict[tuple[int, int], tuple[float, int]]:
    """Return summed gain and number of splits by owner and column; −1 for columns of others."""
    summed: dict[tuple[int, int], tuple[float, int]] = {}
    for node in nodes:
        if node.owner != LEAF:
            key = node.owner, -1 if node.split is None else node.split.feature
            gain, count = summed.get(key, (0.0, 0))
            summed[key] = (gain + node.gain, count + 1)
    return summed


def node_keys(arrays: Mapping[str, NDArray[np.generic]]) -> list[tuple[int, int]]:
    """Return the tree and the heap id of each node."""
    return list(zip(arrays["tree"].tolist(), arrays["node"].tolist(), strict=True))


def positions(arrays: Mapping[str, NDArray[np.generic]]) -> dict[tuple[int, int], int]:
    """Return the index of each node in the arrays, by its tree and heap id."""
    return {key: i for i, key in enumerate(node_keys(arrays))}


@dataclass(frozen=True)
class TreeShape:
    """Children of each node, as indices in the flat arrays."""

    roots: NDArray[np.int64]  # (trees,)
    left: NDArray[np.int64]  # (nodes,), −1 at leaves
    right: NDArray[np.int64]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.generic]]) -> TreeShape:
        """Return the shape of a guest's shard; a DataError if a split's children are missing."""
        keys, place, owners = node_keys(arrays), positions(arrays), arrays["owner"].tolist()
        left = np.full(len(keys), -1, np.int64)
        right = left.copy()
        trees = 1 + max((tree for tree, _ in keys), default=-1)
        try:
            for i, (tree, node) in enumerate(keys):
                if owners[i] != LEAF:
                    left[i] = place[tree, left_child(node)]
                    right[i] = place[tree, right_child(node)]
            roots = np.array([place[tree, ROOT] for tree in range(trees)], np.int64)
        except KeyError:
            raise DataError(
                "the model's trees are not whole", todo="train the model again"
            ) from None
        return cls(roots, left, right)


@dataclass(frozen=True)
class Whole:
    """A model put together from the shards of all its owners."""

    facts: dict[str, Any]  # the guest's
    # Party and name, the guest's first, as `feature` counts them. No party for a whole model.
    columns: list[tuple[str, str]]
    texts: list[list[str]]  # per column the known categories; none: a number
    arrays: Arrays  # the guest's, every split filled in
    shape: TreeShape

    @property
    def categories(self) -> list[int]:
        """Number of known categories of each column; 0: a number."""
        return [len(texts) for texts in self.texts]


def join_shards(guest: Artefact, hosts: Mapping[str, Artefact]) -> Whole:
    """Return the model of the guest's shard and its `hosts`' shards, by name.

    A ConfigError if an owner's shard is missing or belongs to another model; a DataError if a shard
    lacks a split that the guest's trees have. Splits of rounds that the guest has left out (early
    stopping) are left out here.
    """
    _check_shards(guest, hosts)
    names: list[str] = guest.facts["hosts"]
    columns = [(guest.facts["party"], name) for name in guest.facts["columns"]]
    known = _known_texts(guest)
    arrays = {name: array.copy() for name, array in guest.arrays.items()}
    for number, host in enumerate(names, start=1):
        indices = np.flatnonzero(arrays["owner"] == number)
        if not len(indices):
            continue
        shard = hosts[host].arrays
        place, wanted = positions(shard), {name: arrays[name][indices] for name in ("tree", "node")}
        try:
            rows = np.array([place[key] for key in node_keys(wanted)], np.int64)
        except KeyError:
            raise DataError(
                f"the shard of {host} lacks splits that the guest's trees have",
                party=host,
                todo="export the shard again, from the store that trained the model",
            ) from None
        arrays["feature"][indices] = shard["feature"][rows].astype(np.int32) + len(columns)
        for name in ("threshold", "missing_left", "left_bins"):
            arrays[name][indices] = shard[name][rows]
        columns += [(host, name) for name in hosts[host].facts["columns"]]
        known += _known_texts(hosts[host])
    return Whole(guest.facts, columns, known, arrays, TreeShape.of(arrays))


def _known_texts(shard: Artefact) -> list[list[str]]:
    return [list(shard.facts["categories"].get(name, ())) for name in shard.facts["columns"]]


def _check_shards(guest: Artefact, hosts: Mapping[str, Artefact]) -> None:
    model, names = guest.facts["job"], guest.facts["hosts"]
    owners = set(guest.arrays["owner"].tolist())
    missing = [h for k, h in enumerate(names, start=1) if k in owners and h not in hosts]
    if missing:
        whose, first = ", ".join(missing), missing[0]
        raise ConfigError(
            f"the splits of {whose} are missing: part of the model lies there",
            model=model,
            todo=f"ask the owner to run: fedboost model release {model} --config {first}.yaml "
            f"--to {guest.facts['guest']} --out {first}.json; then give --with {first}.json",
        )
    for host, shard in hosts.items():
        if host not in names:
            raise ConfigError(
                f"{host} has no part in the model",
                model=model,
                todo="name one of the model's hosts",
            )
        named = (shard.facts["job"], shard.facts["party"], shard.facts["guest"])
        if named != (model, host, guest.facts["guest"]):
            raise ConfigError(
                f"the shard given for {host} is {named[1]}'s of the model {named[0]}",
                model=model,
                todo="give that party's shard of this model",
            )


def goes_right(
    values: NDArray[np.float32], arrays: Mapping[str, NDArray[np.generic]], nodes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether values go right at their nodes, all (n,): values not below the threshold do.

    Values of a categorical column are indices in the model's list, and those not in the node's set
    go right; NaN stands for missing values and for categories that the model does not know.
    """
    threshold = arrays["threshold"][nodes].astype(np.float32, copy=False)
    by_category = (threshold == NO_THRESHOLD) & ~np.isnan(values)
    right = ~(values < threshold)
    bins = values[by_category].astype(np.int64)
    held = arrays["left_bins"][nodes[by_category]].astype(np.uint8)
    right[by_category] = (held[np.arange(len(bins)), bins >> 3] >> (bins & 7)) & 1 == 0
    return np.where(np.isnan(values), ~arrays["missing_left"][nodes].astype(np.bool_), right)


def descend_own(
    arrays: Mapping[str, NDArray[np.generic]],
    shape: TreeShape,
    values: FrameValues,
    at: Indices,
    first: int,
) -> None:
    """Move rows, in place, down the guest's own nodes as far as these lead.

    at int64 (rows, trees), contiguous, are indices in the guest's `arrays`; row i of it is row
    `first` + i of the values float32 (all rows, the guest's columns), as the model reads them.
    """
    trees, flat = at.shape[1], at.reshape(-1)
    indices = np.flatnonzero(arrays["owner"][flat] == GUEST)
    while len(indices):
        nodes = flat[indices]
        columns = arrays["feature"][nodes].astype(np.int64)
        right = goes_right(values_at(values, indices // trees + first, columns), arrays, nodes)
        flat[indices] = np.where(right, shape.right[nodes], shape.left[nodes])
        indices = indices[arrays["owner"][flat[indices]] == GUEST]
