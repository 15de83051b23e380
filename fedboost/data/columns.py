"""Cells of one column: their kind, and their numbers if they have any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Words that mean a missing number in a text cell, as R, pandas and SQL exports write them.
MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null")
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
INFINITE = r"(?i)^[+-]?inf(inity)?$"
WHOLE = r"^-?(0|[1-9][0-9]*)$"
LONG_WHOLE = r"^[+-]?[0-9]{16}"  # more than 64-bit floats count exactly
LEADING_ZERO = r"^[+-]?0[0-9]"
CHANGING = f"{LEADING_ZERO}|{LONG_WHOLE}"  # numbers do not keep this spelling
MERGED_MIN = 0.01  # share of the distinct values; fewer do not matter to a tree
FLOAT32_MAX = float(np.finfo(np.float32).max)
BEYOND_FLOAT32 = "beyond what 32-bit floats hold (3.4e38)"

READABLE = frozenset({"boolean", "integer", "number", "decimal", "text", "empty"})

_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("boolean", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("number", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("text", pa.types.is_string),
    ("text", pa.types.is_large_string),
    ("text", pa.types.is_string_view),
    ("empty", pa.types.is_null),
    ("date", pa.types.is_date),
    ("timestamp", pa.types.is_timestamp),
    ("time", pa.types.is_time),
    ("duration", pa.types.is_duration),
    ("interval", pa.types.is_interval),
    ("list", pa.types.is_list),
    ("list", pa.types.is_large_list),
    ("list", pa.types.is_fixed_size_list),
    ("struct", pa.types.is_struct),
    ("map", pa.types.is_map),
)


@lru_cache(maxsize=1024)
def kind_of(kind: pa.DataType) -> str:
    """Return one word for an Arrow type; only the kinds in READABLE can become numbers."""
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    return next((word for word, fits in _KINDS if fits(kind)), "binary")


def decoded_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column without dictionary coding, its text as `large_string`."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.cast(column, pa.large_string()) if kind_of(column.type) == "text" else column


@dataclass(frozen=True, eq=False, repr=False)
class ColumnNumbers:
    """The numbers of a column: float64 (n,), NaN where missing or not a number.

    `text_cells` counts cells that are neither a number nor missing; `missing` counts empty cells.
    """

    values: NDArray[np.float64]
    text_cells: int
    missing: int

    @cached_property
    def are_small(self) -> bool:
        """Whether no number is beyond 2^24: then none is infinite, rounded or merged."""
        return not (np.abs(self.values) > 2**24).any()

    @property
    def infinite(self) -> int:
        """Number of values that are infinite (or too large for 64-bit floats)."""
        return 0 if self.are_small else int(np.isinf(self.values).sum())

    @property
    def beyond_float32(self) -> int:
        """Number of finite values beyond the range of 32-bit floats."""
        if self.are_small:
            return 0
        size = np.abs(self.values)
        return int(((size > FLOAT32_MAX) & np.isfinite(size)).sum())

    @property
    def rounded(self) -> int:
        """Number of whole numbers (beyond 2^24) that change when they become 32-bit floats."""
        if self.are_small:
            return 0
        large = self.values[np.abs(self.values) > 2**24]
        with np.errstate(over="ignore"):
            moved = large.astype(np.float32).astype(np.float64) != large
        return int((moved & np.isfinite(large) & (large == np.floor(large))).sum())

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are whole."""
        known = self.values[~np.isnan(self.values)]
        return bool((known == np.floor(known)).all())

    @property
    def is_text(self) -> bool:
        """Whether no cell is a number and at least one is text."""
        return self.text_cells > 0 and self.text_cells + self.missing == len(self.values)


def merges_numbers(column: pa.ChunkedArray, numbers: ColumnNumbers) -> bool:
    """Return whether whole numbers of a column become equal as 32-bit floats.

    Only numbers beyond 2^24 can, and a share of MERGED_MIN of the distinct ones must. `numbers`
    are the numbers read from the column.
    """
    if numbers.are_small:
        return False
    large = np.abs(numbers.values) > 2**24
    large &= numbers.values == np.floor(numbers.values)
    if not large.any():
        return False
    different = int(pc.count_distinct(decoded_column(column).filter(pa.array(large))).as_py())
    kept = len(np.unique(numbers.values[large].astype(np.float32)))
    return different - kept >= MERGED_MIN * different


