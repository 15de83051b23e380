"""Parquet: a file, or a folder in the order of its files' names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedboost.data.kinds.kind import SourceKind

if TYPE_CHECKING:
    import pyarrow as pa

    from fedboost.data.folders import FileReader
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored

BUFFER_BYTES = 1 << 20  # of each column that is read


@contextmanager
def _opened(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import folders

    with folders.refusing(source, KIND.title):
        dataset = folders.dataset(source, reader(source))
        yield folders.stored(source, dataset, reader(source))


KIND = SourceKind(
    "parquet",
    "parquet",
    _opened,
    (".parquet", ".pq"),
    settings=frozenset({"rows"}),
    in_folders=True,
    in_storages=True,
)


def reader(source: SourceSpec) -> FileReader:
    """Return the reader of parquet files."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from fedboost.data.folders import FileReader

    return FileReader(
        "parquet",
        lambda path, files: pq.read_schema(path, filesystem=files),
        _streamed,
        # Reading ahead would hold whole files in memory, so only remote files are read ahead.
        ds.ParquetFragmentScanOptions(pre_buffer=source.is_remote),
    )


def _streamed(file: pa.NativeFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; a scanner would hold several row groups."""
    import pyarrow.parquet as pq

    from fedboost.data.frame import BATCH_ROWS

    with pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as rows:
        yield from rows.iter_batches(BATCH_ROWS, columns=names)
