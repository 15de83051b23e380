"""How what a step gives leaves a party: encoded once, noted in the ledger, sent to each taker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf.message import Message

from fedboost import wire
from fedboost.errors import ProtocolError
from fedboost.flow import Step
from fedboost.messages.exchange_pb2 import Envelope


class Links(Protocol):
    """How a message reaches another party."""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Returns once the receiver holds the message; raises what it was refused with."""


# Writes a line of the ledger for each message that leaves ("out") or has come ("in").
Record = Callable[[str, Sequence[tuple[Envelope, Message]]], None]
Keep = Callable[[Envelope, Message], Coroutine[Any, Any, None]]  # takes in what we give ourselves


@dataclass(frozen=True)
class Terms:
    """What every message of a job carries."""

    job: str
    manifest_sha256: bytes
    attempt: int


@dataclass(frozen=True)
class Place:
    """Where a message belongs: the step that gave it, by its number, and which part it is."""

    step: Step
    number: int
    part: int
    is_last: bool


@dataclass(frozen=True)
class Post:
    """A message on its way to one peer."""

    envelope: Envelope
    payload: bytes = field(repr=False)


@dataclass
class Sent:
    """Payload bytes and messages to one peer."""

    bytes: int = 0
    messages: int = 0


@dataclass
class Outbox:
    """The messages of one party in one stage."""

    party: str
    stage: str
    terms: Terms
    links: Links
    record: Record
    keep: Keep
    sent: dict[str, Sent] = field(default_factory=dict)

    def send(
        self, place: Place, messages: Mapping[str, Message]
    ) -> list[Coroutine[Any, Any, None]]:
        """What brings each peer its message, noted as sent; each ends when its has arrived."""
        posts = self._posts(place, messages)
        leaving = {peer: post for peer, post in posts.items() if peer != self.party}
        if leaving:
            self.record("out", [(post.envelope, messages[peer]) for peer, post in leaving.items()])
        arriving: list[Coroutine[Any, Any, None]] = []
        for peer, post in posts.items():
            if peer == self.party:  # in another role: nothing leaves
                arriving.append(self.keep(post.envelope, messages[peer]))
                continue
            sent = self.sent.setdefault(peer, Sent())
            sent.bytes += len(post.payload)
            sent.messages += 1
            arriving.append(self.links.deliver(post.envelope, post.payload))
        return arriving

    def _posts(self, place: Place, messages: Mapping[str, Message]) -> dict[str, Post]:
        """Each peer's message, encoded; one that goes to several of them once."""
        payloads: dict[int, tuple[bytes, bytes]] = {}
        posts = {}
        for peer, message in messages.items():
            if not isinstance(message, place.step.gives or ()):
                raise ProtocolError(f"{place.step.name} gave a {type(message).__name__}")
            if id(message) not in payloads:
                encoded = wire.encode(message)
                payloads[id(message)] = encoded, hashlib.sha256(encoded).digest()
            payload, digest = payloads[id(message)]
            posts[peer] = Post(self._envelope(place, peer, len(payload), digest), payload)
        return posts

    def _envelope(self, place: Place, peer: str, count: int, digest: bytes) -> Envelope:
        assert place.step.gives is not None
        return Envelope(
            job=self.terms.job,
            manifest_sha256=self.terms.manifest_sha256,
            attempt=self.terms.attempt,
            stage=self.stage,
            step=place.step.name,
            number=place.number,
            sender=self.party,
            receiver=peer,
            kind=place.step.gives.DESCRIPTOR.full_name,
            part=place.part,
            last=place.is_last,
            payload_bytes=count,
            payload_sha256=digest,
        )
