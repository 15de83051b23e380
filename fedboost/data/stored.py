"""An open table: what is known of it at once, and its rows, which come when asked for."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import pyarrow as pa

from fedboost.data.sheet import Sheet
from fedboost.ground.errors import DataError, UnreachableError

if TYPE_CHECKING:
    from fedboost.data.svmlight import Extent

AHEAD = 4  # batches that are read before the first of them is wanted
LOOK_S = 0.2  # between looks at whether they are wanted at all
STEP = 1 << 24  # bytes of a file that are looked at together
Item = TypeVar("Item")
# Of the names of a table's columns, those whose cells are needed.
Needs: TypeAlias = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class Stored:
    """An open table.

    `names` gives the columns' names, from as little of it as can be: none of a sparse table;
    `sheets` the rows of the needed columns in batches, in the order that the table always has;
    `count` at least the number of rows, without reading cells: of a table with a `schema`, exactly.
    """

    names: Callable[[], Sequence[str]]
    sheets: Callable[[Needs, Extent | None], Iterator[Sheet]]
    count: Callable[[], int]
    whole: Callable[[Needs], Sheet] | None = None  # all rows at once, where batches take longer
    schema: pa.Schema | None = None  # None: only cells say of which types they are
    extent: Callable[[], Extent] | None = None  # of a sparse table, whose `sheets` need it

    def known_extent(self) -> Extent:
        """Return what a sparse table has in all."""
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
    """Return a table whose columns are known; `batches` gives the rows of those that it names."""
    names = schema.names

    def sheets(needs: Needs, _: Extent | None) -> Iterator[Sheet]:
        wanted = needed(names, needs)
        kept = pa.schema([schema.field(name) for name in wanted], schema.metadata)
        left = unread(names, wanted)
        for batch in batches(wanted):
            yield Sheet(pa.Table.from_batches([batch], kept), unread=left)

    return Stored(lambda: names, sheets, count, schema=schema)


def needed(names: Sequence[str], needs: Needs) -> list[str]:
    """Return the names of the needed columns, in the table's order; a DataError where several
    columns have one name, or one has none.
    """
    check_names(names)
    wanted = {*needs(names)}
    return [name for name in names if name in wanted]


def unread(names: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns that are not read."""
    taken = {*read}
    return tuple(name for name in names if name not in taken)


def check_names(names: Sequence[str]) -> None:
    """Refuse, by a DataError, columns without a name of their own."""
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
            todo="give every column a name of its own",
            kind="several columns of the table have one name",
        )


def line_count(path: Path) -> int:
    """Return how many lines a file has at most: its last one may have no end."""
    counts = {b"\n": 1, b"\r": 1}
    with path.open("rb") as file:
        for part in iter(lambda: file.read(STEP), b""):
            counts = {sign: count + part.count(sign) for sign, count in counts.items()}
    return max(counts.values())


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
