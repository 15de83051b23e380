"""What a party has been asked to do and is at work on."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass

from fedboost.messages.party_pb2 import TurnReply


@dataclass(frozen=True)
class StepRequest:
    """What the coordinator says of one step."""

    number: int
    among: tuple[str, ...] = ()  # the hosts that take part in it; empty: all
    awaits: bool = False  # what it takes may be still on its way
    spares: bool = False  # a peer that is gone gets nothing


@dataclass(frozen=True)
class Started:
    """A step at work; what the coordinator says of it is known once it has asked."""

    call: Future[StepRequest]
    task: asyncio.Task[TurnReply]
