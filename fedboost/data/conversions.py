"""Conversions that an owner declares: decimal commas, dates, numbers that mean missing.

A date becomes three columns: days since 1970 under its own name, then NAME_month (1 to 12) and
NAME_weekday (1 is Monday), so that a tree can divide by season as well as by age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.columns import READABLE, kind_of, plain, read_numbers, without_missing_words
from fedboost.data.sheet import Sheet
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.svmlight import Extent

# 1,5 and 1.234,5: a point between groups of three digits divides thousands.
COMMA_NUMBER = r"^[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+)(,[0-9]+)?([eE][+-]?[0-9]+)?$"
COMMA_REMEDY = 'declare decimal: "," for the data set, or write points'
COMMA = r"[0-9],[0-9]"
# Unambiguous spellings: 2024-01-31 and 2024/01/31, perhaps with a time, and 31.01.2024.
DATE = r"^[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?Z?)?$"
GERMAN_DATE = r"^[0-9]{2}\.[0-9]{2}\.[0-9]{4}$"
OTHER = ""  # for pieces of a column that fit no pattern
SECONDS_PER_DAY = 86_400


def holds_comma_numbers(column: pa.ChunkedArray) -> bool:
    """Return True if all cells are numbers and at least one has a decimal comma."""
    cells = _cells(column)
    return cells is not None and _any(cells, COMMA) and _all(cells, COMMA_NUMBER)


def holds_dates(column: pa.ChunkedArray) -> bool:
    """Return True if all cells are dates, by their type or as they are written."""
    if kind_of(column.type) in ("date", "timestamp"):
        return True
    cells = _cells(column)
    return cells is not None and (_all(cells, DATE) or _all(cells, GERMAN_DATE))


@dataclass(frozen=True)
class WholeColumns:
    """Properties of whole columns that decide how each cell is read."""

    commas: frozenset[str] = frozenset()  # columns of numbers with decimal commas
    dates: frozenset[str] = frozenset()  # columns of dates
    german: frozenset[str] = frozenset()  # the date columns that are written 31.01.2024
    extent: Extent | None = None  # of a sparse table

    @classmethod
    def of(cls, source: SourceSpec, sheets: Iterable[Sheet]) -> WholeColumns:
        """Look through a table, in any number of pieces, for the columns that `source` declares."""
        written: dict[str, set[str]] = {}  # by column: the patterns of its pieces that have values
        for sheet in sheets:
            for name, column in zip(sheet.columns.column_names, sheet.columns.columns, strict=True):
                is_date = name in source.dates
                if not is_date and (source.decimal == "." or name in source.id):
                    continue
                seen = written.setdefault(name, set())
                if is_date and kind_of(column.type) in ("date", "timestamp"):
                    seen.add(DATE)
                cells = None if OTHER in seen else _cells(column)
                if cells is not None:
                    patterns = [DATE, GERMAN_DATE] if is_date else [COMMA_NUMBER]
                    seen.add(next((one for one in patterns if _all(cells, one)), OTHER))
        names = {
            pattern: frozenset(name for name, seen in written.items() if seen == {pattern})
            for pattern in (COMMA_NUMBER, DATE, GERMAN_DATE)
        }
        german = names[GERMAN_DATE]
        return cls(names[COMMA_NUMBER], names[DATE] | german, german)


def as_declared_cells(sheet: Sheet, source: SourceSpec, whole: WholeColumns | None = None) -> Sheet:
    """Return the sheet with the comma numbers and dates that `source` declares as numbers.

    For a part of a table, `whole` describes the columns of the whole. A DataError names a declared
    date column that is absent or holds other cells.
    """
    table, whole = sheet.columns, whole or WholeColumns.of(source, [sheet])
    for name in filter(whole.commas.__contains__, table.column_names):
        table = _put(table, name, _pointed(without_missing_words(plain(table.column(name)))))
    for name in source.dates:
        table = _with_date(table, name, whole)
    return sheet if table is sheet.columns else replace(sheet, columns=table)


def without_value(sheet: Sheet, names: Iterable[str], missing: float) -> Sheet:
    """Return the sheet with the number `missing` as missing in columns `names` and sparse ones.

    A DataError if this would concern the zeros that a sparse table does not hold.
    """
    table, sparse = sheet.columns, sheet.sparse
    for name in names:
        if name in sheet.indices and kind_of(table.column(name).type) in READABLE:
            cells = plain(table.column(name))
            is_missing = pa.array(_are(read_numbers(cells).values, missing))
            table = _put(table, name, pc.if_else(is_missing, None, cells))
    if sparse is not None:
        if np.float32(missing) == 0:
            raise DataError(
                "0 cannot mean missing in a sparse table, which does not hold its zeros",
                todo="write the table as csv or parquet, or leave 'missing' out",
            )
        values = sparse.values.copy()
        values.data[_are(values.data, missing)] = np.nan
        sparse = replace(sparse, values=values)
    return replace(sheet, columns=table, sparse=sparse)


def _are(values: NDArray[np.float64], missing: float) -> NDArray[np.bool_]:
    """Return which values equal one number as 32-bit floats, as trees compare them."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32) == np.float32(missing)


