"""Tables that are written for people: Parquet, csv, Arrow's own files or JSON lines, by ending."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.kinds import FORMATS
from fedboost.ground.disk import PUBLIC_MODE, replace_file
from fedboost.ground.errors import ConfigError

if TYPE_CHECKING:
    from fedboost.data.kinds.kind import Writer


class JsonLinesWriter:
    """Writer of one JSON object a row; a number that JSON has no word for is null."""

    def __init__(self, file: BinaryIO, _schema: pa.Schema) -> None:
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        """Write the rows of a table."""
        for row in table.to_pylist():
            cells = {name: _in_json(cell) for name, cell in row.items()}
            self._file.write(json.dumps(cells, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        """Do nothing: whoever opened the file closes it."""


WRITERS: dict[str, Writer] = {
    ending: writer for kind in FORMATS.values() for ending, writer in kind.writers.items()
}
WRITERS |= {".jsonl": JsonLinesWriter, ".ndjson": JsonLinesWriter}


def check_ending(path: Path) -> None:
    """Refuse, by a ConfigError, a file whose ending names no format of `WRITERS`."""
    if path.suffix.lower() not in WRITERS:
        raise ConfigError(
            f"the ending {path.suffix!r} says no format to write a table in",
            file=str(path),
            todo=f"end the name with {', '.join(WRITERS)}",
        )


def write_tables(
    path: Path, tables: Iterable[pa.Table], note: Callable[[], Mapping[str, str]] = dict
) -> int:
    """Write tables of the same columns, one at least, as one file that everybody here may read.

    Its ending decides the format; a ConfigError refuses another. Return its number of rows. What is
    raised while the tables are made leaves an older file as it is, and so does an error of `note`.
    That gives the metadata of a Parquet file once all rows are written; other formats have none.
    """
    check_ending(path)
    rest = iter(tables)
    first, rows = next(rest), 0
    begin = WRITERS[path.suffix.lower()]
    with replace_file(path, PUBLIC_MODE) as file, closing(begin(file, first.schema)) as writer:
        for table in chain([first], rest):
            writer.write_table(table)
            rows += len(table)
        noted = dict(note())
        if isinstance(writer, pq.ParquetWriter):
            writer.add_key_value_metadata(noted)
    return rows


def _in_json(cell: Any) -> Any:
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, Decimal | timedelta):
        return str(cell)
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
