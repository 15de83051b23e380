"""Queries and their answers: sends queries to engines and translates the errors of engines.

The owner's query becomes a subquery of a SELECT of the wanted columns. So no other columns are
sent, and the query cannot write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pyarrow as pa

from fedboost.data import kinds
from fedboost.data.addresses import scheme_of, without_secrets
from fedboost.data.kinds.kind import Engine
from fedboost.data.sources import Connection, SourceSpec
from fedboost.data.stored import Stored, absent_error, in_batches, refused_error, unreachable_error
from fedboost.ground.errors import ConfigError, FedboostError

QueryFunction: TypeAlias = Callable[[str], Any]  # gives a reader of batches for a query
# Meanings of an engine's messages and of SQLSTATE; the first match counts.
_MEANINGS = (
    (
        refused_error,
        re.compile(r"28...|42501"),
        r"authentication failed|unauth|password|permission denied|not permitted|pg_hba",
    ),
    (
        absent_error,
        re.compile(r"42P01|3D000|3F000|42S02"),
        r"does not exist|no (such )?file|not.?found",
    ),
    (
        unreachable_error,
        re.compile(r"08...|57...|53...|40001|58030|HYT0."),
        r"connect|timed? ?out|timeout|translate host|unavailable|closed|terminat|shut",
    ),
)


@contextmanager
def open_answer(source: SourceSpec) -> Iterator[Stored]:
    """Open the answer to a source's query, in the order of its ids.

    DataError if a table is absent or may not be read, ConfigError if the query is not valid,
    UnreachableError if the engine does not answer.
    """
    assert source.connection is not None
    try:
        address = source.connection.read()
    except ConfigError as error:
        raise refused_error("; ".join(error.lines())) from None
    engine = kinds.ENGINES[str(scheme_of(address))]
    try:
        with engine.open(address, source) as stored:
            yield stored
    except FedboostError:
        raise
    except Exception as error:  # engines have errors without a common ancestor
        if not _is_engines(error, engine):
            raise
        raise _translated_error(error, address, source.connection) from None


def answer_table(ask: QueryFunction, source: SourceSpec) -> Stored:
    """Return the answer to a source's query as a table."""
    query, ids = source.sql or "", source.id
    chosen = f"FROM (\n{query.strip().rstrip(';')}\n) AS answer"  # a comment may end the query
    schema = pa.schema(
        [_unwrapped_field(field) for field in ask(f"SELECT * {chosen} LIMIT 0").schema]
    )

    def batches(names: list[str]) -> Iterator[pa.RecordBatch]:
        order = ", ".join(_quoted_name(name) for name in ids if name in schema.names)
        text = f"SELECT {', '.join(map(_quoted_name, names))} {chosen}"
        for batch in ask(f"{text} ORDER BY {order}" if order else text):
            columns = [_unwrapped_column(column) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def count_rows() -> int:
        return int(ask(f"SELECT COUNT(*) AS n {chosen}").read_all().column(0)[0].as_py())

    return in_batches(schema, batches, count_rows)


def query_function(cursor: Any) -> QueryFunction:
    """Return a function that sends queries with a cursor of ADBC."""

    def run_query(query: str) -> Any:
        cursor.execute(query)
        return cursor.fetch_record_batch()

    return run_query


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unwrapped_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _unwrapped_type(field.type))


def _unwrapped_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without an extension around text, as PostgreSQL's numeric."""
    wrapped = isinstance(kind, pa.BaseExtensionType) and pa.types.is_string(kind.storage_type)
    return kind.storage_type if wrapped else kind


def _unwrapped_column(column: pa.Array) -> pa.Array:
    return column if _unwrapped_type(column.type) == column.type else column.storage


def _is_engines(error: Exception, engine: Engine) -> bool:
    """Return whether an error comes from the database."""
    module = type(error).__module__.partition(".")[0].strip("_")
    is_known = isinstance(error, OSError | pa.ArrowException) or module == engine.speaks
    return bool(engine.speaks) and is_known


def _translated_error(error: Exception, address: str, connection: Connection) -> FedboostError:
    """Return our error for an engine's error; its text goes to the log without the address."""
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
