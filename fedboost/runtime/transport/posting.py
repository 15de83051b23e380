"""Messages that fit into a piece: one stream carries all that a party posts to another.

Each message has its own receipt, in whatever order: one that waits for room holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from fedboost import wire
from fedboost.errors import FedboostError
from fedboost.messages.exchange_pb2 import Parcel, Receipt
from fedboost.runtime.process import logs
from fedboost.runtime.process.bridge import hear_out
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer

UNANSWERED_MAX = 256  # messages of one stream that have come; what follows waits on its way
STREAMS_MAX = 32  # of one peer, most of them of links that broke; another one ends the oldest


class OutgoingStream:
    """Our end of the stream to a peer. All methods belong to the event loop's thread."""

    def __init__(self, call: Any) -> None:
        """`call` is the gRPC call of `Exchange.Post`, just begun."""
        self._call = call
        self._number = 0  # of the message that was posted last
        self._unwritten: deque[Parcel] = deque()
        self._more = asyncio.Event()
        self._awaited: dict[int, asyncio.Future[Receipt]] = {}
        self._broken: grpc.aio.AioRpcError | None = None
        self._writing = asyncio.create_task(self._write())
        self._reading = asyncio.create_task(self._read())

    @property
    def is_over(self) -> bool:
        """Whether nothing can be posted any more."""
        return self._broken is not None

    async def post(self, parcel: Parcel, most_s: float) -> None:
        """Return once the receiver holds the message; raises what it is refused with.

        An AioRpcError where the stream breaks, or there is no receipt within `most_s`.
        """
        if self._broken is not None:
            raise self._broken
        self._number += 1
        number = parcel.number = self._number
        awaited = self._awaited[number] = asyncio.get_running_loop().create_future()
        self._unwritten.append(parcel)
        self._more.set()
        try:
            async with asyncio.timeout(most_s):
                receipt = await awaited
        except TimeoutError:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, "no receipt") from None
        finally:
            self._awaited.pop(number)
        if receipt.HasField("fault"):
            raise faults.from_message(receipt.fault)

    async def _write(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `_read` hears why
            while True:
                self._more.clear()
                while self._unwritten:
                    parcel = self._unwritten.popleft()
                    if parcel.number in self._awaited:
                        await self._call.write(parcel)
                await self._more.wait()

    async def _read(self) -> None:
        broken = _failed(grpc.StatusCode.UNAVAILABLE, "the receiver has ended the stream")
        try:
            async for receipt in self._call:
                awaited = self._awaited.get(receipt.number)
                if awaited is not None and not awaited.done():
                    awaited.set_result(receipt)
        except grpc.aio.AioRpcError as error:
            broken = error
        except asyncio.CancelledError:  # the channel was closed
            broken = _failed(grpc.StatusCode.CANCELLED, "we have ended the stream")
        self._broken = broken
        self._writing.cancel()
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(broken)


def _failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class IncomingStream:
    """A peer's stream to us. All methods belong to the event loop's thread."""

    def __init__(
        self,
        node: Any,
        caller: Callable[[], Peer],
        refused: Callable[[Exception], FedboostError],
        reply: Callable[[Receipt], Awaitable[None]],
    ) -> None:
        """`caller` raises as soon as the peer's certificate counts no more; `refused` gives what
        the peer may read of an error.
        """
        self._node, self._caller, self._refused, self._reply = node, caller, refused, reply
        self._room = asyncio.Semaphore(UNANSWERED_MAX)
        self._taking: set[asyncio.Task[None]] = set()
        self._replying = asyncio.Lock()
        self.ended = asyncio.Event()  # by us

    async def serve(self, parcels: AsyncIterator[Parcel], judged_again_s: float) -> None:
        """Take in what is posted, until the peer or we end it; raises why we let it in no more."""
        works = (self._judge(judged_again_s), self._read(parcels), self.ended.wait())
        parts = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for task in (*parts, *self._taking):
                task.cancel()
                task.add_done_callback(hear_out)

    async def _judge(self, again_s: float) -> None:
        """Looks at the caller now and then, however long nothing comes."""
        while True:
            await asyncio.sleep(again_s)
            self._caller()

    async def _read(self, parcels: AsyncIterator[Parcel]) -> None:
        async for parcel in parcels:
            await self._room.acquire()
            caller = self._caller()
            taking = asyncio.create_task(self._take(caller, parcel))
            self._taking.add(taking)
            taking.add_done_callback(self._taken)
        if self._taking:
            await asyncio.wait(self._taking)

    def _taken(self, taking: asyncio.Task[None]) -> None:
        self._taking.discard(taking)
        self._room.release()
        hear_out(taking)

    async def _take(self, caller: Peer, parcel: Parcel) -> None:
        envelope, receipt = parcel.envelope, Receipt(number=parcel.number)
        logs.note_call(envelope)
        try:
            with self._node.admit(caller, envelope):
                payload = wire.piece_data(parcel.piece, envelope.sender)
                receipt.duplicate = await self._node.accept(caller, envelope, payload)
        except Exception as error:  # every failure becomes one typed refusal
            receipt.fault.CopyFrom(faults.to_message(self._refused(error)))
        async with self._replying:
            await self._reply(receipt)


class IncomingStreams:
    """All streams of peers to us that are open."""

    def __init__(self) -> None:
        self._open: dict[str, list[IncomingStream]] = {}  # of each peer, the oldest first

    @contextmanager
    def opened(self, peer: Peer, stream: IncomingStream) -> Iterator[None]:
        """Inside, the stream is one of its peer's."""
        own = self._open.setdefault(peer.name, [])
        own.append(stream)
        for old in own[:-STREAMS_MAX]:
            old.ended.set()
        try:
            yield
        finally:
            own.remove(stream)
            if not own:
                self._open.pop(peer.name, None)

    def end(self) -> None:
        """End them all; what they have not answered is posted again, to whoever comes after us."""
        for own in self._open.values():
            for stream in own:
                stream.ended.set()
