"""svmlight files as sparse tables: `label index:value index:value …` per row.

The rows carry no ids, so `id` is the row number from 1: two parties' files belong together only
if their rows stand in the same order. Absent entries are zero, as the format defines them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.sheet import INDEX_MAX, Sheet, SparseColumns
from fedboost.errors import DataError

ENTRIES_MAX = 2**28  # 3 GiB while read: an 8-byte value and a 4-byte index each
BLOCK_BYTES = 2**24  # so much text is parsed at once

_COMMENT = re.compile(rb"#[^\n]*")
_SPACES = np.isin(np.arange(256), np.frombuffer(b" \t\n\r\x0b\x0c", dtype=np.uint8))
# With other bytes a block is read by Python, which knows words such as nan.
_PLAIN = _SPACES | np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE:", dtype=np.uint8))


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """Rows of the file: float64 (r,) labels, int64 (r,) entries per row; the entries, in order."""

    labels: NDArray[np.float64]
    sizes: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]


def read_sheet(path: Path) -> Sheet:
    """Columns `id` (int64), `y` (float64) and, sparse, per index up to the last, `f<index>`.

        Indices start at 1, or at 0 where the file uses 0. DataError, naming the line, for anything
    than `label index:value …` with rising indices, and for more than ENTRIES_MAX entries or an
        index beyond INDEX_MAX.
    """
    parts = [_Rows(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    n_entries = 0
    for block, line in _blocks(path):
        rows = _plain_rows(block)
        rows = _read_rows(block, line) if rows is None else rows
        n_entries += len(rows.values)
        _check_size(n_entries, int(rows.indices.max(initial=0)))
        parts.append(rows)
    labels = np.concatenate([part.labels for part in parts])
    columns = {"id": np.arange(1, len(labels) + 1), "y": labels}
    return Sheet(pa.table(columns), _sparse(parts))


def _check_size(n_entries: int, last: int) -> None:
    if n_entries > ENTRIES_MAX:
        raise DataError(
            f"the file has more than 2^{ENTRIES_MAX.bit_length() - 1} entries",
            todo="leave rows or columns out",
        )
    if last > INDEX_MAX:
        raise DataError(
            f"a column's index is beyond 2^{INDEX_MAX.bit_length() - 1}",
            todo="number the columns without gaps, or leave some out",
        )


def _blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """The file in whole lines, and the number of each block's first line."""
    line = 1
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            block += file.readline()
            yield block, line
            line += block.count(b"\n")


def _sparse(parts: list[_Rows]) -> SparseColumns:
    """The entries of all rows by column; zeros that the file spells out are left out."""
    from scipy.sparse import csr_array

    indices = np.concatenate([part.indices.astype(np.int32) for part in parts])
    values = np.concatenate([part.values for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    parts.clear()
    first = min(1, int(indices.min(initial=1)))
    width = int(indices.max(initial=first - 1)) - first + 1
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)  # ENTRIES_MAX fits
    rows = csr_array((values, indices - first, starts), shape=(len(sizes), width))
    rows.eliminate_zeros()
    return SparseColumns(rows.tocsc(), first)


def _plain_rows(block: bytes) -> _Rows | None:
    """The rows of a block at once; None where that fails, and `_read_rows` has to say why."""
    signs = np.frombuffer(_COMMENT.sub(b"", block), dtype=np.uint8)
    if not _PLAIN[signs].all():
        return None
    bounds = np.diff(~_SPACES[signs], prepend=False, append=False)
    starts, ends = np.flatnonzero(bounds).reshape(-1, 2).T
    lines = np.searchsorted(np.flatnonzero(signs == ord("\n")), starts)
    opens = np.diff(lines, prepend=-1) > 0  # a row's first token is its label
    colons = np.flatnonzero(signs == ord(":"))
    pairs = ~opens
    # One colon in every other token, with a digit before and something behind it.
    if len(colons) != pairs.sum() or not np.all((starts[pairs] < colons) & (colons < ends[pairs])):
        return None
    if not np.all((signs[starts[pairs]] >= ord("0")) & (signs[starts[pairs]] <= ord("9"))):
        return None
    text = pa.py_buffer(signs)
    try:
        labels = _numbers(text, starts[opens], ends[opens], pa.float64())
        indices = _numbers(text, starts[pairs], colons, pa.int64())
        values = _numbers(text, colons + 1, ends[pairs], pa.float64())
    except pa.ArrowInvalid:
        return None
    if np.any((np.diff(indices) <= 0) & (np.diff(lines[pairs]) == 0)):
        return None
    sizes = np.diff(np.flatnonzero(opens), append=len(opens)) - 1
    return _Rows(labels, sizes, indices, values)


def _numbers(
    text: pa.Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64], kind: pa.DataType
) -> NDArray[Any]:
    """The pieces of `text` from `starts` to `ends` as numbers; ArrowInvalid where one is none."""
    if not len(starts):
        return np.empty(0, kind.to_pandas_dtype())
    # The pieces and what lies between them, as Arrow wants it; then every other one.
    offsets = np.stack([starts, ends], axis=1).astype(np.int32).ravel()
    pieces = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), text)
    chosen = pieces.take(pa.array(np.arange(0, len(pieces), 2, dtype=np.int32)))
    return np.asarray(pc.cast(chosen, kind))


def _read_rows(block: bytes, line: int) -> _Rows:
    """The rows of a block one by one; `line` is the number of its first line."""
    labels, values = array("d"), array("d")
    sizes, indices = array("q"), array("q")
    for number, text in enumerate(block.split(b"\n"), line):
        tokens = text.split(b"#", 1)[0].split()
        if not tokens:
            continue
        before = len(indices)
        try:
            labels.append(float(tokens[0]))
            _read_entries(tokens[1:], indices, values)
        except (ValueError, OverflowError):
            raise DataError(
                "a line is not 'label index:value …' with rising indices",
                line=number,
                todo="mend it; 'qid' (ranking) is not supported",
            ) from None
        sizes.append(len(indices) - before)
    return _Rows(
        np.array(labels, dtype=np.float64),
        np.array(sizes, dtype=np.int64),
        np.array(indices, dtype=np.int64),
        np.array(values, dtype=np.float64),
    )


def _read_entries(tokens: list[bytes], indices: array[int], values: array[float]) -> None:
    last = -1
    for token in tokens:
        index, _, value = token.partition(b":")
        if not index.isdigit() or int(index) <= last or b"_" in value:
            raise ValueError
        last = int(index)
        indices.append(last)
        values.append(float(value))
