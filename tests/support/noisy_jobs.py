"""What a guest sees of a host that adds noise, beside what is true: for tests, which know both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.bins import bins_of_rows
from fedboost.encrypted.cells.candidates import NodeCandidates, Shape
from fedboost.encrypted.guest.offers import Best
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.encrypted.tree.batch import STRIDE
from tests.support.federated import GUEST, HOSTS, Room

Sums = NDArray[np.int64]
Name = tuple[int, int, bool]  # column, its bin, missing rows on the left
MISSING = 1000  # in place of a bin


@dataclass(frozen=True)
class Node:
    """The sums of one node in the order in which they came, as they came and as they are."""

    tree: int  # its place in the grove
    node: int
    rows: int  # that its tree learns from
    seen: Sums  # (sums, 2·outputs)
    true: Sums
    names: list[Name]  # of categories: their group, or MISSING

    @property
    def by_name(self) -> Sums:
        """As they came, in an order that is the same for every attempt."""
        return self.seen[sorted(range(len(self.names)), key=self.names.__getitem__)]


@dataclass
class Watched:
    """A room whose first host's sums are written down as the guest reads them."""

    room: Room
    nodes: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, room: Room, patch: pytest.MonkeyPatch) -> Watched:
        """Begins to watch; there is one host."""
        watched, own = cls(room), GuestTree.best_of

        def reading(tree: GuestTree, node: int, sums: Sums, shape: Shape) -> Best | None:
            watched.note(tree, node, sums)
            return own(tree, node, sums, shape)

        patch.setattr(GuestTree, "best_of", reading)
        return watched

    def note(self, tree: GuestTree, node: int, sums: Sums) -> None:
        """Sets beside sums what the rows come to, by what only the host knows."""
        guest, host = self.room.state(GUEST), self.room.state(HOSTS[0])
        growing = guest.growing
        tree_batch = (
            growing.tree_batches[HOSTS[0]]
            if hasattr(growing, "tree_batches")
            else growing.tree_batch
        )
        slot = next(place for place, one in enumerate(tree_batch.trees) if one is tree)
        offer, rows = host.tree_batch.offered[slot * STRIDE + node], tree.growth.training.rows(node)
        names, true = [], []
        for name, left_bins in _named(offer):
            column, place, missing_left = name
            most = int(host.binning.n_bins[column])  # and as a bin missing rows
            bins = np.minimum(bins_of_rows(host.bins, column, rows).astype(np.int64), most)
            right = split.goes_right(bins.astype(np.uint8), place, missing_left, most, left_bins)
            if place == MISSING:
                right = bins != most
            names.append(name)
            true.append(tree.gh[rows[~right]].sum(axis=0))
        true_sums = np.array(true).reshape(sums.shape)
        self.nodes.append(Node(slot, node, len(rows), sums, true_sums, names))

    @property
    def noise(self) -> Sums:
        """All that was added, (sums, 2·outputs)."""
        return np.concatenate([node.seen - node.true for node in self.nodes])

    def in_sigmas(self, scale: NoiseScale) -> NDArray[np.float64]:
        """The same in units of σ of each node, (sums, 2·outputs)."""
        every = [(node.seen - node.true) / scale.sigma_of(node.rows) for node in self.nodes]
        return np.concatenate(every)


def _named(offered: NodeCandidates) -> Iterator[tuple[Name, bytes]]:
    """Each sum's name in the order in which they went out, and of categories which these are."""
    listed: Any = offered.listed
    names: list[tuple[Name, bytes]] = [
        ((int(column), int(place), bool(missing_left)), b"")
        for column, place, missing_left in zip(
            listed.column, listed.bin, listed.missing_left, strict=True
        )
    ]
    for one in offered.categorical:
        for number in range(len(one.groups)):
            _, _, missing_left, left_bins = one.named(np.array([number]), False)
            names.append(((one.column, number, missing_left), left_bins))
        if one.missing:
            names.append(((one.column, MISSING, False), b""))
    yield from (names[place] for place in offered.order.tolist())
