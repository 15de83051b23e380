"""A step at work: runs the function of its role, sends what that gives, and says what it cost."""

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
SHORT_S = 0.005  # a step that takes no longer may be done by the event loop itself
TURNS = 2  # of the event loop until a part is on its way
LATELY = 8  # calls of a step, all of which have been as short

Sendings: TypeAlias = Mapping[str, Coroutine[Any, Any, None]]  # what brings each peer its message


@dataclass
class Paces:
    """How long the last calls of each step took to compute."""

    took: dict[str, deque[float]] = field(default_factory=dict)

    def is_short(self, step: str) -> bool:
        """Return whether each of the last calls was over at once, and there were some."""
        seconds = self.took.get(step, ())
        return len(seconds) == LATELY and max(seconds) <= SHORT_S

    def note(self, step: str, seconds: float) -> None:
        """Take note of one more call."""
        self.took.setdefault(step, deque(maxlen=LATELY)).append(seconds)


@dataclass
class Lagging:
    """Messages on their way of steps that are over: the next ones are done meanwhile."""

    bridge: Bridge
    stop: Callable[[FedboostError], Coroutine[Any, Any, None]]  # ends the stage
    under_way: dict[asyncio.Task[None], str] = field(default_factory=dict)  # to whom
    _stopping: asyncio.Task[None] | None = None

    def follow(self, sendings: Sendings) -> None:
        """Begin more of them. One that fails ends the stage: a step may wait for its answer."""
        started = self.bridge.start_here(*sendings.values())
        for sending in started:
            sending.add_done_callback(self._heard)
        self.under_way.update(zip(started, sendings, strict=True))

    async def arrive(self, peers: Collection[str] | None = None, most: int = 0) -> None:
        """Wait until no more than `most` are on their way to `peers`, or to anybody; raises why one
        is refused.
        """
        while True:
            late = [
                sending for sending, to in self.under_way.items() if peers is None or to in peers
            ]
            if len(late) <= most:
                return
            del self.under_way[late[0]]
            await self.bridge.wait_here(late[0])

    def _heard(self, sending: asyncio.Task[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, FedboostError):
            self._stopping = asyncio.create_task(self.stop(error))


@dataclass
class StepWork:
    """One call of a step's function; do it once, in a thread of its own or in the event loop."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    check: Callable[[], None]  # raises why the stage has been stopped
    send: Callable[[Out, int, bool], Sendings]  # of a part, by its number; whether it is the last
    bridge: Bridge
    told: StatusReport = field(default_factory=StatusReport)
    seconds: float = 0.0  # computed so far
    cpu_s: float = 0.0  # of these, on a processor

    def apart(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do it in this thread, which is not the loop's; parts leave while others are computed."""
        in_flight: deque[Future[None]] = deque()
        for sending, is_last in self._sendings():
            in_flight.extend(self.bridge.start(loop, *sending.values()))
            while len(in_flight) > (0 if is_last else PARTS_IN_FLIGHT_MAX):
                self.bridge.wait(in_flight.popleft())

    async def here(self, lagging: Lagging) -> None:
        """Do it in the event loop; what leaves may arrive later, but behind what is `lagging` on
        the same link.
        """
        left = 0
        for sending, is_last in self._sendings():
            try:
                await lagging.arrive(sending, PARTS_IN_FLIGHT_MAX if left else 0)
            except BaseException:
                for unsent in sending.values():
                    unsent.close()
                raise
            lagging.follow(sending)
            left += len(sending)
            for _ in range(0 if is_last else TURNS):
                await asyncio.sleep(0)  # it leaves while the next part is computed

    def _sendings(self) -> Iterator[tuple[Sendings, bool]]:
        """Yield what sends each part, and whether it is the last one."""
        ahead, following = self._timed(self._first)
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
            following = self._timed(lambda: next(self._outs, None))

    def _first(self) -> tuple[Out, Out | None]:
        """Call the function; return the first two parts."""
        out = self.function(*self.arguments)
        self._outs = out if inspect.isgenerator(out) else iter((out,))
        return next(self._outs, Out()), next(self._outs, None)

    def _timed(self, compute: Callable[[], Any]) -> Any:
        began, cpu = time.monotonic(), time.thread_time()
        try:
            return compute()
        finally:
            self.cpu_s += time.thread_time() - cpu
            self.seconds += time.monotonic() - began
