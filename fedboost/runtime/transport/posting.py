"""Stream of smaller messages, the majority, from one party to another.

Each message has its own receipt, in any order: a message that waits for space does not block
others. A receipt is sent together with the sender's next message, so a message and its answer take
two writes instead of four.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from typing import Any, TypeVar

import grpc

from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.messages.exchange_pb2 import Parcel, Receipt
from fedboost.runtime.process import logs
from fedboost.runtime.process.bridge import log_failure
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer

POSTED_BYTES_MAX = 1 << 18  # a larger one has its own call, so others need not wait
UNANSWERED_MAX = 256  # unanswered messages of one stream; further ones wait in transit
RECEIPT_TURNS = 4  # of the event loop that a receipt waits for a message to go along with
PEER_STREAMS_MAX = 32  # of one peer, most of them of links that broke; another one ends the oldest

T = TypeVar("T")


class OutgoingStream:
    """Our end of the stream to a peer. All methods belong to the event loop's thread."""

    def __init__(self, call: Any, numbers: Iterator[int]) -> None:
        """Start the stream; `call` is the gRPC call of `Exchange.Post`, just begun, and `numbers`
        are unique among our messages to a peer.
        """
        self._call, self._numbers = call, numbers
        self._unwritten: deque[Parcel] = deque()
        self._more = asyncio.Event()
        self._awaited: dict[int, asyncio.Future[Receipt]] = {}
        self._due: dict[asyncio.Future[bool], int] = {}  # receipts that may go along
        self._carried: dict[int, list[asyncio.Future[bool]]] = {}  # sent receipts, by message
        self._broken: grpc.aio.AioRpcError | None = None
        self._writing = asyncio.create_task(self._write_parcels())
        self._reading = asyncio.create_task(self._read_receipts())

    @property
    def is_over(self) -> bool:
        """Return whether nothing can be posted any more."""
        return self._broken is not None

    async def post(self, parcel: Parcel, most_s: float) -> None:
        """Return when the receiver has stored the message; raise its refusal.

        Raise AioRpcError if the stream breaks, or without a receipt within `most_s`.
        """
        if self._broken is not None:
            raise self._broken
        number = parcel.number = next(self._numbers)
        awaited = self._awaited[number] = asyncio.get_running_loop().create_future()
        self._unwritten.append(parcel)
        self._more.set()
        try:
            async with asyncio.timeout(most_s):
                receipt = await awaited
        except TimeoutError:
            raise _stream_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no receipt") from None
        finally:
            self._awaited.pop(number)
        if receipt.HasField("fault"):
            raise faults.error_of_fault(receipt.fault)

    async def carry_receipt(self, number: int) -> bool:
        """Send a receipt along with a message that leaves just now; return whether it arrived so.

        False also if no message leaves.
        """
        if self._broken is not None or len(self._awaited) >= UNANSWERED_MAX:
            return False  # the peer may not read the stream any more
        carried: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._due[carried] = number
        for _ in range(RECEIPT_TURNS):
            await asyncio.sleep(0)
            if carried not in self._due:
                return await carried
        del self._due[carried]
        return False

    def hear(self, receipt: Receipt) -> None:
        """Take note of a receipt; receipts of unknown messages are ignored."""
        for carried in self._carried.pop(receipt.number, ()):
            _settle_future(carried, True)
        if receipt.number in self._awaited:
            _settle_future(self._awaited[receipt.number], receipt)

    async def _write_parcels(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `_read` hears why
            # Whether we are let in: to gRPC a write that meets a refusal is a broken link.
            await self._call.initial_metadata()
            while True:
                self._more.clear()
                while self._unwritten:
                    parcel = self._unwritten.popleft()
                    if parcel.number not in self._awaited:
                        continue
                    if self._due:
                        parcel.held.extend(self._due.values())
                        self._carried[parcel.number] = list(self._due)
                        self._due.clear()
                    await self._call.write(parcel)
                await self._more.wait()

    async def _read_receipts(self) -> None:
        broken = _stream_error(grpc.StatusCode.UNAVAILABLE, "the receiver has ended the stream")
        try:
            async for receipt in self._call:
                self.hear(receipt)
        except grpc.aio.AioRpcError as error:
            broken = error
        except asyncio.CancelledError:  # the channel was closed
            broken = _stream_error(grpc.StatusCode.CANCELLED, "we have ended the stream")
        self._broken = broken
        self._writing.cancel()
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(broken)
        for carried in chain(self._due, *self._carried.values()):
            _settle_future(carried, False)
        self._due.clear()


class OutgoingStreams:
    """Our streams to all peers."""

    def __init__(self) -> None:
        self._streams: dict[str, list[tuple[Any, OutgoingStream]]] = {}  # the one to post in last
        self._numbers = count(int(time.time() * 1e9))  # higher than all numbers before a restart

    def stream_to(self, name: str, channel: Any, begin: Callable[[], Any]) -> OutgoingStream:
        """Return the stream to a peer on this channel; if there is none, a new one on the call from
        `begin`.
        """
        streams = self._streams.setdefault(name, [])
        if not streams or streams[-1][0] is not channel or streams[-1][1].is_over:
            streams[:] = [(known, stream) for known, stream in streams if not stream.is_over]
            streams.append((channel, OutgoingStream(begin(), self._numbers)))
        return streams[-1][1]

    async def carry_receipt(self, name: str, number: int) -> bool:
        """Send a receipt together with a message, see `OutgoingStream`."""
        streams = self._streams.get(name, [])
        return bool(streams) and await streams[-1][1].carry_receipt(number)

    def hear(self, name: str, receipt: Receipt) -> None:
        """Handle a receipt from a peer, see `OutgoingStream`; the peer knows the numbers of its
        messages.
        """
        for _, stream in self._streams.get(name, ()):
            stream.hear(receipt)


def _settle_future(waits: asyncio.Future[T], result: T) -> None:
    if not waits.done():
        waits.set_result(result)


def _stream_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class IncomingStream:
    """A peer's stream to us. All methods belong to the event loop's thread."""

    def __init__(
        self,
        node: Any,
        caller: Callable[[], Peer],
        refused: Callable[[Exception], FedboostError],
        reply: Callable[[Receipt], Awaitable[None]],
        outgoing: OutgoingStreams,
    ) -> None:
        """Start the stream; `caller` raises when the peer's certificate is no longer valid,
        `refused` returns the public part of an error.
        """
        self._node, self._caller, self._refused, self._reply = node, caller, refused, reply
        self._outgoing = outgoing
        self._room = asyncio.Semaphore(UNANSWERED_MAX)
        self._taking: set[asyncio.Task[None]] = set()
        self._replying = asyncio.Lock()
        self.ended = asyncio.Event()  # by us

    async def take_parcels(self, parcels: AsyncIterator[Parcel], judged_again_s: float) -> None:
        """Handle posted messages until the peer or we end the stream; raise the reason of a
        refusal.
        """
        works = (
            self._recheck_caller(judged_again_s),
            self._read_parcels(parcels),
            self.ended.wait(),
        )
        parts = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for task in (*parts, *self._taking):
                task.cancel()
                task.add_done_callback(log_failure)

    async def _recheck_caller(self, again_s: float) -> None:
        """Check the caller regularly, even without messages."""
        while True:
            await asyncio.sleep(again_s)
            self._caller()

    async def _read_parcels(self, parcels: AsyncIterator[Parcel]) -> None:
        async for parcel in parcels:
            caller = self._caller()
            if len(parcel.held) > UNANSWERED_MAX:
                raise PeerError(f"{caller} sent receipts for more than it can have been sent")
            for number in parcel.held:
                self._outgoing.hear(caller.name, Receipt(number=number))
            await self._room.acquire()
            taking = asyncio.create_task(self._take_message(caller, parcel))
            self._taking.add(taking)
            taking.add_done_callback(self._release_place)
        if self._taking:
            await asyncio.wait(self._taking)

    def _release_place(self, taking: asyncio.Task[None]) -> None:
        self._taking.discard(taking)
        self._room.release()
        log_failure(taking)

    async def _take_message(self, caller: Peer, parcel: Parcel) -> None:
        envelope, receipt = parcel.envelope, Receipt(number=parcel.number)
        logs.note_call(envelope)
        try:
            with self._node.admit(caller, envelope):
                payload = wire.piece_data(parcel.piece, envelope.sender)
                receipt.duplicate = await self._node.accept(caller, envelope, payload)
        except Exception as error:  # every failure becomes one typed refusal
            receipt.fault.CopyFrom(faults.fault_of_error(self._refused(error)))
        else:
            if await self._outgoing.carry_receipt(caller.name, parcel.number):
                return
        async with self._replying:
            with suppress(grpc.aio.InternalError):  # a dead peer posts unanswered messages again
                await self._reply(receipt)


class IncomingStreams:
    """All open streams of peers to us."""

    def __init__(self, outgoing: OutgoingStreams) -> None:
        self.outgoing = outgoing
        self._open: dict[str, list[IncomingStream]] = {}  # of each peer, the oldest first

    @contextmanager
    def opened(self, peer: Peer, stream: IncomingStream) -> Iterator[None]:
        """Register the stream as one of its peer's while inside."""
        streams = self._open.setdefault(peer.name, [])
        streams.append(stream)
        for old in streams[:-PEER_STREAMS_MAX]:
            old.ended.set()
        try:
            yield
        finally:
            streams.remove(stream)
            if not streams:
                self._open.pop(peer.name, None)

    def end(self) -> None:
        """End all streams; peers post unanswered messages again to our successor."""
        for streams in self._open.values():
            for stream in streams:
                stream.ended.set()
