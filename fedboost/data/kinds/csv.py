"""Text with commas or other delimiters, one header line: every cell is text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fedboost.data.kinds.kind import SourceKind
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.csv_files import CsvFile
    from fedboost.data.kinds.kind import Writer
    from fedboost.data.sheet import Sheet
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Needs, Stored

SUFFIX_DELIMITERS = {".tsv": "\t", ".tab": "\t"}  # by ending, if it is no comma


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data.csv_files import CsvFile
    from fedboost.data.kinds import suffix_of
    from fedboost.data.stored import Stored, line_count

    path = Path(source.path or "")
    delimiter = source.delimiter or SUFFIX_DELIMITERS.get(suffix_of(path), ",")
    file = CsvFile(path, delimiter, source.encoding)

    def count() -> int:
        with file.opened() as opened:
            return line_count(opened)

    yield Stored(
        names=lambda: file.names,
        sheets=lambda needs, _: _read_batches(file, needs),
        count=count,
        whole=lambda needs: _read_sheet(file, needs),  # by several threads
    )


def _written(delimiter: str) -> Writer:
    def begin(file: BinaryIO, schema: pa.Schema) -> Any:
        import pyarrow.csv

        options = pyarrow.csv.WriteOptions(delimiter=delimiter)
        return pyarrow.csv.CSVWriter(file, schema, write_options=options)

    return begin


CSV_KIND = SourceKind(
    "csv",
    "csv",
    _open_table,
    (".csv", *SUFFIX_DELIMITERS),
    settings=frozenset({"delimiter", "encoding"}),
    is_compressible=True,
    writers={".csv": _written(","), ".tsv": _written("\t")},
)


def _read_sheet(file: CsvFile, needs: Needs) -> Sheet:
    from fedboost.data.sheet import Sheet
    from fedboost.data.stored import needed_names, unread_names

    wanted = needed_names(file.names, needs)
    table, ragged = _read_cells(file, wanted, use_threads=True)
    if ragged:
        _, ragged = _read_cells(file, wanted, use_threads=False)  # only one thread counts rows
        row, cells = ragged[0]
        raise DataError(
            f"{len(ragged)} of {table.num_rows + len(ragged)} rows do not have {len(file.names)} "
            f"cells; the first of them has {cells}",
            todo="quote cells that contain the delimiter, and fill up short rows",
            row=row,
        )
    return Sheet(table, unread=unread_names(file.names, wanted))


def _read_batches(file: CsvFile, needs: Needs) -> Iterator[Sheet]:
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.sheet import Sheet
    from fedboost.data.stored import needed_names, unread_names

    wanted = needed_names(file.names, needs)
    left = unread_names(file.names, wanted)
    ragged: list[tuple[int, int]] = []
    options = _arrow_options(file, wanted, ragged, use_threads=True)
    try:
        with file.opened() as opened, pa.csv.open_csv(opened, **options) as batches:
            for batch in batches:
                yield Sheet(pa.Table.from_batches([batch]), unread=left)
    except (pa.ArrowException, UnicodeError) as error:
        raise file.unreadable(str(error)) from None
    if ragged:
        _read_sheet(file, lambda names: names[:1])  # raises an error with the first such row


def _read_cells(
    file: CsvFile, wanted: list[str], *, use_threads: bool
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Return the wanted cells as text, and row (from 1) and cell count of each ragged row."""
    import pyarrow as pa
    import pyarrow.csv

    ragged: list[tuple[int, int]] = []
    options = _arrow_options(file, wanted, ragged, use_threads=use_threads)
    try:
        with file.opened() as opened:
            return pa.csv.read_csv(opened, **options), ragged
    except (pa.ArrowException, UnicodeError) as error:
        raise file.unreadable(str(error)) from None


def _arrow_options(
    file: CsvFile, wanted: list[str], ragged: list[tuple[int, int]], *, use_threads: bool
) -> dict[str, Any]:
    """Return Arrow's options to read a csv file; rows of another length go into `ragged`."""
    import pyarrow as pa
    import pyarrow.csv

    from fedboost.data.columns import MISSING_WORDS

    def skip_row(row: pa.csv.InvalidRow) -> str:
        ragged.append(((row.number or 1) - 1, row.actual_columns))
        return "skip"

    return {
        "read_options": pa.csv.ReadOptions(
            use_threads=use_threads, block_size=file.block_bytes, skip_rows=file.skipped_lines
        ),
        "parse_options": pa.csv.ParseOptions(
            delimiter=file.sign, newlines_in_values=True, invalid_row_handler=skip_row
        ),
        "convert_options": pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in file.names},
            # To name all of many columns takes Arrow as long as to read them.
            include_columns=[] if wanted == file.names else wanted,
            null_values=list(MISSING_WORDS),
            strings_can_be_null=True,
            # R writes a missing cell as NA, the word as "NA"; as numbers both are missing.
            quoted_strings_can_be_null=False,
        ),
    }