def parts_of_date(name: str) -> dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]:
    """Return the columns that a date adds, each with its function of the days since 1970.

    The functions take and return float32 (n,); NaN stays NaN.
    """
    return {f"{name}_month": _months, f"{name}_weekday": _weekdays}


def _months(days: NDArray[np.float32]) -> NDArray[np.float32]:
    known = np.where(np.isnan(days), 0, np.floor(days)).astype("datetime64[D]")
    months = known.astype("datetime64[M]").astype(np.int64) % 12 + 1
    return np.where(np.isnan(days), np.nan, months).astype(np.float32)


def _weekdays(days: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.mod(np.floor(days) + 3, 7) + 1  # 1970-01-01 was a Thursday


def _with_date(table: pa.Table, name: str, whole: WholeColumns) -> pa.Table:
    if name not in table.column_names or name not in whole.dates:
        what = "holds something else than dates" if name in table.column_names else "is absent"
        raise DataError(
            f"the column {name!r}, declared in 'dates', {what}",
            column=name,
            todo="write dates as 2024-01-31, or take the column out of 'dates'",
            kind="a column declared in 'dates' holds none",
        )
    moments = _moments(table.column(name), name, is_german=name in whole.german)
    seconds = pc.cast(pc.cast(moments, pa.timestamp("s"), safe=False), pa.int64())
    table = _put(table, name, pc.divide(pc.cast(seconds, pa.float64()), SECONDS_PER_DAY))
    values = (pc.month(moments), pc.day_of_week(moments, count_from_zero=False))
    for part, of_moments in zip(parts_of_date(name), values, strict=True):
        if part in table.column_names:
            raise DataError(
                f"the table has a column {part}, which the date {name} would add",
                column=part,
                todo="rename it",
                kind="a date would add a column that the table has",
            )
        table = table.append_column(part, of_moments)
    return table


def _moments(column: pa.ChunkedArray, name: str, *, is_german: bool) -> pa.ChunkedArray:
    """Return a column of dates as timestamps in UTC without a zone."""
    if kind_of(column.type) != "text":
        return pc.cast(plain(column), pa.timestamp("us"), safe=False)
    cells = without_missing_words(plain(column))
    if is_german:
        cells = pc.replace_substring_regex(cells, r"^(..)\.(..)\.(....)$", r"\3-\2-\1")
    cells = pc.replace_substring_regex(pc.replace_substring(cells, "/", "-"), "Z$", "")
    try:
        return pc.cast(cells, pa.timestamp("us"))
    except pa.ArrowInvalid:
        raise DataError(
            f"the column {name!r} has dates that no calendar has",
            column=name,
            todo="mend them, or leave the cells empty",
            kind="a column has dates that no calendar has",
        ) from None


def _pointed(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the trimmed cells of a text column with any value; None for another column."""
    if kind_of(column.type) != "text":
        return None
    cells = without_missing_words(plain(column))
    return None if cells.null_count == len(cells) else cells


def _put(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _all(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _any(cells: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
