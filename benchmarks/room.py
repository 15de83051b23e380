"""Parties in one process whose rows are aligned: their sessions and messages, without a network.

Unlike in `fedboost.runtime.cluster.local` there is no coordinator, alignment or store: one stage.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.tables import Table
from fedboost import flow, protocols
from fedboost.core import metrics
from fedboost.core.gradient_bits import BITS_MAX
from fedboost.crypto.secrets import Secrets
from fedboost.data.frame import Frame
from fedboost.flow import MODEL, Artefact, CheckpointPolicy, Role, StageContext, Step
from fedboost.ground import wire
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial, Workers
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, StepReply, Turn
from fedboost.model import kinds
from fedboost.runtime.config.policy import Policy, PredictPolicy
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.party.stage.outbox import Terms
from fedboost.runtime.party.stage.session import Session

TERMS = Terms("benchmark", bytes(32), 1)
WAIT_S = 600.0
HORIZONTAL = "federboost-horizontal"
LIMITS = Policy(aggregation_parties_min=2, group_rows_min=1, gradient_bits_max=BITS_MAX)

Params = Mapping[str, Any]
Parts = Mapping[str, tuple[str, ...]]
Rows = NDArray[np.bool_]
Shards = dict[str, Artefact]
Frames = Mapping[str, Frame]


@dataclass(frozen=True)
class Hand:
    """Signs for one party; implements `flow.Signer` with keys of this process's own."""

    party: str
    keys: Mapping[str, Ed25519PrivateKey]

    def sign(self, text: bytes) -> bytes:
        """See `flow.Signer`."""
        return self.keys[self.party].sign(text)

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """See `flow.Signer`; raises InvalidSignature."""
        self.keys[party].public_key().verify(signature, text)


@dataclass
class Room(flow.Run):
    """The sessions of one stage, and the coordinator's hand over them."""

    protocol: flow.Protocol[Any]
    contexts: Mapping[str, StageContext[Any]]
    sent: dict[str, int] = field(default_factory=dict)  # payload bytes by sender
    seconds: dict[str, float] = field(default_factory=dict)  # by step, until the slowest is done
    ends: dict[str, float] = field(default_factory=dict)  # of the steps, the last time, on a clock
    number: int = 0
    ended: str = ""

    def __post_init__(self) -> None:
        first = next(iter(self.contexts.values()))
        self.table, self.params = first.table, first.params
        self.sessions = {
            name: Session(TERMS, self.protocol, context, self, _forget, WAIT_S)
            for name, context in self.contexts.items()
        }

    async def walk(self) -> Shards:
        """The whole stage; what every party is left with."""
        await self._all("open", [one.open(None) for one in self.sessions.values()])
        await self.protocol.walk(self)
        left = await self._all("finish", [one.close() for one in self.sessions.values()])
        return dict(zip(self.sessions, left, strict=True))

    async def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> None:
        turns: dict[str, list[Turn]] = {}
        for step in steps:
            self.number += 1
            for party in (at,) if at else self.table.among(step.roles, among):
                turns.setdefault(party, []).append(Turn(step=step.name, number=self.number))
        awaits = len(steps) > 1
        calls = [
            self.sessions[party].run_step(StepCall(turns=own, among=among, awaits=awaits))
            for party, own in turns.items()
        ]
        started = time.perf_counter()
        replies = await asyncio.gather(*calls)
        self._note(turns, replies, time.perf_counter() - started)

    def _note(
        self, turns: Mapping[str, list[Turn]], replies: list[StepReply], seconds: float
    ) -> None:
        """Steps that were asked for at once share the time by how long the slowest computed."""
        busy: dict[str, float] = {}
        for own, reply in zip(turns.values(), replies, strict=True):
            for turn, done in zip(own, reply.turns, strict=True):
                self.ended = done.told.ends or self.ended
                busy[turn.step] = max(busy.get(turn.step, 0.0), done.cost.cpu_seconds)
        whole = sum(busy.values()) or 1.0
        for name, spent in busy.items():
            share = spent / whole
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds * share
            self.ends[name] = time.perf_counter()

    @property
    def is_quick(self) -> bool:
        """True: nothing is kept here."""
        return True

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """Nothing: no other attempt follows."""

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """See `flow.Run`."""
        for index in range(most):
            if self.ended == name:
                break
            yield index
        if self.ended == name:
            self.ended = ""

    async def deliver(self, envelope: Envelope, payload: bytes) -> None:
        """Brings a message to its receiver; implements `session.Links`."""
        arrived = Envelope.FromString(wire.encode(envelope))
        sender = envelope.sender
        self.sent[sender] = self.sent.get(sender, 0) + len(payload)
        await self.sessions[envelope.receiver].accept(arrived, payload)

    async def _all(self, name: str, work: list[Any]) -> list[Any]:
        started = time.perf_counter()
        done = await asyncio.gather(*work)
        self.ends[name] = time.perf_counter()
        self.seconds[name] = self.ends[name] - started
        return done


def _forget(_: Sequence[Noted], __: Sequence[Noted]) -> None:
    """There is no ledger."""


