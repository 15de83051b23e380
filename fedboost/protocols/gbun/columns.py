"""Dense columns of all parties together: which they are, how large, their means and deviations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedboost.core import gbun
from fedboost.core.fixed_point import SUM_BITS
from fedboost.core.gbun import Scale
from fedboost.errors import DataError
from fedboost.messages.protocol.gbun_pb2 import Inputs

Vector = NDArray[np.int64]
Floats = NDArray[np.float64]
Values = NDArray[np.float32]

EXPONENTS = range(-64, 136, 8)  # of the powers of two that bound a column: coarse, as one a column
SPARE_BITS = 8  # of a sum, for what roundings of the parties add to it


def matched(own: tuple[str, ...], is_sparse: bool, guests: Inputs, guest: str) -> tuple[str, ...]:
    """The guest's columns; a DataError where ours are others, or rows are sparse in one place."""
    if is_sparse != guests.sparse:
        kinds = ("sparse", "dense") if is_sparse else ("dense", "sparse")
        raise DataError(
            f"the table is {kinds[0]} and that of {guest} is {kinds[1]}",
            todo="bring all tables in one form: svmlight for sparse ones, or csv, parquet",
        )
    names = tuple(guests.names)
    other = sorted(set(names) ^ set(own))
    if other or len(set(names)) < len(names):
        raise DataError(
            f"the table has not the same columns as that of {guest}",
            column=(other or sorted(names))[0],
            todo="every party needs the same columns: name them in data: columns",
        )
    return names


def exceeded(values: Values) -> Vector:
    """1 for each power of two that a column's greatest |value| exceeds, int64 (columns · k,)."""
    with np.errstate(invalid="ignore"):
        largest = np.fmax.reduce(np.abs(values), axis=0, initial=0.0).astype(np.float64)
    powers = np.array([math.ldexp(1.0, e) for e in EXPONENTS])
    return (largest[:, None] > powers).astype(np.int64).ravel()


def bounds(exceeds: Vector, names: tuple[str, ...]) -> Floats:
    """What no party's values of a column exceed, float64 (columns,); from int64 (columns, k)."""
    free = exceeds == 0
    if len(free) and not free[:, -1].all():
        column = names[int(np.flatnonzero(~free[:, -1])[0])]
        raise DataError("a column's values are too large", column=column, todo="scale it down")
    powers = np.array([math.ldexp(1.0, e) for e in EXPONENTS])
    found: Floats = powers[free.argmax(axis=1)]
    return found


def sums(values: Values, bound: Floats, rows: int) -> Vector:
    """Of own rows each column's count, sum and sum of squares, int64 (3 · columns,); `rows` are
    those of all parties."""
    count, total, squares = gbun.column_sums(values)
    first, second = _units(bound, rows)
    own = [count, np.rint(total / first), np.rint(squares / second)]
    return np.concatenate(own).astype(np.int64)


def scale(total: Vector, bound: Floats, rows: int) -> Scale:
    """How columns are standardised, from everybody's sums."""
    count, first, second = np.split(total.astype(np.float64), 3)
    units = _units(bound, rows)
    return Scale.of_sums(count, first * units[0], second * units[1])


def _units(bound: Floats, rows: int) -> tuple[Floats, Floats]:
    """What 1 is worth in a sum of values, and in one of squares; float64 (columns,) each."""
    bits = SUM_BITS - SPARE_BITS - max(rows - 1, 0).bit_length()
    return bound * 2.0**-bits, bound**2 * 2.0**-bits
