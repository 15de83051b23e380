"""Workers that hold parts of a party's rows and compute sums of them: the interface, and one
implementation in this process.

The rows are cut into parts, and each part lies with one worker. A kernel is a top-level function of
an importable module. Parts, arguments and results are numbers, arrays and dataclasses of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

from fedboost.ground.build_version import build_version

T = TypeVar("T")

MakePart = Callable[[int], Any]  # part i, made when a worker needs it, perhaps again


class PartWorkers(Protocol):
    """Workers that hold parts and compute with them."""

    @property
    def count(self) -> int:
        """Return how many workers compute at the same time."""

    @property
    def takes_gradients(self) -> bool:
        """Return whether processes other than this one may have gradients in the clear."""

    def keep(self, parts: int, make: MakePart) -> object:
        """Give each part to its worker, which holds it as long as the returned object lives.

        Parts of the same index that are kept at different times lie with the same worker.
        """

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[object],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """Return `kernel(*parts, *task)` of each task, with the part of its index of each object in
        `kept`.

        With `join` return one result: `join(*parts, a, b)` joins two results until one is left,
        with the parts of the first. An UnreachableError if workers are gone and no others replace
        them.
        """

    def close(self) -> None:
        """Release all workers."""


@dataclass
class PlacedParts:
    """Parts that workers hold, until other workers or another number of parts are used."""

    by: tuple[PartWorkers, int] | None = None
    kept: object = None

    def at(self, part_workers: PartWorkers, parts: int, make: MakePart) -> object:
        """Return the parts that these workers hold; give the parts to them first if needed."""
        if self.by != (part_workers, parts):
            self.by, self.kept = (part_workers, parts), part_workers.keep(parts, make)
        return self.kept


class Embedded:
    """Workers in this process: `count` of them, one after the other."""

    takes_gradients = False

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def close(self) -> None:
        """Do nothing."""

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        """Return the parts themselves."""
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


def library_versions() -> tuple[str, str, str]:
    """Return the versions that all workers must share: fedboost, and Python's and numpy's minor
    versions.
    """
    import numpy as np

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return build_version(), python, ".".join(np.__version__.split(".")[:2])


def call_with_parts(kernel: Callable[..., T], task: tuple[Any, ...], *parts: Any) -> T:
    """Return `kernel(*parts, *task)`; remote workers call kernels this way."""
    return kernel(*parts, *task)
