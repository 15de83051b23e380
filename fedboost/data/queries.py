"""Answers to queries: of SQLite, DuckDB, PostgreSQL, and what speaks Flight SQL.

The query of the owner's file is wrapped into one that names the columns wanted, so that no other
is sent, and in which nothing can be written.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pyarrow as pa

from fedboost.data.addresses import scheme_of, without_secrets
from fedboost.data.sources import Connection, SourceSpec
from fedboost.data.stored import Stored, absent, gone, missing_extra, refused
from fedboost.ground.errors import ConfigError, DataError, FedboostError

SQLITE = "sqlite:///"
SAYABLE = ("no such table", "no such column", "ambiguous column name", "file is not a database")
BATCH_ROWS = 1 << 16
CONNECT_S = 10
# Reads one state of the tables, however long it takes, and writes nothing.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

# A query may read; it may neither write, attach files nor change settings.
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
# What an engine's words and SQLSTATE mean; the first that fits.
_MEANINGS = (
    (
        refused,
        re.compile(r"28...|42501"),
        r"authentication failed|unauth|password|permission denied|not permitted|pg_hba",
    ),
    (absent, re.compile(r"42P01|3D000|3F000|42S02"), r"does not exist|no (such )?file|not.?found"),
    (
        gone,
        re.compile(r"08...|57...|53...|40001|58030|HYT0."),
        r"connect|timed? ?out|timeout|translate host|unavailable|closed|terminat|shut",
    ),
)


@contextmanager
def opened(source: SourceSpec) -> Iterator[Stored]:
    """The answer to a source's query, in the order of its ids.

    DataError where a table is absent or may not be read, ConfigError where the query is none,
    UnreachableError where the engine does not answer.
    """
    assert source.connection is not None
    assert source.sql is not None
    try:
        address = source.connection.read()
    except ConfigError as error:
        raise refused("; ".join(error.lines())) from None
    scheme = scheme_of(address)
    if scheme == "sqlite":
        table = read_query(address, source.sql)
        yield Stored(
            table.schema, lambda names: iter(table.select(names).to_batches()), lambda: len(table)
        )
        return
    try:
        with _duckdb(address) if scheme == "duckdb" else _adbc(address, str(scheme)) as ask:
            yield _answer(ask, source.sql, source.id)
    except FedboostError:
        raise
    except Exception as error:  # each engine has errors of its own, with no common ancestor
        if not _is_engines(error):
            raise
        raise _said(error, address, source.connection) from None


def _answer(ask: Any, query: str, ids: Sequence[str]) -> Stored:
    """`ask` gives a reader of batches for a query."""
    answer = f"FROM (\n{query.strip().rstrip(';')}\n) AS answer"  # a comment may end the query
    schema = pa.schema([_plain(field) for field in ask(f"SELECT * {answer} LIMIT 0").schema])

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        order = ", ".join(_quoted(name) for name in ids if name in schema.names)
        text = f"SELECT {', '.join(map(_quoted, names))} {answer}"
        for batch in ask(f"{text} ORDER BY {order}" if order else text):
            columns = [_storage(column) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))

    def count() -> int:
        return int(ask(f"SELECT COUNT(*) AS n {answer}").read_all().column(0)[0].as_py())

    return Stored(schema, batches, count)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _storage_type(field.type))


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """PostgreSQL's numeric comes as text in a type of its own; a wrapped number is a number."""
    wrapped = isinstance(kind, pa.BaseExtensionType) and pa.types.is_string(kind.storage_type)
    return kind.storage_type if wrapped else kind


def _storage(column: pa.Array) -> pa.Array:
    return column if _storage_type(column.type) == column.type else column.storage


@contextmanager
def _duckdb(address: str) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise missing_extra("sql", "DuckDB") from None
    file = address.removeprefix("duckdb:").removeprefix("///")
    # No extension is fetched on the way: the owner installs what a query needs.
    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false"
    }
    database = file or ":memory:"
    if file:
        Path(file).open("rb").close()
    with duckdb.connect(database, read_only=bool(file), config=options) as connection:
        yield lambda query: connection.sql(query).to_arrow_reader(BATCH_ROWS)


@contextmanager
def _adbc(address: str, scheme: str) -> Iterator[Any]:
    try:
        if scheme == "postgresql":
            from adbc_driver_postgresql import dbapi

            begins = dbapi.connect(_with_limits(address))
        else:
            from adbc_driver_flightsql import dbapi

            place, options = _flight(address)
            begins = dbapi.connect(place, db_kwargs=options, autocommit=True)
    except ImportError:
        raise missing_extra("sql", scheme) from None
    with begins as connection, connection.cursor() as cursor:
        if scheme == "postgresql":
            cursor.execute(SNAPSHOT)

        def ask(query: str) -> Any:
            cursor.execute(query)
            return cursor.fetch_record_batch()

        yield ask


def _with_limits(address: str) -> str:
    """A PostgreSQL address whose attempts to connect end, unless it says when."""
    parts = urlsplit(address)
    if "connect_timeout" in parse_qs(parts.query):
        return address
    limit = f"connect_timeout={CONNECT_S}"
    return parts._replace(query=f"{parts.query}&{limit}" if parts.query else limit).geturl()


def _flight(address: str) -> tuple[str, dict[str, str]]:
    """A Flight SQL address without user and password, and these as the driver's options; a
    ``?token=`` is sent as a bearer's.
    """
    parts = urlsplit(address)
    options = {}
    if parts.username is not None:
        options["username"] = unquote(parts.username)
        options["password"] = unquote(parts.password or "")
    for token in parse_qs(parts.query).get("token", []):
        options["adbc.flight.sql.authorization_header"] = f"Bearer {token}"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}", options


def _is_engines(error: Exception) -> bool:
    module = type(error).__module__.partition(".")[0].strip("_")
    known = isinstance(error, OSError | pa.ArrowException)
    return known or module in ("duckdb", "adbc_driver_manager")


def _said(error: Exception, address: str, connection: Connection) -> FedboostError:
    """The error for what an engine says, which goes to the log without the address."""
    private = without_secrets(str(error), address, str(connection))
    state = getattr(error, "sqlstate", None) or ""
    for meaning, states, words in _MEANINGS:
        if states.fullmatch(state) or (not state and re.search(words, str(error), re.IGNORECASE)):
            return meaning(private)
    return ConfigError(
        "the query cannot be run: the database refuses it",
        todo="try it there by hand; it must be one SELECT, and its party's log says more",
        private=private,
    )


def read_query(url: str, query: str) -> pa.Table:
    """The rows that `query` selects of an SQLite file, one Arrow column per selected expression.

    A column of whole numbers is int64, of numbers float64, of anything with text string.
    ConfigError where the query is no SELECT that SQLite accepts; OSError where the file is absent.
    """
    path = Path(url.removeprefix(SQLITE))
    path.open("rb").close()
    address = f"file:{quote(str(path))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.set_authorizer(_authorize)
            cursor = connection.execute(query)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = next((words for words in SAYABLE if words in str(error)), "SQLite refuses it")
        raise ConfigError(
            f"the query cannot be run: {said}",
            todo="try it with the sqlite3 shell; it must be one SELECT",
            private=str(error),
        ) from None
    if not names:
        raise ConfigError("the query selects no columns", todo="it must be one SELECT")
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table(list(map(_column, columns)), names=names)


def _authorize(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _column(cells: Sequence[Any]) -> pa.Array:
    """SQLite types cells, not columns: the widest type that some cell of the column has."""
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
