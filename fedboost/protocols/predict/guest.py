"""The guest of a prediction: has the trees' shape, asks the owners of splits for directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedboost.flow import DisclosureInfo, Out, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Indices
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.predict_pb2 import Directions, Questions
from fedboost.model import rounds, vertical
from fedboost.model.batches import Batches, finish, restore, snapshot
from fedboost.model.vertical import TreeShape
from fedboost.protocols.predict.params import PredictParams

__all__ = (
    "ask_hosts", "begin", "bytes_max", "close_batch", "finish", "follow_answers", "restore",
    "snapshot",
)  # fmt: skip


@dataclass
class Guest(Batches):
    """State of the guest between steps."""

    shape: TreeShape = field(init=False)
    at: Indices = field(init=False)  # (rows, trees) in nodes
    asked: dict[str, Indices] = field(default_factory=dict)  # per host: indices into `at`, flat

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shape = TreeShape.of(self.model.arrays)
        self.start_batch()

    def place_batch(self) -> None:
        """Put the rows at the roots and move them down the guest's own nodes."""
        self.at = np.tile(self.shape.roots, (self.rows.stop - self.rows.start, 1))
        self.descend()

    def descend(self) -> None:
        """Move the rows down the guest's own nodes, as far as they lead."""
        vertical.descend_own(self.model.arrays, self.shape, self.values, self.at, self.first)


def begin(context: StageContext[PredictParams]) -> Guest:
    """Read the guest's shard and put the first batch of rows at the roots."""
    return Guest(context)


def ask_hosts(guest: Guest) -> Out:
    """Ask each host about the rows that stand at its nodes."""
    owner = guest.model.arrays["owner"][guest.at]
    guest.asked = {}
    questions, about = {}, {}
    for number, host in enumerate(guest.context.table.hosts, start=1):
        indices = np.flatnonzero(owner == number)
        nodes = guest.at.reshape(-1)[indices]
        order = np.argsort(nodes, kind="stable")
        guest.asked[host] = indices[order]
        distinct, counts = np.unique(nodes, return_counts=True)
        rows = guest.asked[host] // guest.at.shape[1] + guest.first
        questions[host] = Questions(
            trees=wire.pack(guest.model.arrays["tree"][distinct].astype(np.int32)),
            nodes=wire.pack(guest.model.arrays["node"][distinct].astype(np.int32)),
            counts=wire.pack(counts.astype(np.int32)),
            rows=wire.pack(rows.astype(np.int32)),
        )
        groups = DisclosureInfo.from_group_sizes(
            counts.tolist()
        )  # a row stands at a node of many trees
        about[host] = replace(groups, rows=len(np.unique(rows)))
    return Out(send=questions, about=about)


def follow_answers(guest: Guest, got: Mapping[str, Directions]) -> Out:
    """Move the rows in the directions of their answers, then down the guest's own nodes."""
    at = guest.at.reshape(-1)
    for host, indices in guest.asked.items():
        right = wire.unpack_bits(got[host].goes_right, len(indices), f"the directions of {host}")
        nodes = at[indices]
        at[indices] = np.where(right, guest.shape.right[nodes], guest.shape.left[nodes])
    guest.descend()
    done = bool((guest.model.arrays["owner"][guest.at] == vertical.LEAF).all())
    return Out(told=StatusReport(ends="layer" if done else ""))


def close_batch(guest: Guest) -> Out:
    """Add up the leaves that the batch has reached."""
    value = guest.model.arrays["value"].astype(np.float64)
    # In the order of training, so that sums have the same bits.
    for tree, outputs in enumerate(rounds.outputs(guest.model.facts)):
        guest.margin[:, outputs] += value[guest.at[:, tree]]
    return guest.next_batch()


def bytes_max(guest: Guest, _: str) -> int:
    """Return the size of an answer: one bit for each question."""
    return guest.at.size // 8 + 1024
