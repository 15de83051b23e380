"""What of the trees under way the guest shows each host: no more than it can still use.

A host none of whose candidates divides a node has none below it either (all rows that count are on
one side of each, and stay there), so it need not know how the node's rows divide; unless nodes draw
their columns, when others of its own may divide them further down. With label
protection, neither side of a division is open where one of them would tell too much, or to a host
that does not own the division.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedboost.core.partition import ROOT, left_child, parent, right_child
from fedboost.core.purity import PurityLimit
from fedboost.encrypted.guest.tree import GuestTreeBatch
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.encrypted.tree.growth import Division
from fedboost.ground.arrays import Sums
from fedboost.ground.state import state


@state
class VisibilityState:
    """What each host has seen so far."""

    told: dict[str, set[int]]  # whose divisions
    offered: dict[str, set[int]]  # of the layer above, the nodes that some candidate divides


class Visibility(VisibilityState):
    """Of the trees under way, what each host has seen; nodes by number (TreeBatch)."""

    def __init__(
        self,
        hosts: Mapping[str, int],
        tree_batch: GuestTreeBatch,
        purity: PurityLimit | None = None,
        *,
        hides: bool = False,
    ) -> None:
        """`hosts`: those that take part, with the number of each as an owner of splits; `purity`:
        of the nodes that they see, None where the job has no limit; `hides`: whether each is told
        of its own divisions alone.
        """
        self.open: dict[str, list[int]] = {host: [] for host in hosts}  # this layer
        self.told = {host: set() for host in hosts}
        self.offered = {host: set() for host in hosts}
        self._owners, self._tree_batch, self._purity, self._hides = hosts, tree_batch, purity, hides

    def open_layer(self) -> dict[str, list[Division]]:
        """Sets `open` by the batch's open nodes; gives the divisions that each host is told: its
        own, and those above nodes that are open to it.
        """
        divided = self._tree_batch.last_divided
        closed = {number for number, _ in divided if self._tells(number)}
        divisions: dict[str, list[Division]] = {}
        for host, owner in self._owners.items():
            owned = set(self._tree_batch.owned(owner))
            may_see = self.offered[host] - closed
            if self._hides:
                may_see &= owned
            self.open[host] = [
                number
                for number in self._tree_batch.opened
                if number % STRIDE == ROOT or _above(number) in may_see
            ]
            needed = {_above(number) for number in self.open[host]} | owned
            divisions[host] = [division for division in divided if division[0] in needed]
            self.told[host] |= needed & {number for number, _ in divided}
        return divisions

    def hear(self, host: str, offers: Sequence[Sums]) -> None:
        """Note what the host has offered for the nodes that are open to it, int64 (sums, 2·outputs)
        each: some of it divides a node unless every sum is of all rows or of none.
        """
        dividing = set()
        for number, sums in zip(self.open[host], offers, strict=True):
            tree, node = self._tree_batch.at(number)
            divides = (sums != 0).any(axis=1) & (sums != tree.totals[node]).any(axis=1)
            if divides.any() or tree.draws_within:
                dividing.add(number)
        self.offered[host] = dividing

    def _tells(self, number: int) -> bool:
        """Return whether a side of this division is purer than it may be."""
        if self._purity is None:
            return False
        tree, node = self._tree_batch.at(number)
        sides = [tree.growth.everyone.rows(side) for side in (left_child(node), right_child(node))]
        return any(self._purity.is_exceeded(rows) for rows in sides)


def _above(number: int) -> int:
    """The number of a node's parent; of a root, no node's that was divided."""
    return number - number % STRIDE + parent(number % STRIDE)
