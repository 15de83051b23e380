"""A host of an echo: adds what it hears and says the sum."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedboost import wire
from fedboost.flow import START, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.echo_pb2 import Answer, Call


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    answers: int = 0


def begin(seat: Seat) -> Host:
    """A host that has heard nothing."""
    return Host(seat)


def answer(me: Host, got: Iterator[Call]) -> Out:
    """The sum of all parts."""
    shape = (me.seat.params.numbers,)
    total = sum(int(wire.unpack(c.numbers, "i8", shape, "a call's numbers").sum()) for c in got)
    me.answers += 1
    return Out(send=Answer(total=wire.pack(np.array([total]))))


def snapshot(me: Host, _: Place) -> Artefact:
    """Return how often it answered."""
    return Artefact({"answers": me.answers})


def restore(me: Host, kept: Artefact) -> Told:
    """Carries on counting."""
    me.answers = kept.facts["answers"]
    return Told()


def finish(me: Host) -> Artefact:
    """The same as a snapshot."""
    return snapshot(me, START)


def bytes_max(me: Host, _: str) -> int:
    """One part of a call: 8 bytes a number and a few for the envelope of the array."""
    return int(8 * me.seat.params.numbers + 64)
