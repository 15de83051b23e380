"""Threads that share the work of a kernel, lent by whoever has any: results are the same without.

Kernels let go of the interpreter's lock. The caller's own thread works as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WORK_MIN = 1 << 17  # cells that a thread has to itself at least: fewer take less than waking it


class Awaited(Protocol[T_co]):
    """A result on its way."""

    def result(self) -> T_co:
        """Waits for the result; raises what the kernel raised."""


class Threads(Protocol):
    """Threads that run kernels."""

    @property
    def count(self) -> int:
        """Number of kernels that run at the same time."""

    def submit(self, kernel: Callable[..., T], *task: Any) -> Awaited[T]:
        """Starts `kernel(*task)` and returns at once."""


def shared(
    threads: Threads | None,
    kernel: Callable[..., T],
    task: Callable[[slice], tuple[Any, ...]],
    items: int,
    work: int,
) -> list[T]:
    """`kernel(*task(part))` for consecutive parts of `items`, in order: as many as there are
    threads, and as pay for so many cells of `work`.
    """
    count = 1 if threads is None else max(1, min(threads.count, items, work // WORK_MIN))
    ends = [items * i // count for i in range(count + 1)]
    tasks = [task(slice(*bounds)) for bounds in itertools.pairwise(ends)]
    if threads is None or count == 1:
        return [kernel(*tasks[0])]
    pending = [threads.submit(kernel, *given) for given in tasks[1:]]
    return [kernel(*tasks[0]), *(call.result() for call in pending)]
