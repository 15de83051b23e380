"""Columns as float32 features, or one error that names the unusable columns and the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.categories import (
    CATEGORIES_MAX,
    CATEGORY_BYTES_MAX,
    ColumnCodes,
    codes_of,
    distinct_texts,
)
from fedboost.data.column_blocks import number_blocks
from fedboost.data.columns import (
    BEYOND_FLOAT32,
    READABLE,
    ColumnNumbers,
    kind_of,
    merges_numbers,
    plain_numbers,
    read_numbers,
)
from fedboost.data.conversions import holds_dates
from fedboost.data.frame import FrameValues
from fedboost.data.sheet import SparseColumns, pick_columns
from fedboost.data.written_numbers import DECIMAL_COMMAS, THOUSANDS_SIGNS, signs_to_declare
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csc_array

NAMES_SHOWN_MAX = 5
GIVEN_BACK_BYTES = 1 << 24  # of columns already read, released together

_LEAVE_OUT = "leave them out of the job with 'ignore'"
# Problem of the named columns, and remedy; gravest first.
_TEXTS = {
    "sparse": (
        "hold lists; only svmlight is read sparsely",
        "write one column per feature, or svmlight, or " + _LEAVE_OUT,
    ),
    **{signs.kind: (signs.what, signs.remedy) for signs in (DECIMAL_COMMAS, THOUSANDS_SIGNS)},
    "date": (
        "hold dates",
        "name them in 'dates' of the data set to read days, month and weekday, write them as "
        "numbers, or " + _LEAVE_OUT,
    ),
    "type": ("cannot become numbers", _LEAVE_OUT + ", or write them as numbers"),
    "text": (
        "are text, not numbers",
        "name them in 'categorical' in the job, or " + _LEAVE_OUT,
    ),
    "cells": (
        "have cells that are not numbers",
        "mend these cells and leave a missing value's cell empty, or name the columns in "
        "'categorical' in the job",
    ),
    "categories": (
        f"have more than {CATEGORIES_MAX} categories",
        _LEAVE_OUT + ", or group their values",
    ),
    "long": (
        f"have categories longer than {CATEGORY_BYTES_MAX} bytes",
        _LEAVE_OUT + ", or shorten their values",
    ),
    "infinite": ("have infinite values", "mend them; leave a missing value's cell empty"),
    "beyond": (
        f"have values {BEYOND_FLOAT32}",
        "rescale them, or " + _LEAVE_OUT,
    ),
}


@dataclass(frozen=True)
class Fault:
    """Reason why a column cannot be a feature; `detail` has a count or type, never cells."""

    kind: str
    column: str
    detail: str


@dataclass(frozen=True, eq=False, repr=False)
class Feature:
    """A column read as a feature: its numbers if its type has any, and its fault if any."""

    name: str
    numbers: ColumnNumbers | None
    fault: Fault | None
    merges: bool = False  # different whole numbers become the same


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """A frame's features: values, categories by column, notes for the log.

    `values` is float32 (n, c), as `fedboost.data.frame.Frame` has it.
    """

    values: FrameValues
    categories: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    merged: tuple[str, ...] = ()  # columns with different whole numbers that became the same


def read_feature(name: str, column: pa.ChunkedArray) -> Feature:
    """Return the column's numbers, and its fault if it cannot be a feature."""
    numbers = plain_numbers(column)
    if numbers is None:
        if holds_dates(column):
            return Feature(name, None, Fault("date", name, ""))
        if kind_of(column.type) not in READABLE:
            return Feature(name, None, _type_fault(name, column))
        numbers = read_numbers(column)
    signs = signs_to_declare(column) if numbers.text_cells else None
    if signs is not None:
        return Feature(name, numbers, Fault(signs.kind, name, ""))
    if numbers.is_text:
        return Feature(name, numbers, Fault("text", name, ""))
    fault = number_fault(name, numbers, len(numbers.values))
    return Feature(name, numbers, fault, fault is None and merges_numbers(column, numbers))


def number_fault(name: str, numbers: ColumnNumbers, n_rows: int) -> Fault | None:
    """Return the first fault of a column with these numbers; None if it can be a feature."""
    counts = {
        "cells": numbers.text_cells,
        "infinite": numbers.infinite,
        "beyond": numbers.beyond_float32,
    }
    for fault, count in counts.items():
        if count:
            return Fault(fault, name, f"{count} of {n_rows} rows")
    return None


def read_category(name: str, column: pa.ChunkedArray) -> ColumnCodes | Fault:
    """Return the column as codes of its categories, or its fault if it cannot have any."""
    if kind_of(column.type) not in READABLE:
        return _type_fault(name, column)
    texts = distinct_texts(column)
    if len(texts.dictionary) > CATEGORIES_MAX:
        return Fault("categories", name, str(len(texts.dictionary)))
    sizes = pc.binary_length(texts.dictionary).to_numpy()
    n_long = int((sizes > CATEGORY_BYTES_MAX).sum())
    return Fault("long", name, f"{n_long} of them") if n_long else codes_of(texts)


def _type_fault(name: str, column: pa.ChunkedArray) -> Fault:
    """Return the fault of a column whose type has no numbers."""
    kind = kind_of(column.type)
    if holds_dates(column):
        return Fault("date", name, "")
    return Fault("sparse" if kind == "list" else "type", name, kind)


