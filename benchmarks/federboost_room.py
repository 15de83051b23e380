"""Parties in one process whose rows are aligned: their sessions and messages, without a network.

Unlike `fedboost.runtime.local` there is no coordinator, no alignment and no store: a stage alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message
from numpy.typing import NDArray

from benchmarks.federboost_jobs import Params, Parts
from benchmarks.tables import Table
from fedboost import flow, protocols, wire
from fedboost.core import metrics
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Serial
from fedboost.data.frame import Frame
from fedboost.data.ids import encode_ids
from fedboost.flow import MODEL, Artefact, Keeps, Role, Seat, Step
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.runtime.outbox import Terms
from fedboost.runtime.policy import Policy
from fedboost.runtime.session import Session
from fedboost.settings import parse

TERMS = Terms("benchmark", bytes(32), 1)
WAIT_S = 600.0

Rows = NDArray[np.bool_]
Shards = dict[str, Artefact]


class Nobody:
    """Signs and notes nothing: no step of these protocols asks for it."""

    def sign(self, _: bytes) -> bytes:
        """See `flow.Signer`."""
        raise NotImplementedError

    def check(self, _: str, __: bytes, ___: bytes) -> None:
        """See `flow.Signer`."""
        raise NotImplementedError

    def read(self) -> dict[str, Any]:
        """See `flow.Notebook`."""
        raise NotImplementedError

    def write(self, _: dict[str, Any]) -> None:
        """See `flow.Notebook`."""
        raise NotImplementedError


@dataclass
class Room(flow.Run):
    """The sessions of one stage, and the coordinator's hand over them."""

    protocol: flow.Protocol
    seats: Mapping[str, Seat]
    sent: dict[str, int] = field(default_factory=dict)  # payload bytes by sender
    seconds: dict[str, float] = field(default_factory=dict)  # by step, until the slowest is done
    number: int = 0
    ended: str = ""

    def __post_init__(self) -> None:
        first = next(iter(self.seats.values()))
        self.table, self.params = first.table, first.params
        self.sessions = {
            name: Session(TERMS, self.protocol, seat, self, _forget, WAIT_S)
            for name, seat in self.seats.items()
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
        for step in steps:
            self.number += 1
            call = StepCall(turns=[Turn(step=step.name, number=self.number)], among=among)
            parties = (at,) if at else self.table.among(step.roles, among)
            replies = await self._all(
                step.name, [self.sessions[party].run_step(call) for party in parties]
            )
            for reply in replies:
                self.ended = reply.turns[0].told.ends or self.ended

    def rounds(self, name: str, most: int, *, keeps: Keeps = Keeps.EACH) -> Iterator[int]:
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
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        return done


def _forget(_: str, __: Sequence[tuple[Envelope, Message]]) -> None:
    """There is no ledger."""


@dataclass(frozen=True)
class Trained:
    """A model, and what its training took."""

    shards: Shards  # by party
    seconds: dict[str, float]  # by step
    sent: dict[str, int]  # payload bytes by sender

    @property
    def total(self) -> float:
        """Seconds of the whole stage."""
        return sum(self.seconds.values())


def train(table: Table, dealt: Parts, given: Params, held: Rows | None = None) -> Trained:
    """Vertical FederBoost on the rows that bool (n,) `held` leaves; the noise is fresh."""
    out = np.zeros(len(table.y), np.bool_) if held is None else held
    frames = {party: _frame(table, dealt, party) for party in dealt}
    room = Room(*_seats("federboost-vertical", frames, given, out, {}))
    shards = asyncio.run(room.walk())
    return Trained(shards, room.seconds, room.sent)


def predict(shards: Shards, table: Table, dealt: Parts) -> NDArray[np.float64]:
    """Probabilities float64 (n,) of a table's rows: their owners' own values, without noise."""
    frames = {party: _frame(table, dealt, party) for party in dealt}
    none = np.zeros(len(table.y), np.bool_)
    room = Room(*_seats("predict", frames, {"model": TERMS.job}, none, shards))
    left = asyncio.run(room.walk())
    return left[next(iter(dealt))].arrays["prediction"].astype(np.float64)[:, 0]


def auc(table: Table, prediction: NDArray[np.float64]) -> float:
    """The AUC of float64 (n,) probabilities."""
    return metrics.evaluate("auc", table.y.astype(np.float64), prediction)


def _frame(table: Table, dealt: Parts, party: str) -> Frame:
    columns = dealt[party]
    values = np.asfortranarray(table.values[:, [table.columns.index(one) for one in columns]])
    label = table.y.astype(np.float64) if party == next(iter(dealt)) else None
    ids = encode_ids([pa.chunked_array([pa.array(table.id)])], ["id"])
    return Frame(ids, values, columns, label, ("id",))


def _seats(
    name: str, frames: Mapping[str, Frame], given: Params, held: Rows, shards: Shards
) -> tuple[flow.Protocol, dict[str, Seat]]:
    guest, *hosts = frames
    protocol = protocols.named(name)
    params = parse(protocol.params, dict(given))
    seats = {}
    for party, frame in frames.items():
        secrets = Secrets.from_os()
        seats[party] = Seat(
            party=party,
            role=Role.GUEST if party == guest else Role.HOST,
            table=flow.Table(guest, tuple(hosts)),
            params=params,
            frame=frame,
            validation=held,
            secrets=secrets.child(name, TERMS.attempt),
            job_secrets=secrets.child(name),
            context=bytes(32),
            signer=Nobody(),
            notebook=Nobody(),
            workers=Serial(),
            artefacts={MODEL: shards[party]} if party in shards else {},
            limits=Policy(),
        )
    return protocol, seats
