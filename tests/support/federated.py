"""Jobs in one process: a whole cluster, or the sessions of one stage; every message is encoded."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from fedboost import flow, protocols
from fedboost.crypto.secrets import Secrets
from fedboost.data.frame import Frame
from fedboost.data.holdout import validation_rows, validation_rows_by_id
from fedboost.data.sources import SourceSpec
from fedboost.flow import (
    HISTORY,
    Artefact,
    CheckpointPolicy,
    MemoryNotebook,
    RowsUsed,
    StageAttempt,
    StageContext,
    StageSecrets,
    StageServices,
    Step,
    Table,
)
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, JobError, PeerError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial, Workers
from fedboost.job import JobSpec
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import JobJournal, StatusReport
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.ledger.rows import Noted, Row
from fedboost.runtime.party.stage.notes import RecordMessages
from fedboost.runtime.party.stage.outbox import Terms
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.policy.reading import allowed_report
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.addresses import Timers
from tests.support.contexts import altered

GUEST = "bank"
HOSTS = ("telco", "shop", "mill", "farm")
PLAIN = {"encryption": {"scheme": "plain"}}
TERMS = Terms("job-1", bytes(32), 1)
WAIT_S = 30.0

T = TypeVar("T")
Alter = Callable[[Envelope, bytes], tuple[Envelope, bytes]]


def now(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, and stops what it left running in its rooms."""

    # What it gives is put aside: asyncio.run prints a task that has ended, for nobody to read.
    given: list[T] = []

    async def whole() -> None:
        try:
            given.append(await work)
        finally:
            while _opened:
                for session in _opened.pop().sessions.values():
                    await session.stop(JobError("the test is over"))

    asyncio.run(whole())
    return given[0]


# A whole job


@dataclass(frozen=True)
class Finished:
    """What a job in a cluster left behind."""

    journal: JobJournal
    shards: dict[str, Artefact]  # of a job that leaves a model
    ledgers: dict[str, list[Row]]
    predictions: pa.Table | None

    @property
    def state(self) -> str:
        """How the job ended."""
        return self.journal.status.state

    @property
    def error(self) -> FedboostError:
        """What ended a job that did not finish."""
        return faults.error_of_fault(self.journal.status.reason)

    @property
    def result(self) -> dict[str, Any]:
        """The job's result, as its owner reads it."""
        found = [
            e.finished.result for e in self.journal.events if e.WhichOneof("what") == "finished"
        ]
        parsed: dict[str, Any] = json.loads(found[-1])
        return parsed


