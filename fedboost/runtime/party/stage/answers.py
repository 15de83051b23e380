"""What a party was asked in one attempt, and what it said: nothing is done twice.

An answer can be lost on its way, and a question be repeated while the first is still at work. What
was asked once and is asked again in other words is refused: a stage that opened twice would draw
the same secrets for other values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from fedboost.ground.errors import ProtocolError
from fedboost.messages.party_pb2 import TurnReply
from fedboost.runtime.process.bridge import hear_out


@dataclass(frozen=True)
class StepRequest:
    """What the coordinator says of one step."""

    number: int
    among: tuple[str, ...] = ()  # the hosts that take part in it; empty: all
    awaits: bool = False  # what it takes may be still on its way
    spares: bool = False  # a peer that is gone gets nothing
    is_last: bool = True  # of its call


@dataclass(frozen=True)
class Started:
    """A step at work; what the coordinator says of it is known once it has asked."""

    call: Future[StepRequest]
    task: asyncio.Task[TurnReply]


async def heard(call: Future[StepRequest]) -> StepRequest:
    """Return the coordinator's call of a step, mostly at once: few begin before it asks."""
    if call.done() and not call.cancelled():
        return call.result()
    return await asyncio.wrap_future(call)


Reply = TypeVar("Reply", bound=Message)


class Answers:
    """The answers of one attempt. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._given: dict[Hashable, tuple[bytes, asyncio.Task[Any]]] = {}

    async def once(
        self,
        subject: tuple[Hashable, ...],
        question: Message,
        work: Callable[[], Coroutine[Any, Any, Reply]],
    ) -> Reply:
        """Return what `work` gives, done for the first question about a subject and no other.

        It goes on when the caller is gone. The same question again gets the same answer, or the
        same error; another one about that subject is a ProtocolError.
        """
        text = question.SerializeToString(deterministic=True)
        if subject not in self._given:
            task = asyncio.create_task(work())
            task.add_done_callback(hear_out)
            self._given[subject] = text, task
        asked, task = self._given[subject]
        if asked != text:
            named = " ".join(str(part) for part in subject)
            raise ProtocolError(f"{named[:80]} was asked for in other words before")
        reply: Reply = await asyncio.shield(task)
        return reply

    async def settled(self) -> None:
        """Returns once nothing of what was asked is at work any more."""
        under_way = [task for _, task in self._given.values() if not task.done()]
        if under_way:
            await asyncio.wait(under_way)
