"""Visibility of growing trees: the guest shows each host only the parts that it can still use.

A host without a candidate that divides a node has none below it either: all rows that count are on
one side of each candidate, and stay there. So it need not know how the node's rows divide, unless
nodes draw their columns: then other candidates may divide them further down. With label protection,
neither side of a division is open if one of them would reveal too much, or to a host that does not
own the division.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedboost.core.partition import ROOT, left_child, parent, right_child
from fedboost.core.purity import PurityLimit
from fedboost.encrypted.guest.tree import GuestTreeBatch
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.encrypted.tree.growth import Division
from fedboost.ground.arrays import Sums
from fedboost.ground.state import state_class


@state_class
class VisibilityState:
    """Divisions and candidates that each host has seen so far."""

    told: dict[str, set[int]]  # nodes with divisions that the host has seen
    offered: dict[str, set[int]]  # nodes of the layer above that some candidate divides


class Visibility(VisibilityState):
    """Parts of the growing trees that each host has seen; nodes by number (TreeBatch)."""

    def __init__(
        self,
        hosts: Mapping[str, int],
        tree_batch: GuestTreeBatch,
        purity: PurityLimit | None = None,
        *,
        hides: bool = False,
    ) -> None:
        """`hosts` maps each participating host to its number as an owner of splits.

        `purity` limits the nodes that hosts see, None without a limit. If `hides`, a host sees only
        its own divisions.
        """
        self.open: dict[str, list[int]] = {host: [] for host in hosts}  # this layer
        self.told = {host: set() for host in hosts}
        self.offered = {host: set() for host in hosts}
        self._owners, self._tree_batch, self._purity, self._hides = hosts, tree_batch, purity, hides

    def open_layer(self) -> dict[str, list[Division]]:
        """Set `open` by the batch's open nodes, and return the divisions to show to each host.

        They are its own divisions, and the divisions above its open nodes.
        """
        divided = self._tree_batch.last_divided
        closed = {number for number, _ in divided if self._reveals_too_much(number)}
        divisions: dict[str, list[Division]] = {}
        for host, owner in self._owners.items():
            owned = set(self._tree_batch.owned(owner))
            may_see = self.offered[host] - closed
            if self._hides:
                may_see &= owned
            self.open[host] = [
                number
                for number in self._tree_batch.opened
                if number % STRIDE == ROOT or _parent_number(number) in may_see
            ]
            needed = {_parent_number(number) for number in self.open[host]} | owned
            divisions[host] = [division for division in divided if division[0] in needed]
            self.told[host] |= needed & {number for number, _ in divided}
        return divisions

    def hear(self, host: str, offers: Sequence[Sums]) -> None:
        """Note the host's offers for its open nodes, int64 (sums, 2·outputs) each.

        An offer divides a node unless every sum is of all rows or of none.
        """
        dividing = set()
        for number, sums in zip(self.open[host], offers, strict=True):
            tree, node = self._tree_batch.at(number)
            divides = (sums != 0).any(axis=1) & (sums != tree.totals[node]).any(axis=1)
            if divides.any() or tree.draws_within:
                dividing.add(number)
        self.offered[host] = dividing

    def _reveals_too_much(self, number: int) -> bool:
        """Return whether a side of this division is purer than allowed."""
        if self._purity is None:
            return False
        tree, node = self._tree_batch.at(number)
        sides = [tree.growth.everyone.rows(side) for side in (left_child(node), right_child(node))]
        return any(self._purity.is_exceeded(rows) for rows in sides)


def _parent_number(number: int) -> int:
    """Return the number of a node's parent; for a root a number that was never divided."""
    return number - number % STRIDE + parent(number % STRIDE)
