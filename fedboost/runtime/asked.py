"""What a party has been asked to do and is at work on."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from fedboost.errors import FedboostError
from fedboost.messages.party_pb2 import TurnReply

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What the coordinator says of one step."""

    number: int
    among: tuple[str, ...] = ()  # the hosts that take part in it; empty: all
    awaits: bool = False  # what it takes may be still on its way
    spares: bool = False  # a peer that is gone gets nothing


@dataclass(frozen=True)
class Started:
    """A step at work; what the coordinator says of it is known once it has asked."""

    call: Future[Asked]
    task: asyncio.Task[TurnReply]


def hear_out(task: asyncio.Task[Any]) -> None:
    """Reads how a task ended that nobody may wait for any more; a refusal is no news then."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, FedboostError | CancelledError):
        log.error("a step failed unexpectedly", exc_info=error)
