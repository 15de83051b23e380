"""What a data set is, without a cell of it: its columns' names and types, and how many rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.columns import kind_of, narrow
from fedboost.data.reading import placed, read_sheet
from fedboost.data.sources import FORMATS, SourceSpec
from fedboost.errors import DataError


@dataclass(frozen=True)
class Outline:
    """A table's shape."""

    rows: int
    columns: tuple[tuple[str, str], ...]  # name and type of the cells, in the table's order


def kind(source: SourceSpec) -> str:
    """Return the kind of source: ``csv``, ``parquet``, ``svmlight`` or ``sql``."""
    if source.sql is not None:
        return "sql"
    by_ending: str = FORMATS.get(Path(source.path or "").suffix.lower(), "unknown")
    return source.format or by_ending


def stamp(source: SourceSpec) -> tuple[int, int] | None:
    """Return size and time of change in ns of the source's file; None where it has none."""
    try:
        stat = Path(source.path or "").stat() if source.path is not None else None
    except OSError:
        return None
    return None if stat is None else (stat.st_size, stat.st_mtime_ns)


def outline(source: SourceSpec) -> Outline:
    """The table's shape: of parquet by its footer, of others by reading them once.

    DataError or ConfigError where a job could not read it either.
    """
    if kind(source) == "parquet" and not source.dates and source.decimal == ".":
        return _of_parquet(source)
    sheet = read_sheet(source)
    table = sheet.columns
    columns = [(name, kind_of(narrow(table.column(name)).type)) for name in table.column_names]
    if sheet.sparse is not None:
        columns += [(name, "number") for name in sheet.sparse.names]
    return Outline(sheet.n_rows, tuple(columns))


def _of_parquet(source: SourceSpec) -> Outline:
    with placed(file=source.name):
        try:
            with pq.ParquetFile(Path(source.path or "")) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                "the file is not readable parquet",
                todo="write it again; check its ending and who may read it",
                private=str(error),
            ) from None
    return Outline(rows, tuple((field.name, kind_of(field.type)) for field in schema))
