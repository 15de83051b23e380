"""An event loop whose time stands still while anything can run, in a task or in a thread.

Threads take turns with the loop: while one runs the loop waits, until the thread ends or waits for
a future itself. So one thing runs at a time, in an order that is the same in every run.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from tests.simulator.processes import HERE, PROCESS, KilledError, Process

IDLE_TURNS_MAX = 1_000_000  # of the loop at one and the same moment; then it runs in circles
THREAD_END_S = 10.0  # of real time; a thread that was told to end does so at once


class StuckError(AssertionError):
    """Nothing can happen any more, or the same happens for ever: a job that hangs."""


class Strand:
    """A thread that runs only while the loop waits for it."""

    def __init__(self, loop: MockLoop, work: Callable[[], None]) -> None:
        self._loop, self._work = loop, work
        self._context, self._waking = copy_context(), copy_context()
        self._process = PROCESS.get()
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if self._process is not None:
            self._process.strands.append(self)

    def resume(self) -> None:
        """Gives the thread its turn, until it ends or waits."""
        if not self.is_over:
            self._turn.release()
            self._back.acquire()

    def park(self, future: Future[Any]) -> None:
        """Called by the thread: lets the loop go on until the future is done."""
        future.add_done_callback(self._wake)
        self._back.release()
        self._turn.acquire()
        if self._process is not None:
            self._process.check()

    def end(self) -> None:
        """The process is dead: the thread finds out where it waits, and is gone."""
        if threading.current_thread() is self._thread:
            return  # it is the one that killed, and ends by itself
        while not self.is_over:
            self.resume()
        self._thread.join(THREAD_END_S)

    def _wake(self, _: Future[Any]) -> None:
        self._loop.call_soon_threadsafe(self.resume, context=self._waking)

    def _run(self) -> None:
        HERE.strand = self
        self._turn.acquire()
        try:
            self._context.run(self._work)
        except KilledError:
            pass
        finally:
            self.is_over = True
            if self._process is not None and self in self._process.strands:
                self._process.strands.remove(self)
            self._back.release()


class _Selector(selectors.DefaultSelector):
    """Waits for no time at all; where the loop would wait, its clock moves on."""

    loop: MockLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if timeout is None and not ready:
            raise StuckError("nothing can happen any more")
        if timeout and not ready:
            self.loop.now += timeout
            self.loop.idle_turns = 0
        self.loop.idle_turns += 1
        if self.loop.idle_turns > IDLE_TURNS_MAX:
            raise StuckError("the same happens for ever")
        return ready


class MockLoop(asyncio.SelectorEventLoop):
    """See the module; what belongs to a dead process is never run."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 0.0
        self.idle_turns = 0
        self.strands: list[Strand] = []
        super().__init__(selector)
        self.set_task_factory(_owned)

    def time(self) -> float:
        """Seconds since the loop began."""
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As every loop; see the class."""
        return super().call_soon(_alive(callback, context), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As every loop; see the class."""
        return super().call_soon_threadsafe(_alive(callback, context), *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        """As every loop; see the class."""
        return super().call_at(when, _alive(callback, context), *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """In a strand where an executor is named: such work may wait. Else here and now."""
        future: asyncio.Future[Any] = self.create_future()
        work = partial(self._to_future, future, partial(func, *args))
        if executor is None:
            self.call_soon(work)
        else:
            strand = Strand(self, work)
            self.strands = [s for s in self.strands if not s.is_over] + [strand]
            self.call_soon(strand.resume)
        return future

    def _to_future(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        try:
            done = partial(_settle, future, work())
        except KilledError:
            raise
        except BaseException as error:
            done = partial(_fail, future, error)
        self.call_soon_threadsafe(done)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Noted with the process that wants the signal."""
        process = PROCESS.get()
        assert process is not None
        process.signals[sig] = partial(callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        """The process wants it no more."""
        process = PROCESS.get()
        assert process is not None
        return process.signals.pop(sig, None) is not None


def _alive(callback: Callable[..., object], context: Context | None) -> Callable[..., object]:
    owner: Process | None = PROCESS.get() if context is None else context.get(PROCESS)
    if owner is None:
        return callback

    def run(*args: Any) -> None:
        if not owner.is_dead:
            callback(*args)

    return run


def _owned(loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None) -> Any:
    """A task that its process knows."""
    task = asyncio.Task(coro, loop=loop, context=context)
    owner = PROCESS.get() if context is None else context.get(PROCESS)
    if owner is not None:
        owner.tasks = [t for t in owner.tasks if not t.done()] + [task]
    return task


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


@contextmanager
def mocked_time(loop: MockLoop) -> Iterator[None]:
    """Inside, `time` tells the loop's, and a strand that waits for a future lets the loop go on."""
    started, result = time.time(), Future.result
    real = time.monotonic, time.time

    def waiting(self: Future[Any], timeout: float | None = None) -> Any:
        if not self.done():
            strand = getattr(HERE, "strand", None)
            if strand is None:
                raise StuckError("the loop's own thread waits for a future")
            strand.park(self)
        return result(self, timeout)

    Future.result = waiting  # type: ignore[method-assign]
    time.monotonic, time.time = loop.time, lambda: started + loop.now
    try:
        yield
    finally:
        Future.result = result  # type: ignore[method-assign]
        time.monotonic, time.time = real
