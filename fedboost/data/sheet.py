"""A table as its source holds it: Arrow columns, and beside them features that stay sparse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csc_array

# The last index counts as the number of columns; a model holds the cuts and name of each.
INDEX_MAX = 2**20
DENSE_CELLS_MAX = 2**27  # 1 GiB of float64 while a dense table is built
BEYOND = -1  # index of a column without entries in the file
_FEATURE = re.compile(r"f(0|[1-9][0-9]{0,6})")


@dataclass(frozen=True, eq=False, repr=False)
class SparseColumns:
    """Features named ``f<index>`` from index `first` on.

    `values`: float64 (n, c) in canonical form (sorted, no duplicates, no explicit zeros); an
    absent entry is the value 0, an explicit NaN is missing.
    """

    values: csc_array
    first: int

    @property
    def width(self) -> int:
        """Number of columns, up to the last with an entry in the file."""
        return int(self.values.shape[1])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(f"f{self.first + place}" for place in range(self.width))

    def place(self, name: str) -> int | None:
        """Return the column's index; BEYOND if the file has no entry for it; None for no feature.

        An absent entry is zero, so a column without entries is all zeros, not unknown: a file of
        few rows need not reach the last column that a model was trained on.
        """
        match = _FEATURE.fullmatch(name)
        if match is None or int(match[1]) > INDEX_MAX:
            return None
        place = int(match[1]) - self.first
        return place if 0 <= place < self.width else BEYOND

    def entries_of(self, place: int) -> NDArray[np.float64]:
        """Return the entries of one column that are not zero, float64."""
        start, end = self.values.indptr[place : place + 2]
        return self.values.data[start:end]

    def dense(self, place: int) -> NDArray[np.float64]:
        """Return one column with its zeros, float64 (n,)."""
        start, end = self.values.indptr[place : place + 2]
        cells = np.zeros(self.values.shape[0])
        cells[self.values.indices[start:end]] = self.values.data[start:end]
        return cells


@dataclass(frozen=True, eq=False, repr=False)
class Sheet:
    """Arrow columns and, if the source is sparse, its features beside them."""

    columns: pa.Table
    sparse: SparseColumns | None = None
    unread: tuple[str, ...] = ()  # other columns of the source, in its order

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.columns.num_rows)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all columns: the Arrow columns, then the sparse ones."""
        sparse = () if self.sparse is None else self.sparse.names
        return (*self.columns.column_names, *sparse)

    @cached_property
    def indices(self) -> dict[str, int]:
        """Index of each Arrow column by name."""
        return {name: place for place, name in enumerate(self.columns.column_names)}

    def has_column(self, name: str) -> bool:
        """Return True if the table has the column."""
        if name in self.indices:
            return True
        return self.sparse is not None and self.sparse.place(name) not in (None, BEYOND)

    def can_be_feature(self, name: str) -> bool:
        """Return True if the column can be a feature: it is there, or all zeros (see `place`)."""
        if name in self.indices:
            return True
        return self.sparse is not None and self.sparse.place(name) is not None

    def column(self, name: str) -> pa.ChunkedArray:
        """Return the cells of a column that the table `has_column`, sparse ones with their
        zeros.
        """
        if name in self.indices:
            return self.columns.column(self.indices[name])
        assert self.sparse is not None
        place = self.sparse.place(name)
        assert place is not None
        return pa.chunked_array([self.sparse.dense(place)])

    def dense(self) -> pa.Table:
        """Return all columns as one Arrow table; a DataError above CELLS_MAX cells."""
        if self.sparse is None:
            return self.columns
        width = self.sparse.width
        if self.n_rows * width > DENSE_CELLS_MAX:
            raise DataError(
                f"{self.n_rows} rows of {width} columns are more than "
                f"2^{DENSE_CELLS_MAX.bit_length() - 1} cells",
                rows=self.n_rows,
                todo="a job reads it as it is; to split it, write fewer columns",
            )
        cells = self.sparse.values.toarray(order="F")
        features = {name: cells[:, place] for place, name in enumerate(self.sparse.names)}
        ordinary = {name: self.columns.column(name) for name in self.columns.column_names}
        return pa.table(ordinary | features)


def pick_columns(values: csc_array, indices: Sequence[int]) -> csc_array:
    """Return the columns at `indices` of (n, c), in that order; BEYOND is an empty column."""
    from scipy.sparse import csc_array

    wanted = np.asarray(indices, dtype=np.int64)
    if np.array_equal(wanted, np.arange(values.shape[1])):
        return values
    starts = values.indptr[:-1].astype(np.int64)
    # BEYOND indexes an empty column behind the last one.
    starts = np.append(starts, 0)[wanted]
    sizes = np.append(np.diff(values.indptr), 0)[wanted].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)
    parts = (values.data[entries], values.indices[entries], indptr.astype(values.indptr.dtype))
    return csc_array(parts, shape=(values.shape[0], len(wanted)))
