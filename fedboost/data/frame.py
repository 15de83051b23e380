"""A party's table as jobs use it: ids, float32 columns, label."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedboost.ground.ids import EncodedIds
from fedboost.ground.kernels import kernel
from fedboost.ground.mapped import copy_rows, free_pages

if TYPE_CHECKING:
    from scipy.sparse import csc_array

BATCH_ROWS = 1 << 16  # to read, score or write together
DIGEST_LABEL = b"fedboost.frame.1"

FrameValues: TypeAlias = "NDArray[np.float32] | csc_array"


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """A checked table of n rows and c columns; its arrays are read-only.

    `ids`: n encoded ids (`fedboost.data.ids`), all different. `values`: float32 (n, c), NaN
    where missing, never infinite: an array in Fortran order, or a sparse one in canonical form
    (sorted indices, no duplicates, no explicit zeros) whose absent entries are 0.
    `columns`: c names, all different.
    `label`: float64 (n,), finite, or None. `id_columns`: the names the ids were read from.
    `weight`: float64 (n,), finite, or None for all ones.
    `categories`: by the name of each categorical column its texts, all different; the column's
    values are indices into them, 0.0, 1.0, …
    `merged`: columns with different whole numbers that became the same 32-bit float.
    `notes`: sentences for the party's own log about values that were changed when read.
    `unlisted`: by categorical column how many of its missing values are categories that the reader
    did not ask for.
    `group_cuts`: by column number the cut points between the owner's groups of values, float32 and
    rising; a column without them has its values as they were read.
    """

    ids: EncodedIds
    values: FrameValues
    columns: tuple[str, ...]
    label: NDArray[np.float64] | None
    id_columns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    weight: NDArray[np.float64] | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unlisted: Mapping[str, int] = field(default_factory=dict)
    group_cuts: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check our own invariants; callers have checked the table already."""
        assert self.values.dtype == np.float32
        assert self.values.shape == (self.n_rows, len(self.columns))
        assert len(set(self.columns)) == len(self.columns)
        assert not (self.is_sparse and self.categories)
        for array in _checked_arrays(self.values):
            array.flags.writeable = False
        if self.label is not None:
            assert self.label.dtype == np.float64
            assert self.label.shape == (len(self.ids),)
            self.label.flags.writeable = False
        if self.weight is not None:
            assert self.weight.dtype == np.float64
            assert self.weight.shape == (len(self.ids),)
            self.weight.flags.writeable = False
        for name, texts in self.categories.items():
            codes = self.values[:, self.columns.index(name)]
            codes = codes[~np.isnan(codes)]
            assert len(set(texts)) == len(texts)
            assert bool(np.all((codes >= 0) & (codes < len(texts))))
            assert bool(np.all(codes == np.floor(codes)))

    @property
    def is_sparse(self) -> bool:
        """True if `values` is a `csc_array`, which stores no zeros."""
        return not isinstance(self.values, np.ndarray)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.ids)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the categorical columns among `columns`."""
        return tuple(c for c, name in enumerate(self.columns) if name in self.categories)

    def __repr__(self) -> str:
        """Return the shape, never content."""
        label = "no label" if self.label is None else "label"
        sparse = "sparse " if self.is_sparse else ""
        return f"Frame({self.n_rows} rows, {len(self.columns)} {sparse}columns, {label})"

    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> Frame:
        """Return the rows numbered `rows` (int (k,), from 0), in that order."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Frame(
            ids=self.ids.take(chosen),
            values=_rows_of(self.values, chosen),
            columns=self.columns,
            label=None if self.label is None else self.label[chosen],
            id_columns=self.id_columns,
            notes=self.notes,
            merged=self.merged,
            weight=None if self.weight is None else self.weight[chosen],
            categories=self.categories,
            group_cuts=self.group_cuts,
        )

    def take_in_place(self, rows: NDArray[np.int64]) -> Frame:
        """Return the frame that `take` returns for distinct rows, in the memory of this frame.

        This frame has no cells afterwards.
        """
        chosen, values = np.asarray(rows, dtype=np.int64), self.values
        ids = self.ids.take(chosen)
        object.__delattr__(self, "ids")
        if isinstance(values, np.ndarray):
            self.allow_changes()
            values = _move_rows(values, chosen)
        else:
            values = _rows_of(values, chosen)
        object.__delattr__(self, "values")
        weight, label = self.weight, self.label
        return replace(
            self,
            ids=ids,
            values=values,
            label=None if label is None else label[chosen],
            weight=None if weight is None else weight[chosen],
            unlisted={},
        )

    def allow_changes(self) -> None:
        """Make the values writable, for a new frame in the same memory."""
        for array in _checked_arrays(self.values):
            array.flags.writeable = True

    def drop_values(self) -> None:
        """Release the values once they are no longer read; the frame has none afterwards."""
        object.__delattr__(self, "values")

    def ids_digest(self) -> bytes:
        """Return SHA-256 over the ids: equal iff frames have the same rows in the same order."""
        digest = hashlib.sha256()
        self.ids.update(digest)
        return digest.digest()

    def digest(self) -> bytes:
        """Return SHA-256 over the whole table, label, weights and categories included.

        It is equal iff the tables are, with rows and columns in order and all missing values alike.
        A sparse frame has another digest than the dense one of the same values. The digest stays
        inside one party: it is not keyed, so a short table could be guessed from it.
        """
        digest = hashlib.sha256(DIGEST_LABEL)
        parts = [*self.id_columns, "", *self.columns]
        digest.update(_size_bytes(self.n_rows, len(self.id_columns), len(self.columns)))
        for name in (part.encode() for part in parts):
            digest.update(_size_bytes(len(name)) + name)
        self.ids.update(digest)
        cells = self.values.T
        if not isinstance(self.values, np.ndarray):
            digest.update(b"sparse" + self.values.indptr.astype("<i8", copy=False).tobytes())
            digest.update(self.values.indices.astype("<i8", copy=False).tobytes())
            cells = [self.values.data]
        for column in cells:
            for begin in range(0, len(column), BATCH_ROWS):
                some = column[begin : begin + BATCH_ROWS]
                alike = np.where(np.isnan(some), np.float32(np.nan), some)
                digest.update(alike.astype("<f4", copy=False).data)
            free_pages(column)
        if self.label is not None:
            digest.update(b"label" + self.label.astype("<f8", copy=False).tobytes())
        if self.weight is not None:
            digest.update(b"weight" + self.weight.astype("<f8", copy=False).tobytes())
        for column_name in filter(self.categories.__contains__, self.columns):
            texts = [text.encode() for text in (column_name, *self.categories[column_name])]
            digest.update(
                b"categories" + _size_bytes(len(texts), *map(len, texts)) + b"".join(texts)
            )
        return digest.digest()


