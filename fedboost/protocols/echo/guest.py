"""The guest of an echo: calls numbers and checks what comes back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedboost import wire
from fedboost.errors import PeerError
from fedboost.flow import START, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Metric, Told
from fedboost.messages.protocol.echo_pb2 import Answer, Call


@dataclass
class Guest:
    """What the guest remembers between steps."""

    seat: Seat
    calls: int = 0
    total: int = 0  # of the numbers called in this round


def begin(seat: Seat) -> Guest:
    """A guest that has called nothing."""
    return Guest(seat)


def call(me: Guest) -> Iterator[Out]:
    """Numbers from the job's secret, in parts."""
    me.total = 0
    params = me.seat.params
    for part in range(params.parts):
        drawn = me.seat.secrets.bytes(params.numbers, "numbers", me.calls, part)
        numbers = np.frombuffer(drawn, np.uint8).astype(np.int64)
        me.total += int(numbers.sum())
        yield Out(send=Call(numbers=wire.pack(numbers)))
    me.calls += 1


def compare(me: Guest, got: Mapping[str, Answer]) -> Out:
    """Refuses an answer that is not the sum."""
    for host, answer in got.items():
        total = int(wire.unpack(answer.total, "i8", (1,), "an echo's total")[0])
        if total != me.total:
            raise PeerError(f"{host} answered another sum than was called")
    return Out(told=Told(metrics=[Metric(split="train", name="echo", value=me.total)]))


def snapshot(me: Guest, _: Place) -> Artefact:
    """Return how often it called."""
    return Artefact({"calls": me.calls})


def restore(me: Guest, kept: Artefact) -> Told:
    """Carries on counting."""
    me.calls = kept.facts["calls"]
    return Told()


def finish(me: Guest) -> Artefact:
    """The same as a snapshot."""
    return snapshot(me, START)


def bytes_max(_: Guest, __: str) -> int:
    """An answer is one number."""
    return wire.CONTROL_BYTES_MAX
