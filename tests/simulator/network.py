"""Calls between daemons as gRPC makes them, on links that obey a schedule instead of a wire.

Everything above is the product's own: stubs, retries, deadlines, servicers, the codec of errors.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from grpc.aio import AioRpcError, Metadata

from fedboost.messages.exchange_pb2 import Chunk, Envelope, Parcel
from fedboost.messages.party_pb2 import CommitRequest, FinishRequest, StageRequest, StepCall
from tests.simulator.clock import MockLoop
from tests.simulator.processes import PROCESS, Process

LATENCY_S = 0.001


@dataclass(frozen=True)
class Trip:
    """One call on its way: who asks whom for what, in bytes."""

    sender: str
    receiver: str
    path: str  # of the method
    pieces: tuple[bytes, ...] = field(repr=False)
    envelope: Envelope | None = None  # of a message between parties

    @property
    def method(self) -> str:
        """The method's name."""
        return self.path.rpartition("/")[2]

    @property
    def what(self) -> str:
        """What is carried: a message by its stage and step, a call by its name."""
        if self.envelope is not None:
            return f"{self.envelope.stage}.{self.envelope.step}"
        if self.method == "RunStep":
            turns = StepCall.FromString(self.pieces[0]).turns
            return f"RunStep.{turns[0].step}" if turns else "RunStep"
        if self.method == "Finish":
            return "Finish.result" if FinishRequest.FromString(self.pieces[0]).result else "Finish"
        if self.method in ("OpenStage", "CloseStage", "Commit"):
            kind = StageRequest if self.method.endswith("Stage") else CommitRequest
            return f"{self.method}.{kind.FromString(self.pieces[0]).stage}"
        return self.method


class Fate(Protocol):
    """What a link does to one call; `Wire` offers it the ways."""

    async def befall(self, wire: Wire) -> Any:
        """The answer, or the error that the caller sees."""


class Schedule(Protocol):
    """Decides what befalls each call."""

    def fate(self, trip: Trip) -> Fate | None:
        """None: nothing does."""


class Undisturbed:
    """A schedule in which nothing befalls anybody."""

    def fate(self, trip: Trip) -> Fate | None:
        """Nothing."""
        return None


class RefusedError(Exception):
    """A daemon's own refusal: status, text, metadata."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Any) -> None:
        super().__init__(code, text)
        self.code, self.text, self.metadata = code, text, metadata

    def seen(self) -> AioRpcError:
        """As the caller sees it."""
        return AioRpcError(self.code, Metadata(), Metadata(*self.metadata), self.text)


def broken(text: str = "connection reset") -> AioRpcError:
    """What gRPC says of a connection that broke, or was never made."""
    return AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), text)


@dataclass
class Context:
    """What a handler knows of its caller."""

    certificate: bytes
    written: list[Any] = field(default_factory=list)  # of a stream of answers

    def auth_context(self) -> dict[str, list[bytes]]:
        """As gRPC gives it where TLS has checked the caller."""
        return {"x509_pem_cert": [self.certificate]}

    def invocation_metadata(self) -> tuple[Any, ...]:
        """None beside the certificate."""
        return ()

    async def send_initial_metadata(self, _: Any) -> None:
        """Says that the call is let in."""

    async def write(self, reply: Any) -> None:
        """Gives one answer."""
        self.written.append(reply)

    async def abort(self, code: grpc.StatusCode, text: str, trailing_metadata: Any = ()) -> None:
        """Refuses the call."""
        raise RefusedError(code, text, trailing_metadata)


class Server:
    """A process's handlers; stands for `grpc.aio.Server`."""

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {}
        self.is_up = False
        self.calls: set[asyncio.Task[Any]] = set()
        process = PROCESS.get()
        assert process is not None
        process.server = self

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The registered ones are the same."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Takes a service's handlers by the names of its methods."""
        self.methods |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    async def start(self) -> None:
        """From here on calls are answered."""
        self.is_up = True

    async def stop(self, grace: float | None) -> None:
        """No new calls; those under way may end within `grace`."""
        self.is_up = False
        if self.calls and grace:
            await asyncio.wait(self.calls, timeout=grace)
        for call in self.calls:
            call.cancel()


class Network:
    """Who can be reached, and what happens on the way."""

    def __init__(self, loop: MockLoop) -> None:
        self.loop = loop
        self.processes: dict[str, Process] = {}
        self.schedule: Schedule = Undisturbed()
        self.trips: list[Trip] = []  # that were made, in order
        self.asides: set[asyncio.Future[None]] = set()  # calls that nobody waits for
        self.arrivals: dict[tuple[str, str], asyncio.Event] = {}

    def channel(self, name: str) -> Channel:
        """A channel of the process that asks for one to the daemon of that name."""
        process = PROCESS.get()
        assert process is not None
        return Channel(self, process, name)

    async def carry(self, trip: Trip, caller: Process) -> Any:
        """Brings a call to its handler, and the answer back, through whatever befalls it."""
        self.trips.append(trip)
        wire = Wire(self, trip, caller)
        fate = self.schedule.fate(trip)
        await asyncio.sleep(LATENCY_S)
        return await (wire.arrive() if fate is None else fate.befall(wire))


