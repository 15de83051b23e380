"""Text with commas in UTF-8, one header line: every cell is text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedboost.data.kinds.kind import SourceKind
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.sheet import Sheet
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Needs, Stored

PART_BYTES = 1 << 24  # of a file, searched at a time


@contextmanager
def _opened(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data.stored import Stored, line_count

    path = Path(source.path or "")
    yield Stored(
        names=lambda: _header(path),
        sheets=lambda needs, _: _batches(path, needs),
        count=lambda: line_count(path),
        whole=lambda needs: _whole(path, needs),  # by several threads
    )


KIND = SourceKind("csv", "csv", _opened, (".csv",))


def _whole(path: Path, needs: Needs) -> Sheet:
    from fedboost.data.sheet import Sheet
    from fedboost.data.stored import needed, unread

    names = _header(path)
    wanted = needed(names, needs)
    table, ragged = _cells(path, names, wanted, use_threads=True)
    if ragged:
        _, ragged = _cells(path, names, wanted, use_threads=False)  # only one thread counts rows
        row, cells = ragged[0]
        raise DataError(
            f"{len(ragged)} of {table.num_rows + len(ragged)} rows do not have {len(names)} cells; "
            f"the first of them has {cells}",
            todo="quote cells that contain commas, and fill up short rows",
            row=row,
        )
    return Sheet(table, unread=unread(names, wanted))


def _batches(path: Path, needs: Needs) -> Iterator[Sheet]:
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.sheet import Sheet
    from fedboost.data.stored import needed, unread

    names = _header(path)
    wanted = needed(names, needs)
    ragged: list[tuple[int, int]] = []
    options = _options(names, wanted, ragged, use_threads=True)
    try:
        with pa.csv.open_csv(path, **options) as batches:
            for batch in batches:
                yield Sheet(pa.Table.from_batches([batch]), unread=unread(names, wanted))
    except pa.ArrowException as error:
        raise _not_utf8(str(error)) from None
    if ragged:
        _whole(path, lambda names: names[:1])  # raises an error with the first such row


def _header(path: Path) -> list[str]:
    """Return the column names of a csv file; refuse other separators and unbalanced quotes."""
    import csv

    with path.open("rb") as file:
        quotes = sum(part.count(b'"') for part in iter(lambda: file.read(PART_BYTES), b""))
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


def _cells(
    path: Path, names: list[str], wanted: list[str], *, use_threads: bool
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Return the wanted cells as text, and row (from 1) and cell count of each ragged row."""
    import pyarrow as pa
    import pyarrow.csv

    ragged: list[tuple[int, int]] = []
    options = _options(names, wanted, ragged, use_threads=use_threads)
    try:
        return pa.csv.read_csv(path, **options), ragged
    except pa.ArrowException as error:
        raise _not_utf8(str(error)) from None


def _options(
    names: list[str], wanted: list[str], ragged: list[tuple[int, int]], *, use_threads: bool
) -> dict[str, Any]:
    """Return Arrow's options to read a csv file; rows of another length go into `ragged`."""
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.columns import MISSING_WORDS

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
            # R writes a missing cell as NA, the word as "NA"; as numbers both are missing.
            quoted_strings_can_be_null=False,
        ),
    }


def _not_utf8(private: str) -> DataError:
    return DataError(
        "the file is not csv in UTF-8", todo="save it as UTF-8 with commas", private=private
    )
