"""DuckDB: a file, or files that a query names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedboost.data.kinds.kind import Engine, Library

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored


@contextmanager
def _open_answer(address: str, source: SourceSpec) -> Iterator[Stored]:
    import duckdb

    from fedboost.data import queries
    from fedboost.data.frame import BATCH_ROWS

    file = address.removeprefix(f"{DUCKDB_ENGINE.scheme}:").removeprefix("///")
    # Fetch no extension during a query: the owner installs the needed ones.
    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false"
    }
    database = file or ":memory:"
    if file:
        Path(file).open("rb").close()
    with duckdb.connect(database, read_only=bool(file), config=options) as connection:
        yield queries.answer_table(
            lambda query: connection.sql(query).to_arrow_reader(BATCH_ROWS), source
        )


DUCKDB_ENGINE = Engine(
    scheme="duckdb",
    is_file=True,
    opened=_open_answer,
    library=Library("duckdb", extra="sql", what="DuckDB"),
    speaks="duckdb",
)
