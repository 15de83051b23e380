"""How many rows a table has at most, without reading its cells."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet

from fedboost.data.reading import TableInMemory, read_query
from fedboost.data.sources import FORMATS, SourceSpec

STEP = 1 << 24  # bytes of a file that are looked at together


def row_count_most(source: SourceSpec) -> int:
    """Return at least the number of rows of a table: lines of a text file, rows of any other.

    Errors are those of opening and reading what it is; `reading` says them better.
    """
    if isinstance(source, TableInMemory):
        return source.sheet.n_rows
    if source.sql is not None:
        return read_query(source.sql.url, source.sql.query).num_rows
    path = Path(source.path or "")
    if (source.format or FORMATS.get(path.suffix.lower())) == "parquet":
        return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)
    counts = {b"\n": 1, b"\r": 1}  # the last line may end without either
    with path.open("rb") as file:
        for part in iter(lambda: file.read(STEP), b""):
            counts = {sign: count + part.count(sign) for sign, count in counts.items()}
    return max(counts.values())
