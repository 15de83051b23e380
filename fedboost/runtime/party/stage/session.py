"""One party's side of one stage of a job: checks the order, runs steps, sends their messages.

The session does not use the network: messages leave through `Links` and come in through `accept`.
Daemons and `fedboost simulate` run the same session.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from fedboost import flow
from fedboost.flow import Artefact, DisclosureInfo, Out, StageContext, Step
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PeerError, ProtocolError
from fedboost.ground.settings import Settings
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import StatusReport, StepCost
from fedboost.messages.party_pb2 import StepCall, StepReply, TurnReply
from fedboost.runtime.ledger.rows import SALT_BYTES, Noted
from fedboost.runtime.party.stage.answers import Started, StepRequest, await_request
from fedboost.runtime.party.stage.collecting import collect
from fedboost.runtime.party.stage.inbox import PARTS_WAITING_MAX, Arrived, Inbox, Key
from fedboost.runtime.party.stage.notes import Notes, RecordMessages
from fedboost.runtime.party.stage.outbox import Links, MessagePlace, Outbox, Sent, Terms
from fedboost.runtime.party.stage.roles import Roles
from fedboost.runtime.party.stage.step_work import (
    PARTS_IN_FLIGHT_MAX,
    Paces,
    Sendings,
    StepWork,
    UnsentMessages,
)
from fedboost.runtime.process import logs
from fedboost.runtime.process.bridge import Bridge, log_failure
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.process.memory import LARGE_ROWS, release_memory
from fedboost.runtime.store.recordings import Recording

# Unused messages of one kind and sender: in the queue, or waiting for room in it.
PARTS_HELD_MAX = PARTS_WAITING_MAX + 2 * (PARTS_IN_FLIGHT_MAX + 1)
SLOW_S = 0.5  # seconds of a step on many rows, after which memory is given back
STEPS_AT_ONCE = 2  # the requested step, and a step that reads a stream ahead of its call


@dataclass
class Session:
    """A party at one stage. Create it, `open` it, then `run_step` and `accept` until `close`."""

    terms: Terms
    protocol: flow.Protocol[Settings]
    context: StageContext[Settings]
    links: Links
    record: RecordMessages
    wait_s: float
    # Charges a step's report; returns the part for the coordinator, without an owner all of it.
    let_out: Callable[[StatusReport], StatusReport] = lambda told: told
    told: list[StatusReport] = field(default_factory=list)  # with figures that policy withholds
    recording: Recording | None = None  # of a stage that can be replayed
    _numbers: tuple[int, ...] = ()  # of the steps in the last call
    _current: asyncio.Task[StepReply] | None = None
    _eager: dict[str, Started] = field(default_factory=dict)
    _coming: dict[Key, asyncio.Task[None]] = field(default_factory=dict)  # not queued yet
    _stopped: FedboostError | None = None
    _at_step: str = ""  # of the last call

    def __post_init__(self) -> None:
        self._inbox = Inbox(self.wait_s, self.context.party)
        self._bridge = Bridge()
        # Own threads: steps wait for one another, and a shared pool could be full of waiters.
        self._threads = ThreadPoolExecutor(STEPS_AT_ONCE, f"step-{self.context.party}")
        self._roles = Roles(self.protocol, self.context)
        self._paces = Paces()
        self._notes = Notes(self.record)
        self._lagging = UnsentMessages(self._bridge, self.stop)
        self._outbox = Outbox(
            party=self.context.party,
            stage=self.protocol.name,
            terms=self.terms,
            links=self.links,
            notes=self._notes,
            keep=self._queue_message,
            secrets=self.context.secrets.attempt,
        )

    @property
    def state(self) -> Any:
        """The state of the party's own part."""
        return self._roles.main.state

    @property
    def sent(self) -> Mapping[str, Sent]:
        """Payload bytes and messages so far, by peer."""
        return self._outbox.sent

    @property
    def passed_over(self) -> set[str]:
        """Peers that may lack a message sent to them."""
        return self._outbox.passed_over

    async def open(self, checkpoint: Artefact | None) -> StatusReport:
        """Build the party's state, from a checkpoint if there is one."""
        for part in self._roles:
            part.state = await asyncio.to_thread(part.module.begin, part.context)
        if checkpoint is None:
            return StatusReport()
        main = self._roles.main
        told: StatusReport = await asyncio.to_thread(main.module.restore, main.state, checkpoint)
        return told

    async def snapshot(self, place: flow.Place = ()) -> Artefact:
        """Return the state for a later attempt to go on from; refused while a step runs.

        `place` has one number between rounds, several within a round.
        """
        self._check_not_stopped()
        if not self._is_idle or self._eager:
            raise ProtocolError("nothing is kept while a step is at work")
        main = self._roles.main
        taken: Artefact = await asyncio.to_thread(main.module.snapshot, main.state, place)
        return taken

    async def close(self) -> Artefact:
        """Return the result of the stage."""
        main = self._roles.main
        left: Artefact = await asyncio.to_thread(main.module.finish, main.state)
        return left

    async def stop(self, reason: FedboostError) -> None:
        """End every wait with `reason`."""
        self._stopped = self._outbox.stopped = reason
        for started in self._eager.values():
            started.call.cancel()
        await self._inbox.stop(reason)
        self._bridge.stop(reason)
        self._notes.flush()
        self.release()

    def _check_not_stopped(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def release(self) -> None:
        """Shut down the threads without waiting for them."""
        self._threads.shutdown(wait=False)

    def sign_of_life(self) -> StepReply:
        """Return the party's current step, and the parties it waits for."""
        return StepReply(working=True, step=self._at_step, waits_for=self._inbox.awaited_parties)

    # Arriving messages

    def admit(self, envelope: Envelope) -> None:
        """Refuse a message by its envelope, before its payload is read."""
        sender, kind = envelope.sender, envelope.kind
        if not self._roles.are_open:
            raise PeerError(f"{sender} sent a message before the stage was open")
        terms = Terms(envelope.job, envelope.manifest_sha256, envelope.attempt)
        if terms != self.terms or envelope.stage != self.protocol.name:
            raise PeerError(f"{sender} sent a message of another job, attempt or stage")
        if envelope.receiver != self.context.party:
            raise PeerError(f"{sender} sent a message meant for {envelope.receiver[:64]!r}")
        step = self._roles.our_taker(kind)
        roles = self.context.table.roles_of(sender)
        giver = self.protocol.step(envelope.step)
        if giver is None or not set(roles) & set(giver.roles) or giver.gives is not step.takes:
            raise PeerError(f"{sender} may not send {kind} from step {envelope.step[:64]!r}")
        if len(envelope.salt) != SALT_BYTES or envelope.number > wire.COUNT_MAX:
            raise PeerError(f"{sender} sent a {kind} that no ledger can record")
        if not giver.streams and (envelope.part or not envelope.last):
            raise PeerError(f"{sender} sent a {kind} in parts, which travels whole")
        part = self._roles.of(step)
        most = part.module.bytes_max(part.state, step.name)
        if envelope.payload_bytes > most:
            raise PeerError(
                f"{sender} announced a {kind} of {envelope.payload_bytes} bytes; {most} is the most"
            )
        if sender != self.context.party:
            key = (sender, envelope.number, step.name, envelope.part)
            room = self.context.services.peer_bytes_max
            self._inbox.check_room(key, envelope.payload_bytes, room)
        self._check_not_stopped()

    async def accept(self, envelope: Envelope, payload: bytes) -> bool:
        """Accept one complete message; return True if it had arrived before."""
        self.admit(envelope)
        sender = envelope.sender
        digest = hashlib.sha256(payload).digest()
        if len(payload) != envelope.payload_bytes or digest != envelope.payload_sha256:
            raise PeerError(f"{sender} sent a message that does not match its envelope")
        step = self._roles.our_taker(envelope.kind)
        assert step.takes is not None
        key = (sender, envelope.number, step.name, envelope.part)
        if key in self._coming:  # a repetition, while the first waits for room
            await asyncio.shield(self._coming[key])
        if self._inbox.seen(key, digest):
            await self._notes.came()
            return True
        if sender != self.context.party and self._held_count(step, sender) >= PARTS_HELD_MAX:
            raise PeerError(
                f"{sender} sent more than {PARTS_HELD_MAX} parts before one of them could be used",
                step=step.name,
            )
        starts = self._starts_early(step) and envelope.part == 0
        if starts and not self._roles.may_start(step):
            raise PeerError(f"{sender} sent a {envelope.kind} out of turn", step=step.name)
        message = wire.decode(step.takes, payload, sender)
        self._inbox.coming[key] = len(payload)
        if self.recording is not None:  # before the ledger records its arrival
            self.recording.came(envelope, payload)
        # It will be in the ledger, so it must be queued even if its link breaks.
        waits_on = any(party != sender for party in self._inbox.awaited_parties)
        written = self._notes.came(Noted(envelope, message, DisclosureInfo()), later=waits_on)
        coming = self._coming[key] = asyncio.create_task(self._queue_message(envelope, message))
        coming.add_done_callback(lambda _: self._coming.pop(key, None))
        coming.add_done_callback(log_failure)
        if starts:  # before any wait, in which the coordinator could start the step too
            self._eager[step.name] = self._start_step(step, monotonic_s())
        await asyncio.shield(coming)
        await written
        return False

    def _held_count(self, step: Step, sender: str) -> int:
        """Return how many of a sender's messages for a step have come and are not used yet."""
        assert step.takes is not None
        coming = sum(key[0] == sender and key[2] == step.name for key in self._coming)
        return coming + self._inbox.waiting(step.takes.DESCRIPTOR.full_name, sender)

    async def _queue_message(self, envelope: Envelope, message: Message) -> None:
        """Queue a message until it is used."""
        taker = self._roles.our_taker(envelope.kind).name
        key = (envelope.sender, envelope.number, taker, envelope.part)
        size = envelope.payload_bytes
        arrived = Arrived(message, envelope.number, envelope.part, envelope.last, size)
        await self._inbox.put(envelope.kind, key, envelope.payload_sha256, arrived)

    def _starts_early(self, step: Step) -> bool:
        """Return whether a message's first part starts the step before the coordinator does."""
        read_ahead = self._roles.takes_stream(step) and self._roles.has_one_giver(step)
        return self._is_idle and read_ahead and self._roles.is_only_taker(step)

    @property
    def _is_idle(self) -> bool:
        return self._current is None or self._current.done()

    # Requests of the coordinator

    async def run_step(self, call: StepCall) -> StepReply:
        """Do steps in turn and return their costs; a repeated number gets the same reply."""
        numbers = tuple(turn.number for turn in call.turns)
        if numbers == self._numbers and self._current is not None:
            return await asyncio.shield(self._current)
        steps = [self._roles.step(turn.step) for turn in call.turns]
        self._check_not_stopped()
        rising = [*self._numbers[-1:], *numbers]
        if not steps or rising != sorted(set(rising)) or not self._is_idle:
            names = ", ".join(step.name for step in steps)
            raise ProtocolError(f"step {names or 'without a name'} came out of turn")
        self._numbers, among = numbers, tuple(call.among)
        asked = [
            StepRequest(turn.number, among, call.awaits, call.spares, turn is call.turns[-1])
            for turn in call.turns
        ]
        [first, *later] = zip(steps, asked, strict=True)
        self._inbox.gives_up = False
        started = self._running_step(*first, since=monotonic_s())
        self._current = asyncio.create_task(self._run_in_turn(started, later, call.loop))
        self._current.add_done_callback(log_failure)
        return await asyncio.shield(self._current)

    async def _run_in_turn(
        self, ahead: Started, later: Iterable[tuple[Step, StepRequest]], loop: str
    ) -> StepReply:
        """Await the first step, then do the others in turn, until `loop` has ended."""
        reply = StepReply(turns=[await ahead.task])
        for step, asked in later:
            since = monotonic_s()
            if loop and (
                reply.turns[-1].told.ends == loop or not await self._wait_for_messages(step, asked)
            ):
                break
            reply.turns.append(await self._running_step(step, asked, since).task)
        await self._lagging.arrive()
        self._notes.write_now()
        return reply

    async def _wait_for_messages(self, step: Step, asked: StepRequest) -> bool:
        """Wait for a message that a step of a loop takes; return False if the loop ends first."""
        if step.takes is None:
            return True
        self._at_step = step.name
        senders = self._roles.senders(step, asked.among)
        return await self._inbox.comes(step.takes.DESCRIPTOR.full_name, senders, asked.number)

    async def end_loop(self, number: int) -> None:
        """End the loop whose rounds the call up to step `number` asked for."""
        if self._numbers[-1:] != (number,):
            raise ProtocolError("a loop has ended that was not asked for")
        await self._inbox.give_up()

    def _running_step(self, step: Step, asked: StepRequest, since: float) -> Started:
        """Return the running step, which may have read ahead of its call."""
        self._check_not_stopped()
        self._at_step = step.name
        if self.recording is not None:
            self.recording.asked(step.name, asked.number)
        started = self._eager.pop(step.name, None) or self._start_step(step, since)
        started.call.set_result(asked)
        return started

    def _start_step(self, step: Step, since: float) -> Started:
        self._roles.start(step)
        call: Future[StepRequest] = Future()
        task = asyncio.create_task(self._perform(step, call, since))
        task.add_done_callback(log_failure)
        return Started(call, task)

    async def _perform(self, step: Step, call: Future[StepRequest], since: float) -> TurnReply:
        logs.note_context(stage=self.protocol.name, step=step.name)
        worked = self.context.services.workers.busy_seconds()
        sent_before = self._outbox.counts
        loop = asyncio.get_running_loop()
        try:
            got, is_whole = await collect(step, call, self._roles, self._inbox, self._bridge)
            self._check_not_stopped()
            if is_whole and call.done() and self._paces.is_short(step.name):
                work, told = await self._work_in_loop(step, call, got)
            else:
                await self._lagging.arrive()
                work, told = await loop.run_in_executor(
                    self._threads, self._work_in_thread, loop, step, call, got
                )
            self._paces.note(step.name, work.seconds)
            self.told.append(work.told)
            seconds = monotonic_s() - since
            if step.takes is not None and self._roles.takes_stream(step):
                asked = await await_request(call)
                self._inbox.check_read_ahead(step.takes.DESCRIPTOR.full_name, asked.number)
        except asyncio.CancelledError:
            # Cancelled: `call`, or a step that was stopped before it got a thread.
            if self._stopped is None and not call.cancelled():
                raise
            raise self._stopped or ProtocolError(f"{step.name} was never asked for") from None
        except FedboostError as error:
            error.at(party=self.context.party, step=step.name)
            if self._roles.takes_stream(step):
                await self.stop(error)  # senders of further parts hear it at the next one
            raise error from None
        cpu = work.cpu_s + self.context.services.workers.busy_seconds() - worked
        sent = self._outbox.sent_since(sent_before)
        cost = StepCost(party=self.context.party, seconds=seconds, cpu_seconds=cpu, sent=sent)
        return TurnReply(told=told, cost=cost)

    # Work of a step

    def _step_work(self, step: Step, call: Future[StepRequest], got: object) -> StepWork:
        part = self._roles.of(step)
        given = [part.state] if step.takes is None else [part.state, got]
        if step.hears:
            given.append(self.context.table.among(step.hears, self._await_call(step, call).among))

        def send_part(out: Out, number: int, is_last: bool) -> Sendings:
            asked = self._await_call(step, call)
            place = MessagePlace(step, asked.number, number, is_last)
            to_all = not isinstance(out.send, Mapping)
            receivers = self._roles.receivers(step, asked.among) if to_all else ()
            return self._outbox.send(place, receivers, out, spares=asked.spares)

        function = getattr(part.module, step.name)
        return StepWork(function, tuple(given), self._check_not_stopped, send_part, self._bridge)

    def _await_call(self, step: Step, call: Future[StepRequest]) -> StepRequest:
        """Return the coordinator's request for a step; waits in the step's own thread."""
        try:
            return call.result()
        except CancelledError:  # `call` was cancelled before the coordinator asked for the step
            raise self._stopped or ProtocolError(f"{step.name} was never asked for") from None

    def _work_in_thread(
        self, loop: asyncio.AbstractEventLoop, step: Step, call: Future[StepRequest], got: object
    ) -> tuple[StepWork, StatusReport]:
        """Do the step in a thread of ours; return also the part of its report that may leave."""
        self._check_not_stopped()
        work = self._step_work(step, call, got)
        work.run_in_thread(loop)
        if work.seconds >= SLOW_S and len(self.context.validation) >= LARGE_ROWS:
            release_memory()  # otherwise later arrays would lie between its remains
        return work, self.let_out(work.told)

    async def _work_in_loop(
        self, step: Step, call: Future[StepRequest], got: object
    ) -> tuple[StepWork, StatusReport]:
        """Do the step in the event loop; return also the part of its report that may leave."""
        work = self._step_work(step, call, got)
        await work.run_in_loop(self._lagging)
        if call.result().is_last:
            await self._lagging.arrive()
        return work, self.let_out(work.told)
