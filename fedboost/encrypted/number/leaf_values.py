"""Leaf values that a host keeps encrypted: how it computes and stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.encrypted.number.packed import HostKey
from fedboost.encrypted.tree.growth import Growth
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import PeerError


@dataclass(frozen=True)
class LeafValues:
    """The encrypted values of one tree's leaves."""

    nodes: Indices  # (leaves,) ascending
    values: Ciphertexts

    @classmethod
    def of(
        cls,
        growth: Growth,
        gradients: Ciphertexts,
        learns: Indices,
        keys: HostKey,
        reg_lambda: float,
    ) -> LeafValues:
        """Return s · Σg of every leaf with rows I, s = 2^fraction_bits / (|I| + reg_lambda); 0 of
        others.

        `gradients` are those of the rows `learns`, int64 ascending.
        """
        assert isinstance(keys.layout, LeafLayout)
        nodes = growth.training.leaves()
        place = {node: i for i, node in enumerate(nodes)}
        sizes = np.array([len(growth.training.rows(node)) for node in nodes], np.int64)
        cells = np.empty(len(learns), np.int32)
        for node in nodes:
            cells[np.searchsorted(learns, growth.training.rows(node))] = place[node]
        sums = keys.key.segment_sum(gradients, np.arange(len(learns)), cells[:, None], len(nodes))
        # A leaf without rows is an encryption of 0, times any factor.
        factors = np.ones(len(nodes), np.int64)
        factors[sizes > 0] = keys.layout.factors(sizes[sizes > 0], reg_lambda)
        return cls(np.array(nodes, np.int64), keys.key.scale(sums, factors))

    def of_rows(self, growth: Growth, n_rows: int) -> Ciphertexts:
        """Return each row's value."""
        return self.values[self.indices(growth.everyone.node_of_rows(n_rows))]

    def indices(self, leaves: NDArray[np.integer]) -> Indices:
        """Return the indices of these leaves' values; a PeerError if the tree has no such leaf."""
        if not np.isin(leaves, self.nodes).all():
            raise PeerError("the guest put rows below nodes that the tree does not have")
        return np.searchsorted(self.nodes, leaves)


def as_arrays(trees: Sequence[LeafValues]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of the host's shard: the leaves of all trees, one after the other."""
    data = [tree.values.data for tree in trees] or [np.empty((0, 1, 1), np.uint8)]
    lengths = [len(tree.nodes) for tree in trees]
    return {
        "leaf_tree": np.repeat(np.arange(len(trees), dtype=np.int32), lengths),
        "leaf_node": np.concatenate([np.empty(0, np.int64), *(t.nodes for t in trees)]).astype(
            np.int32
        ),
        "leaf_value": np.concatenate(data),
    }


def from_arrays(arrays: Mapping[str, NDArray[np.generic]], trees: int) -> list[LeafValues]:
    """Return the leaf values that `as_arrays` wrote."""
    values = []
    for tree in range(trees):
        of_tree = arrays["leaf_tree"] == tree
        data = np.ascontiguousarray(arrays["leaf_value"][of_tree]).astype(np.uint8)
        values.append(LeafValues(arrays["leaf_node"][of_tree].astype(np.int64), Ciphertexts(data)))
    return values
