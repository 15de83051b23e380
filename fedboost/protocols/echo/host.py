"""A host of an echo: adds what it hears and says the sum."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedboost.flow import START, Artefact, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.protocols.echo.params import EchoParams


@dataclass
class Host:
    """What a host remembers between steps."""

    context: StageContext[EchoParams]
    answers: int = 0


def begin(context: StageContext[EchoParams]) -> Host:
    """A host that has heard nothing."""
    return Host(context)


def answer(host: Host, got: Iterator[Call]) -> Out:
    """The sum of all parts."""
    shape = (host.context.params.numbers,)
    total = sum(int(wire.unpack(c.numbers, "i8", shape, "a call's numbers").sum()) for c in got)
    host.answers += 1
    return Out(send=Answer(total=wire.pack(np.array([total]))))


def snapshot(host: Host, _: Place) -> Artefact:
    """Return how often it answered."""
    return Artefact({"answers": host.answers})


def restore(host: Host, kept: Artefact) -> StatusReport:
    """Carries on counting."""
    host.answers = kept.facts["answers"]
    return StatusReport()


def finish(host: Host) -> Artefact:
    """The same as a snapshot."""
    return snapshot(host, START)


def bytes_max(host: Host, _: str) -> int:
    """One part of a call: 8 bytes a number and a few for the envelope of the array."""
    return 8 * host.context.params.numbers + 64
