"""Reading tables where their sources say: files, folders and storages, answers to queries.

A table is read as it is written; what its columns may hold is the business of `loading`.
Errors name the file without its folders, since every party of a job may read them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias, get_args

import pyarrow as pa
import pyarrow.csv
from pydantic import PrivateAttr

from fedboost.data import svmlight
from fedboost.data.columns import MISSING_WORDS
from fedboost.data.conversions import WholeColumns, as_declared_cells
from fedboost.data.sheet import Sheet
from fedboost.data.sources import Format, SourceSpec
from fedboost.data.stored import Stored, patiently
from fedboost.ground.errors import ConfigError, DataError, UnreachableError


@contextmanager
def placed(**where: str) -> Iterator[None]:
    """Within it, an error about a table is raised with `where` before its own places."""
    try:
        yield
    except (ConfigError, DataError, UnreachableError) as error:
        outer = {key: place for key, place in where.items() if place}
        error.where = outer | error.where
        raise


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


IDS_ROWS = 1 << 16  # of a sparse table, that are ids without cells together

# Of the names of a table's columns, those whose cells are needed.
Needs: TypeAlias = Callable[[Sequence[str]], Collection[str]]


def read_sheet(source: SourceSpec, *, party: str = "", needs: Needs | None = None) -> Sheet:
    """The table as written: csv cells are text, svmlight is sparse with `id` (row number) and `y`.

    Of columns that it does not need (absent: none) a source gives the names alone, where it can.
    ConfigError where the declaration is wrong; DataError where the table is absent, unreadable,
    empty, or names its columns twice or not at all; UnreachableError where it lies elsewhere and
    nothing answers. `party` goes into the error.
    """
    with placed(party=party, file=source.name), _opening():
        sheet = _read(source, needs or (lambda names: names))
        if not sheet.n_rows:
            raise _without_rows()
        return as_declared_cells(sheet, source)


@contextmanager
def _opening() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot read the file: {error.strerror or 'input/output error'}",
            todo="check the path and who may read it",
            private=str(error),
        ) from None


def whole_columns(source: SourceSpec, needs: Needs) -> WholeColumns:
    """Return what the needed columns of a table in batches are as a whole; it is read for that only
    where it is sparse or declares decimal commas or dates. Errors are those of `read_sheet`.
    """
    with placed(file=source.name), _opening():
        whole = WholeColumns()
        if isinstance(source, TableInMemory):
            return whole
        if source.kind == "svmlight":
            whole = WholeColumns(extent=svmlight.extent(_file(source)))
        if source.decimal == "," or source.dates:
            found = WholeColumns.of(source, _batches(source, needs, whole))
            return replace(found, extent=whole.extent)
        return whole


def read_batches(
    source: SourceSpec,
    *,
    party: str = "",
    needs: Needs | None = None,
    whole: WholeColumns | None = None,
) -> Iterator[Sheet]:
    """Yield what `read_sheet` returns in batches of rows, with its errors; one of a table that lies
    in memory. `whole` is what `whole_columns` said.
    """
    with placed(party=party, file=source.name), _opening():
        needs = needs or (lambda names: names)
        if isinstance(source, TableInMemory):
            yield read_sheet(source, needs=needs)
            return
        whole = whole or whole_columns(source, needs)
        for sheet in _batches(source, needs, whole):
            yield as_declared_cells(sheet, source, whole)


def _batches(source: SourceSpec, needs: Needs, whole: WholeColumns) -> Iterator[Sheet]:
    n_rows = 0
    if source.kind == "csv":
        sheets = _csv_batches(_file(source), needs)
    elif whole.extent is not None:
        sheets = _sparse_batches(_file(source), needs, whole.extent)
    else:
        sheets = _stored_batches(source, needs)
    for sheet in sheets:
        n_rows += sheet.n_rows
        if sheet.n_rows:
            yield sheet
    if not n_rows:
        raise _without_rows()


def _sparse_batches(path: Path, needs: Needs, extent: svmlight.Extent) -> Iterator[Sheet]:
    features = (f"f{extent.first + place}" for place in range(extent.width))
    if {*needs(["id", "y", *features])} == {"id"}:
        return svmlight.read_ids(extent, IDS_ROWS)
    return svmlight.read_parts(path, extent)


def _stored_batches(source: SourceSpec, needs: Needs) -> Iterator[Sheet]:
    items = _items(source, lambda stored: _chosen(stored, needs))
    names, schema = next(items)
    unread = _unread(names, schema.names)
    for batch in items:
        yield Sheet(pa.Table.from_batches([batch], schema), unread=unread)


def _without_rows() -> DataError:
    return DataError("the table has no rows", todo="check how it was written", rows=0)


def read_table(source: SourceSpec, *, party: str = "") -> pa.Table:
    """Read a source like `read_sheet`, svmlight dense; a DataError for too many cells."""
    sheet = read_sheet(source, party=party)
    with placed(party=party, file=source.name):
        return sheet.dense()


def _read(source: SourceSpec, needs: Needs) -> Sheet:
    if isinstance(source, TableInMemory):
        _check_names(source.sheet.columns.column_names)
        return source.sheet
    if source.kind in ("csv", "svmlight"):
        path = _file(source)
        sheet = svmlight.read_sheet(path) if source.kind == "svmlight" else _read_csv(path, needs)
        _check_names(sheet.columns.column_names)
        return sheet
    items = _items(source, lambda stored: _chosen(stored, needs))
    names, schema = next(items)
    return Sheet(pa.Table.from_batches(items, schema), unread=_unread(names, schema.names))


def _chosen(stored: Stored, needs: Needs) -> Iterator[Any]:
    """First the names of all columns and the schema of those needed; then their rows."""
    names = stored.schema.names
    _check_names(names)
    wanted = _needed(names, needs)
    schema = stored.schema
    yield names, pa.schema([schema.field(name) for name in wanted], schema.metadata)
    yield from stored.batches(wanted)


def _needed(names: Sequence[str], needs: Needs) -> list[str]:
    needed = {*needs(names)}
    return [name for name in names if name in needed]


def _unread(names: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in {*read})


def shape(source: SourceSpec) -> tuple[pa.Schema, int]:
    """Return the columns and the number of rows of a table that is neither csv nor svmlight.

    No row is read, but of SQLite. Errors are those of `read_sheet`.
    """
    with placed(file=source.name), _opening():
        return next(_items(source, lambda stored: iter([(stored.schema, stored.count())])))


def columns_of(source: SourceSpec) -> list[str]:
    """Return the names of a table's columns, from as little of it as can be; of svmlight none.

    Errors are those of `read_sheet`.
    """
    with placed(file=source.name), _opening():
        if source.kind in ("csv", "svmlight"):
            path = _file(source)
            return _csv_header(path) if source.kind == "csv" else []
        return next(_items(source, lambda stored: iter([stored.schema.names])))


def _items(source: SourceSpec, work: Callable[[Stored], Iterator[Any]]) -> Iterator[Any]:
    """Yield what `work` makes of an open source; of one elsewhere, no longer than it answers."""
    from fedboost.data import folders, queries

    if source.sql is None and not source.is_remote:
        _file(source)
    open_ = folders.opened if source.sql is None else queries.opened

    def made() -> Iterator[Any]:
        with open_(source) as stored:
            yield from work(stored)

    is_here = source.sql is None and not source.is_remote
    return made() if is_here else patiently(made(), source.silence_s)


def _file(source: SourceSpec) -> Path:
    """The path of a table on this machine; an error for an empty file, or one of no format."""
    path = Path(source.path or "")
    if source.is_remote:
        raise ConfigError(
            f"{source.kind} is not read from a storage",
            todo="write parquet there, or read it by sql: with connection: {url: 'duckdb:'}",
        )
    folder = source.kind in ("parquet", "delta") and path.is_dir()
    if source.kind == "unknown" or not (folder or path.suffix or source.format):
        raise ConfigError(
            f"cannot tell the format from the ending {path.suffix!r}",
            todo=f"name it: format: {' | '.join([*get_args(Format)[:1], 'parquet'])}",
        )
    if not folder:
        with path.open("rb") as file:  # says better than Arrow why a file cannot be read
            if not file.read(1):
                raise DataError("the file is empty", todo="write a table into it")
    return path


def _check_names(names: Sequence[str]) -> None:
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


def _read_csv(path: Path, needs: Needs) -> Sheet:
    names = _csv_header(path)
    _check_names(names)
    wanted = _needed(names, needs)
    table, ragged = _csv_cells(path, names, wanted, use_threads=True)
    if ragged:
        _, ragged = _csv_cells(
            path, names, wanted, use_threads=False
        )  # only one thread counts rows
        row, cells = ragged[0]
        raise DataError(
            f"{len(ragged)} of {table.num_rows + len(ragged)} rows do not have {len(names)} cells; "
            f"the first of them has {cells}",
            todo="quote cells that contain commas, and fill up short rows",
            row=row,
        )
    return Sheet(table, unread=_unread(names, wanted))


def _csv_batches(path: Path, needs: Needs) -> Iterator[Sheet]:
    names = _csv_header(path)
    _check_names(names)
    wanted = _needed(names, needs)
    ragged: list[tuple[int, int]] = []
    options = _csv_options(names, wanted, ragged, use_threads=True)
    try:
        with pa.csv.open_csv(path, **options) as batches:
            for batch in batches:
                yield Sheet(pa.Table.from_batches([batch]), unread=_unread(names, wanted))
    except pa.ArrowException as error:
        raise _not_utf8(str(error)) from None
    if ragged:
        _read_csv(path, lambda names: names[:1])  # which says where they are


def _csv_header(path: Path) -> list[str]:
    """The column names of a csv file; refuses other separators and unbalanced quotes."""
    with path.open("rb") as file:
        quotes = sum(part.count(b'"') for part in iter(lambda: file.read(1 << 24), b""))
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
    path: Path, names: list[str], wanted: list[str], *, use_threads: bool
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """The wanted cells as text; of rows of another length the number (from 1) and cell count."""
    ragged: list[tuple[int, int]] = []
    options = _csv_options(names, wanted, ragged, use_threads=use_threads)
    try:
        return pa.csv.read_csv(path, **options), ragged
    except pa.ArrowException as error:
        raise _not_utf8(str(error)) from None


def _csv_options(
    names: list[str], wanted: list[str], ragged: list[tuple[int, int]], *, use_threads: bool
) -> dict[str, Any]:
    """Return how Arrow reads a csv file; rows of another length are noted in `ragged`."""

    def skip(row: pa.csv.InvalidRow) -> str:
        ragged.append(((row.number or 1) - 1, row.actual_columns))
        return "skip"

    return {
        "read_options": pa.csv.ReadOptions(use_threads=use_threads),
        "parse_options": pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        "convert_options": pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            include_columns=wanted,
            null_values=list(MISSING_WORDS),
            strings_can_be_null=True,
            # R writes a missing cell as NA and the word as "NA"; numbers do not care.
            quoted_strings_can_be_null=False,
        ),
    }


def _not_utf8(private: str) -> DataError:
    return DataError(
        "the file is not csv in UTF-8", todo="save it as UTF-8 with commas", private=private
    )
