"""Threads of one party for kernels that release the interpreter's lock and share big arrays.

Arguments and results are not copied, as worker processes (`process.workers`) would copy them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from fedboost.ground.errors import JobError

T = TypeVar("T")


def count_cores() -> int:
    """Count the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # macOS gives a process all
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class ThreadWorkers:
    """Kernels in threads of this process, `count` at a time; close it, or use it in a `with`."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or count_cores()
        self._pool = ThreadPoolExecutor(self.count, "kernel")
        self._lock = threading.Lock()
        self._busy_seconds = 0.0

    @property
    def threads(self) -> ThreadWorkers:
        """Themselves."""
        return self

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """Run `kernel(*task)` for each task; return results in order, raise the first error."""
        return [pending.result() for pending in [self.submit(kernel, *task) for task in tasks]]

    def submit(self, kernel: Callable[..., T], *task: Any) -> Future[T]:
        """Start `kernel(*task)` and return at once; raise JobError once the threads are closed."""
        try:
            return self._pool.submit(self._measured, kernel, *task)
        except RuntimeError:
            raise JobError("the workers have been closed") from None

    def cpu_seconds(self) -> float:
        """Zero: all the work is this process's own."""
        return 0.0

    def busy_seconds(self) -> float:
        """Return processor seconds of all finished kernels."""
        with self._lock:
            return self._busy_seconds

    def peak_rss_bytes(self) -> int:
        """Zero: all the memory is this process's own."""
        return 0

    def close(self) -> None:
        """End the threads after their current work."""
        self._pool.shutdown(cancel_futures=True)

    def _measured(self, kernel: Callable[..., T], *task: Any) -> T:
        started = time.thread_time()
        try:
            return kernel(*task)
        finally:
            with self._lock:
                self._busy_seconds += time.thread_time() - started

    def __enter__(self) -> ThreadWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
