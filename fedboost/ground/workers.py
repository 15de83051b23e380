"""Interface of worker processes for bulk arithmetic, and an implementation in this process.

A kernel is a top-level function of an importable module; its arguments and its result are numbers,
bytes, arrays and frozen dataclasses. `fedboost.runtime.process.workers` has the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BLOCKS_PER_WORKER = 4  # so that a late worker delays the others by at most a quarter of its share


class Pending(Protocol[T_co]):
    """A result that is being computed."""

    def result(self) -> T_co:
        """Wait for the result and return it; raise the kernel's exception."""

    def done(self) -> bool:
        """Return True if `result` would return at once."""


class Workers(Protocol):
    """Processes (or this one) that run kernels."""

    @property
    def count(self) -> int:
        """Number of kernels that run at the same time."""

    @property
    def threads(self) -> Workers:
        """Return as many threads, for kernels that release the interpreter's lock."""

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """Return `kernel(*task)` of each task, in the tasks' order; raise the first error."""

    def submit(self, kernel: Callable[..., T], *task: Any) -> Pending[T]:
        """Start `kernel(*task)` and return at once."""

    def cpu_seconds(self) -> float:
        """Return the processor seconds spent so far outside this process."""

    def busy_seconds(self) -> float:
        """Return the processor seconds of all kernels so far, except in the caller's own thread."""

    def peak_rss_bytes(self) -> int:
        """Return the sum of the most memory that each other process has held."""


class Deferred(Pending[T]):
    """A task of this process, computed when its result is first read."""

    def __init__(self, kernel: Callable[..., T], task: tuple[Any, ...]) -> None:
        self._todo: tuple[Callable[..., T], tuple[Any, ...]] | None = (kernel, task)
        self._results: list[T] = []

    def result(self) -> T:
        """Compute the result at the first call and keep it."""
        if self._todo is not None:
            kernel, task = self._todo
            self._results.append(kernel(*task))
            self._todo = None
        return self._results[0]

    def done(self) -> bool:
        """Return True if the result has been computed."""
        return self._todo is None


class Serial:
    """Workers in this process."""

    count = 1

    @property
    def threads(self) -> Serial:
        """Return these workers."""
        return self

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """Return `kernel(*task)` of each task, in order."""
        return [kernel(*task) for task in tasks]

    def submit(self, kernel: Callable[..., T], *task: Any) -> Pending[T]:
        """Return a task that runs when its result is first read."""
        return Deferred(kernel, task)

    def cpu_seconds(self) -> float:
        """Return zero: no other process works."""
        return 0.0

    def busy_seconds(self) -> float:
        """Return zero: the caller's thread does all the work."""
        return 0.0

    def peak_rss_bytes(self) -> int:
        """Return zero: no other process holds memory."""
        return 0


def even_slices(items: int, workers: int, least: int, most: int) -> list[slice]:
    """Cut 0..items into even consecutive slices of `least` to `most` items, for `workers` workers.

    Each worker gets the same number of slices unless that makes them too small: one extra slice
    would keep one worker busy while the others wait. Only the number of slices depends on
    `workers`; results must not.
    """
    size = max(least, min(most, -(-items // (workers * BLOCKS_PER_WORKER))))
    count = -(-items // size) if items else 0
    even = -(-count // workers) * workers
    if count > workers and items >= even * least:
        count = even
    return [slice(items * i // count, items * (i + 1) // count) for i in range(count)]
