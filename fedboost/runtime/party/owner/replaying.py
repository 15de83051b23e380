"""A replay of a guest's job: it repeats the steps with the table, the secret and received messages.

Each message of a step is compared with the ledger's row of the sent message. After an interrupted
attempt, the next one begins from the state of this replay, not from a checkpoint.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedboost import flow
from fedboost.flow import START, Artefact, CheckpointPolicy, Place, StageContext, Step
from fedboost.ground import wire
from fedboost.ground.errors import DataError, FedboostError, PeerError, ProtocolError, StoreError
from fedboost.ground.settings import Settings
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.runtime.ledger.comparison import SAID_ALIKE
from fedboost.runtime.ledger.rows import Noted, Row
from fedboost.runtime.party.stage.outbox import Links, Terms
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.store.recordings import RecordedAttempt, RecordedMessage

# Key of a message: attempt, number of its step, part, peer.
MessageKey = tuple[int, int, int, str]
WAIT_S = 600.0  # for messages that are on the disk


@dataclass(frozen=True)
class ReplayDifference:
    """The first message that honest training would not have sent."""

    attempt: int
    step: str
    message: str
    number: int
    part: int
    peer: str
    where: str  # tree and nodes, in words

    def sentence(self) -> str:
        """Return the difference as a sentence."""
        place = f"attempt {self.attempt}, step {self.step} (number {self.number}"
        if not self.peer:
            return f"{place}): honest training goes on otherwise; {self.where}"
        what = f"the {self.message} to {self.peer} is not what honest training sends"
        return f"{place}, part {self.part}): {what}; {self.where}"


class DifferenceFoundError(FedboostError):
    """Ends a replay at its first difference."""

    def __init__(self, difference: ReplayDifference) -> None:
        super().__init__(difference.sentence(), todo="")
        self.difference = difference


class AttemptOverError(Exception):
    """The attempt went no further."""


@dataclass
class SentPayloads:
    """The guest's ledger of the stage, which a replay compares its messages with."""

    protocol: flow.Protocol[Settings]
    sent: Mapping[MessageKey, Row]
    came: Mapping[MessageKey, Row]
    confirmed: dict[MessageKey, Row] = field(default_factory=dict)
    fed: dict[MessageKey, Row] = field(default_factory=dict)  # the rows of `came` that steps took

    @classmethod
    def of(cls, protocol: flow.Protocol[Settings], rows: Sequence[Row]) -> SentPayloads:
        """Return the payloads of a stage among the ledger's rows."""
        mine = [row for row in rows if row.stage == protocol.name]
        by_way = {
            way: {_key_of_row(row): row for row in mine if row.direction == way}
            for way in ("out", "in")
        }
        return cls(protocol, by_way["out"], by_way["in"])

    def check_received(self, envelope: Envelope) -> None:
        """Refuse a stored message that differs from its row in the ledger."""
        row = self.came.get(_key_of_sender(envelope))
        if row is None or _row_facts(row) != _envelope_facts(envelope):
            raise DataError(
                f"the stored copy of {envelope.sender}'s {envelope.step} "
                f"(number {envelope.number}) differs from the ledger",
                todo="restore the store from one backup",
            )

    def note_fed(self, envelope: Envelope) -> None:
        """Note a message that a step takes."""
        key = _key_of_sender(envelope)
        self.fed[key] = self.came[key]

    def confirm(self, noted: Noted, attempt: RecordedAttempt, state: Any, *, is_last: bool) -> None:
        """Confirm that a message equals the sent one.

        Raises a DifferenceFoundError if it differs. If none left, raises an AttemptOverError after
        the last step of the attempt.
        """
        envelope = noted.envelope
        key = (envelope.attempt, envelope.number, envelope.part, envelope.receiver)
        row = self.sent.get(key)
        if row is not None and _row_facts(row) == _envelope_facts(envelope):
            self.confirmed[key] = row
            return
        if row is None and is_last:
            raise AttemptOverError
        replay, known = self.protocol.replay, attempt.left.get(key[1:])
        assert replay is not None
        left = None
        if known is not None and known.envelope.kind == envelope.kind:
            left = wire.decode(type(noted.message), known.payload(), envelope.sender)
        where = replay.place(state, envelope.step, noted.message, left)
        text = where if row is not None else f"{where}; nothing of it left"
        raise DifferenceFoundError(_difference(envelope, envelope.receiver, text))

    def check_all(self, attempt: int) -> None:
        """Raise a DifferenceFoundError if the attempt sent a message that no step gave."""
        for key, row in self.sent.items():
            if key[0] == attempt and key not in self.confirmed:
                where = "no step of honest training sends it there"
                raise DifferenceFoundError(_difference(row, row.peer, where))


