"""What a data set is, without a cell of it: its columns' names and types, and how many rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedboost.data.columns import kind_of, narrow
from fedboost.data.reading import read_sheet, shape
from fedboost.data.sources import SourceSpec


@dataclass(frozen=True)
class Outline:
    """A table's shape."""

    rows: int
    columns: tuple[tuple[str, str], ...]  # name and type of the cells, in the table's order


def stamp(source: SourceSpec) -> tuple[int, int] | None:
    """Return size and time of change in ns of the source's file; None where it has none here."""
    try:
        here = source.path is not None and not source.is_remote
        stat = Path(source.path or "").stat() if here else None
    except OSError:
        return None
    return None if stat is None else (stat.st_size, stat.st_mtime_ns)


def outline(source: SourceSpec) -> Outline:
    """The table's shape: csv, svmlight and what has dates or decimal commas are read once for it.

    DataError, ConfigError or UnreachableError where a job could not read it either.
    """
    if source.kind in ("parquet", "delta", "sql") and not source.dates and source.decimal == ".":
        schema, rows = shape(source)
        return Outline(rows, tuple((field.name, kind_of(field.type)) for field in schema))
    sheet = read_sheet(source)
    table = sheet.columns
    columns = [(name, kind_of(narrow(table.column(name)).type)) for name in table.column_names]
    if sheet.sparse is not None:
        columns += [(name, "number") for name in sheet.sparse.names]
    return Outline(sheet.n_rows, tuple(columns))
