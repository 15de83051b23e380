"""Where bulk arithmetic runs: the interface of worker processes, and the same in this process.

A kernel is a top-level function of an importable module; its arguments and its result are numbers,
bytes, arrays and frozen dataclasses. The processes themselves are those of
`fedboost.runtime.process.workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BLOCKS_PER_WORKER = 4  # enough that a late worker holds the others up by a quarter of a share


class Pending(Protocol[T_co]):
    """A result on its way."""

    def result(self) -> T_co:
        """Waits for the result; raises what the kernel raised."""

    def done(self) -> bool:
        """Return True if `result` would return at once."""


class Workers(Protocol):
    """Processes (or this one) that run kernels."""

    @property
    def count(self) -> int:
        """Number of kernels that run at the same time."""

    @property
    def threads(self) -> Workers:
        """Return as many threads, for kernels that let go of the interpreter's lock and share
        arrays.
        """

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """`kernel(*task)` for each task, results in the tasks' order; the first error is raised."""

    def submit(self, kernel: Callable[..., T], *task: Any) -> Pending[T]:
        """Starts `kernel(*task)` and returns at once."""

    def cpu_seconds(self) -> float:
        """Processor seconds spent so far outside this process, in seconds."""

    def busy_seconds(self) -> float:
        """Processor seconds of all kernels so far but those in the caller's own thread."""

    def peak_rss_bytes(self) -> int:
        """The most memory that processes other than this one have held, summed."""


class Deferred(Pending[T]):
    """A task of this process, done when somebody asks for its result."""

    def __init__(self, kernel: Callable[..., T], task: tuple[Any, ...]) -> None:
        self._todo: tuple[Callable[..., T], tuple[Any, ...]] | None = (kernel, task)
        self._results: list[T] = []

    def result(self) -> T:
        """Computes at the first call and remembers."""
        if self._todo is not None:
            kernel, task = self._todo
            self._results.append(kernel(*task))
            self._todo = None
        return self._results[0]

    def done(self) -> bool:
        """Return True if it has been computed."""
        return self._todo is None


class Serial:
    """Workers that are this process itself."""

    count = 1

    @property
    def threads(self) -> Serial:
        """The caller's own."""
        return self

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """`kernel(*task)` for each task, in order."""
        return [kernel(*task) for task in tasks]

    def submit(self, kernel: Callable[..., T], *task: Any) -> Pending[T]:
        """A task that is done when its result is asked for."""
        return Deferred(kernel, task)

    def cpu_seconds(self) -> float:
        """Zero: all the work is this process's own."""
        return 0.0

    def busy_seconds(self) -> float:
        """Zero: all the work is the caller's own."""
        return 0.0

    def peak_rss_bytes(self) -> int:
        """Zero: all the memory is this process's own."""
        return 0


def blocks(items: int, workers: int, least: int, most: int) -> list[slice]:
    """Cuts 0..items into even consecutive slices of `least` to `most` items, for `workers` workers.

    As many for each worker as for any other, where the slices do not get too small by it: one
    left over would keep one worker busy while the others wait. Only the number of slices depends
    on `workers`; what is computed must not.
    """
    size = max(least, min(most, -(-items // (workers * BLOCKS_PER_WORKER))))
    count = -(-items // size) if items else 0
    even = -(-count // workers) * workers
    if count > workers and items >= even * least:
        count = even
    return [slice(items * i // count, items * (i + 1) // count) for i in range(count)]