def job_spec(
    protocol: str,
    parties: Sequence[str],
    *,
    data: Mapping[str, Mapping[str, Any]] | None = None,
    validation: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> JobSpec:
    """A job of the first party as guest and the others as hosts; the guest's label is `y`."""
    guest, *hosts = parties
    own = {p: {"dataset": local.DATASET, **(data or {}).get(p, {})} for p in parties}
    if protocols.load_protocol(protocol).leaves == "model":
        own[guest].setdefault("label", "y")
    raw = {
        "name": protocol,
        "protocol": protocol,
        "parties": {"guest": guest, "hosts": hosts},
        "data": own,
        "params": dict(params or {}),
    }
    if validation is not None:
        raw["validation"] = dict(validation)
    return parse_settings(JobSpec, raw)


async def run_jobs(
    folder: Path,
    tables: Mapping[str, pa.Table],
    specs: Sequence[JobSpec | Callable[[Finished], JobSpec]],
    workers: Workers | None = None,
    timers: Timers | None = None,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Finished]:
    """Runs jobs one after the other on one cluster; a function makes a spec of the job before.

    `declared` is what owners say of their tables beside the path.
    """
    sources = {}
    for party, table in tables.items():
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{party}.parquet")
        said = {"path": str(folder / f"{party}.parquet"), **(declared or {}).get(party, {})}
        sources[party] = parse_settings(SourceSpec, said)
    first = specs[0]
    assert isinstance(first, JobSpec)
    done: list[Finished] = []
    async with local.open_cluster(
        folder / "cluster", first, sources, workers or Serial(), timers=timers
    ) as cluster:
        for each in specs:
            spec = each if isinstance(each, JobSpec) else each(done[-1])
            journal = await cluster.run(spec)
            done.append(_left(cluster, journal))
    return done


def run_job(
    folder: Path,
    tables: Mapping[str, pa.Table],
    spec: JobSpec,
    workers: Workers | None = None,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
) -> Finished:
    """Runs one job on a cluster of its own; tables by party, one parquet file each."""
    return now(run_jobs(folder, tables, [spec], workers, declared=declared))[0]


def _left(cluster: local.LocalCluster, journal: JobJournal) -> Finished:
    job = journal.status.id
    found, predictions = {}, None
    for name, node in cluster.parties.items():
        if job in shards.model_ids(node.store.folder / "models"):
            found[name] = shards.load_shard(node.store.folder / "models" / job)
        scored = node.store.folder / "predictions" / f"{job}.parquet"
        if scored.exists():
            predictions = pq.read_table(scored)
    ledgers = {name: node.ledger.rows(job) for name, node in cluster.parties.items()}
    return Finished(journal, found, ledgers, predictions)


# One stage


@dataclass(frozen=True)
class Posted:
    """One message on its way."""

    envelope: Envelope
    payload: bytes
    message: Any

    @property
    def line(self) -> str:
        """The transcript's line: who tells whom what, in shapes."""
        e = self.envelope
        part = f" part {e.part}{' (last)' if e.last else ''}" if e.part or not e.last else ""
        return f"{e.stage} {e.step}: {e.sender} -> {e.receiver} {wire.describe(self.message)}{part}"


class HaltError(Exception):
    """The walk has come to where the test wanted it."""


@dataclass
class Room(flow.Run):
    """The sessions of all parties at one stage, and the coordinator's hand over them.

    `alter` may change what travels; whatever a receiver refuses ends the stage, as in production.
    """

    protocol: flow.Protocol[Any]
    contexts: Mapping[str, StageContext[Any]]
    wait_s: float = WAIT_S
    alter: Alter | None = None
    posted: list[Posted] = field(default_factory=list)
    recorded: list[tuple[str, str, str]] = field(default_factory=list)  # party, direction, kind
    number: int = 0
    ended: str = ""
    told: list[StatusReport] = field(default_factory=list)
    place: flow.Place = flow.START  # behind which it begins
    counters: list[int] = field(default_factory=list)
    stands: flow.Place = ()  # behind a round, inside others, that is to be kept
    stop_at: tuple[str, int] = ("", 0)  # a step, and how often it may come before the walk halts

    def __post_init__(self) -> None:
        context = next(iter(self.contexts.values()))
        self.table, self.params = context.table, context.params
        self.sessions = {
            name: Session(
                *(TERMS, self.protocol, one, self, self._recorder(name), self.wait_s),
                let_out=partial(allowed_report, tells=_policy(one).tells),
            )
            for name, one in self.contexts.items()
        }

    def state(self, party: str) -> Any:
        """What a party's module remembers."""
        return self.sessions[party].state

    async def open(self, kept: Mapping[str, Artefact] | None = None) -> Room:
        """Every party takes its seat, from its checkpoint where there is one."""
        _opened.append(self)
        if kept:  # by all, alike
            self.contexts = {
                name: altered(
                    one,
                    attempt={"place": self.place, "kept": {self.place: _history(kept.get(name))}},
                )
                for name, one in self.contexts.items()
            }
            self.__post_init__()
        for name, session in self.sessions.items():
            told = await session.open((kept or {}).get(name))
            self.ended = told.ends or self.ended
        return self

    async def snapshots(self) -> dict[str, Artefact]:
        """What every party keeps where it stands."""
        return {name: await session.snapshot() for name, session in self.sessions.items()}

    async def walk(self, kept: Mapping[str, Artefact] | None = None) -> dict[str, Artefact]:
        """The whole stage, or what is left of it; gives what every party is left with."""
        await self.open(kept)
        await self.protocol.walk(self)
        return {name: await session.close() for name, session in self.sessions.items()}

    async def until(self, step: str, times: int = 1) -> Room:
        """Opens, and walks until just before a step comes for the n-th time."""
        await self.open()
        self.stop_at = (step, times - 1)
        try:
            await self.protocol.walk(self)
        except HaltError:
            self.stop_at = ("", 0)
            return self
        raise AssertionError(f"the walk never came to {step}")

    async def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> None:
        """All at once, as in production; step by step up to where the walk halts."""
        if self.stop_at[0] not in {step.name for step in steps}:
            await self._call(steps, at, among)
            return
        for step in steps:
            name, left = self.stop_at
            if step.name == name:
                if left == 0:
                    raise HaltError
                self.stop_at = (name, left - 1)
            await self._call((step,), at, among)

    async def call(self, step: str, *parties: str, among: tuple[str, ...] = ()) -> None:
        """Has these parties do one step at the same time; raises the first refusal."""
        self.number += 1
        turn = Turn(step=step, number=self.number)
        await self._run({party: [turn] for party in parties}, among, awaits=False)

    async def _call(self, steps: Sequence[Step], at: str | None, among: tuple[str, ...]) -> None:
        turns: dict[str, list[Turn]] = {}
        for step in steps:
            self.number += 1
            for party in (at,) if at else self.table.among(step.roles, among):
                turns.setdefault(party, []).append(Turn(step=step.name, number=self.number))
        await self._run(turns, among, awaits=len(steps) > 1)

    async def _run(
        self, turns: Mapping[str, Sequence[Turn]], among: tuple[str, ...], *, awaits: bool
    ) -> None:
        tasks = [
            asyncio.create_task(
                self.sessions[party].run_step(StepCall(turns=own, among=among, awaits=awaits))
            )
            for party, own in turns.items()
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = next((t.exception() for t in done if t.exception() is not None), None)
        if failed is not None:
            reason = failed if isinstance(failed, FedboostError) else FedboostError(repr(failed))
            for session in self.sessions.values():
                await session.stop(reason)
            await asyncio.gather(*tasks, return_exceptions=True)
            raise failed
        for task in tasks:
            for turn in task.result().turns:
                self.told.append(turn.told)
                self.ended = turn.told.ends or self.ended

    @property
    def is_resumed(self) -> bool:
        """Whether it begins behind something."""
        return self.place > flow.START

    @property
    def is_quick(self) -> bool:
        """Whether rounds are asked for at once."""
        return True

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """Always."""
        self.stands = flow.LOOP

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """As in production: at most so many, fewer where a party ends them."""
        depth, place = len(self.counters), self.place
        is_here = len(place) > depth and tuple(self.counters) == place[:depth]
        for index in range(place[depth] if is_here else 0, most):
            if self.ended == name:
                break
            self.counters.append(index)
            yield index
            self.counters.pop()
            if keeps not in (None, CheckpointPolicy.NOTHING):
                self.stands = (*self.counters, index + 1)
        if self.ended == name:
            self.ended = ""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Brings a message to its receiver; implements `session.Links`."""
        if self.alter is not None:
            envelope, payload = self.alter(envelope, payload)
        arrived = Envelope.FromString(wire.encode(envelope))
        session = self.sessions[envelope.receiver]
        session.admit(arrived)
        kind = type_named(self.protocol, envelope.kind)
        posted: list[Posted] = []
        with suppress(DecodeError):  # of one that is refused below
            posted.append(Posted(arrived, payload, kind.FromString(payload)))
        self.posted += posted  # it may be used before its receipt is there
        try:
            await session.accept(arrived, payload)
        except FedboostError as error:
            self.posted = [one for one in self.posted if not any(one is own for own in posted)]
            if isinstance(error, PeerError):
                await session.stop(error.at(party=envelope.receiver))
            raise

    def lines(self) -> list[str]:
        """The transcript, in the order of steps, parts, senders and receivers."""
        return [posted.line for posted in sorted(self.posted, key=_place)]

    def _recorder(self, party: str) -> RecordMessages:
        def record(coming: Sequence[Noted], leaving: Sequence[Noted]) -> None:
            self.recorded.extend((party, "in", one.envelope.kind) for one in coming)
            self.recorded.extend((party, "out", one.envelope.kind) for one in leaving)

        return record


def _history(kept: Artefact | None) -> str:
    return "" if kept is None else str(kept.facts.get(HISTORY, ""))


_opened: list[Room] = []


def type_named(protocol: flow.Protocol[Any], kind: str) -> type[Message]:
    """The message type of that full name."""
    return next(s.gives for s in protocol.flow if s.gives and s.gives.DESCRIPTOR.full_name == kind)


def resealed(envelope: Envelope, payload: bytes) -> tuple[Envelope, bytes]:
    """Another payload under an envelope that fits it, as a lying sender would write it."""
    changed = Envelope()
    changed.CopyFrom(envelope)
    changed.payload_bytes = len(payload)
    changed.payload_sha256 = hashlib.sha256(payload).digest()
    return changed, payload


def changing(kind: str, change: Callable[[Any], None], skip: int = 0) -> Alter:
    """An `alter` that changes the message of a kind, after so many that pass, and no other."""
    seen = 0

    def alter(envelope: Envelope, payload: bytes) -> tuple[Envelope, bytes]:
        nonlocal seen
        if not envelope.kind.endswith(f".{kind}"):
            return envelope, payload
        seen += 1
        if seen != skip + 1:
            return envelope, payload
        protocol = protocols.load_protocol(envelope.stage)
        message = type_named(protocol, envelope.kind).FromString(payload)
        change(message)
        return resealed(envelope, wire.encode(message))

    return alter


def frame_of(ids: Sequence[bytes], values: NDArray[np.float32], label: Any = None) -> Frame:
    """A party's table: columns c0, c1, …"""
    array = np.asfortranarray(values, dtype=np.float32).copy(order="F")
    names = tuple(f"c{i}" for i in range(array.shape[1]))
    y = None if label is None else np.array(label, np.float64)
    return Frame(EncodedIds.of(ids), array, names, y, ("id",))


@dataclass(frozen=True)
class Hand:
    """Signs for one party as its certificate would; implements `flow.Signer`."""

    party: str

    def sign(self, text: bytes) -> bytes:
        """What nobody else signs this text with."""
        return hashlib.sha256(self.party.encode() + b"\0" + text).digest()

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Refuses anything else."""
        if signature != Hand(party).sign(text):
            raise PeerError(f"the signature of {party} does not fit the signed text")


def lasting_of(party: str) -> Callable[[str], Secrets]:
    """The secrets of a party's store; under 16 the tiny conversation has splits of either kind."""
    return Secrets(hashlib.sha256(party.encode()).digest()).child("lasting", 16).child


# What owners of small tables allow.
SMALL = Policy(
    group_rows_min=1, own_rows_min=1, holdout_rows_min=1, intersection_min=1, gradient_bits_max=64
)


SERVICES = [field.name for field in fields_of(StageServices)]


def contexts_for(
    protocol: str,
    frames: Mapping[str, Frame],
    params: Mapping[str, Any] | None = None,
    *,
    held: float | None = None,
    artefacts: Mapping[str, Mapping[str, Artefact]] | None = None,
    aggregator: str | None = None,
    **fields: Any,
) -> dict[str, StageContext[Any]]:
    """Seats at one stage; the first party is the guest, secrets are the same in every run.

    An `aggregator` that is none of them has a seat without rows. `fields` of the contexts and of
    their services stand in place of what they are otherwise.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    services: dict[str, Any] = {name: given.pop(name) for name in SERVICES if name in given}
    guest, *hosts = frames
    table = Table(guest, tuple(hosts), aggregator)
    at_table: dict[str, Frame | None] = {**frames}
    if aggregator is not None:
        at_table.setdefault(aggregator, None)
    known = protocols.load_protocol(protocol)
    own = parse_settings(known.params, dict(params or {}))
    hold_out = validation_rows_by_id if known.tables.rows is RowsUsed.GUESTS else validation_rows
    return {
        name: StageContext(
            party=name,
            role=table.roles_of(name)[0],
            table=table,
            job=TERMS.job,
            params=own,
            frame=frame,
            validation=np.zeros(0, np.bool_)
            if frame is None
            else hold_out(frame.ids, held or 0.0, 7),
            artefacts=(artefacts or {}).get(name, {}),
            attempt=StageAttempt(
                origin=hashlib.sha256(protocol.encode() + b" stage").digest(),
                digest=hashlib.sha256(protocol.encode()).digest(),
            ),
            secrets=StageSecrets(
                attempt=Secrets(hashlib.sha256(name.encode()).digest()).child(protocol, 1),
                job=Secrets(hashlib.sha256(name.encode()).digest()).child(protocol),
                lasting=lasting_of(name),
            ),
            services=StageServices(
                **{
                    "signer": Hand(name),
                    "notebook": MemoryNotebook(),
                    "workers": Serial(),
                    **services,
                }
            ),
            **{"limits": SMALL} | given,
        )
        for name, frame in at_table.items()
    }


def room_for(
    protocol: str, frames: Mapping[str, Frame], params: Mapping[str, Any] | None = None, **more: Any
) -> Room:
    """A room with fresh seats; `alter`, `wait_s` and whatever `seats_for` takes by name."""
    own = {key: more.pop(key) for key in ("alter", "wait_s") if key in more}
    return Room(
        protocols.load_protocol(protocol), contexts_for(protocol, frames, params, **more), **own
    )


def with_seed(room: Room, seed: bytes) -> Room:
    """The same room with other secrets for everybody."""
    contexts = {
        name: altered(
            context, secrets={"attempt": Secrets(hashlib.sha256(seed + name.encode()).digest())}
        )
        for name, context in room.contexts.items()
    }
    return Room(room.protocol, contexts, room.wait_s)


def _policy(context: StageContext[Any]) -> Policy:
    assert isinstance(context.limits, Policy)
    return context.limits


def _place(posted: Posted) -> tuple[int, int, str, str]:
    e = posted.envelope
    return e.number, e.part, e.sender, e.receiver
