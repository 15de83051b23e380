"""Cells in files without a name: on the disk, and in memory only while somebody reads them.

Nobody else can open such a file, and it is gone with whoever holds it.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedboost.disk import make_folder, on_disk

if TYPE_CHECKING:
    import pyarrow as pa


LET_GO_ROWS = 1 << 18  # that are read before memory goes, where rows are met at random


class CellFile(mmap.mmap):
    """A file of cells, as the memory that it looks like."""

    folder: Path  # on whose disk it lies


_tables = WeakValueDictionary[int, CellFile]()  # by the address at which one lies


def mapped_array(
    folder: Path, shape: tuple[int, ...], dtype: DTypeLike, *, order: Literal["C", "F"] = "C"
) -> NDArray[Any]:
    """Return zeros of that shape and dtype in a file of that folder's disk.

    A StoreError where the disk has no room for all of them.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if not size:
        return np.zeros(shape, kind, order)
    with _nameless(folder) as file, on_disk(folder):
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # a write that finds no room would kill us
        else:
            os.ftruncate(file.fileno(), size)
        held = CellFile(file.fileno(), size)
    held.folder = folder
    return np.frombuffer(held, kind).reshape(shape, order=order)


def array_beside(values: object, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array to be filled, in C order: in a file like that of `values`, in memory where
    these lie in none.
    """
    held = _file_of(values)
    return np.empty(shape, dtype) if held is None else mapped_array(held.folder, shape, dtype)


def rows_of(values: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The rows numbered `rows` (k,) of values (n, c) in Fortran order, in a file like theirs, if
    they lie in one.
    """
    held = _file_of(values)
    if held is None:
        return np.take(values.T, rows, axis=1).T
    taken = mapped_array(held.folder, (len(rows), values.shape[1]), np.float32, order="F")
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
        held = CellFile(file.fileno(), 0, prot=mmap.PROT_READ)
    held.folder = folder
    buffer = pa.py_buffer(held)
    _tables[buffer.address] = held
    return pa.ipc.open_stream(buffer).read_all()


def let_go(*values: object) -> None:
    """Give back the memory of what was read of mapped arrays; of anything else nothing."""
    for held in filter(None, map(_file_of, values)):
        held.madvise(mmap.MADV_DONTNEED)  # shared with the file, which keeps what was written


def let_go_table(table: pa.Table) -> None:
    """Give back the memory of what was read of a table of `mapped_table`; of another nothing."""
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    buffer = next((part for chunk in chunks for part in chunk.buffers() if part is not None), None)
    while buffer is not None and buffer.parent is not None:
        buffer = buffer.parent
    held = None if buffer is None else _tables.get(buffer.address)
    if held is not None:
        held.madvise(mmap.MADV_DONTNEED)


def _file_of(values: object) -> CellFile | None:
    while isinstance(values, np.ndarray | memoryview):
        values = values.base if isinstance(values, np.ndarray) else values.obj
    return values if isinstance(values, CellFile) else None


def _nameless(folder: Path) -> IO[bytes]:
    make_folder(folder)
    with on_disk(folder):
        return tempfile.TemporaryFile(dir=folder)
