"""Workers that hold a party's rows while sums are made of them: the interface, and this process.

What is held is cut into parts, and each part lies with one worker. A kernel is a top-level function
of an importable module; parts, what goes with them and results are numbers, arrays and dataclasses
of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

from fedboost import __version__

T = TypeVar("T")

MakePart = Callable[[int], Any]  # part i, made when a worker needs it, perhaps again


class PartWorkers(Protocol):
    """Workers that hold parts and compute with them."""

    @property
    def count(self) -> int:
        """Return how many workers compute at the same time."""

    @property
    def takes_gradients(self) -> bool:
        """Return whether others than this process may have gradients in the clear."""

    def keep(self, parts: int, make: MakePart) -> object:
        """Give each part to its worker; it stays there as long as somebody holds what is returned.

        Parts of the same index that are kept at different times lie with the same worker.
        """

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[object],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """`kernel(*parts, *task)` for each task, with the parts of its index of all that is `kept`.

        With `join` one result alone: `join(*parts, a, b)` of two until there is one, with the parts
        of the first. An UnreachableError where workers are gone and no others take their place.
        """

    def close(self) -> None:
        """Let go of all workers."""


@dataclass
class PlacedParts:
    """The parts of one thing at workers, until others or another number of them compute."""

    by: tuple[PartWorkers, int] | None = None
    kept: object = None

    def at(self, part_workers: PartWorkers, parts: int, make: MakePart) -> object:
        """Return what so many workers keep, which they are given unless they have it."""
        if self.by != (part_workers, parts):
            self.by, self.kept = (part_workers, parts), part_workers.keep(parts, make)
        return self.kept


class Embedded:
    """Workers that are this process itself; `count` of them, one after the other."""

    takes_gradients = False

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def close(self) -> None:
        """Do nothing."""

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        """The parts themselves."""
        return [make(i) for i in range(parts)]

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[Any],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """See `PartWorkers`."""
        parts = [tuple(each[i] for each in kept) for i in range(len(tasks))]
        results = [kernel(*held, *task) for held, task in zip(parts, tasks, strict=True)]
        if join is None:
            return results
        return [reduce(lambda a, b: join(*parts[0], a, b), results)]


def versions() -> tuple[str, str, str]:
    """Return what must be the same wherever kernels run: fedboost, and Python's and numpy's minor
    versions.
    """
    import numpy as np

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return __version__, python, ".".join(np.__version__.split(".")[:2])


def with_parts(kernel: Callable[..., T], task: tuple[Any, ...], *parts: Any) -> T:
    """`kernel(*parts, *task)`: how workers elsewhere call a kernel."""
    return kernel(*parts, *task)
