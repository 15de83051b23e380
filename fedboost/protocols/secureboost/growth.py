"""Where the rows of a growing tree stand, as guest and hosts both keep it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core.partition import Partition
from fedboost.errors import PeerError
from fedboost.messages.array_pb2 import Array

Division = tuple[int, NDArray[np.bool_]]  # a node, and which of its rows (ascending) go right


class Growth:
    """The rows of one tree's nodes: of all rows, and of the training rows among them."""

    def __init__(self, is_training: NDArray[np.bool_]) -> None:
        """All rows stand in the root; `is_training` bool (n,)."""
        self._is_training = is_training
        self.everyone = Partition(np.arange(len(is_training), dtype=np.int32))
        self.training = Partition(np.flatnonzero(is_training).astype(np.int32))
        self.layers = 0  # divided so far, even into nothing
        self.last_divided: list[Division] = []  # the layer above

    def divide(self, divisions: Sequence[Division]) -> None:
        """Moves the rows of a layer's divided nodes into their children."""
        for node, goes_right in divisions:
            rows = self.everyone.rows(node)
            self.training.divide(node, goes_right[self._is_training[rows]])
            self.everyone.divide(node, goes_right)
        self.last_divided = list(divisions)
        self.layers += 1


def read_divisions(
    nodes: Array, goes_right: Array, expected: Sequence[int], rows: Sequence[int], sender: str
) -> dict[int, NDArray[np.bool_]]:
    """The divisions in a message, of exactly the `expected` nodes with so many `rows` each."""
    got = wire.unpack(nodes, "i4", (len(expected),), f"the nodes that {sender} divides")
    if got.tolist() != list(expected):
        raise PeerError(f"{sender} divides other nodes than it should")
    bits = wire.unpack_bits(goes_right, sum(rows), f"the rows that {sender} divides")
    parts = np.split(bits, np.cumsum(rows)[:-1]) if rows else []
    return dict(zip(expected, parts, strict=True))