class NoLinks(Links):
    """Links that deliver nothing."""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """See `Links`."""


@dataclass
class ReplayWalk(flow.Run):
    """The walk of one attempt; only the guest's steps are done."""

    protocol: flow.Protocol[Settings]
    context: StageContext[Settings]
    terms: Terms
    attempt: RecordedAttempt
    payloads: SentPayloads
    wanted: frozenset[Place]  # places that later attempts begin after
    snapshots: dict[Place, Artefact]
    done: Callable[[int], None] = lambda _: None  # called with the number of finished steps
    counters: list[int] = field(default_factory=list)
    ended: str = ""
    stands: Place = ()  # passed since the last step
    _next: int = 0  # index in the recorded steps

    def __post_init__(self) -> None:
        self.params, self.table = self.context.params, self.context.table
        self.session = Session(
            *(self.terms, self.protocol, self.context, NoLinks(), self._record, WAIT_S)
        )
        self._steps = self.attempt.steps
        self._unread: dict[str, list[RecordedMessage]] = {}
        for message in self.attempt.came:
            self.payloads.check_received(message.envelope)
            self._unread.setdefault(message.envelope.kind, []).append(message)
        self._failed: Exception | None = None  # why a message that leaves was refused

    async def walk(self) -> bool:
        """Walk as far as the attempt went; return whether it reached the stage's end."""
        place = self.attempt.opening.place
        told = await self.session.open(None if place == START else self.snapshots[place])
        self.ended = told.ends
        is_whole = True
        try:
            await self.protocol.walk(self)
            await self._take_snapshot()
        except AttemptOverError:
            is_whole = False
        finally:
            await self.session.stop(DataError("the replay is over", todo=""))
        self.payloads.check_all(self.attempt.opening.attempt)
        return is_whole

    async def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> None:
        """Do the guest's steps one after another; see `flow.Run`."""
        await self._take_snapshot()
        for step in steps:
            if self.context.party in (self.table.among(step.roles, among) if at is None else (at,)):
                await self._replay_step(step, among)

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """See `flow.Run`."""
        self.stands = flow.LOOP

    @property
    def is_resumed(self) -> bool:
        """See `flow.Run`."""
        return self.attempt.opening.place > START

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """See `flow.Run`."""
        depth, place = len(self.counters), self.attempt.opening.place
        is_here = len(place) > depth and tuple(self.counters) == place[:depth]
        for index in range(place[depth] if is_here else 0, most):
            if self.ended == name:
                break
            self.counters.append(index)
            yield index
            self.counters.pop()
            if keeps is not CheckpointPolicy.NOTHING and (keeps is not None or not depth):
                self.stands = (*self.counters, index + 1)
        if self.ended == name:
            self.ended = ""

    async def _take_snapshot(self) -> None:
        """Keep a snapshot of this place if a later attempt begins here.

        It is taken at once, as parties do, before any further step.
        """
        stands, self.stands = self.stands, ()
        if stands in self.wanted:
            self.snapshots[stands] = _stored_copy(await self.session.snapshot(stands))

    async def _replay_step(self, step: Step, among: tuple[str, ...]) -> None:
        if self._next == len(self._steps):
            raise AttemptOverError
        number, name = self._steps[self._next]
        if name != step.name:
            raise self._step_difference(step, number, f"{name[:64]} was done in its place")
        self._next += 1
        messages = self._step_messages(step, number, among)
        call = StepCall(turns=[Turn(step=name, number=number)], among=among, awaits=True)
        feeding = [asyncio.create_task(self._feed_messages(each)) for each in messages]
        try:
            working = asyncio.create_task(self.session.run_step(call))
            await _first_failure(working, *feeding)
            [turn] = working.result().turns
        except (PeerError, ProtocolError, DataError) as error:
            if self._failed is not None:
                raise self._failed from None
            if self._next == len(self._steps):  # the attempt ended there as well
                raise AttemptOverError from None
            raise self._step_difference(step, number, f"it ends there: {error.what}") from None
        finally:
            for task in feeding:
                task.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)
        if self._failed is not None:
            raise self._failed
        self.ended = turn.told.ends or self.ended
        self.done(1)

    def _step_difference(self, step: Step, number: int, where: str) -> DifferenceFoundError:
        """Return the error about a step that honest training does differently or not at all."""
        kind = "" if step.gives is None else step.gives.DESCRIPTOR.name
        attempt = self.terms.attempt
        return DifferenceFoundError(
            ReplayDifference(attempt, step.name, kind, number, 0, "", where)
        )

    def _step_messages(
        self, step: Step, number: int, among: tuple[str, ...]
    ) -> list[list[RecordedMessage]]:
        """Return the stored messages that a step takes, by sender.

        An AttemptOverError if some are missing and the step was the last one.
        """
        if step.takes is None:
            return []
        kind = step.takes.DESCRIPTOR.full_name
        due = [one for one in self._unread.get(kind, ()) if one.envelope.number < number]
        self._unread[kind] = [one for one in self._unread.get(kind, ()) if one not in due]
        by_sender: dict[str, list[RecordedMessage]] = {}
        for message in sorted(due, key=lambda one: (one.envelope.number, one.envelope.part)):
            by_sender.setdefault(message.envelope.sender, []).append(message)
        for sender in self.table.among((flow.HOST,), among):
            got = by_sender.get(sender, [])
            if not got or not got[-1].envelope.last:
                if self._next == len(self._steps):
                    raise AttemptOverError
                raise DataError(
                    f"{sender}'s message for step {step.name} (number {number}) is not stored here",
                    todo="restore the store from one backup",
                )
        return list(by_sender.values())

    async def _feed_messages(self, messages: Sequence[RecordedMessage]) -> None:
        for message in messages:
            payload = await asyncio.to_thread(message.payload)
            if hashlib.sha256(payload).digest() != message.envelope.payload_sha256:
                raise StoreError(
                    "the record of the job for a replay is damaged",
                    todo="restore it from a backup",
                    file=message.path.name,
                )
            self.payloads.note_fed(message.envelope)
            await self.session.accept(message.envelope, payload)

    def _record(self, _: Sequence[Noted], leaving: Sequence[Noted]) -> None:
        for noted in leaving:
            is_last = self._next == len(self._steps)
            try:
                self.payloads.confirm(noted, self.attempt, self.session.state, is_last=is_last)
            except (DifferenceFoundError, AttemptOverError) as error:
                self._failed = error
                raise DataError("the replay ends here", todo="") from None


