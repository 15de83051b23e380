"""The guest of a prediction: has the trees' shape, asks the owners of splits where rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.flow import About, Out, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.predict_pb2 import Directions, Questions
from fedboost.model import rounds, vertical
from fedboost.model.batches import Batches, finish, restore, snapshot
from fedboost.model.vertical import TreeShape

__all__ = (
    "ask_hosts",
    "begin",
    "bytes_max",
    "close_batch",
    "finish",
    "follow_answers",
    "restore",
    "snapshot",
)  # fmt: skip

Places = NDArray[np.int64]


@dataclass
class Guest(Batches):
    """What the guest remembers between steps."""

    shape: TreeShape = field(init=False)
    at: Places = field(default_factory=lambda: np.empty((0, 0), np.int64))  # (rows, trees) in nodes
    asked: dict[str, Places] = field(default_factory=dict)  # per host: places in `at`, flat

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shape = TreeShape.of(self.model.arrays)
        self.start_batch()

    def start_batch(self) -> None:
        """At the roots, and down the guest's own nodes."""
        self.at = np.tile(self.shape.roots, (self.rows.stop - self.rows.start, 1))
        self.descend()

    def descend(self) -> None:
        """Down the guest's own nodes, as far as they lead."""
        vertical.descend_own(self.model.arrays, self.shape, self.values, self.at, self.first)


def begin(seat: Seat) -> Guest:
    """Reads the guest's shard and puts the first batch of rows at the roots."""
    return Guest(seat)


def ask_hosts(me: Guest) -> Out:
    """For each host the rows that stand at its nodes."""
    owner = me.model.arrays["owner"][me.at]
    me.asked = {}
    questions, about = {}, {}
    for number, host in enumerate(me.seat.table.hosts, start=1):
        places = np.flatnonzero(owner == number)
        nodes = me.at.reshape(-1)[places]
        order = np.argsort(nodes, kind="stable")
        me.asked[host] = places[order]
        distinct, counts = np.unique(nodes, return_counts=True)
        rows = me.asked[host] // me.at.shape[1] + me.first
        questions[host] = Questions(
            trees=wire.pack(me.model.arrays["tree"][distinct].astype(np.int32)),
            nodes=wire.pack(me.model.arrays["node"][distinct].astype(np.int32)),
            counts=wire.pack(counts.astype(np.int32)),
            rows=wire.pack(rows.astype(np.int32)),
        )
        groups = About.of_groups(counts.tolist())  # a row stands at a node of many trees
        about[host] = replace(groups, rows=len(np.unique(rows)))
    return Out(send=questions, about=about)


def follow_answers(me: Guest, got: Mapping[str, Directions]) -> Out:
    """Moves the rows as their owners say, then down the guest's own nodes."""
    at = me.at.reshape(-1)
    for host, places in me.asked.items():
        right = wire.unpack_bits(got[host].goes_right, len(places), f"the directions of {host}")
        nodes = at[places]
        at[places] = np.where(right, me.shape.right[nodes], me.shape.left[nodes])
    me.descend()
    done = bool((me.model.arrays["owner"][me.at] == vertical.LEAF).all())
    return Out(told=Told(ends="layer" if done else ""))


def close_batch(me: Guest) -> Out:
    """Adds up the leaves that the batch has reached."""
    value = me.model.arrays["value"].astype(np.float64)
    # In the order of training, so that sums have the same bits.
    for tree, output in enumerate(rounds.classes(me.model.facts).tolist()):
        outputs = slice(None) if output == rounds.ALL else slice(output, output + 1)
        me.margin[me.rows, outputs] += value[me.at[:, tree]]
    return me.next_batch()


def bytes_max(me: Guest, _: str) -> int:
    """One bit for each question."""
    return me.at.size // 8 + 1024
