"""How what a step gives leaves a party: encoded once, noted in the ledger, sent to each taker."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message

from fedboost import wire
from fedboost.errors import ProtocolError, UnreachableError
from fedboost.flow import Step
from fedboost.messages.exchange_pb2 import Envelope

log = logging.getLogger(__name__)


class Links(Protocol):
    """How a message reaches another party."""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Returns once the receiver holds the message; raises what it was refused with."""


Record = Callable[[str, Envelope, Message], None]  # writes one line of the ledger: "out" or "in"
Keep = Callable[[Envelope, Message], Awaitable[None]]  # takes in what we give ourselves


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
        self, loop: asyncio.AbstractEventLoop, place: Place, messages: Mapping[str, Message]
    ) -> list[Future[None]]:
        """Sends to each peer its message, from any thread; the futures end as they arrive."""
        payloads: dict[int, bytes] = {}
        futures = []
        for peer, message in messages.items():
            if not isinstance(message, place.step.gives or ()):
                raise ProtocolError(f"{place.step.name} gave a {type(message).__name__}")
            payload = payloads.setdefault(id(message), wire.encode(message))
            envelope = self._envelope(place, peer, payload)
            if peer == self.party:  # in another role: nothing leaves
                arriving = self.keep(envelope, message)
            else:
                self.record("out", envelope, message)
                sent = self.sent.setdefault(peer, Sent())
                sent.bytes += len(payload)
                sent.messages += 1
                arriving = self.links.deliver(envelope, payload)
            futures.append(asyncio.run_coroutine_threadsafe(_whole(arriving), loop))
        return futures

    def _envelope(self, place: Place, peer: str, payload: bytes) -> Envelope:
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
            payload_bytes=len(payload),
            payload_sha256=hashlib.sha256(payload).digest(),
        )


async def _whole(arriving: Awaitable[None]) -> None:
    await arriving


def wait_for(arriving: Future[None], *, spares: bool) -> None:
    """Waits until a message has arrived; `spares` passes over a peer that is gone."""
    try:
        arriving.result()
    except UnreachableError as error:
        if not spares:
            raise
        log.info("passed over: %s", "; ".join(error.lines()))