def recode_categories(
    codes: NDArray[np.float32], texts: Sequence[str], known: Iterable[str]
) -> NDArray[np.float32]:
    """Return codes of `texts`, float32 (n,), as indices into `known`; NaN for other texts."""
    place = {text: number for number, text in enumerate(known)}
    table = np.array([*(place.get(text, np.nan) for text in texts), np.nan], np.float32)
    return table[np.where(np.isnan(codes), len(texts), codes).astype(np.int64)]


def values_at(
    values: FrameValues, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return single cells, float32 (m,), of values (n, c): in rows (m,) and columns (m,)."""
    if isinstance(values, np.ndarray):
        return values[rows, columns]
    parts = (values.indptr, values.indices, values.data)
    return _sparse_cells(*parts, rows.astype(np.int64), columns.astype(np.int64))


@kernel
def _sparse_cells(
    starts: NDArray[np.integer],
    indices: NDArray[np.integer],
    entries: NDArray[np.float32],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> NDArray[np.float32]:
    column = np.zeros(len(rows), dtype=np.float32)
    for i in range(len(rows)):
        low, end = starts[columns[i]], starts[columns[i] + 1]
        place = low + np.searchsorted(indices[low:end], rows[i])
        if place < end and indices[place] == rows[i]:
            column[i] = entries[place]
    return column


def _size_bytes(*sizes: int) -> bytes:
    return b"".join(size.to_bytes(8, "little") for size in sizes)


def _checked_arrays(values: FrameValues) -> list[NDArray[np.generic]]:
    """Return the arrays of `values` after checking the form that `Frame` promises."""
    if isinstance(values, np.ndarray):
        assert values.flags.f_contiguous
        return [values]
    assert values.has_canonical_format
    assert bool(values.data.all())  # no explicit zeros; a NaN is none
    return [values.data, values.indices, values.indptr]


def _move_rows(values: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Move different rows of values in Fortran order to the beginning of their memory."""
    (n_rows, width), count = values.shape, len(rows)
    cells = values.T.reshape(-1)
    for c in range(width):
        cells[c * count : (c + 1) * count] = cells[c * n_rows : (c + 1) * n_rows][rows]
        free_pages(values)
    return cells[: width * count].reshape(width, count).T


def _rows_of(values: FrameValues, rows: NDArray[np.int64]) -> FrameValues:
    if isinstance(values, np.ndarray):
        return copy_rows(values, rows)
    taken = values[rows]
    taken.sort_indices()
    return taken
