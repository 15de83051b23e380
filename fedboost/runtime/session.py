"""One party's side of one stage of a job: checks the order, runs steps, sends what they give.

The session knows no network: messages leave through `Links` and come in through `accept`. Daemons
and `fedboost simulate` run the same session.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from google.protobuf.message import Message

from fedboost import flow, wire
from fedboost.errors import FedboostError, PeerError, ProtocolError
from fedboost.flow import AGGREGATOR, GUEST, Artefact, Out, Seat, Step
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import StepCost, Told
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.inbox import Arrived, Inbox

log = logging.getLogger(__name__)

PARTS_IN_FLIGHT_MAX = 4  # of a stream, computed and not yet acknowledged
STEPS_AT_ONCE = 2  # the one that was asked for, and one that reads a stream ahead of its call
RUNS = (GUEST, AGGREGATOR)  # roles that one party has, so a message of theirs comes from one sender


class Links(Protocol):
    """How a message reaches another party."""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Returns once the receiver holds the message; raises what it was refused with."""


Place = tuple[StepCall, int, bool]  # a message's call, its part, and whether it is the last
Record = Callable[[str, Envelope, Message], None]  # writes one line of the ledger: "out" or "in"


@dataclass(frozen=True)
class Terms:
    """What every message of a job carries."""

    job: str
    manifest_sha256: bytes
    attempt: int


@dataclass
class Sent:
    """Payload bytes and messages to one peer."""

    bytes: int = 0
    messages: int = 0


@dataclass(frozen=True)
class Started:
    """A step at work; what the coordinator says of it is known once it has asked."""

    call: Future[StepCall]
    task: asyncio.Task[StepReply]


