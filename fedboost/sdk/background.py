"""Event loop behind blocking calls: one thread for all clients, which ends with the last one.

A caller may have its own loop, like every notebook; nothing runs in that loop.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar

from fedboost.ground.errors import ProtocolError

T = TypeVar("T")
STOP_S = 10.0  # until the thread has ended

_END = object()


class Background:
    """An event loop in a thread, alive while it has holders; its methods are thread-safe."""

    def __init__(self) -> None:
        # The garbage collector closes forgotten objects, possibly while this thread has the lock.
        self._lock = threading.RLock()
        self._holders = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def hold_loop(self) -> None:
        """Start the loop for the first holder."""
        with self._lock:
            self._holders += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="fedboost-client", daemon=True
                )
                self._thread.start()

    def let_go(self) -> None:
        """End the loop after the last holder."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(STOP_S)

    def release(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Release the loop after closing an object that lives in it."""
        try:
            if threading.current_thread() is self._thread:  # the garbage collector runs anywhere
                self.start(close())
            else:
                self.start(close()).result(STOP_S)
        finally:
            self.let_go()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run work in the loop; raise ProtocolError if the loop has no holders any more."""
        with self._lock:
            if self._loop is None:
                work.close()
                raise ProtocolError("the connection is closed", todo="make another one")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and return its result; an interrupt ends the work too."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def join(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work` to a caller in another loop."""
        return await asyncio.wrap_future(self.start(work))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items one by one."""
        try:
            while (item := self.run(_next_item(items))) is not _END:
                yield item
        finally:
            with suppress(ProtocolError):  # closed meanwhile, which has ended the items too
                self.run(_close_items(items))

    async def items(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items, for a caller in another loop."""
        try:
            while (item := await self.join(_next_item(items))) is not _END:
                yield item
        finally:
            with suppress(ProtocolError):
                await self.join(_close_items(items))


BACKGROUND = Background()


class Closes(Protocol):
    """An object that lives in the loop, such as a connection."""

    async def close(self) -> None:
        """Close the object."""


class Connected:
    """A connection that lives in the background; a context manager, and safe in threads."""

    def __init__(self, link: Closes) -> None:
        BACKGROUND.hold_loop()
        self._close = weakref.finalize(self, BACKGROUND.release, link.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; further calls do nothing."""
        self._close()

    @property
    def background(self) -> Background:
        """The loop behind our calls; a ProtocolError once we are closed."""
        if not self._close.alive:
            raise ProtocolError("the connection is closed", todo="make another one")
        return BACKGROUND

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call over the connection."""
        if not self._close.alive:
            work.close()
        return self.background.run(work)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _next_item(items: AsyncIterator[T]) -> Any:
    return await anext(items, _END)


async def _close_items(items: Any) -> None:
    await items.aclose()
