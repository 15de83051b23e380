"""Outline of a data set: the names and types of its columns and its number of rows, no cells."""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.data.columns import kind_of, typed_column
from fedboost.data.reading import read_sheet, table_shape
from fedboost.data.sources import SourceSpec


@dataclass(frozen=True)
class Outline:
    """A table's shape."""

    rows: int
    columns: tuple[tuple[str, str], ...]  # name and type of the cells, in the table's order


def file_stamp(source: SourceSpec) -> tuple[int, int] | None:
    """Return size and change time (ns) of a source's file; None if it has no file here."""
    try:
        stat = None if source.file is None else source.file.stat()
    except OSError:
        return None
    return None if stat is None else (stat.st_size, stat.st_mtime_ns)


def read_outline(source: SourceSpec) -> Outline:
    """Return the table's shape.

    The table is read once for it if only its cells say their types, or if it declares dates or
    signs in numbers. DataError, ConfigError or UnreachableError if a job could not read it either.
    """
    known = None if source.dates or source.has_signs else table_shape(source)
    if known is not None:
        schema, rows = known
        return Outline(rows, tuple((field.name, kind_of(field.type)) for field in schema))
    sheet = read_sheet(source)
    table = sheet.columns
    columns = [
        (name, kind_of(typed_column(table.column(name)).type)) for name in table.column_names
    ]
    if sheet.sparse is not None:
        columns += [(name, "number") for name in sheet.sparse.names]
    return Outline(sheet.n_rows, tuple(columns))