def hear_out(task: asyncio.Task[Any]) -> None:
    """Reads how a task ended that nobody may wait for any more; a refusal is no news then."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, FedboostError | CancelledError):
        log.error("a step failed unexpectedly", exc_info=error)


@dataclass
class Session:
    """A party at one stage. Create it, `open` it, then `run_step` and `accept` until `close`."""

    terms: Terms
    protocol: flow.Protocol
    seat: Seat
    links: Links
    record: Record
    wait_s: float
    told: list[Told] = field(default_factory=list)  # everything, also what policy keeps back
    sent: dict[str, Sent] = field(default_factory=dict)
    _state: Any = None
    _last_step: str | None = None
    _number: int = 0
    _current: asyncio.Task[StepReply] | None = None
    _eager: dict[str, Started] = field(default_factory=dict)
    _stopped: FedboostError | None = None

    def __post_init__(self) -> None:
        self._inbox = Inbox(self.wait_s)
        # Own threads: steps wait for one another, and a shared pool could be full of waiters.
        self._threads = ThreadPoolExecutor(STEPS_AT_ONCE, f"step-{self.seat.party}")

    @property
    def _module(self) -> ModuleType:
        return self.protocol.modules[self.seat.role]

    async def open(self, checkpoint: Artefact | None) -> Told:
        """Builds the party's state, from a checkpoint where there is one."""
        self._state = await asyncio.to_thread(self._module.begin, self.seat)
        if checkpoint is None:
            return Told()
        restored: Told = await asyncio.to_thread(self._module.restore, self._state, checkpoint)
        return restored

    async def snapshot(self) -> Artefact:
        """What a later attempt needs to carry on from here."""
        taken: Artefact = await asyncio.to_thread(self._module.snapshot, self._state)
        return taken

    async def close(self) -> Artefact:
        """What the stage leaves behind."""
        left: Artefact = await asyncio.to_thread(self._module.finish, self._state)
        return left

    async def stop(self, reason: FedboostError) -> None:
        """Ends every wait with `reason`."""
        self._stopped = reason
        for started in self._eager.values():
            started.call.cancel()
        await self._inbox.stop(reason)

    # What arrives

    def admit(self, envelope: Envelope) -> None:
        """Refuses a message by its envelope alone, before a byte of it is read."""
        sender, kind = envelope.sender, envelope.kind
        if self._state is None:
            raise PeerError(f"{sender} sent a message before the stage was open")
        terms = Terms(envelope.job, envelope.manifest_sha256, envelope.attempt)
        if terms != self.terms or envelope.stage != self.protocol.name:
            raise PeerError(f"{sender} sent a message of another job, attempt or stage")
        if envelope.receiver != self.seat.party:
            raise PeerError(f"{sender} sent a message meant for {envelope.receiver[:64]!r}")
        step = self._taker(kind)
        role = self.seat.table.role_of(sender)
        giver = self.protocol.step(envelope.step)
        if giver is None or role not in giver.roles or giver.gives is not step.takes:
            raise PeerError(f"{sender} may not send {kind} from step {envelope.step[:64]!r}")
        if not giver.streams and (envelope.part or not envelope.last):
            raise PeerError(f"{sender} sent a {kind} in parts, which travels whole")
        most = self._module.bytes_max(self._state, step.name)
        if envelope.payload_bytes > most:
            raise PeerError(
                f"{sender} announced a {kind} of {envelope.payload_bytes} bytes; {most} is the most"
            )
        if self._stopped is not None:
            raise self._stopped

    async def accept(self, envelope: Envelope, payload: bytes) -> bool:
        """Takes in one whole message; True where it had arrived before."""
        self.admit(envelope)
        sender = envelope.sender
        digest = hashlib.sha256(payload).digest()
        if len(payload) != envelope.payload_bytes or digest != envelope.payload_sha256:
            raise PeerError(f"{sender} sent a message that does not match its envelope")
        step = self._taker(envelope.kind)
        assert step.takes is not None
        key = (sender, envelope.number, step.name, envelope.part)
        if self._inbox.seen(key, digest):
            return True
        starts = self._is_stream(step) and envelope.part == 0
        if starts and not self._may_start(step):
            raise PeerError(f"{sender} sent a {envelope.kind} out of turn", step=step.name)
        message = wire.decode(step.takes, payload, sender)
        self.record("in", envelope, message)
        await self._inbox.put(
            envelope.kind,
            key,
            digest,
            Arrived(message, envelope.number, envelope.part, envelope.last),
        )
        if starts:
            self._eager[step.name] = self._start(step)
        return False

    def _taker(self, kind: str) -> Step:
        for step in self.protocol.taker(kind):
            if self.seat.role in step.roles:
                return step
        raise PeerError(f"a {self.seat.role} of {self.protocol.name} takes no {kind[:64]!r}")

    def _is_stream(self, step: Step) -> bool:
        return any(s.streams for s in self.protocol.flow if s.gives is step.takes and step.takes)

    # What the coordinator asks for

    async def run_step(self, call: StepCall) -> StepReply:
        """Does a step and says what it cost; the same number again gives the same answer."""
        if call.number == self._number and self._current is not None:
            return await asyncio.shield(self._current)
        step = self.protocol.step(call.step)
        if step is None or self.seat.role not in step.roles:
            raise ProtocolError(
                f"a {self.seat.role} of {self.protocol.name} has no step {call.step!r}"
            )
        if self._stopped is not None:
            raise self._stopped
        if call.number < self._number or (self._current is not None and not self._current.done()):
            raise ProtocolError(f"step {call.step} came out of turn")
        self._number = call.number
        started = self._eager.pop(step.name, None) or self._start(step)
        started.call.set_result(call)
        self._current = started.task
        return await asyncio.shield(self._current)

    def _start(self, step: Step) -> Started:
        if not self._may_start(step):
            raise ProtocolError(
                f"{step.name} may not come after {self._last_step or 'the start'}", step=step.name
            )
        self._last_step = step.name
        call: Future[StepCall] = Future()
        task = asyncio.create_task(self._perform(step, call))
        task.add_done_callback(hear_out)
        return Started(call, task)

    def _may_start(self, step: Step) -> bool:
        return self.protocol.may_follow(self.seat.role, step, self._last_step)

    async def _perform(self, step: Step, call: Future[StepCall]) -> StepReply:
        started = time.monotonic()
        worked = self.seat.workers.cpu_seconds()
        before = {peer: (sent.bytes, sent.messages) for peer, sent in self.sent.items()}
        loop = asyncio.get_running_loop()
        try:
            got = await self._collect(step, call)
            told, cpu = await loop.run_in_executor(self._threads, self._work, loop, step, call, got)
        except CancelledError:  # of `call`: stopped before the coordinator asked for the step
            raise self._stopped or ProtocolError(f"{step.name} was never asked for") from None
        except FedboostError as error:
            error.at(party=self.seat.party, step=step.name)
            if self._is_stream(step):
                await self.stop(error)  # whoever still sends parts hears it at the next one
            raise error from None
        cost = StepCost(
            party=self.seat.party,
            seconds=time.monotonic() - started,
            cpu_seconds=cpu + self.seat.workers.cpu_seconds() - worked,
        )
        for peer, sent in self.sent.items():
            old_bytes, old_messages = before.get(peer, (0, 0))
            if sent.messages > old_messages:
                cost.sent.add(
                    peer=peer, bytes=sent.bytes - old_bytes, messages=sent.messages - old_messages
                )
        return StepReply(told=told, cost=cost)

    async def _collect(self, step: Step, asked: Future[StepCall]) -> object:
        """What the step takes: one message, one for each sender, or an iterator over parts."""
        if step.takes is None:
            return None
        kind = step.takes.DESCRIPTOR.full_name
        givers = self.protocol.givers(step.takes)
        if self._is_stream(step):
            return self._parts(kind, self.seat.table.of(givers)[0], asyncio.get_running_loop())
        call = await asyncio.wrap_future(asked)
        before = call.number
        arrived = self._inbox.senders(kind, before)
        if step.one_sender:
            if len(arrived) != 1:
                raise ProtocolError(f"{step.name} needs one {kind} and {len(arrived)} have arrived")
            return self._inbox.take(kind, arrived[0], before)
        expected = [p for p in self.seat.table.among(givers, call.among) if p != self.seat.party]
        missing = [party for party in expected if party not in arrived]
        if missing:
            raise ProtocolError(
                f"{step.name} needs a {kind} and none has arrived from {missing[0]}"
            )
        got = {party: self._inbox.take(kind, party, before) for party in expected}
        return got[expected[0]] if all(role in RUNS for role in givers) else got

    def _parts(self, kind: str, sender: str, loop: asyncio.AbstractEventLoop) -> Iterator[Message]:
        last = False
        while not last:
            arrived = asyncio.run_coroutine_threadsafe(
                self._inbox.next(kind, sender), loop
            ).result()
            last = arrived.last
            yield arrived.message

    # What the step gives

    def _work(
        self, loop: asyncio.AbstractEventLoop, step: Step, call: Future[StepCall], got: object
    ) -> tuple[Told, float]:
        """Runs the step's function in this thread; sends parts while later ones are computed."""
        started = time.thread_time()
        function = getattr(self._module, step.name)
        out = function(self._state) if step.takes is None else function(self._state, got)
        outs = out if inspect.isgenerator(out) else iter((out,))
        told = Told()
        in_flight: deque[Future[None]] = deque()
        part = 0
        ahead = next(outs, Out())
        while True:
            following = next(outs, None)
            if self._stopped is not None:
                raise self._stopped
            if ahead.told is not None:
                told.MergeFrom(ahead.told)
            in_flight.extend(
                self._send(loop, step, (call.result(), part, following is None), ahead)
            )
            while len(in_flight) > (PARTS_IN_FLIGHT_MAX if following is not None else 0):
                in_flight.popleft().result()
            if following is None:
                break
            ahead, part = following, part + 1
        cpu = time.thread_time() - started
        self.told.append(told)
        return self._let_out(told), cpu

    def _send(
        self, loop: asyncio.AbstractEventLoop, step: Step, place: Place, out: Out
    ) -> list[Future[None]]:
        if out.send is None:
            return []
        messages = out.send if isinstance(out.send, dict) else None
        if messages is None:
            assert isinstance(out.send, Message)
            messages = dict.fromkeys(self._takers(step, place[0]), out.send)
        payloads: dict[int, bytes] = {}
        futures = []
        for peer, message in messages.items():
            if not isinstance(message, step.gives or ()):
                raise ProtocolError(f"{step.name} gave a {type(message).__name__}")
            payload = payloads.setdefault(id(message), wire.encode(message))
            envelope = self._envelope(step, place, peer, payload)
            self.record("out", envelope, message)
            sent = self.sent.setdefault(peer, Sent())
            sent.bytes += len(payload)
            sent.messages += 1
            futures.append(
                asyncio.run_coroutine_threadsafe(self.links.deliver(envelope, payload), loop)
            )
        return futures

    def _takers(self, step: Step, call: StepCall) -> list[str]:
        assert step.gives is not None
        roles = [r for s in self.protocol.taker(step.gives.DESCRIPTOR.full_name) for r in s.roles]
        takers = self.seat.table.among(tuple(roles), call.among)
        return [party for party in takers if party != self.seat.party]

    def _envelope(self, step: Step, place: Place, peer: str, payload: bytes) -> Envelope:
        assert step.gives is not None
        call, part, last = place
        return Envelope(
            job=self.terms.job,
            manifest_sha256=self.terms.manifest_sha256,
            attempt=self.terms.attempt,
            stage=self.protocol.name,
            step=step.name,
            number=call.number,
            sender=self.seat.party,
            receiver=peer,
            kind=step.gives.DESCRIPTOR.full_name,
            part=part,
            last=last,
            payload_bytes=len(payload),
            payload_sha256=hashlib.sha256(payload).digest(),
        )

    def _let_out(self, told: Told) -> Told:
        """What of a party's words its owner's policy lets the coordinator hear."""
        heard = Told()
        heard.CopyFrom(told)
        if "metrics" not in self.seat.limits.tells:
            heard.ClearField("metrics")
            heard.ClearField("best")
            for one in heard.rounds:
                one.ClearField("metrics")
        if "curves" not in self.seat.limits.tells:
            heard.ClearField("curves")
            heard.ClearField("importance")
        return heard
