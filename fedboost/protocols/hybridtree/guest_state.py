"""State of the guest of hybridtree: finished trees, and the tree that grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point
from fedboost.core.bins import Bins
from fedboost.core.tree import Positions, Tree
from fedboost.crypto.api import PrivateKey
from fedboost.encrypted.checks.gradient_check import CheckedGuest
from fedboost.encrypted.guest.rounds import Rounds, RoundsState
from fedboost.encrypted.guest.tree import GuestRules, GuestTreeBatch, GuestTreeState
from fedboost.encrypted.number.leaf_answers import Precision
from fedboost.encrypted.record import GuestRecord
from fedboost.encrypted.scheme.ciphers import GuestCipher, GuestRows
from fedboost.ground.arrays import Floats, Sums
from fedboost.ground.slot import Slot
from fedboost.ground.state import Growing, state_class
from fedboost.model.hybrid import Below
from fedboost.model.vertical import GuestNode
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.hybridtree.view import HostView


@state_class
class HybridTreeGuestState:
    """Checkpoint of the guest: finished trees, margins and metrics, and the growing tree."""

    rounds: RoundsState
    tops: Growing[GuestNode]
    below: Growing[Below]
    key: bytes  # of the hosts' leaf values; empty if they keep none
    trees_closed: int
    ends: str
    is_recorded: bool
    under_way: dict[str, list[GuestTreeState]]  # by host


@dataclass
class OpenTree:
    """The tree that grows: our upper layers, and below them each host's."""

    top: Tree
    leaves: Positions  # (rows,) in `top`
    tree_batches: dict[str, GuestTreeBatch]  # by host, with scored splits
    encrypted: dict[str, GuestRows] = field(default_factory=dict)  # by host
    added: Floats | None = None  # (rows, outputs) by all hosts' leaves, with unscored splits


@dataclass(kw_only=True)
class Guest(Rounds, CheckedGuest):
    """State of the guest between steps."""

    params: HybridTreeParams
    rules: GuestRules
    bins: Bins
    views: dict[str, HostView]
    record: GuestRecord  # of this training, for audits
    nonces: tuple[bytes, ...] = ()  # of this attempt, if the scheme uses any
    tops: list[GuestNode] = field(default_factory=list)  # of finished trees
    below: list[Below] = field(default_factory=list)
    trees_closed: int = 0
    # State from an earlier attempt below the tree to grow
    under_way: dict[str, list[GuestTreeState]] = field(default_factory=dict)
    side = Slot[GuestCipher]("a key of this attempt")
    key = Slot[PrivateKey]("a key under which hosts keep leaf values")  # with unscored splits
    growing = Slot[OpenTree]("a tree that grows")

    @property
    def is_scored(self) -> bool:
        """Whether we choose the hosts' splits."""
        return self.params.split == "scored"

    @cached_property
    def own_rules(self) -> GuestRules:
        """Rules of our upper layers: as exact as possible, since their gradients stay here."""
        coarse = self.rules.fixed
        if not coarse.is_coarse:
            return self.rules
        return replace(self.rules, fixed=fixed_point.widest_encoding(coarse, self.n_training))

    def sent(self) -> Mapping[str, tuple[GuestRows, Sums]]:
        """Return the rows and gradients of each host; see `CheckedGuest`."""
        rows = self.growing.encrypted
        return {host: (rows[host], view.sent) for host, view in self.views.items()}

    @property
    def n_training(self) -> int:
        """Number of rows to learn from."""
        return len(self.context.parts["train"])

    @property
    def precision(self) -> Precision:
        """Precision of unscored leaf values."""
        return Precision.of(self.params, len(self.views), self.n_training)

    @cached_property
    def holders(self) -> NDArray[np.int64]:
        """Number of hosts that have each row, int64 (rows,)."""
        counts = np.zeros(len(self.y), np.int64)
        for view in self.views.values():
            counts[view.rows] += 1
        return counts
