"""Rows of a program's table: Arrow columns, or the columns of a sparse matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csc_array, vstack

from fedboost.data.frame import Frame
from fedboost.data.ids import id_texts
from fedboost.data.loading import absent_column, frame_of
from fedboost.data.predictions import free_name
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet, SparseColumns
from fedboost.data.sources import IdFormat
from fedboost.ground.arrays import Indices
from fedboost.sdk.refusals import InvalidTableError

ABSENT_CELLS_MAX = 1 << 28  # 2 GiB of float64


@dataclass(frozen=True, eq=False, repr=False)
class RowTable:
    """A table of n rows: Arrow columns, or sparse ones that are called by their numbers.

    `sparse`: float64 (n, c), sorted and without duplicates, for columns f0, f1, …; then `columns`
    has none.
    `index`: the levels of a pandas index, by name; empty where there is none.
    """

    names: tuple[str, ...]  # of all columns, in their order
    columns: pa.Table
    n_rows: int
    sparse: csc_array | None = None
    categorical: tuple[str, ...] = ()  # columns with a type for categories
    is_named: bool = False  # whether the caller has named the columns
    index: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    id_format: IdFormat = field(default_factory=IdFormat)
    missing: float | None = None  # a number that means missing

    def select(self, names: Sequence[str]) -> RowTable:
        """Return some columns in the order of `names`; raise DataError for a missing one."""
        for name in names:
            if name not in self.names:
                raise _absent_column_error(name, self.names)
        kinds = tuple(name for name in names if name in self.categorical)
        if self.sparse is not None:
            return replace(self, names=tuple(names), categorical=kinds)
        columns = self.columns.select(list(names))
        return replace(self, names=tuple(names), columns=columns, categorical=kinds)

    def without(self, names: Sequence[str]) -> RowTable:
        """Return the columns without those of these names."""
        return self.select([name for name in self.names if name not in set(names)])

    def renamed(self, names: Sequence[str]) -> RowTable:
        """Return the same columns under other names, one each."""
        if self.sparse is not None or tuple(names) == self.names:
            return self
        new = dict(zip(self.names, names, strict=True))
        kinds = tuple(new[name] for name in self.categorical)
        columns = self.columns.rename_columns(list(names))
        return replace(self, names=tuple(names), columns=columns, categorical=kinds)

    def with_absent_missing(self) -> RowTable:
        """Return a sparse table as a dense one whose absent entries are missing, as XGBoost reads
        them; other tables unchanged.
        """
        if self.sparse is None:
            return self
        cells = self.n_rows * len(self.names)
        if cells > ABSENT_CELLS_MAX:
            raise InvalidTableError(
                f"the sparse table has {cells:,} cells, and trees store each absent one as missing",
                todo=f"give fewer columns ({ABSENT_CELLS_MAX:,} cells at most)",
            )
        columns = {}
        for name in self.names:
            place = int(name.removeprefix("f"))
            dense = np.full(self.n_rows, np.nan)
            first, stop = self.sparse.indptr[place : place + 2]
            dense[self.sparse.indices[first:stop]] = self.sparse.data[first:stop]
            columns[name] = dense
        return replace(self, columns=pa.table(columns), sparse=None)

    def take(self, rows: Indices) -> RowTable:
        """Return the rows numbered `rows`, int64 (k,), in that order."""
        chosen = pa.array(rows)
        index = {name: level.take(chosen) for name, level in self.index.items()}
        if self.sparse is not None:
            taken = csc_array(self.sparse[rows])
            taken.sort_indices()
            return replace(self, n_rows=len(rows), sparse=taken, index=index)
        return replace(self, n_rows=len(rows), columns=self.columns.take(chosen), index=index)

    def with_rows_below(self, other: RowTable) -> RowTable:
        """Return these rows and below them the rows of a table with the same columns."""
        below = other.renamed(self.names) if not other.is_named else other.select(self.names)
        n_rows = self.n_rows + below.n_rows
        kinds = tuple(dict.fromkeys((*self.categorical, *below.categorical)))
        if self.sparse is not None and below.sparse is not None:
            stacked = csc_array(vstack([self.sparse, below.sparse]))
            stacked.sort_indices()
            return replace(self, n_rows=n_rows, sparse=stacked, index={})
        if self.sparse is not None or below.sparse is not None:
            raise InvalidTableError(
                "one table is sparse and the other is not", todo="give both in one form"
            )
        try:
            both = pa.concat_tables([self.columns, below.columns], promote_options="permissive")
        except pa.ArrowException:
            raise InvalidTableError(
                "columns of eval_set have different types than in X",
                todo="give both with the same columns",
            ) from None
        return replace(self, n_rows=n_rows, columns=both, categorical=kinds, index={})

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column, or a level of the index, by name; raise DataError if it is missing."""
        if self.sparse is None and name in self.names:
            return self.columns.column(name)
        if name in self.index:
            return self.index[name]
        raise _absent_column_error(name, (*self.names, *self.index))

    def id_cells(self, name: str) -> pa.ChunkedArray:
        """Return a column of ids in their canonical spelling."""
        cells = self.column(name)
        return cells if self.id_format == IdFormat() else id_texts(cells, name, self.id_format)

    def as_sheet(self, **beside: NDArray[Any] | pa.ChunkedArray) -> tuple[Sheet, dict[str, str]]:
        """Return the table as a party's source with further columns, and the names of these."""
        called: dict[str, str] = {}
        columns = {name: self.columns.column(name) for name in self.columns.column_names}
        for name, cells in beside.items():
            called[name] = free_name(name, [*self.names, *columns])
            held = cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])
            columns[called[name]] = held
        sparse = None
        if self.sparse is not None:
            values = self.sparse.copy()
            values.eliminate_zeros()
            sparse = SparseColumns(values, first=0)
        return Sheet(pa.table(columns), sparse), called

    def frame(self, names: Sequence[str], categorical: Sequence[str]) -> Frame:
        """Return the columns of a model in its form; raise DataError if one cannot be a feature."""
        sheet, called = self.as_sheet(id=np.arange(1, self.n_rows + 1))
        wanted = Selection(
            id=[called["id"]],
            columns=list(names),
            categorical=list(categorical),
            missing=self.missing,
        )
        return frame_of(sheet, wanted, needs_features=False)


def _absent_column_error(name: str, known: Sequence[str]) -> InvalidTableError:
    error = absent_column("feature", name, known)
    return InvalidTableError(f"the table has no column {name!r}", todo=error.todo, column=name)