@dataclass(frozen=True)
class Trained:
    """A model, and what its training took."""

    shards: Shards  # by party
    seconds: dict[str, float]  # by step
    ends: dict[str, float]  # when each step was done last, on the clock that ends with "finish"
    sent: dict[str, int]  # payload bytes by sender

    @property
    def began(self) -> float:
        """When, on that clock, the parties took their seats."""
        return self.ends["open"] - self.seconds["open"]

    @property
    def ended(self) -> float:
        """When, on that clock, the model was there."""
        return self.ends["finish"]

    @property
    def total(self) -> float:
        """Seconds of the whole stage."""
        return sum(self.seconds.values())


def train(
    table: Table,
    dealt: Parts,
    given: Params,
    held: Rows | None = None,
    workers: Workers | None = None,
) -> Trained:
    """Vertical FederBoost on the rows that bool (n,) `held` leaves; the noise is fresh."""
    protocol, contexts = _contexts("federboost-vertical", frames_of(table, dealt), given, held)
    if workers is not None:
        contexts = {
            name: replace(own, services=replace(own.services, workers=workers))
            for name, own in contexts.items()
        }
    return _trained(Room(protocol, contexts))


def train_horizontal(shares: Mapping[str, Table], given: Params, aggregator: str) -> Trained:
    """Horizontal FederBoost on the rows of each party; the `aggregator` may be one of them."""
    frames: Frames = {
        party: tables.frame(share, share.columns, labelled=True) for party, share in shares.items()
    }
    return _trained(Room(*_contexts(HORIZONTAL, frames, given, aggregator=aggregator)))


def predict(shards: Shards, table: Table, dealt: Parts) -> NDArray[np.float64]:
    """Probabilities float64 (n,) of a table's rows: their owners' own values, without noise."""
    frames = frames_of(table, dealt)
    room = Room(*_contexts("predict", frames, {"model": TERMS.job}, shards=shards))
    left = asyncio.run(room.walk())
    return left[next(iter(dealt))].arrays["prediction"].astype(np.float64)[:, 0]


def predict_whole(shards: Shards, table: Table) -> NDArray[np.float64]:
    """Probabilities float64 (n,) of a table's rows by the model that every party has."""
    frame = tables.frame(table, table.columns, labelled=False)
    shard = next(iter(shards.values()))
    return kinds.kind_of(shard.facts).predict_alone(shard, frame)[:, 0]


def auc(table: Table, prediction: NDArray[np.float64]) -> float:
    """The AUC of float64 (n,) probabilities."""
    return metrics.evaluate("auc", table.y.astype(np.float64), prediction)


def _trained(room: Room) -> Trained:
    shards = asyncio.run(room.walk())
    return Trained(shards, room.seconds, room.ends, room.sent)


def frames_of(table: Table, dealt: Parts) -> Frames:
    """Everybody's columns, the first party's with the labels."""
    guest = next(iter(dealt))
    return {
        party: tables.frame(table, columns, labelled=party == guest)
        for party, columns in dealt.items()
    }


def _contexts(
    name: str,
    frames: Frames,
    given: Params,
    held: Rows | None = None,
    shards: Shards | None = None,
    aggregator: str | None = None,
) -> tuple[flow.Protocol[Any], dict[str, StageContext[Any]]]:
    """Seats at one stage, the first frame's party as guest; an aggregator may have no frame."""
    guest, *hosts = frames
    left = shards or {}
    indices = {
        party: Place(
            frame=frames.get(party),
            held=held if party in frames else None,
            artefacts={MODEL: left[party]} if party in left else {},
            limits=LIMITS.model_copy(update={"predict": PredictPolicy(exact=(guest,))}),
        )
        for party in flow.Table(guest, tuple(hosts), aggregator).of(tuple(Role))
    }
    return contexts(name, flow.Table(guest, tuple(hosts), aggregator), given, indices)


@dataclass(frozen=True)
class Place:
    """What one party brings to a stage."""

    frame: Frame | None
    held: Rows | None = None  # rows for validation, bool (n,); None: none
    artefacts: Mapping[str, Artefact] = field(default_factory=dict)
    limits: Policy = LIMITS


def contexts(
    name: str, table: flow.Table, given: Params, indices: Mapping[str, Place]
) -> tuple[flow.Protocol[Any], dict[str, StageContext[Any]]]:
    """Seats at the stage `name` with these parameters, for everybody at the table."""
    protocol = protocols.load_protocol(name)
    params = parse_settings(protocol.params, dict(given))
    keys = {party: Ed25519PrivateKey.generate() for party in indices}
    found = {}
    for party, place in indices.items():
        secrets = Secrets.from_os()
        rows = 0 if place.frame is None else place.frame.n_rows
        found[party] = StageContext(
            party=party,
            role=table.roles_of(party)[0],
            table=table,
            job=TERMS.job,
            params=params,
            limits=place.limits,
            frame=place.frame,
            validation=np.zeros(rows, np.bool_) if place.held is None else place.held,
            artefacts=place.artefacts,
            attempt=flow.StageAttempt(origin=bytes(32), digest=bytes(32)),
            secrets=flow.StageSecrets(
                attempt=secrets.child(name, TERMS.attempt),
                job=secrets.child(name),
                lasting=secrets.child,
            ),
            services=flow.StageServices(Hand(party, keys), flow.MemoryNotebook(), Serial()),
        )
    return protocol, found
