"""Threads that share the work of a kernel: results are the same without them.

Kernels release the interpreter's lock. The caller's own thread works as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WORK_MIN = 1 << 17  # cells of a thread at least: fewer take less time than waking it


class Awaited(Protocol[T_co]):
    """A result that is being computed."""

    def result(self) -> T_co:
        """Wait for the result and return it; raise the kernel's exception."""


class Threads(Protocol):
    """Threads that run kernels."""

    @property
    def count(self) -> int:
        """Number of kernels that run at the same time."""

    def submit(self, kernel: Callable[..., T], *task: Any) -> Awaited[T]:
        """Start `kernel(*task)` and return at once."""


def run_shared(
    threads: Threads | None,
    kernel: Callable[..., T],
    task: Callable[[slice], tuple[Any, ...]],
    items: int,
    work: int,
) -> list[T]:
    """Return `kernel(*task(part))` for consecutive parts of `items`, in order.

    There are as many parts as threads, but no more than pay for so many cells of `work`.
    """
    count = 1 if threads is None else max(1, min(threads.count, items, work // WORK_MIN))
    ends = [items * i // count for i in range(count + 1)]
    tasks = [task(slice(*bounds)) for bounds in itertools.pairwise(ends)]
    if threads is None or count == 1:
        return [kernel(*tasks[0])]
    pending = [threads.submit(kernel, *given) for given in tasks[1:]]
    return [kernel(*tasks[0]), *(call.result() for call in pending)]
