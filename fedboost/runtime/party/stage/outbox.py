"""Sends a step's messages: encodes each once, notes it in the ledger, sends it to each receiver."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import Message

from fedboost.flow import DisclosureInfo, Out, Step
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, ProtocolError, UnreachableError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import LinkBytes
from fedboost.runtime.ledger.rows import SALT_BYTES, Noted
from fedboost.runtime.party.stage.notes import Notes
from fedboost.runtime.party.stage.step_work import Sendings
from fedboost.runtime.store.recordings import Recording

if TYPE_CHECKING:
    from fedboost.crypto.secrets import Secrets

log = logging.getLogger(__name__)

SENT_BYTES_KEPT_MAX = 1 << 16  # of a message: the winners of a layer's nodes take less


class Links(Protocol):
    """The links to other parties."""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Return once the receiver holds the message; raise the error of its refusal."""


@dataclass(frozen=True)
class RecordedLinks(Links):
    """Links that record small messages, so that a replay can show differences."""

    links: Links
    recording: Recording

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """See `Links`."""
        if len(payload) <= SENT_BYTES_KEPT_MAX:
            self.recording.left(envelope, payload)
        await self.links.deliver(envelope, payload)


Keep = Callable[[Envelope, Message], Coroutine[Any, Any, None]]  # queues a message to ourselves


@dataclass(frozen=True)
class Terms:
    """The terms that every message of a job carries."""

    job: str
    manifest_sha256: bytes
    attempt: int


@dataclass(frozen=True)
class MessagePlace:
    """The place of a message: the step that gave it, the step's number, and the part."""

    step: Step
    number: int
    part: int
    is_last: bool


@dataclass(frozen=True)
class Post:
    """A message to one peer, ready to be sent."""

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
    notes: Notes
    keep: Keep
    secrets: Secrets  # of this stage and attempt
    sent: dict[str, Sent] = field(default_factory=dict)
    passed_over: set[str] = field(default_factory=set)  # peers that may lack a message sent to them
    stopped: FedboostError | None = None  # why nothing may leave any more

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Bytes and messages so far, by peer."""
        return {peer: (sent.bytes, sent.messages) for peer, sent in self.sent.items()}

    def sent_since(self, before: Mapping[str, tuple[int, int]]) -> list[LinkBytes]:
        """Return the bytes and messages sent since an earlier state of `counts`, by peer."""
        return [
            LinkBytes(peer=peer, bytes=n_bytes - before.get(peer, (0, 0))[0], messages=more)
            for peer, (n_bytes, messages) in self.counts.items()
            if (more := messages - before.get(peer, (0, 0))[1])
        ]

    def send(
        self, place: MessagePlace, receivers: Sequence[str], out: Out, *, spares: bool
    ) -> Sendings:
        """Note messages as sent; return a coroutine for each peer that delivers its message.

        A message without peers goes to all `receivers`. With `spares`, a coroutine also ends if its
        peer is gone.
        """
        assert out.send is not None
        given = out.send
        messages = given if isinstance(given, Mapping) else dict.fromkeys(receivers, given)
        posts = self._encoded_posts(place, messages)
        leaving = {peer: post for peer, post in posts.items() if peer != self.party}
        if leaving:
            by_peer = (
                out.about if isinstance(out.about, Mapping) else dict.fromkeys(posts, out.about)
            )
            about = {p: by_peer.get(p, DisclosureInfo()) for p in leaving}
            noted = [Noted(post.envelope, messages[p], about[p]) for p, post in leaving.items()]
            self.notes.write_now(*noted)
        arriving: dict[str, Coroutine[Any, Any, None]] = {}
        for peer, post in posts.items():
            if peer == self.party:  # in another role of ours: nothing leaves
                arriving[peer] = self.keep(post.envelope, messages[peer])
                continue
            sent = self.sent.setdefault(peer, Sent())
            sent.bytes += len(post.payload)
            sent.messages += 1
            arriving[peer] = self._deliver(post, spares=spares)
        return arriving

    async def _deliver(self, post: Post, *, spares: bool) -> None:
        if self.stopped is not None:  # meanwhile: the loop starts cancelled coroutines too
            raise self.stopped
        try:
            await self.links.deliver(post.envelope, post.payload)
        except UnreachableError as error:
            if not spares:
                raise
            self.passed_over.add(post.envelope.receiver)
            log.info("passed over: %s", "; ".join(error.lines()))

    def _encoded_posts(
        self, place: MessagePlace, messages: Mapping[str, Message]
    ) -> dict[str, Post]:
        """Return each peer's message, encoded; a message to several peers is encoded once."""
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

    def _envelope(self, place: MessagePlace, peer: str, count: int, digest: bytes) -> Envelope:
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
            salt=self._message_salt(place, peer),
        )

    def _message_salt(self, place: MessagePlace, peer: str) -> bytes:
        """Return the salt of one message: secret, and the same if the message is sent again."""
        where = ("salt", place.step.name, place.number, place.part, peer)
        return self.secrets.derive(*where)[:SALT_BYTES]
