"""Bottom nodes and leaves as they travel: counted from the first there can be, in few bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.errors import PeerError
from fedboost.messages.array_pb2 import Array
from fedboost.model import hybrid
from fedboost.model.hybrid import NO_NODE

Places = NDArray[np.int64]

BYTE_DEPTH_MAX = 7  # layers whose nodes, and one more, fit into a byte


def write_slots(numbers: Places, facts: Mapping[str, Any]) -> Array:
    """Bottom nodes, or NO_NODE, of rows and trees, int64 (rows, trees)."""
    kind = _kind(facts["guest_depth"])
    none = np.iinfo(kind).max
    slots = np.where(numbers == NO_NODE, none, numbers - hybrid.first_number(facts["guest_depth"]))
    return wire.pack(slots.astype(kind))


def read_slots(array: Array, shape: tuple[int, int], facts: Mapping[str, Any]) -> Places:
    """The same again; a PeerError where no tree of the model has such a node."""
    depth = facts["guest_depth"]
    kind = _kind(depth)
    what = "the bottom nodes of our rows"
    slots = wire.unpack(array, np.dtype(kind).str[1:], shape, what).astype(np.int64)
    there = slots != np.iinfo(kind).max
    if (slots[there] < 0).any() or (slots[there] >= 1 << depth).any():
        raise PeerError("the guest put rows below nodes that no tree of the model has")
    return np.where(there, slots + hybrid.first_number(depth), NO_NODE)


def write_leaves(leaves: Places, at: Places, facts: Mapping[str, Any]) -> Array:
    """The leaves that rows reach from the bottom nodes `at`, both int64 (rows, trees).

    By their heap ids within the subtree; 0 where the row stands at none.
    """
    depth = np.log2(leaves + 1.0).astype(np.int64) - facts["guest_depth"]
    within = leaves - ((at + 1 << np.maximum(depth, 0)) - 1) + (1 << np.maximum(depth, 0)) - 1
    return wire.pack(np.where(at == NO_NODE, 0, within).astype(_kind(facts["host_depth"])))


def read_leaves(array: Array, at: Places, host_depth: int, host: str) -> Places:
    """The numbers of the leaves again, NO_NODE where a row stands at no node."""
    kind = _kind(host_depth)
    what = f"the leaves that {host}'s rows reach"
    within = wire.unpack(array, np.dtype(kind).str[1:], at.shape, what).astype(np.int64)
    if (within < 0).any() or (within >= (2 << host_depth) - 1).any():
        raise PeerError(f"{host} names leaves that are too deep")
    depth = np.log2(within + 1.0).astype(np.int64)
    leaves = (at + 1 << depth) - 1 + within - ((1 << depth) - 1)
    return np.where(at == NO_NODE, NO_NODE, leaves)


def _kind(depth: int) -> type[np.uint8 | np.int32]:
    return np.uint8 if depth <= BYTE_DEPTH_MAX else np.int32
