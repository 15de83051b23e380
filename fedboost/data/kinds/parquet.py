"""Parquet: a file, or a folder in the order of its files' names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from fedboost.data.kinds.kind import SourceKind

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.fs

    from fedboost.data.folders import FileReader
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

BUFFER_BYTES = 1 << 20  # of each column that is read
INT96_UNIT = "us"  # of Spark's and SQL Server's timestamps: ns end in 2262, and wrap around


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import folders

    with folders.translate_errors(source, PARQUET_KIND.title):
        dataset = folders.dataset(source, file_reader(source))
        yield folders.stored_table(source, dataset, file_reader(source))


def _written(file: BinaryIO, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(file, schema)


PARQUET_KIND = SourceKind(
    "parquet",
    "parquet",
    _open_table,
    (".parquet", ".pq"),
    settings=frozenset({"rows"}),
    in_folders=True,
    in_storages=True,
    writers={".parquet": _written, ".pq": _written},
)


def file_reader(source: SourceSpec) -> FileReader:
    """Return the reader of parquet files."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from fedboost.data.folders import FileReader

    def schema(path: str, files: pa.fs.FileSystem) -> pa.Schema:
        with pq.ParquetFile(path, filesystem=files, coerce_int96_timestamp_unit=INT96_UNIT) as file:
            return file.schema_arrow

    return FileReader(
        PARQUET_KIND.title,
        ds.ParquetFileFormat(read_options=read_options()),
        schema,
        _rows_of_file,
        # Reading ahead would hold whole files in memory, so only remote files are read ahead.
        ds.ParquetFragmentScanOptions(pre_buffer=source.is_remote),
    )


def read_options() -> ds.ParquetReadOptions:
    """Return how datasets read values whose type the file leaves open."""
    import pyarrow.dataset as ds

    return ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT)


def _rows_of_file(file: pa.NativeFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; a scanner would hold several row groups."""
    import pyarrow.parquet as pq

    from fedboost.data.frame import BATCH_ROWS

    with pq.ParquetFile(
        file,
        pre_buffer=False,
        buffer_size=BUFFER_BYTES,
        coerce_int96_timestamp_unit=INT96_UNIT,
    ) as rows:
        yield from rows.iter_batches(BATCH_ROWS, columns=names)
