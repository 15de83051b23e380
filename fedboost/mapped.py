"""Cells in files without a name: on the disk, and in memory only while somebody reads them.

Nobody else can open such a file, and it is gone with whoever holds it.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedboost.disk import make_folder, on_disk

if TYPE_CHECKING:
    import pyarrow as pa


class CellFile(mmap.mmap):
    """A file of cells, as the memory that it looks like."""

    folder: Path  # on whose disk it lies


def mapped_matrix(folder: Path, n_rows: int, n_columns: int) -> NDArray[np.float32]:
    """Return zeros, float32 (n, c) in Fortran order, in a file of that folder's disk.

    A StoreError where the disk has no room for all of them.
    """
    size = 4 * n_rows * n_columns
    if not size:
        return np.zeros((n_rows, n_columns), np.float32, order="F")
    with _nameless(folder) as file, on_disk(folder):
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # a write that finds no room would kill us
        else:
            os.ftruncate(file.fileno(), size)
        held = CellFile(file.fileno(), size)
    held.folder = folder
    return np.frombuffer(held, np.float32).reshape((n_rows, n_columns), order="F")


def rows_of(values: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The rows numbered `rows` (k,) of values (n, c) in Fortran order, in a file like theirs, if
    they lie in one.
    """
    held = _file_of(values)
    if held is None:
        return np.take(values.T, rows, axis=1).T
    taken = mapped_matrix(held.folder, len(rows), values.shape[1])
    for column in range(values.shape[1]):
        taken[:, column] = values[rows, column]
        let_go(values)
        let_go(taken)
    return taken


def mapped_table(folder: Path, tables: Iterable[pa.Table]) -> pa.Table:
    """Return tables of the same columns, one at least, as one in such a file."""
    import pyarrow as pa

    with _nameless(folder) as file, on_disk(folder):
        writer = None
        for table in tables:
            writer = writer or pa.ipc.new_stream(file, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        file.flush()
        held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    return pa.ipc.open_stream(pa.py_buffer(held)).read_all()


def let_go(values: object) -> None:
    """Give back the memory of what was read of a mapped matrix; of anything else nothing."""
    held = _file_of(values)
    if held is not None:
        held.madvise(mmap.MADV_DONTNEED)  # shared with the file, which keeps what was written


def _file_of(values: object) -> CellFile | None:
    while isinstance(values, np.ndarray | memoryview):
        values = values.base if isinstance(values, np.ndarray) else values.obj
    return values if isinstance(values, CellFile) else None


def _nameless(folder: Path) -> IO[bytes]:
    make_folder(folder)
    with on_disk(folder):
        return tempfile.TemporaryFile(dir=folder)
