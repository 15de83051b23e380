"""Trees in two parts: the guest's top, and each host's subtrees below its bottom nodes.

A bottom node is a leaf of the guest's top. Every host knows it by a separate number, in an order
that the guest has drawn in secret for that host and tree; from there the children of node i are
2i+1 and 2i+2, as everywhere. A row's tree value is that of its bottom node plus the mean of its
hosts' leaf values; all with learning_rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import left_child, right_child
from fedboost.data.frame import FrameValues, values_at
from fedboost.flow import Artefact
from fedboost.ground.arrays import Bits, Floats, Indices, Rows
from fedboost.ground.state import Arrays
from fedboost.model import vertical
from fedboost.model.vertical import GuestNode

HYBRID_KIND = "hybrid"  # of a shard's facts: trees of this module
NO_BOTTOM = -1
# In a shard with unscored splits: a guest's secret key, a host's public one.
SHARD_KEY = "key"
_BELOW = ("tree", "node", "owner", "value", "gain", "cover")  # of a node below, in a shard


def first_number(guest_depth: int) -> int:
    """Return a host's least number of a bottom node: that of slot 0; slot s is s more."""
    return (1 << guest_depth) - 1


def bottoms_above(at: Rows, guest_depth: int) -> Rows:
    """Return the bottom nodes at or above nodes of a tree, int32; nodes above bottom nodes stay."""
    last = 2 * first_number(guest_depth)
    found = at.copy()
    while (below := found > last).any():
        found[below] = (found[below] - 1) // 2
    return found


@dataclass(frozen=True)
class Below:
    """A node below the guest's part of a tree, as the guest knows it."""

    host: int  # k, the k-th host's
    node: GuestNode  # by that host's numbers; owner k for a split of the host, LEAF for a leaf
    under: int = NO_BOTTOM  # of a bottom node: its heap id in the guest's part


def to_arrays(tops: Sequence[GuestNode], below: Sequence[Below], n_outputs: int) -> Arrays:
    """Return the guest's shard: its parts as in `vertical`, and beside them the nodes below."""
    arrays = vertical.nodes_to_arrays(tops, n_outputs)
    nodes = vertical.nodes_to_arrays([part.node for part in below], n_outputs)
    arrays |= {f"below_{name}": nodes[name] for name in _BELOW}
    arrays["below_host"] = np.array([part.host for part in below], np.int16)
    arrays["below_under"] = np.array([part.under for part in below], np.int32)
    return arrays


def from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> tuple[list[GuestNode], list[Below]]:
    """Return the nodes that `to_arrays` wrote."""
    columns = [arrays[f"below_{name}"].tolist() for name in _BELOW]
    hosts, under = arrays["below_host"].tolist(), arrays["below_under"].tolist()
    below = [
        Below(host, GuestNode(t, n, o, np.asarray(value, np.float64), gain, cover), place)
        for t, n, o, value, gain, cover, host, place in zip(*columns, hosts, under, strict=True)
    ]
    return vertical.arrays_to_nodes(arrays), below


def known_nodes_below(shard: Artefact) -> list[GuestNode]:
    """Return the hosts' nodes in a guest's shard: none if splits were unscored."""
    if shard.facts["split"] == "unscored":
        return []
    _, below = from_arrays(shard.arrays)
    return [part.node for part in below]


@dataclass(frozen=True)
class Tops:
    """Guest's parts of all trees, for many rows at once."""

    arrays: Mapping[str, NDArray[np.generic]]
    shape: vertical.TreeShape

    @classmethod
    def of(cls, shard: Artefact) -> Tops:
        """Return the tops of the guest's shard."""
        guests = {n: a for n, a in shard.arrays.items() if not n.startswith("below_")}
        return cls(guests, vertical.TreeShape.of(guests))

    def bottom(self, values: FrameValues, rows: slice) -> Indices:
        """Return the bottom nodes that rows of a table reach, int64 (rows, trees): indices in the
        arrays.

        values float32 (all rows, the guest's columns), as the model reads them.
        """
        at = np.tile(self.shape.roots, (rows.stop - rows.start, 1))
        vertical.descend_own(self.arrays, self.shape, values, at, rows.start)
        return at

    def numbers(self, shard: Artefact, *, divided: bool = False) -> Indices:
        """Return each host's number of a bottom node, int64 (hosts, nodes).

        NO_NODE for other nodes, and for bottom nodes where that host had no training row, or with
        `divided` no split.
        """
        numbers = np.full(
            (len(shard.facts["hosts"]), len(self.arrays["node"])), NO_BOTTOM, np.int64
        )
        place = vertical.positions(self.arrays)
        known = shard.arrays["below_under"] != NO_BOTTOM
        if divided:
            known &= shard.arrays["below_owner"] != vertical.LEAF
        for i in np.flatnonzero(known).tolist():
            tree, under = int(shard.arrays["below_tree"][i]), int(shard.arrays["below_under"][i])
            host = int(shard.arrays["below_host"][i]) - 1
            numbers[host, place[tree, under]] = shard.arrays["below_node"][i]
        return numbers


def leaf_values(shard: Artefact, host: int) -> dict[int, tuple[Indices, Floats]]:
    """Return a host's leaves by tree: int64 ascending numbers, and values (leaves, outputs).

    `host` is k, the k-th.
    """
    at_host = (shard.arrays["below_host"] == host) & (shard.arrays["below_owner"] == vertical.LEAF)
    values_at = {}
    for tree in np.unique(shard.arrays["below_tree"][at_host]).tolist():
        indices = np.flatnonzero(at_host & (shard.arrays["below_tree"] == tree))
        nodes = shard.arrays["below_node"][indices].astype(np.int64)
        order = np.argsort(nodes)
        values = shard.arrays["below_value"][indices[order]].astype(np.float64)
        values_at[tree] = (nodes[order], values)
    return values_at


def descend(
    arrays: Mapping[str, NDArray[np.generic]],
    tree: int,
    values: FrameValues,
    rows: slice,
    at: Indices,
    note: Callable[[int, Indices, Bits], None] | None = None,
) -> Indices:
    """Return the nodes where rows of one tree end below a host's bottom nodes `at`, int64; NO_NODE
    stays.

    `arrays` are the host's shard, values float32 (all its rows, its columns). `note` gets each
    split's index, the rows it divides, and which of them go right.
    """
    nodes = at.copy()
    (places,) = np.nonzero(arrays["tree"] == tree)
    for place in places[np.argsort(arrays["node"][places])].tolist():
        node = int(arrays["node"][place])
        (matching,) = np.nonzero(nodes == node)
        feature = np.full(len(matching), arrays["feature"][place], np.int64)
        cells = values_at(values, matching + rows.start, feature)
        right = vertical.goes_right(cells, arrays, np.full(len(matching), place, np.int64))
        if note is not None:
            note(place, matching + rows.start, right)
        nodes[matching] = np.where(right, right_child(node), left_child(node))
    return nodes