@dataclass
class Wire:
    """The ways in which one call may go."""

    network: Network
    trip: Trip
    caller: Process

    async def arrive(self, trip: Trip | None = None) -> Any:
        """The call reaches its handler, or another one in its place; gives the whole answer."""
        own = trip or self.trip
        process = self.network.processes.get(own.receiver)
        if process is None or not process.is_up:
            raise broken("connection refused")
        server = process.server
        handling = _started(process, _handled(server.methods[own.path], own, self.caller))
        server.calls.add(handling)
        handling.add_done_callback(server.calls.discard)
        self.caller.asked = [t for t in self.caller.asked if not t.done()] + [handling]
        self._ring()
        gone = process.watch()
        try:
            await asyncio.wait((handling, gone), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # nobody waits any more; the server hears of it
            handling.cancel()
            raise
        finally:
            gone.cancel()
        if process.is_dead or not handling.done():
            raise broken()
        try:
            return _told(handling.result())
        except asyncio.CancelledError:
            raise broken("the server stopped") from None

    async def arrive_aside(self, trip: Trip) -> None:
        """The same, and nobody hears the answer."""
        try:
            answer = await self.arrive(trip)
            while isinstance(answer, Replies) and await answer.read() is not None:
                pass
        except AioRpcError:
            return

    def aside(self, trip: Trip) -> None:
        """Lets that happen beside everything else, as long as the caller lives."""
        task = asyncio.ensure_future(self.arrive_aside(trip))
        self.network.asides.add(task)
        task.add_done_callback(self.network.asides.discard)

    async def wait_for_another(self, most_s: float) -> None:
        """Until another call of the same caller reaches the same receiver, or so long."""
        link = self.trip.sender, self.trip.receiver
        ringing = self.network.arrivals.setdefault(link, asyncio.Event())
        try:
            await asyncio.wait_for(ringing.wait(), most_s)
        except TimeoutError:
            return

    def _ring(self) -> None:
        event = self.network.arrivals.pop((self.trip.sender, self.trip.receiver), None)
        if event is not None:
            event.set()


async def _handled(method: Any, trip: Trip, caller: Process) -> Any:
    """The handler's answer in bytes; of a stream an iterator, begun by whoever reads it."""
    context = Context(caller.certificate)
    read = method.request_deserializer
    if method.request_streaming and method.response_streaming:  # a stream of this message alone
        await method.stream_stream(_each(trip.pieces, read), context)
        return b"".join(map(method.response_serializer, context.written))
    if method.request_streaming:
        reply = await method.stream_unary(_each(trip.pieces, read), context)
        return method.response_serializer(reply)
    if method.response_streaming:
        return Replies(method.unary_stream(read(trip.pieces[0]), context), method)
    reply = await method.unary_unary(read(trip.pieces[0]), context)
    return method.response_serializer(reply)


async def _each(pieces: tuple[bytes, ...], read: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield read(piece)


def _started(process: Process, work: Any) -> asyncio.Task[Any]:
    """A task that runs in a process's name; a refusal, which its caller may not live to hear, is
    its result."""

    async def answered() -> Any:
        try:
            return await work
        except RefusedError as error:
            return error

    context = copy_context()
    context.run(PROCESS.set, process)
    return asyncio.get_running_loop().create_task(answered(), context=context)


def _told(answer: Any) -> Any:
    """The answer, or the error that a refusal is to the caller."""
    if isinstance(answer, RefusedError):
        raise answer.seen() from None
    return answer


class Replies:
    """A handler's stream of answers; each is asked for in the name of the process."""

    def __init__(self, replies: AsyncIterator[Any], method: Any) -> None:
        self._replies, self._method = replies, method
        process = PROCESS.get()
        assert process is not None
        self.process = process

    async def following(self) -> bytes | None:
        """The next one; None at the end."""
        reply = await anext(self._replies, None)
        return None if reply is None else self._method.response_serializer(reply)

    async def read(self) -> bytes | None:
        """The same for the caller."""
        reading = _started(self.process, self.following())
        gone = self.process.watch()
        try:
            await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            reading.cancel()
            raise
        finally:
            gone.cancel()
        if not reading.done():
            raise broken()
        read: bytes | None = _told(reading.result())
        return read


class Channel:
    """A way to one daemon; stands for `grpc.aio.Channel`."""

    def __init__(self, network: Network, caller: Process, receiver: str) -> None:
        self._network, self._caller, self._receiver = network, caller, receiver
        self._posting: list[PostCall] = []

    def get_state(self) -> grpc.ChannelConnectivity:
        """See grpc.aio; nothing is left to connect."""
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Ends the calls that last."""
        for call in self._posting:
            call.cancel()

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """See grpc.aio."""

        async def call(request: Any, *, timeout: float | None = None, **_: Any) -> Any:
            return await self._one(path, (codec["request_serializer"](request),), codec, timeout)

        return call

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """See grpc.aio."""

        async def call(requests: Any, *, timeout: float | None = None, **_: Any) -> Any:
            pieces = tuple([codec["request_serializer"](one) async for one in requests])
            return await self._one(path, pieces, codec, timeout)

        return call

    def unary_stream(self, path: str, **codec: Any) -> Callable[..., Any]:
        """See grpc.aio."""

        def call(request: Any, *, timeout: float | None = None, **_: Any) -> StreamCall:
            trip = self._trip(path, (codec["request_serializer"](request),))
            return StreamCall(self._network, trip, self._caller, (codec, timeout))

        return call

    def stream_stream(self, path: str, **codec: Any) -> Callable[..., Any]:
        """See grpc.aio."""

        def call(**_: Any) -> PostCall:
            self._posting.append(PostCall(self, path, codec))
            return self._posting[-1]

        return call

    def _trip(self, path: str, pieces: tuple[bytes, ...]) -> Trip:
        return Trip(self._caller.name, self._receiver, path, pieces, _envelope(path, pieces[0]))

    async def carry(self, path: str, piece: bytes) -> bytes:
        """Brings one message of a stream to its receiver, and its answer back."""
        found: bytes = await self._network.carry(self._trip(path, (piece,)), self._caller)
        return found

    async def _one(
        self, path: str, pieces: tuple[bytes, ...], codec: Any, timeout: float | None
    ) -> Any:
        try:
            async with asyncio.timeout(timeout):
                reply = await self._network.carry(self._trip(path, pieces), self._caller)
        except TimeoutError:
            raise _late() from None
        return codec["response_deserializer"](reply)


class PostCall:
    """A call of which each message has its answer, and makes a trip of its own.

    When one of them meets a broken link, all of them have.
    """

    def __init__(self, channel: Channel, path: str, codec: Any) -> None:
        self._channel, self._path, self._codec = channel, path, codec
        self._under_way: set[asyncio.Task[bytes]] = set()
        self._back: deque[asyncio.Future[bytes]] = deque()
        self._more: asyncio.Future[None] | None = None

    def cancel(self) -> None:
        """Nobody waits any more."""
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        ended.cancel()
        self._hear(ended)

    async def initial_metadata(self) -> None:
        """Each message hears for itself whether it is let in."""

    async def write(self, request: Any) -> None:
        """Sends one message."""
        piece = self._codec["request_serializer"](request)
        trip = asyncio.ensure_future(self._channel.carry(self._path, piece))
        self._under_way.add(trip)
        trip.add_done_callback(self._over)

    def _over(self, trip: asyncio.Task[bytes]) -> None:
        self._under_way.discard(trip)
        if not trip.cancelled():
            self._hear(trip)

    def _hear(self, answer: asyncio.Future[bytes]) -> None:
        self._back.append(answer)
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            while True:
                while self._back:
                    answer = self._back.popleft().result()
                    if answer:  # the receipt has not come with a message of the receiver
                        yield self._codec["response_deserializer"](answer)
                self._more = asyncio.get_running_loop().create_future()
                await self._more
        finally:
            for left in self._under_way:
                left.cancel()


class StreamCall:
    """A call whose answer comes in parts; iterate over it, or cancel it."""

    def __init__(
        self, network: Network, trip: Trip, caller: Process, how: tuple[Any, float | None]
    ) -> None:
        self._network, self._trip, self._caller = network, trip, caller
        self._codec, self._timeout = how
        self._is_cancelled = False

    def cancel(self) -> bool:
        """Nobody waits any more."""
        self._is_cancelled = True
        return True

    async def __aiter__(self) -> AsyncIterator[Any]:
        until = None if self._timeout is None else self._network.loop.time() + self._timeout
        replies = None
        while not self._is_cancelled:
            try:
                async with asyncio.timeout_at(until):
                    if replies is None:
                        replies = await self._network.carry(self._trip, self._caller)
                    reply = await replies.read()
            except TimeoutError:
                raise _late() from None
            if reply is None:
                return
            yield self._codec["response_deserializer"](reply)


def _envelope(path: str, first: bytes) -> Envelope | None:
    if path == "/fedboost.Exchange/Post":
        return Parcel.FromString(first).envelope
    if path == "/fedboost.Exchange/Deliver":
        return Chunk.FromString(first).envelope
    return None


def _late() -> AioRpcError:
    return AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, Metadata(), Metadata(), "too late")