def read_numbers(column: pa.ChunkedArray) -> ColumnNumbers:
    """Return the numbers of a column whose kind is READABLE; booleans are 0 and 1.

    Text cells that spell numbers are numbers; MISSING_WORDS are missing.
    """
    assert kind_of(column.type) in READABLE
    column = decoded_column(column)
    if kind_of(column.type) == "text":
        return _written_numbers(column)
    # Unsafe casts round large integers and decimals, which `rounded` counts.
    values = _float64(pc.cast(column, pa.float64(), safe=False))
    return ColumnNumbers(values, text_cells=0, missing=int(np.isnan(values).sum()))


def plain_numbers(column: pa.ChunkedArray) -> ColumnNumbers | None:
    """Return the numbers of a text column whose cells Arrow reads at once; None for any other.

    It is far faster than `read_numbers` where a table has many columns.
    """
    if kind_of(column.type) != "text":
        return None
    cells = decoded_column(column) if pa.types.is_dictionary(column.type) else column
    try:
        values = _float64(cells.cast(pa.float64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a view of strings
        return None
    missing = cells.null_count
    is_plain = int(np.isnan(values).sum()) == missing < len(values)
    return ColumnNumbers(values, text_cells=0, missing=missing) if is_plain else None


def typed_column(column: pa.ChunkedArray, *, fractions: bool = True) -> pa.ChunkedArray:
    """Return a text column as the type of its cells; unchanged if they have no common type.

    Whole numbers become int64 or uint64, yes-no words bool, numbers float64 (unless not
    `fractions`), only missing cells null. Cells such as ``007`` or more digits before the point
    than a number holds, which a number would change, stay text.
    """
    if kind_of(column.type) != "text":
        return column
    quick = plain_numbers(column) if fractions else None
    cells = (
        decoded_column(column)
        if quick is not None
        else without_missing_words(decoded_column(column))
    )
    may_be_whole = quick is None or quick.is_whole
    if may_be_whole and cells.null_count < len(cells) and _all_match(cells, WHOLE):
        return _whole(cells, column)
    if not fractions or pc.any(pc.match_substring_regex(cells, CHANGING)).as_py():
        return column
    if cells.null_count == len(cells):
        return pa.chunked_array([pa.nulls(len(cells))])
    words = _as_booleans(cells) if quick is None else None
    numbers = quick or _written_numbers(cells)
    if words is None and not numbers.text_cells:
        return pa.chunked_array([pa.array(numbers.values, from_pandas=True)])
    return column if words is None else words


def _whole(cells: pa.ChunkedArray, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whole numbers as int64, or uint64; the `column` where neither holds them all."""
    for kind in (pa.int64(), pa.uint64()):
        try:
            return pc.cast(cells, kind)
        except pa.ArrowInvalid:
            continue
    return column


def _written_numbers(column: pa.ChunkedArray) -> ColumnNumbers:
    cells = without_missing_words(column)
    try:
        values = _float64(pc.cast(cells, pa.float64()))
    except pa.ArrowInvalid:
        return _some_written_numbers(cells)
    if int(np.isnan(values).sum()) > cells.null_count:  # spellings of NaN that we do not list
        return _some_written_numbers(cells)
    return ColumnNumbers(values, text_cells=0, missing=cells.null_count)


def _some_written_numbers(cells: pa.ChunkedArray) -> ColumnNumbers:
    """Read trimmed cells that Arrow cannot all read as numbers; like `_written_numbers`."""
    words = _as_booleans(cells)
    if words is not None:
        values = _float64(pc.cast(words, pa.float64()))
        return ColumnNumbers(values, text_cells=0, missing=int(np.isnan(values).sum()))
    written = pc.or_(
        pc.match_substring_regex(cells, NUMBER), pc.match_substring_regex(cells, INFINITE)
    )
    text_cells = pc.sum(pc.invert(written), min_count=0).as_py()
    # Arrow's parser knows no plus sign.
    digits = pc.replace_substring_regex(pc.if_else(written, cells, None), r"^\+", "")
    values = _float64(pc.cast(digits, pa.float64()))
    return ColumnNumbers(values, text_cells=text_cells, missing=cells.null_count)


def without_missing_words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the cells trimmed, with null for each word that means missing."""
    cells = pc.utf8_trim_whitespace(column)
    words = pa.array(MISSING_WORDS, type=cells.type)
    return pc.if_else(pc.is_in(cells, value_set=words), None, cells)


def _as_booleans(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the cells as bool if each is the word true or false, in any case; else None."""
    if cells.null_count == len(cells) or not _all_match(cells, r"(?i)^(true|false)$"):
        return None
    return pc.match_substring_regex(cells, r"(?i)^true$")


def _all_match(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _float64(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(column.to_numpy(), dtype=np.float64)
