"""What an observer of all that left a host adds up by itself, to hold the host's account to.

It reads bytes as they leave, in their order, and what came in to which they answer. It knows the
job, and how many columns, rows and values each has; of meter, charges and account it knows nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.message import Message

from fedboost import protocols, wire
from fedboost.core.params import MAX_DEPTH
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.cluster import local
from fedboost.runtime.party.node import PartyNode
from fedboost.runtime.transport.identity import Peer

STRIDE = 1 << (MAX_DEPTH + 1)
Nodes = set[int]


@dataclass(frozen=True)
class Left:
    """One message that has left its sender, or was taken in by its receiver for the first time."""

    envelope: Envelope
    message: Any
    is_taken: bool = False


@dataclass
class Layers:
    """What the sums of one job have told in one attempt."""

    opened: list[int] = field(default_factory=list)  # that sums are asked for
    told: Nodes = field(default_factory=set)  # of this layer
    above: Nodes = field(default_factory=set)


@dataclass
class Observer:
    """All messages of a cluster in one process, in the order in which they left."""

    left: list[Left] = field(default_factory=list)

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Sees what leaves, before it arrives, and what is taken in, before it is answered."""
        deliver, accept = local.LocalLinks.deliver, PartyNode.accept

        async def seen(links: local.LocalLinks, envelope: Envelope, payload: bytes) -> None:
            self.left.append(_read(envelope, payload, is_taken=False))
            await deliver(links, envelope, payload)

        async def taken(node: PartyNode, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
            one = _read(envelope, payload, is_taken=True)
            self.left.append(one)
            is_known = True
            try:
                is_known = await accept(node, caller, envelope, payload)
            finally:
                if is_known:  # this one, not an equal one that was taken in
                    self.left = [other for other in self.left if other is not one]
            return is_known

        with monkeypatch.context() as patched:
            patched.setattr(local.LocalLinks, "deliver", seen)
            patched.setattr(PartyNode, "accept", taken)
            yield

    def sums(self, host: str, columns: int, values: int) -> dict[str, tuple[int, int]]:
        """Of each job: equations about any bin of each of `columns`, and divisions of nodes."""
        found: dict[str, tuple[int, int]] = {}
        under_way: dict[tuple[str, int], Layers] = {}
        for one in self._in_turn(host):
            e, name = one.envelope, type(one.message).__name__
            layers = under_way.setdefault((e.job, e.attempt), Layers())
            if one.is_taken and e.receiver == host:
                _asked(layers, name, one.message)
            elif one.is_taken:
                continue
            elif e.sender == host and name == "CandidateSums":
                more = columns * values * _independent(layers, one.message)
                sums, divisions = found.get(e.job, (0, 0))
                found[e.job] = sums + more, divisions
            elif e.sender == host and name == "RowDivisions":
                sums, divisions = found.get(e.job, (0, 0))
                nodes = wire.unpack(one.message.nodes, "i4", (None,), "nodes")
                found[e.job] = sums, divisions + len(nodes)
        return found

    def _in_turn(self, host: str) -> Iterator[Left]:
        """What a host took in and gave, as its steps did: what comes before its step waits for it.

        A message of the host answers those of lower numbers that had come by then; of a step that
        the coordinator has called by too high a number, no later ones.
        """
        waiting: dict[tuple[str, int, str], list[Left]] = {}
        for one in self.left:
            e = one.envelope
            come = waiting.setdefault((e.job, e.attempt, e.stage), [])
            if one.is_taken and e.receiver == host:
                come.append(one)
            elif not one.is_taken and e.sender == host:
                answered = [own for own in come if own.envelope.number < e.number]
                yield from sorted(answered, key=lambda own: own.envelope.number)
                come[:] = [own for own in come if own.envelope.number >= e.number]
                yield one

    def answered(self, host: str) -> dict[str, int]:
        """Of each job: how many times a host has told the leaf of every row in a tree."""
        told = [one.envelope for one in self.left if not one.is_taken]
        steps = {
            (e.job, e.attempt, e.stage, e.number)
            for e in told
            if e.sender == host and e.step in ("answer_rows",)
        }
        return Counter(job for job, *_ in steps)

    def noise(self, host: str, epsilon: float) -> float:
        """ε of the rows of a host, with so much for each value, but of the same bytes once."""
        seen: set[tuple[str, bytes]] = set()
        total = 0.0
        for one in self.left:
            e = one.envelope
            if one.is_taken:
                continue
            if e.sender == host and type(one.message).__name__ == "BucketIds":
                key = e.job, e.payload_sha256
                total += 0.0 if key in seen else epsilon * _columns(one.message)
                seen.add(key)
        return total

    def predicted(self, host: str) -> int:
        """Different rows, told apart by job, that a host has said anything about."""
        asked: dict[tuple[str, int], set[int]] = {}  # and not answered yet
        told: dict[str, set[int]] = {}
        for one in self._in_turn(host):
            e, name = one.envelope, type(one.message).__name__
            if one.is_taken and e.receiver == host and name == "Questions":
                rows = wire.unpack(one.message.rows, "i4", (None,), "rows").tolist()
                asked.setdefault((e.job, e.attempt), set()).update(rows)
            elif not one.is_taken and e.sender == host and name == "Directions":
                told.setdefault(e.job, set()).update(asked.pop((e.job, e.attempt), set()))
        return sum(len(rows) for rows in told.values())

    def opened(self, host: str) -> int:
        """Ids in common that a host has opened to another."""
        return sum(
            one.message.points
            for one in self.left
            if not one.is_taken
            and one.envelope.sender == host
            and type(one.message).__name__ == "CommonSet"
        )

    def alignments(self, host: str) -> int:
        """Sets of ids that a host has blinded and told, one for each job and attempt."""
        sets = ("BlindedSet", "HostSet")
        told = [one for one in self.left if not one.is_taken and one.envelope.sender == host]
        named = [one.envelope for one in told if type(one.message).__name__ in sets]
        return len({(e.job, e.attempt) for e in named})


def _read(envelope: Envelope, payload: bytes, *, is_taken: bool) -> Left:
    """A message and what it says."""
    kinds = protocols.named(envelope.stage).flow
    [kind] = {s.gives for s in kinds if s.name == envelope.step and s.gives is not None}
    message = wire.decode(kind, payload, envelope.sender)
    return Left(Envelope.FromString(envelope.SerializeToString()), message, is_taken)


def _asked(layers: Layers, name: str, message: Message) -> None:
    """A message to the host that asks for sums."""
    if name == "EncryptedGradients" and not message.first_row:  # type: ignore[attr-defined]
        layers.told = set()
    elif name == "BottomRows" and not message.gradients.first_row:  # type: ignore[attr-defined]
        layers.told, layers.opened = set(), _nodes(message.open)  # type: ignore[attr-defined]
    elif name in ("Frontier", "ChosenSplits"):
        layers.opened = _nodes(message.open)  # type: ignore[attr-defined]
    else:
        return
    if name != "EncryptedGradients":
        layers.above, layers.told = layers.told, set()


def _nodes(array: Any) -> list[int]:
    return [int(node) for node in wire.unpack(array, "i4", (None,), "the open nodes").tolist()]


def _independent(layers: Layers, part: Any) -> int:
    """Of the nodes whose sums begin in a part, how many are not a parent less a sibling."""
    if not part.HasField("candidates"):
        return 0
    counts = wire.unpack(part.candidates, "i4", (None,), "candidates")
    nodes, layers.opened = layers.opened[: len(counts)], layers.opened[len(counts) :]
    fresh = 0
    for number, count in zip(nodes, counts.tolist(), strict=True):
        tree, node = divmod(number, STRIDE)
        beside = tree * STRIDE + (node + 1 if node % 2 else node - 1)
        parent = tree * STRIDE + (node - 1) // 2
        if count:
            known = node > 0 and beside in layers.told and parent in layers.above
            fresh += not known
            layers.told.add(number)
    return fresh


def _columns(message: Any) -> int:
    return len(wire.unpack(message.buckets, "i4", (None,), "the buckets of columns"))
