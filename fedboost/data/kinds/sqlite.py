"""SQLite files; the answer to a query is read as a whole."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedboost.data.kinds.kind import Engine
from fedboost.ground.errors import ConfigError, DataError, FedboostError

if TYPE_CHECKING:
    import pyarrow as pa

    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

LOCK_WAIT_S = 5.0  # that a query waits for a writer, before its job does
PRIMARY_CODE = 0xFF  # of SQLite's extended codes
UNDECODED = re.compile(r"Could not decode to UTF-8 column '(.*?)' with text")
SAYABLE = ("no such table", "no such column", "ambiguous column name", "file is not a database")
# A query may read; it may neither write, attach files nor change settings.
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


@contextmanager
def _open_answer(address: str, source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data.stored import in_batches

    assert source.sql is not None
    table = _read_answer(address, source.sql)
    yield in_batches(
        table.schema, lambda names: iter(table.select(names).to_batches()), lambda: len(table)
    )


SQLITE_ENGINE = Engine(scheme="sqlite", is_file=True, opened=_open_answer)


def _read_answer(url: str, query: str) -> pa.Table:
    """Return the rows that `query` selects from an SQLite file, one Arrow column per expression.

    A column of whole numbers is int64, of numbers float64, of cells with any text string.
    ConfigError if the query is no SELECT that SQLite accepts; OSError if the file is absent.
    """
    import pyarrow as pa

    path = Path(url.removeprefix(f"{SQLITE_ENGINE.scheme}:///"))
    path.open("rb").close()
    address = f"file:{quote(str(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=LOCK_WAIT_S)) as connection:
            connection.set_authorizer(_authorize)
            cursor = connection.execute(query)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _said(error) from None
    if not names:
        raise ConfigError("the query selects no columns", todo="it must be one SELECT")
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table(list(map(_typed_column, columns)), names=names)


def _said(error: Exception) -> FedboostError:
    """Return the error for what SQLite says of a database or a query."""
    from fedboost.data.stored import unreachable_error

    private = str(error)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY_CODE
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return unreachable_error(private)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return DataError(
            "SQLite cannot open the database: one in WAL mode needs a folder that the party may "
            "write",
            todo="let it write there, or run: PRAGMA journal_mode=DELETE",
            private=private,
        )
    undecoded = UNDECODED.match(private)
    if undecoded is not None:  # the rest of its words is the cell
        return DataError(
            f"a text of column {undecoded[1]!r} is not UTF-8",
            column=undecoded[1],
            todo="write the column anew in UTF-8, or leave it out of the query",
        )
    said = next((words for words in SAYABLE if words in private), "SQLite refuses it")
    return ConfigError(
        f"the query cannot be run: {said}",
        todo="try it with the sqlite3 shell; it must be one SELECT",
        private=private,
    )


def _authorize(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _typed_column(cells: Sequence[Any]) -> pa.Array:
    """Return the cells as the widest type among them: SQLite types cells, not columns."""
    import pyarrow as pa

    kinds = {type(cell) for cell in cells} - {type(None)}
    if bytes in kinds:
        if kinds != {bytes}:
            raise DataError(
                "a column mixes binary and other cells", todo="leave it out of the query"
            )
        return pa.array(cells, type=pa.binary())
    if str in kinds:
        return pa.array([cell if cell is None else str(cell) for cell in cells], type=pa.string())
    if float in kinds:
        return pa.array([cell if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array(cells, type=pa.int64()) if kinds else pa.nulls(len(cells))
