"""Calls of a daemon to parties: payloads to a peer, and a coordinator's steps of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import grpc

from fedboost.ground import wire
from fedboost.ground.errors import UnreachableError
from fedboost.messages import exchange_pb2_grpc, job_pb2, party_pb2, party_pb2_grpc
from fedboost.messages.exchange_pb2 import Chunk, Envelope, Parcel, RecallReply, RecallRequest
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.transport.channel import WINDOW_PIECES, Contact, Dialer, service_stub
from fedboost.runtime.transport.posting import POSTED_BYTES_MAX, OutgoingStreams


class PeerLinks:
    """A party's links to the other parties, by name."""

    def __init__(self, dialer: Dialer, addresses: Callable[[], Mapping[str, str]]) -> None:
        """Prepare the links; `addresses` returns the current addresses."""
        self._dialer = dialer
        self._addresses = addresses
        self.streams = OutgoingStreams()

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Send one message and wait until the receiver has stored it."""
        name = envelope.receiver
        address = self._address(name)
        timers = self._dialer.timers
        metadata = self._dialer.metadata
        contact = Contact()

        async def payload_chunks() -> AsyncIterator[Chunk]:
            yield Chunk(envelope=envelope)
            for place, piece in enumerate(wire.cut_payload(payload)):
                if place > WINDOW_PIECES:  # earlier pieces were received by now
                    contact.made()
                yield Chunk(piece=piece)

        def begin_posting(channel: grpc.aio.Channel) -> Any:
            return service_stub(exchange_pb2_grpc.ExchangeStub, channel).Post(metadata=metadata)

        def start_call(channel: grpc.aio.Channel) -> Any:
            if len(payload) > POSTED_BYTES_MAX:
                exchange = service_stub(exchange_pb2_grpc.ExchangeStub, channel)
                return exchange.Deliver(payload_chunks(), timeout=timers.step_s, metadata=metadata)
            [piece] = wire.cut_payload(payload)
            stream = self.streams.stream_to(name, channel, partial(begin_posting, channel))
            return stream.post(Parcel(envelope=envelope, piece=piece), timers.step_s)

        await self._dialer.call(
            (name, address), start_call, retry_s=timers.peer_lost_s, contact=contact
        )

    async def recall(self, _: str, peer: str) -> RecallReply:
        """See `signed_heads.Recalls`."""
        timers = self._dialer.timers
        how: dict[str, Any] = {"timeout": timers.call_s, "metadata": self._dialer.metadata}

        def start_call(channel: grpc.aio.Channel) -> Any:
            return service_stub(exchange_pb2_grpc.ExchangeStub, channel).Recall(
                RecallRequest(), **how
            )

        target = (peer, self._address(peer))
        reply: RecallReply = await self._dialer.call(target, start_call, retry_s=timers.peer_lost_s)
        return reply

    def _address(self, name: str) -> str:
        return _known_address(self._addresses(), name, "peers")


class PartyControl:
    """The coordinator's link to one party; implements `walk.Control`."""

    def __init__(
        self, dialer: Dialer, name: str, addresses: Callable[[], Mapping[str, str]]
    ) -> None:
        """Prepare the link; `addresses` returns the current addresses."""
        self._dialer = dialer
        self._name, self._addresses = name, addresses

    @property
    def _party_address(self) -> tuple[str, str]:
        return self._name, _known_address(self._addresses(), self._name, "parties")

    async def _call_party(
        self, method: str, request: Any, deadline_s: float | None = None, *, retries: bool = True
    ) -> Any:
        timers = self._dialer.timers

        def start_call(channel: grpc.aio.Channel) -> Any:
            call = getattr(service_stub(party_pb2_grpc.PartyStub, channel), method)
            timeout = deadline_s or timers.step_s
            return call(request, timeout=timeout, metadata=self._dialer.metadata)

        retry_s = timers.peer_lost_s if retries else 0.0
        return await self._dialer.call(self._party_address, start_call, retry_s=retry_s)

    async def hello(self, *, retries: bool = True) -> job_pb2.HelloReply:
        """Return the identity of the party; without `retries` raise UnreachableError at once."""
        reply: job_pb2.HelloReply = await self._call_party(
            "Hello", job_pb2.HelloRequest(), self._dialer.timers.call_s, retries=retries
        )
        return reply

    async def reaches(self, peer: str) -> bool:
        """Return whether the party can call one of its own peers."""
        reply = await self.check_link(job_pb2.CheckLinkRequest(name=peer))
        return reply.fault.code != UnreachableError.code

    async def check_link(self, request: job_pb2.CheckLinkRequest) -> job_pb2.CheckLinkReply:
        """Return the party's check of one of its own links."""
        reply: job_pb2.CheckLinkReply = await self._call_party(
            "CheckLink", request, self._dialer.timers.call_s
        )
        return reply

    async def offer_schemes(self, request: party_pb2.SchemesRequest) -> party_pb2.SchemesReply:
        reply: party_pb2.SchemesReply = await self._call_party("OfferSchemes", request)
        return reply

    async def propose(self, request: party_pb2.Proposal) -> party_pb2.Agreement:
        reply: party_pb2.Agreement = await self._call_party("Propose", request)
        return reply

    async def make_room(self, request: job_pb2.JobId) -> party_pb2.Room:
        reply: party_pb2.Room = await self._call_party("MakeRoom", request)
        return reply

    async def begin(self, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        reply: party_pb2.BeginReply = await self._call_party("Begin", request)
        return reply

    async def open_stage(self, request: party_pb2.StageRequest) -> party_pb2.StageReply:
        reply: party_pb2.StageReply = await self._call_party("OpenStage", request)
        return reply

    async def end_loop(self, request: party_pb2.EndLoopRequest) -> party_pb2.EndLoopReply:
        reply: party_pb2.EndLoopReply = await self._call_party("EndLoop", request)
        return reply

    async def commit(self, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        reply: party_pb2.CommitReply = await self._call_party("Commit", request)
        return reply

    async def close_stage(self, request: party_pb2.StageRequest) -> party_pb2.StageReply:
        reply: party_pb2.StageReply = await self._call_party("CloseStage", request)
        return reply

    async def finish(self, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        reply: party_pb2.FinishReply = await self._call_party("Finish", request)
        return reply

    async def stop(self, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        reply: party_pb2.StopReply = await self._call_party(
            "Stop", request, self._dialer.timers.peer_lost_s
        )
        return reply

    async def run_step(
        self, request: StepCall, hear: Callable[[StepReply], None] | None = None
    ) -> StepReply:
        """Wait while the party shows signs of life, at most for the time limit of a step."""
        contact = Contact()

        return await self._dialer.call(
            self._party_address,
            lambda channel: self._until_done(channel, request, contact, hear),
            retry_s=self._dialer.timers.peer_lost_s,
            contact=contact,
        )

    async def _until_done(
        self,
        channel: grpc.aio.Channel,
        request: StepCall,
        contact: Contact,
        hear: Callable[[StepReply], None] | None,
    ) -> StepReply:
        timers = self._dialer.timers
        name, address = self._party_address
        call = service_stub(party_pb2_grpc.PartyStub, channel).RunStep(
            request, timeout=timers.step_s * len(request.turns), metadata=self._dialer.metadata
        )
        replies = aiter(call)
        while True:
            left_s = max(0.1, contact.at + timers.peer_lost_s - monotonic_s())
            try:
                # Not `wait_for`: in Python 3.11 it loses a cancellation at the moment of a reply.
                async with asyncio.timeout(left_s):
                    reply: StepReply = await anext(replies)
            except TimeoutError:
                call.cancel()
                raise UnreachableError(
                    f"{name} has shown no sign of life for {timers.peer_lost_s:g} s",
                    party=name,
                    address=address,
                    todo="see its log; is it stopped, or its machine overloaded?",
                ) from None
            except StopAsyncIteration:
                raise UnreachableError(
                    f"{name} ended a step without an answer",
                    party=name,
                    todo="look at its log",
                ) from None
            if not reply.working:
                return reply
            contact.made()
            if hear is not None:
                hear(reply)


def _known_address(addresses: Mapping[str, str], name: str, key: str) -> str:
    """Return an address; an UnreachableError where the settings' `key` has none."""
    address = addresses.get(name)
    if address is None:
        raise UnreachableError(
            f"no address is known for {name}", party=name, todo=f"add it to `{key}`"
        )
    return address
