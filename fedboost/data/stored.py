"""An open table: its names and size at once, and its rows on demand."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeAlias, TypeVar

import pyarrow as pa

from fedboost.data.sheet import Sheet
from fedboost.ground.errors import DataError, UnreachableError

if TYPE_CHECKING:
    from fedboost.data.svmlight import Extent

BATCHES_AHEAD = 4  # batches that are read in advance
PUT_TIMEOUT_S = 0.2  # between checks that the batches are still wanted
SEARCH_BYTES = 1 << 24  # bytes of a file that are searched at once
Item = TypeVar("Item")
# Choice of the needed columns among the names of a table's columns.
Needs: TypeAlias = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class Stored:
    """An open table.

    `names` gives the columns' names, reading as little as possible: none of a sparse table;
    `sheets` the rows of the needed columns in batches, in the order that the table always has;
    `count` at least the number of rows, without reading cells; exactly that number with a `schema`.
    """

    names: Callable[[], Sequence[str]]
    sheets: Callable[[Needs, Extent | None], Iterator[Sheet]]
    count: Callable[[], int]
    whole: Callable[[Needs], Sheet] | None = None  # all rows at once, if that is faster
    schema: pa.Schema | None = None  # None: only the cells say their types
    extent: Callable[[], Extent] | None = None  # of a sparse table, whose `sheets` need it

    def known_extent(self) -> Extent:
        """Return the extent of a sparse table."""
        assert self.extent is not None
        return self.extent()

    def all_rows(self, needs: Needs) -> Iterator[Sheet]:
        """Yield all rows of the needed columns: in one sheet, or in batches."""
        if self.whole is not None:
            yield self.whole(needs)
        else:
            yield from self.sheets(needs, None)


def in_batches(
    schema: pa.Schema,
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]],
    count: Callable[[], int],
) -> Stored:
    """Return a table with known columns; `batches` gives the rows of the columns it names."""
    names = schema.names

    def sheets(needs: Needs, _: Extent | None) -> Iterator[Sheet]:
        wanted = needed_names(names, needs)
        kept = pa.schema([schema.field(name) for name in wanted], schema.metadata)
        left = unread_names(names, wanted)
        for batch in batches(wanted):
            yield Sheet(pa.Table.from_batches([batch], kept), unread=left)

    return Stored(lambda: names, sheets, count, schema=schema)


def needed_names(names: Sequence[str], needs: Needs) -> list[str]:
    """Return the names of the needed columns, in the table's order.

    A DataError if several columns have one name, or one has none.
    """
    check_names(names)
    wanted = {*needs(names)}
    return [name for name in names if name in wanted]


def unread_names(names: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns that are not read."""
    taken = {*read}
    return tuple(name for name in names if name not in taken)


def check_names(names: Sequence[str]) -> None:
    """Refuse, by a DataError, columns without a name and columns with the same name."""
    nameless = [place for place, name in enumerate(names, 1) if not name.strip()]
    if nameless:
        raise DataError(
            f"column {nameless[0]} of {len(names)} has no name",
            todo="name it, or write the file without its row index",
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(
            f"several columns have one name: {', '.join(twice[:5])}",
            column=twice[0],
            todo="give every column a different name",
            kind="several columns of the table have one name",
        )


def line_count(file: BinaryIO | pa.NativeFile) -> int:
    """Return the largest possible number of lines of a file: its last line may have no end."""
    counts = {b"\n": 1, b"\r": 1}
    for part in iter(lambda: file.read(SEARCH_BYTES), b""):
        counts = {sign: count + part.count(sign) for sign, count in counts.items()}
    return max(counts.values())


def items_in_time(items: Iterator[Item], silence_s: float) -> Generator[Item, None, None]:
    """Yield the items, made in another thread; an UnreachableError after `silence_s` without one.

    A thread that hangs cannot be ended: it ends by itself when its source answers or breaks.
    """
    supply = _Supply(items)
    threading.Thread(target=supply.make_items, name="table source", daemon=True).start()
    try:
        while True:
            try:
                item, error = supply.made.get(timeout=silence_s)
            except queue.Empty:
                raise unreachable_error(f"nothing came for {silence_s:g} s") from None
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        supply.left.set()


class _Supply(Generic[Item]):
    """Items that one thread makes and another takes, or the error that ended them."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.items = items
        self.made: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(
            BATCHES_AHEAD
        )
        self.left = threading.Event()  # the items are no longer wanted

    def make_items(self) -> None:
        """Hand on items as they come, then their end or an error; runs in a separate thread."""
        error: BaseException | None = None
        try:
            for item in self.items:
                if not self._put_item(item, None):
                    return
        except BaseException as ended:  # raised again in the thread that takes the items
            error = ended
        self._put_item(None, error)

    def _put_item(self, item: Item | None, error: BaseException | None) -> bool:
        while not self.left.is_set():
            try:
                self.made.put((item, error), timeout=PUT_TIMEOUT_S)
            except queue.Full:
                continue
            return True
        return False


# Errors of a source that fails. The job's other parties may read their first part.


def unreachable_error(private: str) -> UnreachableError:
    """Return the error for a source that does not answer or stops to; the job waits for it."""
    return UnreachableError(
        "the database or storage of the table does not answer",
        todo="see the log of its party: is it up, and within reach?",
        private=private,
    )


def absent_error(private: str) -> DataError:
    """Return the error for a table that is absent from its declared location."""
    return DataError(
        "the table is not there",
        todo="put it back or correct the data set's location; then: fedboost job resume JOB",
        kind="the table is not there",
        private=private,
    )


def refused_error(private: str) -> DataError:
    """Return the error for a wrong or expired key or password."""
    return DataError(
        "the database or storage of the table refuses its key or password, or access to the table",
        todo="renew the secret that the data set refers to; then: fedboost job resume JOB",
        kind="the database or storage of the table refuses its owner's login",
        private=private,
    )
