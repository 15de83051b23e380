"""Databases that speak Flight SQL, by its driver of ADBC: with TLS, or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from fedboost.data.kinds.kind import Engine, Library

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored


@contextmanager
def _open_answer(address: str, source: SourceSpec) -> Iterator[Stored]:
    from adbc_driver_flightsql import dbapi

    from fedboost.data import queries

    place, options = _driver_options(address)
    begins = dbapi.connect(place, db_kwargs=options, autocommit=True)
    with begins as connection, connection.cursor() as cursor:
        yield queries.answer_table(queries.query_function(cursor), source)


def _driver_options(address: str) -> tuple[str, dict[str, str]]:
    """Return an address without its login, and the login as options of the driver.

    A ``?token=`` is sent as a bearer token.
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


def _engine_of_scheme(scheme: str) -> Engine:
    return Engine(
        scheme=scheme,
        opened=_open_answer,
        library=Library("adbc_driver_flightsql", extra="sql", what=scheme),
        speaks="adbc_driver_manager",
    )


TLS_ENGINE = _engine_of_scheme("grpc+tls")
OPEN_ENGINE = _engine_of_scheme("grpc")
