"""Reading of tables from their sources: files, folders and storages, answers to queries.

A table is read as it is written; `loading` checks the values of its columns.
Errors name the file without its folders, since every party of a job may read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa
from pydantic import PrivateAttr

from fedboost.data import kinds
from fedboost.data.conversions import WholeColumns, as_declared_cells
from fedboost.data.kinds.kind import SourceKind
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.data.stored import Needs, Stored, check_names, items_in_time
from fedboost.ground.errors import ConfigError, DataError, UnreachableError


@contextmanager
def locate_errors(**where: str) -> Iterator[None]:
    """Add `where` to the errors about a table, before the locations that they have."""
    try:
        yield
    except (ConfigError, DataError, UnreachableError) as error:
        outer = {key: place for key, place in where.items() if place}
        error.where = outer | error.where
        raise


@contextmanager
def _open_held_table(source: SourceSpec) -> Iterator[Stored]:
    assert isinstance(source, TableInMemory)
    sheet = source.sheet

    def sheets(_needs: Needs, _extent: object) -> Iterator[Sheet]:
        check_names(sheet.columns.column_names)
        yield sheet

    yield Stored(lambda: sheet.columns.column_names, sheets, lambda: sheet.n_rows)


class TableInMemory(SourceSpec):
    """A table in the memory of this process; no file can declare one. `path` is its name."""

    _sheet: Sheet = PrivateAttr()

    @classmethod
    def of(cls, sheet: Sheet, name: str) -> Self:
        """Return the table as a source, called `name` in errors."""
        held = cls(path=name)
        held._sheet = sheet
        return held

    @property
    def sheet(self) -> Sheet:
        """The given table."""
        return self._sheet

    @property
    def kind(self) -> SourceKind:
        """The kind of tables in memory."""
        return IN_MEMORY

    @property
    def file(self) -> Path | None:
        """None, since the table is in memory."""
        return None


IN_MEMORY = SourceKind("memory", "in-memory", _open_held_table)
Item = TypeVar("Item")


def read_sheet(source: SourceSpec, *, party: str = "", needs: Needs | None = None) -> Sheet:
    """Return the table as written: csv cells are text, svmlight is sparse with `id` and `y`.

    `id` is the row number. A source gives only the names of columns outside `needs` (absent: none)
    if it can. ConfigError if the declaration is wrong; DataError if the table is absent,
    unreadable, empty, or has two columns of one name or a column without a name; UnreachableError
    if a storage or database does not answer. `party` goes into the error.
    """
    with locate_errors(party=party, file=source.name), _translate_file_errors():
        wanted = needs or (lambda names: names)
        sheets = [*_items_of_open_table(source, lambda table: table.all_rows(wanted))]
        sheet = sheets[0] if len(sheets) == 1 else _joined_sheet(sheets)
        del sheets  # so that each column is freed once it is read
        if not sheet.n_rows:
            raise _without_rows()
        return as_declared_cells(sheet, source)


@contextmanager
def _translate_file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot read the file: {error.strerror or 'input/output error'}",
            todo="check the path and its read permissions",
            private=str(error),
        ) from None


def whole_columns(source: SourceSpec, needs: Needs) -> WholeColumns:
    """Return the properties of the needed columns that only the whole table shows.

    The table is read for them only if it is sparse or declares signs or dates. Errors are
    those of `read_sheet`.
    """
    with locate_errors(file=source.name), _translate_file_errors():
        whole = WholeColumns()
        if source.kind.is_sparse:
            whole = WholeColumns(extent=with_open_table(source, Stored.known_extent))
        if source.has_signs or source.dates:
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
    """Yield the table of `read_sheet` in batches of rows, with the same errors.

    A table in memory is one batch. `whole` is the result of `whole_columns`.
    """
    with locate_errors(party=party, file=source.name), _translate_file_errors():
        needs = needs or (lambda names: names)
        whole = whole or whole_columns(source, needs)
        for sheet in _batches(source, needs, whole):
            yield as_declared_cells(sheet, source, whole)


def _batches(source: SourceSpec, needs: Needs, whole: WholeColumns) -> Iterator[Sheet]:
    n_rows = 0
    for sheet in _items_of_open_table(source, lambda table: table.sheets(needs, whole.extent)):
        n_rows += sheet.n_rows
        if sheet.n_rows:
            yield sheet
    if not n_rows:
        raise _without_rows()


def _joined_sheet(sheets: list[Sheet]) -> Sheet:
    """Return batches of a dense table as one sheet."""
    if not sheets:
        raise _without_rows()
    return replace(sheets[0], columns=pa.concat_tables([sheet.columns for sheet in sheets]))


def _without_rows() -> DataError:
    return DataError("the table has no rows", todo="check how it was written", rows=0)


def read_table(source: SourceSpec, *, party: str = "") -> pa.Table:
    """Read a source like `read_sheet`, svmlight dense; a DataError for too many cells."""
    sheet = read_sheet(source, party=party)
    with locate_errors(party=party, file=source.name):
        return sheet.dense()


def table_shape(source: SourceSpec) -> tuple[pa.Schema, int] | None:
    """Return the columns and the number of rows of a table; None if only its cells say their types.

    Only SQLite reads rows for it. Errors are those of `read_sheet`.
    """

    def known_shape(table: Stored) -> tuple[pa.Schema, int] | None:
        return None if table.schema is None else (table.schema, table.count())

    return with_open_table(source, known_shape)


def columns_of(source: SourceSpec) -> list[str]:
    """Return the names of a table's columns, reading as little as possible; none if it is sparse.

    Errors are those of `read_sheet`.
    """
    return with_open_table(source, lambda table: [*table.names()])


def with_open_table(source: SourceSpec, work: Callable[[Stored], Item]) -> Item:
    """Return the result of `work` on the open table; errors are those of `read_sheet`."""
    with locate_errors(file=source.name), _translate_file_errors():
        return next(_items_of_open_table(source, lambda table: iter([work(table)])))


def _items_of_open_table(
    source: SourceSpec, work: Callable[[Stored], Iterator[Item]]
) -> Iterator[Item]:
    """Yield items of `work` on the open table; a remote table must answer in time."""
    kind = _readable_kind(source)

    def items_of_table() -> Iterator[Item]:
        with kind.open(source) as table:
            yield from work(table)

    is_here = source.sql is None and not source.is_remote
    return items_of_table() if is_here else items_in_time(items_of_table(), source.silence_s)


def _readable_kind(source: SourceSpec) -> SourceKind:
    """Return the kind that opens a table.

    A DataError for an empty file, a ConfigError for a format that its storage does not support.
    """
    kind, path = source.kind, source.file
    if source.is_remote and not kind.in_storages:
        raise ConfigError(
            f"{kind.name} is not read from a storage",
            todo="write parquet there, or read it by sql: with connection: {url: 'duckdb:'}",
        )
    if path is None or (kind.in_folders and path.is_dir()):
        return kind
    if path.exists() and not path.is_file():
        what = "folder" if path.is_dir() else "pipe or a device"
        todo = "name one of its files, or write parquet" if path.is_dir() else "write it to a file"
        raise DataError(f"the path leads to a {what}, not to a {kind.title} file", todo=todo)
    if kind is kinds.UNKNOWN_FORMAT or not (path.suffix or source.format):
        return kinds.UNKNOWN_FORMAT  # its error names the remedy
    with path.open("rb") as file:  # its error is clearer than Arrow's
        if not file.read(1):
            raise DataError("the file is empty", todo="write a table into it")
    return kind
