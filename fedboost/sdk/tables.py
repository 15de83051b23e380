"""Tables of a program, from numpy, scipy, pandas, polars or Arrow, as a party's own table."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from fedboost.data.conversions import as_declared_cells
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse_settings
from fedboost.sdk.refusals import InvalidTableError, as_value_errors
from fedboost.sdk.row_table import RowTable

TableLike: TypeAlias = Any  # array-like (n, columns), scipy sparse, or an Arrow-compatible object

NAMES_SHOWN = 5  # of columns, in an error
SWAPPED = "<" if sys.byteorder == "big" else ">"  # the order of bytes that Arrow does not read
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class DeclaredTable:
    """A party's table with declarations for reading its cells."""

    def __init__(
        self,
        rows: TableLike,
        *,
        decimal: str = ".",
        thousands: str | None = None,
        dates: Sequence[str] = (),
        id_format: Mapping[str, Any] | None = None,
        missing: float | None = None,
    ) -> None:
        """Declare cells as for a daemon's table: `decimal` "," reads 1,5, `thousands` "," 1,500;
        columns in `dates` become days, month and weekday; `id_format` has `strip`, `lower` and
        `zfill`; `missing` is a number that means missing in features.
        """
        self.rows = rows
        declared = {
            "decimal": decimal,
            "thousands": thousands,
            "dates": list(dates),
            "id_format": dict(id_format or {}),
        }
        with as_value_errors():
            self.source = parse_settings(SourceSpec, {"path": "X", "missing": missing, **declared})

    def read(self, what: str) -> RowTable:
        """Return the table with its cells read as declared; refuse like `rows_of`."""
        id_format, missing = self.source.id_format, self.source.missing
        table = replace(rows_of(self.rows, what), id_format=id_format, missing=missing)
        if table.sparse is not None:
            return table
        with as_value_errors(table=what):
            columns = as_declared_cells(Sheet(table.columns), self.source).columns
        return replace(table, names=tuple(columns.column_names), columns=columns)


def rows_of(given: TableLike | RowTable, what: str = "X") -> RowTable:
    """Return the table; raise InvalidTableError if it is invalid, or has no rows or columns.

    `what` is its name in errors.
    """
    if isinstance(given, RowTable):
        return given
    if isinstance(given, DeclaredTable):
        return given.read(what)
    given = _with_named_columns(given)
    names = Counter(getattr(given, "column_names", None) or list(getattr(given, "columns", ())))
    if twice := [str(name) for name, count in names.items() if count > 1]:
        raise InvalidTableError(
            f"{what} has several columns of one name: {', '.join(twice[:NAMES_SHOWN])}",
            todo="give each column its own name",
        )
    if issparse(given):
        table = _of_sparse(given, what)
    elif _is_pandas(given):
        table = _of_pandas(given)
    elif isinstance(given, pa.Table | pa.RecordBatch) or hasattr(given, "__arrow_c_stream__"):
        table = _of_arrow(_arrow_table(given, what))
    else:
        table = _of_array(given, what)
    if not table.names:
        raise InvalidTableError(
            f"{what} has 0 feature(s) (shape=({table.n_rows}, 0)) while a minimum of 1 is "
            "required.",
            todo="give a column",
        )
    if not table.n_rows:
        shape = (0, len(table.names))
        raise InvalidTableError(
            f"{what} has 0 sample(s) (shape={shape}) while a minimum of 1 is required.",
            todo="give a row",
        )
    return table


def _arrow_table(given: Any, what: str) -> pa.Table:
    try:
        return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidTableError(
            f"{what} has no columns: it is of the type {type(given).__name__}",
            todo="give rows and columns: a data frame, an Arrow table or an array",
        ) from None


def _is_pandas(given: TableLike) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, pandas.DataFrame | pandas.Series)


def _with_named_columns(given: Any) -> Any:
    """Return a table as it is, but data frames and series with texts for names of columns."""
    if _is_pandas(given):
        return _with_text_names(given)
    is_series = not hasattr(given, "columns") and hasattr(given, "to_frame")
    return given.to_frame() if is_series else given


def _with_text_names(given: Any) -> Any:
    """Return a data frame whose columns are named by texts, as XGBoost names them; a series is one
    column.
    """
    if given.ndim == 1:
        return given.to_frame("f0" if given.name is None else str(given.name))
    names = [
        " ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in given.columns
    ]
    return given.set_axis(names, axis=1)


