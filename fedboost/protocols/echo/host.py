"""A host of an echo: adds the numbers of a call and answers their sum."""

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
    """State of a host between steps."""

    context: StageContext[EchoParams]
    answers: int = 0


def begin(context: StageContext[EchoParams]) -> Host:
    """Return a host that has heard nothing."""
    return Host(context)


def answer(host: Host, got: Iterator[Call]) -> Out:
    """Answer the sum of all parts."""
    shape = (host.context.params.numbers,)
    total = sum(int(wire.unpack(c.numbers, "i8", shape, "a call's numbers").sum()) for c in got)
    host.answers += 1
    return Out(send=Answer(total=wire.pack(np.array([total]))))


def snapshot(host: Host, _: Place) -> Artefact:
    """Return how often the host answered."""
    return Artefact({"answers": host.answers})


def restore(host: Host, kept: Artefact) -> StatusReport:
    """Continue counting."""
    host.answers = kept.facts["answers"]
    return StatusReport()


def finish(host: Host) -> Artefact:
    """Return the same as a snapshot."""
    return snapshot(host, START)


def bytes_max(host: Host, _: str) -> int:
    """Return the size of one part: 8 bytes a number, and some for the envelope of the array."""
    return 8 * host.context.params.numbers + 64
