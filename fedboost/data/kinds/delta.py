"""Tables of Delta Lake: the parquet files that a table's log names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fedboost.data.kinds.kind import Library, SourceKind
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import folders
    from fedboost.data.kinds import parquet

    with folders.translate_errors(source, parquet.PARQUET_KIND.title):
        yield folders.stored_table(source, _dataset(source), parquet.file_reader(source))


DELTA_KIND = SourceKind(
    "delta",
    "Delta",
    _open_table,
    settings=frozenset({"rows", "version"}),
    log="_delta_log",
    in_folders=True,
    in_storages=True,
    library=Library("deltalake", extra="delta", what="a Delta table"),
)


def _dataset(source: SourceSpec) -> ds.FileSystemDataset:
    """Return the files that a Delta table's log names; `deltalake` reads the log."""
    import deltalake
    import pyarrow.fs as pafs
    from deltalake.exceptions import DeltaError

    from fedboost.data import folders
    from fedboost.data.kinds import parquet
    from fedboost.data.stored import absent_error

    filesystem, path = folders.file_system_and_path(source)
    inside: Any = pafs.SubTreeFileSystem(path, filesystem)
    parts = urlsplit(source.path or "")
    place = f"{parts.scheme}://{parts.netloc}{parts.path}" if source.is_remote else source.path
    storage = source.storage
    options = {} if storage is None else storage.delta_options(source)
    try:
        table = deltalake.DeltaTable(str(place), version=source.version, storage_options=options)
        return table.to_pyarrow_dataset(
            filesystem=inside, parquet_read_options=parquet.read_options()
        )
    except (DeltaError, OSError) as error:
        if source.is_remote and isinstance(error, OSError):
            raise  # an error of the storage, which `folders` translates
        if type(error).__name__ == "TableNotFoundError" or source.version is not None:
            raise absent_error(str(error)) from None
        raise DataError(
            "the Delta table cannot be read",
            todo="see the log; a feature it uses may be unknown: write it out as parquet",
            kind="the table cannot be read",
            private=str(error),
        ) from None
