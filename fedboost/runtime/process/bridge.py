"""Waits of a party's step threads for its event loop, limited by their session.

A coroutine given to an ending loop may never start, and its waiting thread would never learn it. So
every wait uses this module, and `stop` ends them all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from fedboost.ground.errors import FedboostError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Bridge:
    """Bridge from threads to one event loop; its methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[Future[Any] | asyncio.Task[Any]] = set()
        self._stopped: FedboostError | None = None

    def start(
        self, loop: asyncio.AbstractEventLoop, *works: Coroutine[Any, Any, T]
    ) -> list[Future[T]]:
        """Start all works in the loop; raise the reason of `stop` after it was called."""
        with self._lock:
            self._refuse_stopped(works)
            futures = [asyncio.run_coroutine_threadsafe(work, loop) for work in works]
            self._under_way.update(futures)
        for future in futures:
            future.add_done_callback(self._discard_finished)
        return futures

    def start_here(self, *works: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
        """Start all works from the loop's own thread, without another thread."""
        with self._lock:
            self._refuse_stopped(works)
            tasks = [asyncio.create_task(work) for work in works]
            self._under_way.update(tasks)
        for task in tasks:
            task.add_done_callback(self._discard_finished)
            task.add_done_callback(log_failure)
        return tasks

    def wait(self, future: Future[T]) -> T:
        """Return a result to a thread outside the loop; raise the reason of `stop` after it."""
        try:
            return future.result()
        except CancelledError:
            if self._stopped is None:
                raise
            raise self._stopped from None

    async def wait_here(self, task: asyncio.Task[T]) -> T:
        """Return a result to the loop's own thread."""
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped is None:
                raise
            raise self._stopped from None

    def run_in_loop(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work in the loop to a thread outside it."""
        [future] = self.start(loop, work)
        return self.wait(future)

    def stop(self, reason: FedboostError) -> None:
        """End every wait with `reason`, now and from now on."""
        with self._lock:
            self._stopped = reason
            under_way = list(self._under_way)
        for future in under_way:
            future.cancel()

    def _refuse_stopped(self, works: Sequence[Coroutine[Any, Any, Any]]) -> None:
        if self._stopped is not None:
            for work in works:
                work.close()
            raise self._stopped

    def _discard_finished(self, future: Future[Any] | asyncio.Task[Any]) -> None:
        with self._lock:
            self._under_way.discard(future)


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a loop's only work, once all tasks that it began have ended."""
    try:
        return await work
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for task in left:
            log_failure(task)


def log_failure(task: asyncio.Task[Any]) -> None:
    """Read the result of a task without a waiter; log errors except refusals."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, FedboostError | CancelledError):
        log.error("a step failed unexpectedly", exc_info=error)
