"""Dense columns of all parties together: their names, bounds, means and deviations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedboost.core.column_readings import Scale
from fedboost.core.fixed_point import bits_for_rows
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.messages.protocol.gbun_pb2 import Inputs

Vector = NDArray[np.int64]
ColumnValues = NDArray[np.float32]

# Powers of two that bound a column: coarse, as one is shown a column; from the least number on.
BOUND_EXPONENTS = range(-152, 136, 8)


def match_columns(
    ours: tuple[str, ...], is_sparse: bool, guests: Inputs, guest: str
) -> tuple[str, ...]:
    """Return the guest's columns; a DataError if ours differ, or only one table is sparse."""
    if is_sparse != guests.sparse:
        kinds = ("sparse", "dense") if is_sparse else ("dense", "sparse")
        raise DataError(
            f"the table is {kinds[0]} and that of {guest} is {kinds[1]}",
            todo="bring all tables in one form: svmlight for sparse ones, or csv, parquet",
            kind="one party's table is sparse and another's is dense",
        )
    names = tuple(guests.names)
    other = sorted(set(names) ^ set(ours))
    if other or len(set(names)) < len(names):
        raise DataError(
            f"the table has not the same columns as that of {guest}",
            column=(other or sorted(names))[0],
            todo="every party needs the same columns: name them in data: columns",
            kind="the parties have not the same columns",
        )
    return names


def exceeded_powers(values: ColumnValues) -> Vector:
    """Return 1 for each power of two below a column's greatest |value|, int64 (columns · k,)."""
    with np.errstate(invalid="ignore"):
        largest = np.fmax.reduce(np.abs(values), axis=0, initial=0.0).astype(np.float64)
    powers = np.array([math.ldexp(1.0, e) for e in BOUND_EXPONENTS])
    return (largest[:, None] > powers).astype(np.int64).ravel()


def value_bounds(exceeds: Vector, names: tuple[str, ...]) -> Floats:
    """Return a bound on all parties' values of each column, float64 (columns,).

    `exceeds` is int64 (columns, k).
    """
    free = exceeds == 0
    if len(free) and not free[:, -1].all():
        column = names[int(np.flatnonzero(~free[:, -1])[0])]
        raise DataError("a column's values are too large", column=column, todo="scale it down")
    powers = np.array([math.ldexp(1.0, e) for e in BOUND_EXPONENTS])
    first: Floats = powers[free.argmax(axis=1)]
    return first


def value_sums(values: ColumnValues, bound: Floats, rows: int) -> Vector:
    """Return each column's count, sum and sum of squares over our rows, int64 (4 · columns,).

    Sums are exact in units of 2^-bits of the column's bound, squares in two words. `rows` is the
    number of rows of all parties.
    """
    bits = bits_for_rows(rows)
    count = np.count_nonzero(~np.isnan(values), axis=0)
    squares = [
        _sums_of_powers(values[:, i], unit, bits)
        for i, unit in enumerate(_value_units(bound, rows))
    ]
    return np.concatenate([count, *np.array(squares, np.int64).reshape(-1, 3).T])


def _sums_of_powers(column: ColumnValues, unit: float, bits: int) -> tuple[int, int, int]:
    """Return Σq, and Σq² in words above and below 2^bits, of q = column / unit ≤ 2^bits."""
    whole = np.nan_to_num(np.rint(column.astype(np.float64) / unit)).astype(np.int64)
    half = (bits + 1) // 2  # a product of two halves, summed up over all rows, stays within int64
    high, low = whole >> half, whole & ((1 << half) - 1)
    squares = (int(high @ high) << 2 * half) + (int(high @ low) << half + 1) + int(low @ low)
    return int(whole.sum()), squares >> bits, squares & ((1 << bits) - 1)


def standard_scale(total: Vector, bound: Floats, rows: int) -> Scale:
    """Return the columns' scale from the sums of all parties, as `Scale.from_values` of all
    rows.
    """
    bits, units = bits_for_rows(rows), _value_units(bound, rows)
    columns = [
        _mean_and_deviation(count, first, (above << bits) + below)
        for count, first, above, below in total.reshape(4, -1).T.tolist()
    ]
    mean, deviation = np.array(columns, np.float64).reshape(-1, 2).T
    return Scale(mean * units, np.where(deviation > 0.0, deviation * units, 1.0))


def _mean_and_deviation(count: int, total: int, squares: int) -> tuple[float, float]:
    """Return mean and deviation, 0 if nothing varies or the sums are false; rounded once each."""
    spread = max(count * squares - total**2, 0)
    return total / max(count, 1), math.sqrt(spread / max(count * (count - 1), 1))


def _value_units(bound: Floats, rows: int) -> Floats:
    """Return the value of 1 in a sum of each column, float64 (columns,)."""
    return bound * 2.0 ** -bits_for_rows(rows)
