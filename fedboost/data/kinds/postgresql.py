"""PostgreSQL, by its driver of ADBC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from fedboost.data.kinds.kind import Engine, Library

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

POSTGRESQL_CONNECT_S = 10
# A snapshot: even a long query sees one state of the tables, and writes nothing.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


@contextmanager
def _open_answer(address: str, source: SourceSpec) -> Iterator[Stored]:
    from adbc_driver_postgresql import dbapi

    from fedboost.data import queries

    with dbapi.connect(_with_limits(address)) as connection, connection.cursor() as cursor:
        cursor.execute(SNAPSHOT)
        yield queries.answer_table(queries.query_function(cursor), source)


def _with_limits(address: str) -> str:
    """Return an address with a time limit for connecting, unless it sets one itself."""
    parts = urlsplit(address)
    if "connect_timeout" in parse_qs(parts.query):
        return address
    limit = f"connect_timeout={POSTGRESQL_CONNECT_S}"
    return parts._replace(query=f"{parts.query}&{limit}" if parts.query else limit).geturl()


POSTGRESQL_ENGINE = Engine(
    scheme="postgresql",
    aliases=("postgres",),
    port="5432",
    in_options=True,
    opened=_open_answer,
    library=Library("adbc_driver_postgresql", extra="sql", what="postgresql"),
    speaks="adbc_driver_manager",
)