async def walk_attempts(
    protocol: flow.Protocol[Settings],
    attempts: Sequence[RecordedAttempt],
    context_of: Callable[[RecordedAttempt], StageContext[Settings]],
    terms_of: Callable[[RecordedAttempt], Terms],
    payloads: SentPayloads,
    done: Callable[[int], None],
) -> bool:
    """Replay attempts in their order; return whether the last one reached the stage's end.

    Raises a DifferenceFoundError for the first message that differs from honest training.
    """
    snapshots: dict[Place, Artefact] = {}
    wanted = frozenset(attempt.opening.place for attempt in attempts) - {START}
    known = {attempt.opening.attempt for attempt in attempts}
    for key in payloads.sent:
        if key[0] not in known:
            payloads.check_all(key[0])
    is_whole = False
    for attempt in attempts:
        opening = attempt.opening
        if opening.place not in {START, *snapshots}:
            where = f"it begins behind {opening.place}, to which no attempt before it has come"
            raise DifferenceFoundError(
                ReplayDifference(opening.attempt, "begin", "", 0, 0, "", where)
            )
        walk = ReplayWalk(
            *(protocol, context_of(attempt), terms_of(attempt), attempt, payloads, wanted),
            snapshots,
            done,
        )
        is_whole = await walk.walk()
    return is_whole


async def _first_failure(*tasks: asyncio.Task[Any]) -> None:
    """Wait until all tasks are done; raise the first error at once."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


def _stored_copy(taken: Artefact) -> Artefact:
    """Return a copy of a snapshot as a store returns it, independent of the session."""
    whole = taken.whole()
    facts = json.loads(json.dumps(whole.facts))
    return Artefact(facts, {name: array.copy() for name, array in whole.arrays.items()})


def _key_of_row(row: Row) -> MessageKey:
    return row.attempt, row.number, row.part, row.peer


def _key_of_sender(envelope: Envelope) -> MessageKey:
    return envelope.attempt, envelope.number, envelope.part, envelope.sender


def _row_facts(row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in SAID_ALIKE)


def _envelope_facts(envelope: Envelope) -> tuple[object, ...]:
    hashes = envelope.payload_sha256.hex(), envelope.salt.hex()
    return (envelope.step, envelope.kind, envelope.payload_bytes, *hashes)


def _difference(sent: Envelope | Row, peer: str, where: str) -> ReplayDifference:
    message = sent.kind.rpartition(".")[2]
    return ReplayDifference(sent.attempt, sent.step, message, sent.number, sent.part, peer, where)
