"""Reading tables where their sources say: csv, parquet, svmlight or an SQLite query.

A table is read as it is written; what its columns may hold is the business of `loading`.
Errors name the file without its folders, since every party of a job may read them.
"""

from __future__ import annotations

import csv
import mmap
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self, get_args
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pydantic import PrivateAttr

from fedboost.data import svmlight
from fedboost.data.columns import MISSING_WORDS
from fedboost.data.conversions import as_declared_cells
from fedboost.data.sheet import Sheet
from fedboost.data.sources import FORMATS, Format, SourceSpec
from fedboost.errors import ConfigError, DataError


@contextmanager
def placed(**where: str) -> Iterator[None]:
    """Within it, a ConfigError or DataError is raised with `where` before its own places."""
    try:
        yield
    except (ConfigError, DataError) as error:
        outer = {key: place for key, place in where.items() if place}
        error.where = outer | error.where
        raise


PREFIX = "sqlite:///"
SAYABLE = ("no such table", "no such column", "ambiguous column name", "file is not a database")

# A query may read; it may neither write, attach files nor change settings.
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def read_query(url: str, query: str) -> pa.Table:
    """The rows that `query` selects, one Arrow column per selected expression.

    A column of whole numbers is int64, of numbers float64, of anything with text string.
    ConfigError where `url` is no SQLite URL or the query is no SELECT that SQLite accepts;
    OSError where the file is absent.
    """
    if not url.startswith(PREFIX):
        scheme = url.split(":", 1)[0]
        raise ConfigError(
            f"cannot read tables from {scheme!r} URLs",
            todo=f"use {PREFIX}FILE.db, or export the query's answer to parquet",
        )
    path = Path(url.removeprefix(PREFIX))
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


class TableInMemory(SourceSpec):
    """A table that lies in this process already; no file can declare one. `path` is its name."""

    _sheet: Sheet = PrivateAttr()

    @classmethod
    def of(cls, sheet: Sheet, name: str) -> Self:
        """The table, called `name` in errors."""
        held = cls(path=name)
        held._sheet = sheet
        return held

    @property
    def sheet(self) -> Sheet:
        """The table as it was given."""
        return self._sheet


def read_sheet(source: SourceSpec, **where: str) -> Sheet:
    """The table as written: csv cells are text, svmlight is sparse with `id` (row number) and `y`.

    ConfigError where the declaration is wrong; DataError where the file is absent, unreadable,
    empty, or names its columns twice or not at all. `where` goes into the error.
    """
    with placed(**where, file=source.name):
        try:
            sheet = _read(source)
        except OSError as error:
            raise DataError(
                f"cannot read the file: {error.strerror or 'input/output error'}",
                todo="check the path and who may read it",
                private=str(error),
            ) from None
        _check_shape(sheet.columns)
        return as_declared_cells(sheet, source)


def read_table(source: SourceSpec, **where: str) -> pa.Table:
    """Read a source like `read_sheet`, svmlight dense; a DataError for too many cells."""
    sheet = read_sheet(source, **where)
    with placed(**where, file=source.name):
        return sheet.dense()


def _read(source: SourceSpec) -> Sheet:

    if isinstance(source, TableInMemory):
        return source.sheet
    if source.sql is not None:
        return Sheet(read_query(source.sql.url, source.sql.query))
    path = Path(source.path or "")
    chosen = source.format or FORMATS.get(path.suffix.lower())
    if chosen is None:
        raise ConfigError(
            f"cannot tell the format from the ending {path.suffix!r}",
            todo=f"name it: format: {' | '.join(get_args(Format))}",
        )
    with path.open("rb") as file:  # says better than Arrow why a file cannot be read
        if not file.read(1):
            raise DataError("the file is empty", todo="write a table into it")
    if chosen == "svmlight":
        return svmlight.read_sheet(path)
    return Sheet(_read_csv(path) if chosen == "csv" else _read_parquet(path))


def _check_shape(table: pa.Table) -> None:
    names = table.column_names
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
    if not table.num_rows:
        raise DataError("the table has no rows", todo="check how it was written", rows=0)


def _read_parquet(path: Path) -> pa.Table:
    try:
        table = pa.parquet.ParquetFile(path).read()
        table.validate(full=True)  # for instance that text is UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:  # also of names that are no text
        raise DataError(
            "the file is not readable parquet",
            todo="write it again; check its ending",
            private=str(error),
        ) from None
    return table


def _read_csv(path: Path) -> pa.Table:
    names = _csv_header(path)
    table, ragged = _csv_cells(path, names, use_threads=True)
    if ragged:
        _, ragged = _csv_cells(path, names, use_threads=False)  # only one thread counts rows
        row, cells = ragged[0]
        raise DataError(
            f"{len(ragged)} of {table.num_rows + len(ragged)} rows do not have {len(names)} cells; "
            f"the first of them has {cells}",
            todo="quote cells that contain commas, and fill up short rows",
            row=row,
        )
    return table


def _csv_header(path: Path) -> list[str]:
    """The column names of a csv file; refuses other separators and unbalanced quotes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        quotes = _count(content, b'"')
    if quotes % 2:
        raise DataError(
            "a quoted cell never ends: the file has an odd number of quotation marks",
            todo="close it, and write a quotation mark within a cell twice",
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            names = next((row for row in csv.reader(text) if row), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise _not_utf8(str(error)) from None
    wrong = next((sign for sign in (";", "\t", "|") if sign in "".join(names)), None)
    if len(names) == 1 and wrong:
        raise DataError(
            f"the columns are separated by {wrong!r}, not by commas", todo="write it with commas"
        )
    return names


def _csv_cells(
    path: Path, names: list[str], *, use_threads: bool
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """The cells as text, and per row of another length its number (from 1) and cell count."""
    ragged: list[tuple[int, int]] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        ragged.append(((row.number or 1) - 1, row.actual_columns))
        return "skip"

    try:
        table = pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(use_threads=use_threads),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=list(MISSING_WORDS),
                strings_can_be_null=True,
                # R writes a missing cell as NA and the word as "NA"; numbers do not care.
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as error:
        raise _not_utf8(str(error)) from None
    return table, ragged


def _not_utf8(private: str) -> DataError:
    return DataError(
        "the file is not csv in UTF-8", todo="save it as UTF-8 with commas", private=private
    )


def _count(content: mmap.mmap, sign: bytes) -> int:
    step = 1 << 24
    return sum(content[at : at + step].count(sign) for at in range(0, len(content), step))
