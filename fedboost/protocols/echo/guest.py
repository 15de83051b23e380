"""The guest of an echo: calls numbers and checks the answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedboost.flow import START, Artefact, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.messages.job_pb2 import Metric, StatusReport
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.protocols.echo.params import EchoParams


@dataclass
class Guest:
    """State of the guest between steps."""

    context: StageContext[EchoParams]
    calls: int = 0
    total: int = 0  # of the numbers called in this round


def begin(context: StageContext[EchoParams]) -> Guest:
    """Return a guest that has called nothing."""
    return Guest(context)


def call(guest: Guest) -> Iterator[Out]:
    """Call numbers from the job's secret, in parts."""
    guest.total = 0
    params = guest.context.params
    for part in range(params.parts):
        drawn = guest.context.secrets.attempt.bytes(params.numbers, "numbers", guest.calls, part)
        numbers = np.frombuffer(drawn, np.uint8).astype(np.int64)
        guest.total += int(numbers.sum())
        yield Out(send=Call(numbers=wire.pack(numbers)))
    guest.calls += 1


def compare(guest: Guest, got: Mapping[str, Answer]) -> Out:
    """Refuse an answer that is not the sum."""
    for host, answer in got.items():
        total = int(wire.unpack(answer.total, "i8", (1,), "an echo's total")[0])
        if total != guest.total:
            raise PeerError(f"{host} answered another sum than was called")
    return Out(told=StatusReport(metrics=[Metric(split="train", name="echo", value=guest.total)]))


def snapshot(guest: Guest, _: Place) -> Artefact:
    """Return how often the guest called."""
    return Artefact({"calls": guest.calls})


def restore(guest: Guest, kept: Artefact) -> StatusReport:
    """Continue counting."""
    guest.calls = kept.facts["calls"]
    return StatusReport()


def finish(guest: Guest) -> Artefact:
    """Return the same as a snapshot."""
    return snapshot(guest, START)


def bytes_max(_: Guest, __: str) -> int:
    """Return the size of an answer, which is one number."""
    return wire.CONTROL_BYTES_MAX
