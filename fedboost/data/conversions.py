"""Conversions that an owner declares: signs in numbers, dates, numbers that mean missing.

A date becomes three columns: days since 1970 under its own name, then NAME_month (1 to 12) and
NAME_weekday (1 is Monday), so that a tree can divide by season as well as by age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.columns import (
    READABLE,
    decoded_column,
    kind_of,
    read_numbers,
    without_missing_words,
)
from fedboost.data.sheet import Sheet
from fedboost.data.written_numbers import (
    PROOF,
    all_match,
    any_match,
    as_plain_numbers,
    number_pattern,
    text_cells,
)
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.svmlight import Extent

# Unambiguous spellings: 2024-01-31 and 2024/01/31, perhaps with a time, and 31.01.2024.
DATE = r"^[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?Z?)?$"
GERMAN_DATE = r"^[0-9]{2}\.[0-9]{2}\.[0-9]{4}$"
NO_PATTERN = ""  # for pieces of a column that fit no pattern
SECONDS_PER_DAY = 86_400
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # seconds since 1970


def holds_dates(column: pa.ChunkedArray) -> bool:
    """Return True if all cells are dates, by their type or as they are written."""
    if kind_of(column.type) in ("date", "timestamp"):
        return True
    cells = text_cells(column)
    return cells is not None and (all_match(cells, DATE) or all_match(cells, GERMAN_DATE))


@dataclass(frozen=True)
class WholeColumns:
    """Properties of whole columns that decide how each cell is read."""

    signed: frozenset[str] = frozenset()  # columns of numbers with the declared signs
    dates: frozenset[str] = frozenset()  # columns of dates
    german: frozenset[str] = frozenset()  # the date columns that are written 31.01.2024
    extent: Extent | None = None  # of a sparse table

    @classmethod
    def of(cls, source: SourceSpec, sheets: Iterable[Sheet]) -> WholeColumns:
        """Look through a table, in any number of pieces, for the columns that `source` declares.

        A DataError names a column beside decimal commas of which only its owner knows whether
        1.500 has a decimal point.
        """
        number = number_pattern(*source.signs)
        written: dict[str, set[str]] = {}  # by column: the patterns of its pieces that have values
        pointed, proven = set[str](), set[str]()  # columns whose points may, must divide thousands
        for sheet in sheets:
            for name, column in zip(sheet.columns.column_names, sheet.columns.columns, strict=True):
                is_date = name in source.dates
                if not is_date and (not source.has_signs or name in source.id):
                    continue
                seen = written.setdefault(name, set())
                if is_date and kind_of(column.type) not in ("text", "empty"):
                    seen.add(DATE if kind_of(column.type) in ("date", "timestamp") else NO_PATTERN)
                cells = None if NO_PATTERN in seen else text_cells(column)
                if cells is not None:
                    patterns = [DATE, GERMAN_DATE] if is_date else [number]
                    seen.add(next((one for one in patterns if all_match(cells, one)), NO_PATTERN))
                    if number in seen and source.decimal == "," and source.thousands is None:
                        pointed |= {name} if any_match(cells, r"\.") else set()
                        proven |= {name} if any_match(cells, PROOF) else set()
        names = {
            pattern: frozenset(name for name, seen in written.items() if seen == {pattern})
            for pattern in (number, DATE, GERMAN_DATE)
        }
        for name in sorted(names[number] & pointed - proven):
            raise _two_meanings(name)
        without = frozenset(name for name in source.dates if written.get(name) == set())
        german = names[GERMAN_DATE]
        return cls(names[number], names[DATE] | german | without, german)


def as_declared_cells(sheet: Sheet, source: SourceSpec, whole: WholeColumns | None = None) -> Sheet:
    """Return the sheet with the signed numbers and dates that `source` declares as numbers.

    For a part of a table, `whole` describes the columns of the whole. A DataError names a declared
    date column that is absent or holds other cells.
    """
    table, whole = sheet.columns, whole or WholeColumns.of(source, [sheet])
    table = _changed(
        table,
        {
            name: as_plain_numbers(column, *source.signs)
            for name, column in zip(table.column_names, table.columns, strict=True)
            if name in whole.signed
        },
    )
    for name in source.dates:
        if source.sql is not None and name in table.column_names:
            _refuse_moments(table.schema.field(name).type, name)
        table = _with_date(table, name, whole)
    return sheet if table is sheet.columns else replace(sheet, columns=table)


def _refuse_moments(kind: pa.DataType, name: str) -> None:
    """Refuse a column of moments: a database keeps no zone, and shows them in that of its client.

    Midnight of a Monday in Berlin would be a Sunday on a machine that keeps UTC.
    """
    if getattr(kind, "tz", None) is not None:
        raise DataError(
            f"the dates in column {name!r} depend on the time zone of the database's client",
            column=name,
            todo=f"name the zone in the query, as in: {name} AT TIME ZONE 'Europe/Berlin' AS "
            f"{name}",
            kind="a column of dates depends on the time zone of the database's client",
        )


def _two_meanings(name: str) -> DataError:
    return DataError(
        f"numbers such as 1.500 in column {name!r} may have a decimal point, or one between "
        "thousands: the data set declares decimal commas, and the column has none",
        column=name,
        todo='declare thousands: "." for the data set, or write the numbers without points',
        kind="numbers of a column can be read in two ways",
    )


def without_value(sheet: Sheet, names: Iterable[str], missing: float) -> Sheet:
    """Return the sheet with the number `missing` as missing in columns `names` and sparse ones.

    A DataError if this would concern the zeros that a sparse table does not hold.
    """
    table, sparse = sheet.columns, sheet.sparse
    changed = {}
    for name in names:
        if name in sheet.indices and kind_of(sheet.column(name).type) in READABLE:
            cells = decoded_column(sheet.column(name))
            is_missing = pa.array(_equal_as_float32(read_numbers(cells).values, missing))
            changed[name] = pc.if_else(is_missing, None, cells)
    table = _changed(table, changed)
    if sparse is not None:
        if np.float32(missing) == 0:
            raise DataError(
                "0 cannot mean missing in a sparse table, which does not hold its zeros",
                todo="write the table as csv or parquet, or leave 'missing' out",
            )
        values = sparse.values.copy()
        values.data[_equal_as_float32(values.data, missing)] = np.nan
        sparse = replace(sparse, values=values)
    return replace(sheet, columns=table, sparse=sparse)


def _equal_as_float32(values: NDArray[np.float64], missing: float) -> NDArray[np.bool_]:
    """Return which values equal one number as 32-bit floats, as trees compare them."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32) == np.float32(missing)


