"""The requests to a party in one attempt, and their answers: nothing is done twice.

An answer can be lost, and a request can be repeated while the first is still running. A second
request with the same subject and other content is refused: a stage that opened twice would use the
same secrets for other values.
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
from fedboost.runtime.process.bridge import log_failure


@dataclass(frozen=True)
class StepRequest:
    """The coordinator's request for one step."""

    number: int
    among: tuple[str, ...] = ()  # the hosts that take part in it; empty: all
    awaits: bool = False  # messages that it takes may still be in flight
    spares: bool = False  # a lost peer is skipped
    is_last: bool = True  # the last step of its call


@dataclass(frozen=True)
class Started:
    """A running step; `call` is done once the coordinator has asked for the step."""

    call: Future[StepRequest]
    task: asyncio.Task[TurnReply]


async def await_request(call: Future[StepRequest]) -> StepRequest:
    """Return the coordinator's request for a step, mostly at once: few steps begin before it."""
    if call.done() and not call.cancelled():
        return call.result()
    return await asyncio.wrap_future(call)


Reply = TypeVar("Reply", bound=Message)


class AttemptAnswers:
    """The answers of one attempt. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._given: dict[Hashable, tuple[bytes, asyncio.Task[Any]]] = {}

    async def answer_once(
        self,
        subject: tuple[Hashable, ...],
        question: Message,
        work: Callable[[], Coroutine[Any, Any, Reply]],
    ) -> Reply:
        """Run `work` for the first request about a subject; return its reply, also for later ones.

        The work goes on if the caller is gone. An equal request gets the same answer or the same
        error; another request about the subject is a ProtocolError.
        """
        text = question.SerializeToString(deterministic=True)
        if subject not in self._given:
            task = asyncio.create_task(work())
            task.add_done_callback(log_failure)
            self._given[subject] = text, task
        asked, task = self._given[subject]
        if asked != text:
            named = " ".join(str(part) for part in subject)
            raise ProtocolError(f"{named[:80]} was asked for in other words before")
        reply: Reply = await asyncio.shield(task)
        return reply

    async def wait_until_idle(self) -> None:
        """Return once no request is running any more."""
        under_way = [task for _, task in self._given.values() if not task.done()]
        if under_way:
            await asyncio.wait(under_way)
