"""Worker processes of one party: bulk arithmetic on all cores, without the interpreter's lock.

Workers talk to their parent only through its pipes. They ignore Ctrl-C, which the parent handles,
and end when the parent is gone. They import only the modules of their kernels, and never the
program's main module, so a script without a main guard may use them.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import parent_process
from pathlib import Path
from typing import Any, Generic, TypeVar

from fedboost.ground.errors import JobError
from fedboost.runtime.process.threads import ThreadWorkers

UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # unit of getrusage
STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Return the peak of this program's resident memory.

    Prefer the kernel's own figure to getrusage, which includes, for a process started by a larger
    one, the parent's memory at that moment; psutil has no peak on Linux.
    """
    try:
        peak = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    except OSError:
        peak = None
    if peak is not None:
        return int(peak[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT_BYTES


T = TypeVar("T")

_starting = threading.Lock()  # the main module is hidden for one start at a time
_CLOSED = "the workers have been closed"
_END = signal.SIGUSR1  # signal for a worker that is no longer needed


class _EndedError(Exception):
    """The kernel's result is no longer awaited."""


@dataclass(frozen=True)
class _Done(Generic[T]):
    """A result with its cost."""

    value: T
    cpu_seconds: float
    pid: int
    peak_rss_bytes: int


class _Answer(Generic[T]):
    """A result on its way from a worker."""

    def __init__(self, owner: ProcessWorkers, future: Future[_Done[T]]) -> None:
        self._owner = owner
        self._future = future

    def result(self) -> T:
        """Return the result; raise the kernel's error, or JobError if its worker died."""
        try:
            return self._future.result().value
        except (CancelledError, _EndedError):
            raise JobError(_CLOSED) from None
        except BrokenProcessPool:
            if self._owner.is_closed:  # a process that had only begun
                raise JobError(_CLOSED) from None
            self._owner.discard()
            raise JobError(
                "a worker process ended before its work was done",
                todo="look for out-of-memory messages, or give the party fewer workers",
            ) from None

    def done(self) -> bool:
        """Return whether `result` would return at once."""
        return self._future.done()


class ProcessWorkers:
    """`count` worker processes, started at the first task and used until `close`."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} workers")
        self._count = count
        self._threads = ThreadWorkers(count)
        self._pool: ProcessPoolExecutor | None = None
        self.is_closed = False
        self._lock = threading.Lock()
        self._cpu_seconds = 0.0
        self._peaks: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Return the number of kernels that run at the same time."""
        return self._count

    @property
    def threads(self) -> ThreadWorkers:
        """Return the same number of threads of this process."""
        return self._threads

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """Run `kernel(*task)` for each task; return results in the tasks' order.

        The first error in that order is raised, once no task of this call is running any more.
        """
        answers = [self._submit_with_retry(kernel, task) for task in tasks]
        try:
            return [answer.result() for answer in answers]
        except BaseException:
            # Only running tasks: a task that a closed pool has cancelled is never reported done.
            wait([answer._future for answer in answers if not answer._future.cancel()])
            raise

    def submit(self, kernel: Callable[..., T], *task: Any) -> _Answer[T]:
        """Start `kernel(*task)` on the next free worker and return at once."""
        return self._submit_with_retry(kernel, task)

    def cpu_seconds(self) -> float:
        """Return processor seconds of all finished tasks."""
        with self._lock:
            return self._cpu_seconds

    def busy_seconds(self) -> float:
        """Return processor seconds of all finished tasks, in processes and in threads."""
        return self.cpu_seconds() + self._threads.busy_seconds()

    def peak_rss_bytes(self) -> int:
        """Return peak memory of the workers together: the sum of each one's own peak, in bytes."""
        with self._lock:
            return sum(self._peaks.values())

    def close(self) -> None:
        """End the workers, with their current work."""
        self.is_closed = True
        self._threads.close()
        self.discard()

    def discard(self) -> None:
        """End the present processes; the next task starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in list((pool._processes or {}).values()):
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process.pid, _END)
        pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> ProcessWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit_with_retry(self, kernel: Callable[..., T], task: tuple[Any, ...]) -> _Answer[T]:
        try:
            future = self._start_task(kernel, task)
        except BrokenProcessPool:  # it broke without pending work: nothing is lost
            self.discard()
            future = self._start_task(kernel, task)
        future.add_done_callback(self._account)
        return _Answer(self, future)

    def _start_task(self, kernel: Callable[..., T], task: tuple[Any, ...]) -> Future[_Done[T]]:
        pool = self._open_pool()
        with _starting, _main_hidden():  # a task that finds no idle process starts one, here
            return pool.submit(_measured, kernel, task)

    def _open_pool(self) -> ProcessPoolExecutor:
        if self.is_closed:
            raise JobError(_CLOSED)
        with self._lock:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(self._count, context, initializer=_prepare_worker)
            return self._pool

    def _account(self, future: Future[_Done[Any]]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        done = future.result()
        with self._lock:
            self._cpu_seconds += done.cpu_seconds
            self._peaks[done.pid] = max(done.peak_rss_bytes, self._peaks.get(done.pid, 0))


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Prevent new processes from running this program's main module again, as spawning would."""
    main: dict[str, Any] = vars(sys.modules["__main__"])
    shown: dict[str, Any] = {
        name: main.pop(name) for name in ("__spec__", "__file__") if name in main
    }
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(shown)


def _prepare_worker() -> None:
    """Prepare a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(_END, _Work.end)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Work:
    """State of this worker: whether it computes, and whether its result is awaited."""

    computes = False
    is_over = False

    @classmethod
    def end(cls, *_: object) -> None:
        """Break off the kernel, and every later one; a result that is on its way is not cut."""
        cls.is_over = True
        if cls.computes:
            raise _EndedError


def _measured(kernel: Callable[..., T], task: tuple[Any, ...]) -> _Done[T]:
    started = time.process_time()
    try:
        _Work.computes = True
        if _Work.is_over:
            raise _EndedError
        value = kernel(*task)
    finally:
        _Work.computes = False
    return _Done(
        value=value,
        cpu_seconds=time.process_time() - started,
        pid=os.getpid(),
        peak_rss_bytes=peak_bytes(),
    )
