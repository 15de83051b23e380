"""The trees that grow at once, one or a forest's: each node travels under a single number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fedboost.core.params import MAX_DEPTH
from fedboost.encrypted.tree.growth import Division, Growth
from fedboost.ground.arrays import Bits, Rows
from fedboost.ground.errors import PeerError
from fedboost.ground.state import restore_into

STRIDE = 1 << (MAX_DEPTH + 1)  # more than a tree has heap ids


class BatchTree(Protocol):
    """A tree that is growing, at a guest or a host."""

    growth: Growth
    opened: list[int]


T = TypeVar("T", bound=BatchTree)


class TreeBatch(Generic[T]):
    """Trees in order; node i of the tree at index k has the number k·STRIDE + i."""

    def __init__(self, trees: Sequence[T]) -> None:
        self.trees = list(trees)

    def at(self, number: int) -> tuple[T, int]:
        """Return the tree and the heap id of a node's number; a PeerError for an unknown tree."""
        place, node = divmod(number, STRIDE)
        if not 0 <= place < len(self.trees):
            raise PeerError(f"there is no node {number} among {len(self.trees)} trees")
        return self.trees[place], node

    def numbers(self, nodes: Iterable[Iterable[int]]) -> list[int]:
        """Return the numbers of some nodes of each tree, in the order of the trees."""
        return [place * STRIDE + node for place, those in enumerate(nodes) for node in those]

    @property
    def opened(self) -> list[int]:
        """Numbers of the open nodes."""
        return self.numbers(tree.opened for tree in self.trees)

    @property
    def last_divided(self) -> list[Division]:
        """The nodes that were divided in the layer above, and how."""
        return [
            (place * STRIDE + node, bits)
            for place, tree in enumerate(self.trees)
            for node, bits in tree.growth.last_divided
        ]

    def n_rows(self, numbers: Iterable[int]) -> list[int]:
        """Return how many rows stand in each of these nodes, validation rows among them."""
        places = (self.at(number) for number in numbers)
        return [len(tree.growth.everyone.rows(node)) for tree, node in places]

    def rows_of(self, numbers: Iterable[int]) -> dict[int, Rows]:
        """Return the rows that stand in each of these nodes, validation rows among them."""
        places = ((number, *self.at(number)) for number in numbers)
        return {number: tree.growth.everyone.rows(node) for number, tree, node in places}

    def by_tree(self, divisions: Mapping[int, Bits]) -> list[dict[int, Bits]]:
        """Return the divisions of each tree, by heap id."""
        divided: list[dict[int, Bits]] = [{} for _ in self.trees]
        for number, bits in divisions.items():
            place, node = divmod(number, STRIDE)
            divided[place][node] = bits
        return divided

    def load_state(self, kept: Sequence[Any]) -> None:
        """Restore the trees from the states of an earlier attempt."""
        for tree, tree_state in zip(self.trees, kept, strict=True):
            restore_into(tree, tree_state)
