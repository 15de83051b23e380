"""svmlight files as sparse tables: `label index:value index:value …` per row.

The rows carry no ids, so `id` is the row number from 1: two parties' files belong together only
if their rows stand in the same order. Absent entries are zero, as the format defines them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.sheet import INDEX_MAX, Sheet, SparseColumns
from fedboost.ground.errors import DataError

ENTRIES_MAX = 2**28  # 3 GiB while read: an 8-byte value and a 4-byte index each
TEXT_BLOCK_BYTES = 2**24  # of text that are parsed at once
ENTRIES_PER_COLUMN = 4  # least number in a sheet, for its size to be worth it

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


_NOTHING = _Rows(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class Extent:
    """Size of a whole file: how many rows it has, and which columns."""

    rows: int
    first: int  # index of the first column
    width: int  # columns up to the last with an entry

    def is_within(self, other: Extent) -> bool:
        """Return whether these rows fit into a file of the other extent."""
        return self.first >= other.first and self.first + self.width <= other.first + other.width


def read_sheet(path: Path) -> Sheet:
    """Return columns `id` (int64), `y` (float64) and sparse ones `f<index>` up to the last index.

    Indices start at 1, or at 0 if the file uses 0. DataError, naming the line, for anything other
    than `label index:value …` with rising indices, and for more than ENTRIES_MAX entries or an
    index beyond INDEX_MAX.
    """
    parts = [_NOTHING, *_row_blocks(path)]
    return _sheet_of(parts, 0, _extent_of(parts))


def read_extent(path: Path) -> Extent:
    """Read a whole file and return its extent; errors are those of `read_sheet`."""
    return _extent_of(_row_blocks(path))


def read_ids(known: Extent, rows: int) -> Iterator[Sheet]:
    """Yield only the ids of a file of a known extent, `rows` at a time, without reading it."""
    from scipy.sparse import csc_array

    for begin in range(0, known.rows, rows):
        ids = np.arange(begin + 1, min(begin + rows, known.rows) + 1)
        nothing = csc_array((len(ids), known.width))
        yield Sheet(pa.table({"id": ids}), SparseColumns(nothing, known.first), unread=("y",))


def read_parts(path: Path, known: Extent) -> Iterator[Sheet]:
    """Yield the sheet of `read_sheet` in parts of some rows, for a file of a known extent.

    A DataError if the file has another extent by now.
    """
    begin, held = 0, [_NOTHING]
    for part in chain(_row_blocks(path), [None]):
        if part is not None:
            held.append(part)
        # Each sheet names all columns, so a sheet of few entries is not worth it.
        if part is None or sum(len(one.values) for one in held) >= ENTRIES_PER_COLUMN * known.width:
            if not _extent_of(held).is_within(known):
                raise DataError(
                    "the file has other columns than a moment ago",
                    todo="try again once nobody changes it",
                )
            sheet = _sheet_of(held, begin, known)
            begin, held = begin + sheet.n_rows, [_NOTHING]
            if sheet.n_rows:
                yield sheet


def _row_blocks(path: Path) -> Iterator[_Rows]:
    """Yield the rows of a file block by block."""
    n_entries = 0
    for block, line in _line_blocks(path):
        rows = _plain_rows(block)
        rows = _read_rows(block, line) if rows is None else rows
        n_entries += len(rows.values)
        _check_size(n_entries, int(rows.indices.max(initial=0)))
        yield rows


def _extent_of(parts: Iterable[_Rows]) -> Extent:
    rows, first, last = 0, 1, -1
    for part in parts:
        rows += len(part.sizes)
        first = min(first, int(part.indices.min(initial=1)))
        last = max(last, int(part.indices.max(initial=-1)))
    return Extent(rows, first, max(last, first - 1) - first + 1)


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


def _line_blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the file in blocks of whole lines, with the number of each block's first line."""
    line = 1
    with path.open("rb") as file:
        while block := file.read(TEXT_BLOCK_BYTES):
            block += file.readline()
            yield block, line
            line += block.count(b"\n")


def _sheet_of(parts: list[_Rows], begin: int, known: Extent) -> Sheet:
    """Return the rows of some parts as a sheet, without zeros; empty the list of parts.

    The first row is row `begin` of a file of extent `known`.
    """
    from scipy.sparse import csr_array

    indices = np.concatenate([part.indices.astype(np.int32) for part in parts])
    values = np.concatenate([part.values for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    parts.clear()
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)  # ENTRIES_MAX fits
    rows = csr_array((values, indices - known.first, starts), shape=(len(sizes), known.width))
    rows.eliminate_zeros()
    columns = {"id": np.arange(begin + 1, begin + 1 + len(sizes)), "y": labels}
    return Sheet(pa.table(columns), SparseColumns(rows.tocsc(), known.first))


def _plain_rows(block: bytes) -> _Rows | None:
    """Return a block's rows parsed at once; None if `_read_rows` has to find the fault."""
    signs = np.frombuffer(_COMMENT.sub(b"", block), dtype=np.uint8)
    if not _PLAIN[signs].all():
        return None
    bounds = np.diff(~_SPACES[signs], prepend=False, append=False)
    starts, ends = np.flatnonzero(bounds).reshape(-1, 2).T
    lines = np.searchsorted(np.flatnonzero(signs == ord("\n")), starts)
    opens = np.diff(lines, prepend=-1) > 0  # a row's first token is its label
    colons = np.flatnonzero(signs == ord(":"))
    pairs = ~opens
    # One colon in every other token, with a digit before it and text behind it.
    if len(colons) != pairs.sum() or not np.all((starts[pairs] < colons) & (colons < ends[pairs])):
        return None
    if not np.all((signs[starts[pairs]] >= ord("0")) & (signs[starts[pairs]] <= ord("9"))):
        return None
    text = pa.py_buffer(signs)
    try:
        labels = _parse_numbers(text, starts[opens], ends[opens], pa.float64())
        indices = _parse_numbers(text, starts[pairs], colons, pa.int64())
        values = _parse_numbers(text, colons + 1, ends[pairs], pa.float64())
    except pa.ArrowInvalid:
        return None
    if np.any((np.diff(indices) <= 0) & (np.diff(lines[pairs]) == 0)):
        return None
    sizes = np.diff(np.flatnonzero(opens), append=len(opens)) - 1
    return _Rows(labels, sizes, indices, values)


def _parse_numbers(
    text: pa.Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64], kind: pa.DataType
) -> NDArray[Any]:
    """Return the pieces of `text` from `starts` to `ends` as numbers, or raise ArrowInvalid."""
    if not len(starts):
        return np.empty(0, kind.to_pandas_dtype())
    # The pieces and the gaps between them, as Arrow wants it; then every other one.
    offsets = np.stack([starts, ends], axis=1).astype(np.int32).ravel()
    pieces = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), text)
    chosen = pieces.take(pa.array(np.arange(0, len(pieces), 2, dtype=np.int32)))
    return np.asarray(pc.cast(chosen, kind))


def _read_rows(block: bytes, line: int) -> _Rows:
    """Return the rows of a block, read one by one from line number `line` on."""
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