def feature_matrix(
    columns: dict[str, pa.ChunkedArray],
    n_rows: int,
    names: Sequence[str],
    categorical: Collection[str] = (),
) -> Features:
    """Return the named columns as features, the `categorical` ones as codes.

    `columns` has `n_rows` cells each. A column leaves `columns` once it is read, so that it is not
    in memory twice. Whole numbers beyond 2^24 may be rounded: a note says so. One DataError for all
    columns that cannot be features for the same reason.
    """
    values = np.empty((n_rows, len(names)), dtype=np.float32, order="F")
    categories: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    merged: list[str] = []
    faults: list[Fault] = []
    free = _read_blocks(values, columns, names, categorical)  # bytes
    for place, name in enumerate(names):
        if name not in columns:
            continue
        cells = columns.pop(name)
        free += cells.nbytes
        if free >= GIVEN_BACK_BYTES:
            pa.default_memory_pool().release_unused()
            free = 0
        if name in categorical:
            codes = read_category(name, cells)
            if isinstance(codes, Fault):
                faults.append(codes)
            else:
                values[:, place] = codes.values
                categories[name] = codes.categories
            continue
        feature = read_feature(name, cells)
        if feature.fault is not None:
            faults.append(feature.fault)
        elif feature.numbers is not None and not faults:
            values[:, place] = feature.numbers.values
            merged += [name] * feature.merges
            if feature.numbers.rounded:
                notes.append(rounding_note(name))
    if faults:
        raise fault_errors(faults, n_rows)[0]
    return Features(values, categories, tuple(notes), tuple(merged))


def _read_blocks(
    values: FrameValues,
    columns: dict[str, pa.ChunkedArray],
    names: Sequence[str],
    categorical: Collection[str],
) -> int:
    """Move blocks of plain numbers from `columns` to `values`; return the bytes they took."""
    known = {*categorical}
    ordinary = [place for place, name in enumerate(names) if name not in known]
    free = 0
    for part, block in number_blocks([columns[names[at]] for at in ordinary], values.shape[0]):
        values[:, ordinary[part]] = block.values.T
        free += block.cells.nbytes
        for place in ordinary[part]:
            del columns[names[place]]
    return free


def sparse_matrix(table: pa.Table, sparse: SparseColumns, names: Sequence[str]) -> Features:
    """Return the named columns of a sparse sheet, `table` and `sparse`, as sparse features.

    Notes and errors are those of `feature_matrix`.
    """
    from scipy.sparse import csc_array, hstack

    ordinary = [name for name in table.column_names if name in set(names)]
    columns = dict(zip(table.column_names, table.columns, strict=True))
    beside = feature_matrix(columns, table.num_rows, ordinary)
    values = sparse.values
    if ordinary:
        values = hstack([values, csc_array(beside.values)], format="csc")
    place = {name: sparse.width + at for at, name in enumerate(ordinary)}
    indices = [place[name] if name in place else sparse.place(name) for name in names]
    chosen = pick_columns(values, [at for at in indices if at is not None])
    notes = _check_entries(chosen, names)
    entries = chosen.data.astype(np.float32)
    parts = (entries, chosen.indices, chosen.indptr)
    vanish = not entries.all()  # entries too small for float32
    read = csc_array(parts, shape=chosen.shape, copy=vanish)
    if vanish:
        read.eliminate_zeros()
    return Features(read, {}, (*beside.notes, *notes), beside.merged)


def sparse_numbers(entries: NDArray[np.float64]) -> ColumnNumbers:
    """Return the entries of one or several sparse columns as numbers, without zeros."""
    return ColumnNumbers(entries, text_cells=0, missing=int(np.isnan(entries).sum()))


def _check_entries(values: csc_array, names: Sequence[str]) -> list[str]:
    """Return notes on the columns of float64 (n, c); a DataError if some are no features."""
    whole = sparse_numbers(values.data)
    if not whole.rounded and number_fault("", whole, values.shape[0]) is None:
        return []
    notes: list[str] = []
    faults: list[Fault] = []
    for name, start, end in zip(names, values.indptr[:-1], values.indptr[1:], strict=True):
        numbers = sparse_numbers(values.data[start:end])
        fault = number_fault(name, numbers, values.shape[0])
        if fault is not None:
            faults.append(fault)
        if numbers.rounded:
            notes.append(rounding_note(name))
    if faults:
        raise fault_errors(faults, values.shape[0])[0]
    return notes


def rounding_note(name: str) -> str:
    """Return the log's note on whole numbers that a 32-bit float cannot tell apart."""
    return f"column {name}: whole numbers beyond 2^24 were rounded to 32-bit floats"


def merging_note(names: str) -> str:
    """Return the note on columns with whole numbers that become equal, and the remedy."""
    return (
        f"column {names}: different whole numbers become the same 32-bit float; subtract the "
        "least one, split them into two columns, or name the column in 'ignore'"
    )


def shown_names(names: Sequence[str]) -> str:
    """Return at most NAMES_SHOWN_MAX names, and how many more there are."""
    rest = len(names) - NAMES_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more


def fault_errors(faults: Sequence[Fault], n_rows: int) -> list[DataError]:
    """Return one error for each kind of fault, naming all its columns; the gravest kind first."""
    errors = []
    for kind, (what, todo) in _TEXTS.items():
        same = [fault for fault in faults if fault.kind == kind]
        if same:
            listed = shown_names(
                [f"{name.column} ({name.detail})".replace(" ()", "") for name in same]
            )
            names = shown_names([fault.column for fault in same])
            text = f"columns that {what}: {listed}"
            errors.append(DataError(text, column=names, rows=n_rows, todo=todo))
    return errors