def _of_pandas(given: Any) -> RowTable:
    swapped = {n: k for n, k in given.dtypes.items() if getattr(k, "byteorder", "=") == SWAPPED}
    given = given.astype({name: kind.newbyteorder("=") for name, kind in swapped.items()})
    try:
        table = pa.Table.from_pandas(given, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidTableError(
            f"a column of the data frame cannot be read: {_first_line(error)}",
            todo="give numbers, texts or categories",
        ) from None
    return replace(_of_arrow(table), index=index_of(given))


def index_of(given: Any) -> dict[str, pa.ChunkedArray]:
    """Return the levels of a pandas index by name; empty for an object without one.

    A level without a name is called `index`, or `level_0`, … of several, as pandas does.
    """
    pandas = sys.modules.get("pandas")
    index = getattr(given, "index", None)
    if pandas is None or not isinstance(index, pandas.Index):
        return {}
    names = [
        name if name is not None else ("index" if index.nlevels == 1 else f"level_{level}")
        for level, name in enumerate(index.names)
    ]
    levels = [index.get_level_values(level) for level in range(index.nlevels)]
    return {
        str(name): _without_dictionary(pa.chunked_array([pa.array(level, from_pandas=True)]))
        for name, level in zip(names, levels, strict=True)
    }


def _of_arrow(table: pa.Table) -> RowTable:
    kinds = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
    columns = dict(zip(table.column_names, map(_without_dictionary, table.columns), strict=True))
    plain = pa.table(columns)
    return RowTable(tuple(columns), plain, table.num_rows, categorical=tuple(kinds), is_named=True)


def _without_dictionary(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without dictionary coding, its text in a type that supports `take`."""
    if pa.types.is_dictionary(cells.type):
        taken = (
            _without_dictionary(pa.chunked_array([c.dictionary])).take(c.indices)
            for c in cells.chunks
        )
        parts = [part for chunk in taken for part in chunk.chunks]
        return pa.chunked_array(parts, _plain_type(cells.type.value_type))
    kind = _plain_type(cells.type)
    return cells if kind == cells.type else pc.cast(cells, kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _of_sparse(given: Any, what: str) -> RowTable:
    if given.dtype.kind == "c":
        raise InvalidTableError(f"{what}: Complex data not supported", todo="give real numbers")
    if len(given.shape) != 2:
        raise InvalidTableError(
            f"{what} has {len(given.shape)} dimensions, expected 2", todo="give rows and columns"
        )
    values = csc_array(given, dtype=np.float64, copy=True)
    values.sum_duplicates()
    names = tuple(f"f{place}" for place in range(values.shape[1]))
    return RowTable(names, pa.table({}), int(values.shape[0]), sparse=values)


def _of_array(given: TableLike, what: str) -> RowTable:
    cells = _as_array(given, what)
    if cells.ndim == 0:
        is_what = "None" if given is None else f"of the type {type(given).__name__}"
        raise InvalidTableError(
            f"{what} is {is_what}, not a table",
            todo="give rows and columns: a data frame, an Arrow table or an array",
        )
    if cells.ndim != 2:
        raise InvalidTableError(
            f"{what} has {cells.ndim} dimensions, expected rows and columns",
            todo="Reshape your data: x.reshape(-1, 1) for one column, x.reshape(1, -1) for one row",
        )
    if cells.dtype.kind == "c":
        raise InvalidTableError(f"{what}: Complex data not supported", todo="give real numbers")
    names = tuple(f"f{place}" for place in range(cells.shape[1]))
    columns = {name: _cells_as_arrow(cells[:, place], what) for place, name in enumerate(names)}
    return RowTable(names, pa.table(columns), int(cells.shape[0]))


def _as_array(given: TableLike, what: str) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError:
        raise InvalidTableError(
            f"{what} has rows of different lengths", todo="give every row the same number of cells"
        ) from None


def _cells_as_arrow(cells: NDArray[Any], what: str) -> pa.Array:
    if cells.dtype.kind == "O":
        try:
            cells = cells.astype(np.float64)
        except TypeError as error:
            raise InvalidTableError(
                f"{what} holds a value that is not a number: {error}",
                todo="give numbers, texts or categories",
            ) from None
        except ValueError:  # texts: numbers that are written, or categories
            try:
                return pa.array(cells, type=pa.string(), from_pandas=True)
            except pa.ArrowException:
                raise InvalidTableError(
                    f"a column of {what} holds texts and numbers", todo="give one or the other"
                ) from None
    if cells.dtype.kind == "f" and cells.dtype not in FLOATS:
        cells = cells.astype(np.float64)
    try:
        return pa.array(np.ascontiguousarray(cells.astype(cells.dtype.newbyteorder("="))))
    except pa.ArrowException:
        raise InvalidTableError(
            f"{what} holds values of the type {cells.dtype}",
            todo="give numbers, texts or categories",
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
