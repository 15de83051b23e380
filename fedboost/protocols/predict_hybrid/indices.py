"""Bottom nodes and leaves in messages: numbers from the first possible one, in few bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedboost.ground import wire
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import PeerError
from fedboost.messages.array_pb2 import Array
from fedboost.model import hybrid
from fedboost.model.hybrid import NO_BOTTOM

BYTE_DEPTH_MAX = 7  # layers with nodes, and one more number, that fit into a byte


def write_slots(numbers: Indices, facts: Mapping[str, Any]) -> Array:
    """Return a message of bottom nodes, or NO_NODE, of rows and trees, int64 (rows, trees)."""
    kind = _number_type(facts["guest_depth"])
    none = np.iinfo(kind).max
    slots = np.where(
        numbers == NO_BOTTOM, none, numbers - hybrid.first_number(facts["guest_depth"])
    )
    return wire.pack(slots.astype(kind))


def read_slots(array: Array, shape: tuple[int, int], facts: Mapping[str, Any]) -> Indices:
    """Read bottom nodes from a message; a PeerError if no tree of the model has such a node."""
    depth = facts["guest_depth"]
    kind = _number_type(depth)
    what = "the bottom nodes of our rows"
    slots = wire.unpack(array, np.dtype(kind).str[1:], shape, what).astype(np.int64)
    there = slots != np.iinfo(kind).max
    if (slots[there] < 0).any() or (slots[there] >= 1 << depth).any():
        raise PeerError("the guest put rows below nodes that no tree of the model has")
    return np.where(there, slots + hybrid.first_number(depth), NO_BOTTOM)


def write_leaves(leaves: Indices, at: Indices, facts: Mapping[str, Any]) -> Array:
    """Return a message of the leaves that rows reach from bottom nodes `at`, int64 (rows, trees).

    They are heap ids within the subtree: d layers below node i, less i·2^d; 0 for a row at no node.
    """
    below = np.where(at == NO_BOTTOM, 0, _node_depth(leaves) - facts["guest_depth"])
    return wire.pack((leaves - (at << below)).astype(_number_type(facts["host_depth"])))


def read_leaves(array: Array, at: Indices, host_depth: int, host: str) -> Indices:
    """Read leaves from a message, as node numbers; NO_NODE for a row at no node."""
    kind = _number_type(host_depth)
    what = f"the leaves that {host}'s rows reach"
    within = wire.unpack(array, np.dtype(kind).str[1:], at.shape, what).astype(np.int64)
    if (within < 0).any() or (within >= (2 << host_depth) - 1).any():
        raise PeerError(f"{host} names leaves that are too deep")
    return np.where(at == NO_BOTTOM, NO_BOTTOM, within + (at << _node_depth(within)))


def _node_depth(nodes: Indices) -> Indices:
    """Return how many layers are above a node with this heap id; −1 for NO_NODE."""
    return np.frexp(nodes + 1.0)[1].astype(np.int64) - 1


def _number_type(depth: int) -> type[np.uint8 | np.int32]:
    return np.uint8 if depth <= BYTE_DEPTH_MAX else np.int32
