"""Runs a step: calls the function of its role, sends its messages, measures its cost."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fedboost.flow import Out
from fedboost.ground.errors import FedboostError
from fedboost.messages.job_pb2 import StatusReport
from fedboost.runtime.process.bridge import Bridge

PARTS_IN_FLIGHT_MAX = 4  # of a stream, computed and not yet acknowledged
SHORT_S = 0.005  # the event loop itself may do a step that takes no longer
SEND_TURNS = 2  # of the event loop until a part is being sent
LATELY = 8  # calls of a step that all have to be as short

Sendings: TypeAlias = Mapping[str, Coroutine[Any, Any, None]]  # by peer, delivers its message


@dataclass
class Paces:
    """Computing time of the last calls of each step."""

    took: dict[str, deque[float]] = field(default_factory=dict)

    def is_short(self, step: str) -> bool:
        """Return whether the last calls of a step were all short."""
        seconds = self.took.get(step, ())
        return len(seconds) == LATELY and max(seconds) <= SHORT_S

    def note(self, step: str, seconds: float) -> None:
        """Note the time of one more call."""
        self.took.setdefault(step, deque(maxlen=LATELY)).append(seconds)


@dataclass
class UnsentMessages:
    """Messages of finished steps that are still being sent."""

    bridge: Bridge
    stop: Callable[[FedboostError], Coroutine[Any, Any, None]]  # ends the stage
    under_way: dict[asyncio.Task[None], str] = field(default_factory=dict)  # with the receiver
    _stopping: asyncio.Task[None] | None = None

    def start_sending(self, sendings: Sendings) -> None:
        """Begin to send more messages. If one fails, the stage ends.

        A step may wait for the answer to that message.
        """
        started = self.bridge.start_here(*sendings.values())
        for sending in started:
            sending.add_done_callback(self._stop_on_error)
        self.under_way.update(zip(started, sendings, strict=True))

    async def arrive(self, peers: Collection[str] | None = None, most: int = 0) -> None:
        """Wait until at most `most` messages to `peers` (default: to all) are being sent.

        Raises the error of a refused message.
        """
        while True:
            late = [
                sending for sending, to in self.under_way.items() if peers is None or to in peers
            ]
            if len(late) <= most:
                return
            del self.under_way[late[0]]
            await self.bridge.wait_here(late[0])

    def _stop_on_error(self, sending: asyncio.Task[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, FedboostError):
            self._stopping = asyncio.create_task(self.stop(error))


@dataclass
class StepWork:
    """One call of a step's function; it runs once, in a thread or in the event loop."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    check: Callable[[], None]  # raises the reason if the stage has been stopped
    send: Callable[[Out, int, bool], Sendings]  # sends a part: its number, whether it is the last
    bridge: Bridge
    told: StatusReport = field(default_factory=StatusReport)
    seconds: float = 0.0  # of computing so far
    cpu_s: float = 0.0  # processor time among these

    def run_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the step in this thread; parts leave while others are computed."""
        in_flight: deque[Future[None]] = deque()
        for sending, is_last in self._sendings():
            in_flight.extend(self.bridge.start(loop, *sending.values()))
            while len(in_flight) > (0 if is_last else PARTS_IN_FLIGHT_MAX):
                self.bridge.wait(in_flight.popleft())

    async def run_in_loop(self, lagging: UnsentMessages) -> None:
        """Run the step in the event loop; its messages follow the `lagging` ones on each link.

        They may arrive later.
        """
        left = 0
        for sending, is_last in self._sendings():
            try:
                await lagging.arrive(sending, PARTS_IN_FLIGHT_MAX if left else 0)
            except BaseException:
                for unsent in sending.values():
                    unsent.close()
                raise
            lagging.start_sending(sending)
            left += len(sending)
            for _ in range(0 if is_last else SEND_TURNS):
                await asyncio.sleep(0)  # the part leaves while the next one is computed

    def _sendings(self) -> Iterator[tuple[Sendings, bool]]:
        """Yield the coroutines that send each part, and whether it is the last part."""
        ahead, following = self._timed_call(self._first_parts)
        part = 0
        while True:
            self.check()
            if ahead.told is not None:
                self.told.MergeFrom(ahead.told)
            is_last = following is None
            sending = {} if ahead.send is None else self.send(ahead, part, is_last)
            yield sending, is_last
            if following is None:
                return
            ahead, part = following, part + 1
            following = self._timed_call(lambda: next(self._outs, None))

    def _first_parts(self) -> tuple[Out, Out | None]:
        """Call the function; return the first two parts."""
        out = self.function(*self.arguments)
        self._outs = out if inspect.isgenerator(out) else iter((out,))
        return next(self._outs, Out()), next(self._outs, None)

    def _timed_call(self, compute: Callable[[], Any]) -> Any:
        began, cpu = time.monotonic(), time.thread_time()
        try:
            return compute()
        finally:
            self.cpu_s += time.thread_time() - cpu
            self.seconds += time.monotonic() - began