def parts_of_date(name: str) -> dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]:
    """Return the columns that a date adds, each with its function of the days since 1970.

    The functions take and return float32 (n,); NaN stays NaN.
    """
    return {f"{name}_month": _months_of_days, f"{name}_weekday": _weekdays_of_days}


def _months_of_days(days: NDArray[np.float32]) -> NDArray[np.float32]:
    known = np.where(np.isnan(days), 0, np.floor(days)).astype("datetime64[D]")
    months = known.astype("datetime64[M]").astype(np.int64) % 12 + 1
    return np.where(np.isnan(days), np.nan, months).astype(np.float32)


def _weekdays_of_days(days: NDArray[np.float32]) -> NDArray[np.float32]:
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
    moments = _timestamps(table.column(name), name, is_german=name in whole.german)
    seconds = pc.cast(pc.cast(moments, pa.int64()), pa.float64())
    table = _with_column(table, name, pc.divide(seconds, SECONDS_PER_DAY))
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


def _timestamps(column: pa.ChunkedArray, name: str, *, is_german: bool) -> pa.ChunkedArray:
    """Return a column of dates as timestamps in seconds, without a zone: those of a column with a
    zone are what its clocks show.
    """
    if kind_of(column.type) == "text":
        moments = _written_moments(column, name, is_german=is_german)
    else:
        moments = decoded_column(column)
    seconds = pc.cast(pc.cast(moments, pa.timestamp("s"), safe=False), pa.int64())
    fits = pc.and_(pc.greater_equal(seconds, YEAR_1), pc.less(seconds, YEAR_10000))
    if not pc.all(fits, min_count=0).as_py():
        raise DataError(
            f"the column {name!r} has dates before the year 1 or after 9999, such as infinity",
            column=name,
            todo="write 9999-12-31 where a period is open, or leave the cells empty",
            kind="a column has dates that no calendar has",
        )
    if getattr(moments.type, "tz", None) is not None:
        moments = _local(moments, name)
    if kind_of(moments.type) == "timestamp":
        moments = pc.floor_temporal(moments, unit="second")
    return pc.cast(moments, pa.timestamp("s"))


def _local(moments: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return what the clocks of a column's zone show, as timestamps without a zone."""
    try:
        return pc.local_timestamp(moments)
    except pa.ArrowInvalid:
        raise DataError(
            f"this machine does not know the time zone {moments.type.tz!r} of column {name!r}",
            column=name,
            todo="install the system's package tzdata, or write the dates without a zone",
            kind="a column's time zone is unknown",
        ) from None


def _written_moments(column: pa.ChunkedArray, name: str, *, is_german: bool) -> pa.ChunkedArray:
    """Return dates that are written as text as timestamps without a zone."""
    cells = without_missing_words(decoded_column(column))
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


def _changed(table: pa.Table, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """Return the table with other columns of these names, put in at once: it may be wide."""
    if not columns:
        return table
    pairs = zip(table.column_names, table.columns, strict=True)
    changed = [columns.get(name, column) for name, column in pairs]
    return pa.Table.from_arrays(changed, names=table.column_names)


def _with_column(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
