"""Arrays in files without a name: on the disk, and in memory only while they are read.

No other process can open such a file, and it vanishes with its process, even a killed one. Its
pages belong to the system's cache, which drops them when memory is short.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedboost.ground.disk import make_folder, on_disk
from fedboost.ground.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

FILE_BYTES_MIN = 1 << 22  # smaller arrays stay in memory, which is faster
ROWS_PER_FREE = 1 << 18  # read between two calls of `free_pages`, if rows are read at random


class CellFile(mmap.mmap):
    """A file of cells, mapped into memory."""

    folder: Path  # on the same disk


@dataclass
class _Disk:
    """Limit and use of one folder's files together."""

    most: float = math.inf  # bytes
    taken: int = 0


_tables: weakref.WeakValueDictionary[int, CellFile] = weakref.WeakValueDictionary()  # by address
_disks: defaultdict[Path, _Disk] = defaultdict(_Disk)
_deciding = RLock()  # one thread may close a file while another makes one


def limit_folder(folder: Path, n_bytes: float) -> None:
    """Limit all files of this process in a folder to so many bytes together."""
    _disks[folder].most = n_bytes


def mapped_array(
    folder: Path, shape: tuple[int, ...], dtype: DTypeLike, *, order: Literal["C", "F"] = "C"
) -> NDArray[Any]:
    """Return zeros in a file on that folder's disk.

    A StoreError if the disk lacks the room, or the folder's limit is reached.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype, order)
    with _unnamed_file(folder) as file:
        held = _map_file(folder, file, size)
    return np.frombuffer(held, dtype).reshape(shape, order=order)


def array_beside(values: object, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return zeros: in a file beside that of `values`, if the array is large and they lie in a
    file, and otherwise in memory.
    """
    held = file_of(values)
    if held is None or math.prod(shape) * np.dtype(dtype).itemsize < FILE_BYTES_MIN:
        return np.zeros(shape, dtype)
    return mapped_array(held.folder, shape, dtype)


def copy_rows(values: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the rows numbered `rows` (k,) of values (n, c) in Fortran order.

    If the values lie in a file, the result lies in a file of the same folder.
    """
    held = file_of(values)
    if held is None:
        return np.take(values.T, rows, axis=1).T
    taken = mapped_array(held.folder, (len(rows), values.shape[1]), np.float32, order="F")
    for column in range(values.shape[1]):
        taken[:, column] = values[rows, column]
        free_pages(values)
        free_pages(taken)
    return taken


def mapped_table(folder: Path, tables: Iterable[pa.Table]) -> pa.Table:
    """Return one table in such a file that joins tables (at least one) of the same columns."""
    import pyarrow as pa

    with _unnamed_file(folder) as file, on_disk(folder):
        writer = None
        for table in tables:
            writer = writer or pa.ipc.new_stream(file, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        file.flush()
        held = _map_file(folder, file, file.tell())
    buffer = pa.py_buffer(held)
    _tables[buffer.address] = held
    return pa.ipc.open_stream(buffer).read_all()


def free_pages(*values: object) -> None:
    """Free the memory of mapped arrays that were read; other values are ignored."""
    for held in filter(None, map(file_of, values)):
        held.madvise(mmap.MADV_DONTNEED)  # shared with the file, which keeps the values


def free_table_pages(table: pa.Table) -> None:
    """Free the memory of a table of `mapped_table` that was read; other tables are ignored."""
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    buffer = next((part for chunk in chunks for part in chunk.buffers() if part is not None), None)
    while buffer is not None and buffer.parent is not None:
        buffer = buffer.parent
    held = None if buffer is None else _tables.get(buffer.address)
    if held is not None:
        held.madvise(mmap.MADV_DONTNEED)


def file_of(values: object) -> CellFile | None:
    """Return the file that holds an array or its base array; None if it is in memory."""
    while isinstance(values, np.ndarray | memoryview):
        values = values.base if isinstance(values, np.ndarray) else values.obj
    return values if isinstance(values, CellFile) else None


def _map_file(folder: Path, file: IO[bytes], size: int) -> CellFile:
    """Map so many bytes of a file, reserved on the disk first."""
    _reserve_bytes(folder, size)
    try:
        with on_disk(folder):
            if sys.platform == "linux":
                os.posix_fallocate(file.fileno(), 0, size)  # a write without room would kill us
            else:
                os.ftruncate(file.fileno(), size)
            held = CellFile(file.fileno(), size)
    except BaseException:
        _reserve_bytes(folder, -size)
        raise
    weakref.finalize(held, _reserve_bytes, folder, -size)
    held.folder = folder
    return held


def _reserve_bytes(folder: Path, size: int) -> None:
    """Count bytes of a new file, or -bytes of a closed one; a StoreError beyond the limit."""
    disk = _disks[folder]
    with _deciding:
        if size > 0 and disk.taken + size > disk.most:
            raise StoreError(
                "a large table needs more disk space than its files may take",
                todo="ask the party's owner for more (the log says how much), or use fewer rows",
                key="disk_gb",
                private=f"{folder}: {size / 1e9:.2f} GB more, {disk.taken / 1e9:.2f} GB taken, of "
                f"{disk.most / 1e9:.2f} GB",
            )
        disk.taken += size


def _unnamed_file(folder: Path) -> IO[bytes]:
    make_folder(folder)
    with on_disk(folder):
        return tempfile.TemporaryFile(dir=folder)
