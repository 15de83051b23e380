"""Many short columns of text read as numbers together, since a call of Arrow per column is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.columns import CHANGING, WHOLE

CELLS_MAX = 1 << 18  # of the columns of a block
COLUMNS_MIN, COLUMNS_MAX = 8, 1024  # of a block: fewer gain nothing, and one text divides a block
SMALL_MAX = 2**24  # 32-bit floats hold every whole number up to this one


@dataclass(frozen=True, eq=False, repr=False)
class NumberBlock:
    """Columns of text whose cells are all missing or numbers up to 2^24.

    `values` is float64 (c, n), NaN where missing; `cells` has their texts, column after column.
    """

    values: NDArray[np.float64]
    cells: pa.Array

    def typed_columns(self) -> list[pa.ChunkedArray]:
        """Return the columns as `columns.typed_column` returns each of them."""
        missing = np.isnan(self.values)
        is_empty: NDArray[np.bool_] = np.all(missing, axis=1)
        is_whole: NDArray[np.bool_] = np.all(self._matches(WHOLE) | missing, axis=1)
        stays_text: NDArray[np.bool_] = np.any(self._matches(CHANGING), axis=1)
        n_rows = self.values.shape[1]
        typed = []
        for place, values in enumerate(self.values):
            if is_empty[place]:
                column = pa.nulls(n_rows)
            elif is_whole[place]:
                column = pa.array(values, mask=missing[place]).cast(pa.int64())
            elif stays_text[place]:
                column = self.cells[place * n_rows : (place + 1) * n_rows]
            else:
                column = pa.array(values, from_pandas=True)
            typed.append(pa.chunked_array([column]))
        return typed

    def distinct_counts(self) -> list[int]:
        """Return the number of different numbers in each column, missing ones aside."""
        ordered = np.sort(self.values, axis=1)  # NaN last
        changes = (ordered[:, 1:] != ordered[:, :-1]) & ~np.isnan(ordered[:, 1:])
        counts: list[int] = (changes.sum(axis=1) + ~np.isnan(ordered[:, 0])).tolist()
        return counts

    def _matches(self, pattern: str) -> NDArray[np.bool_]:
        matched = pc.fill_null(pc.match_substring_regex(self.cells, pattern), False)
        return np.asarray(matched.to_numpy(zero_copy_only=False)).reshape(self.values.shape)


def number_blocks(
    columns: Sequence[pa.ChunkedArray], n_rows: int
) -> Iterator[tuple[slice, NumberBlock]]:
    """Yield blocks of neighbouring columns of `n_rows`, and their places; none of long columns."""
    width = min(COLUMNS_MAX, CELLS_MAX // max(n_rows, 1))
    if n_rows and width >= COLUMNS_MIN:
        for first in range(0, len(columns), width):
            yield from _blocks_within(columns, slice(first, min(first + width, len(columns))))


def _blocks_within(
    columns: Sequence[pa.ChunkedArray], part: slice
) -> Iterator[tuple[slice, NumberBlock]]:
    """Yield the part as one block, or the blocks of its halves if some column has other cells."""
    if part.stop - part.start < COLUMNS_MIN:
        return
    block = _number_block(columns[part])
    if block is not None:
        yield part, block
        return
    middle = (part.start + part.stop) // 2
    yield from _blocks_within(columns, slice(part.start, middle))
    yield from _blocks_within(columns, slice(middle, part.stop))


def _number_block(columns: Sequence[pa.ChunkedArray]) -> NumberBlock | None:
    """Return columns of the same length as a block; None if any of them has other cells."""
    kinds = {column.type for column in columns}
    if len(kinds) > 1 or not _is_plain_text(columns[0].type):
        return None
    cells = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    try:
        numbers = cells.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)
    if int(np.isnan(values).sum()) > cells.null_count or (np.abs(values) > SMALL_MAX).any():
        return None
    return NumberBlock(values.reshape(len(columns), -1), cells)


def _is_plain_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
