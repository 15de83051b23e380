"""A table where it lies: its columns are known at once, its rows come in batches when asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from fedboost.ground.errors import DataError, UnreachableError

AHEAD = 4  # batches that are read before the first of them is wanted
LOOK_S = 0.2  # between looks at whether they are wanted at all
Item = TypeVar("Item")


@dataclass(frozen=True)
class Stored:
    """An open source.

    `batches` gives the rows of the named columns, in the order that the source always has;
    `count` the number of rows, without reading them.
    """

    schema: pa.Schema
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    count: Callable[[], int]


def patiently(items: Iterator[Item], silence_s: float) -> Generator[Item, None, None]:
    """The items, made by a thread of their own; an UnreachableError once none comes for so long.

    The thread cannot be ended where it hangs: it ends by itself when its source answers or breaks.
    """
    supply = _Supply(items)
    threading.Thread(target=supply.make, name="table source", daemon=True).start()
    try:
        while True:
            try:
                item, error = supply.made.get(timeout=silence_s)
            except queue.Empty:
                raise gone(f"nothing came for {silence_s:g} s") from None
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        supply.left.set()


class _Supply(Generic[Item]):
    """Items that one thread makes and another takes, each with the error that ended them."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.items = items
        self.made: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(AHEAD)
        self.left = threading.Event()  # nobody takes any more

    def make(self) -> None:
        """Hand on items as they come, and at the end what ended them; in a thread of its own."""
        error: BaseException | None = None
        try:
            for item in self.items:
                if not self._put(item, None):
                    return
        except BaseException as ended:  # whoever takes raises it
            error = ended
        self._put(None, error)

    def _put(self, item: Item | None, error: BaseException | None) -> bool:
        while not self.left.is_set():
            try:
                self.made.put((item, error), timeout=LOOK_S)
            except queue.Full:
                continue
            return True
        return False


# What is said of a source that fails, of which the job's other parties may read the first part.


def gone(private: str) -> UnreachableError:
    """The error for a source that does not answer, or stops to: the job waits for it."""
    return UnreachableError(
        "the place where the table lies does not answer",
        todo="see the log of its party: is that database or storage up, and within reach?",
        private=private,
    )


def absent(private: str) -> DataError:
    """The error for a table that is not where its owner says."""
    return DataError(
        "the table is not there",
        todo="put it back or correct the data set's place; then: fedboost job resume JOB",
        kind="the table is not there",
        private=private,
    )


def refused(private: str) -> DataError:
    """The error for a key or a password that is wrong, or was valid once."""
    return DataError(
        "the place where the table lies refuses its key or password, or what that may read",
        todo="renew what the data set's reference leads to; then: fedboost job resume JOB",
        kind="the place where the table lies lets its owner not in",
        private=private,
    )


def missing_extra(extra: str, what: str) -> DataError:
    """The error for a source whose library is not installed."""
    return DataError(
        f"{what} needs a library that is not installed",
        todo=f"pip install 'fedboost[{extra}]' where the party runs",
        kind="the table needs a library that is not installed",
    )
