"""Arrow's own files, Feather among them: a file, or a folder in the order of its files' names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from fedboost.data.kinds.kind import SourceKind

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

    from fedboost.data.folders import FileReader
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import folders

    with folders.translate_errors(source, ARROW_KIND.title):
        dataset = folders.dataset(source, _file_reader())
        yield folders.stored_table(source, dataset, _file_reader())


def _written(file: BinaryIO, schema: pa.Schema) -> Any:
    import pyarrow as pa

    return pa.ipc.new_file(file, schema)


ARROW_KIND = SourceKind(
    "arrow",
    "Arrow",
    _open_table,
    (".arrow", ".feather"),
    settings=frozenset({"rows"}),
    in_folders=True,
    in_storages=True,
    writers={".feather": _written, ".arrow": _written},
)


def _file_reader() -> FileReader:
    import pyarrow as pa

    from fedboost.data.folders import FileReader

    def schema(path: str, files: pa.fs.FileSystem) -> pa.Schema:
        with files.open_input_file(path) as file, pa.ipc.open_file(file) as rows:
            return rows.schema

    return FileReader(ARROW_KIND.title, "ipc", schema, _rows_of_file)


def _rows_of_file(file: pa.NativeFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; one batch of the file is in memory at a time."""
    import pyarrow as pa

    from fedboost.data.frame import BATCH_ROWS

    with file:
        with pa.ipc.open_file(file) as head:
            fields = [place for place, name in enumerate(head.schema.names) if name in {*names}]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with pa.ipc.open_file(file, options=options) as rows:
            for number in range(rows.num_record_batches):
                batch = rows.get_batch(number)
                for begin in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(begin, BATCH_ROWS)
