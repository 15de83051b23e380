"""A table of any number of rows, with cells and ids in files and the label in memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedboost.data.categories import CATEGORIES_MAX
from fedboost.data.features import Fault, fault_errors
from fedboost.data.frame import BATCH_ROWS, Frame, recode_categories
from fedboost.data.ids import refuse_shared
from fedboost.data.reading import locate_errors
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.arrays import Indices
from fedboost.ground.ids import EncodedIds
from fedboost.ground.mapped import array_beside, free_pages, mapped_array, mapped_table

if TYPE_CHECKING:
    from scipy.sparse import csc_array


def rows_to_train(
    source: SourceSpec,
    selection: Selection,
    folder: Path,
    *,
    party: str,
    needs_features: bool,
    guest_label: str | None = None,
) -> Frame:
    """Return the frame of `load_with_ids`, read in batches, with its values in a file.

    The file is on the disk of `folder`. Errors are those of `load_with_ids`, with row counts of one
    batch, and those of `RowBatches`.
    """
    with locate_errors(party=party):
        table = RowBatches.of(source, selection)
        frames = table.frames(
            BATCH_ROWS, needs_features=needs_features, party=party, guest_label=guest_label
        )
        first, cells = next(frames)
        if first.n_rows == table.rows:
            return first
        rows = _Rows.of(table, first, folder)
        deque(rows.added(chain([(first, cells)], frames)), maxlen=0)
        frame = rows.frame()
        with locate_errors(file=source.name):
            refuse_shared(frame.ids, selection.id, frame.n_rows)  # it may have changed meanwhile
    return frame


def rows_to_predict(
    source: SourceSpec,
    selection: Selection,
    known: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    party: str,
    needs_features: bool,
) -> tuple[Frame, pa.Table]:
    """Return the frame of `load_with_ids` for prediction, without label and weights, and its ids.

    The cells of the id columns lie in a file, too. If the table has more rows than a batch, the
    categories of a column are the `known` ones of the model; other categories are missing, and
    `unlisted` counts them.
    """
    selection = selection.model_copy(update={"label": None, "label_values": None, "weight": None})
    with locate_errors(party=party):
        table = RowBatches.of(source, selection)
        frames = table.frames(BATCH_ROWS, needs_features=needs_features)
        first, ids = next(frames)
        if first.n_rows == table.rows:
            return first, ids
        rows = _Rows.of(table, first, folder, known)
        cells = mapped_table(folder, rows.added(chain([(first, ids)], frames)))
    return rows.frame(), cells


@dataclass
class _Rows:
    """Rows of a table that have been read so far."""

    table: RowBatches
    first: Frame  # the first batch; all have its columns
    values: NDArray[np.float32]  # of all rows, in a file; empty if sparse
    ids: NDArray[np.uint8]  # bytes of the ids of all rows, in a file
    ends: Indices  # bounds of the ids in these bytes
    label: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    categories: dict[str, dict[str, int]]  # by column: index of each text
    is_known: bool  # whether the categories were given in advance
    sparse: list[csc_array] = field(default_factory=list)  # a table's rows, part by part
    end: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    merged: dict[str, None] = field(default_factory=dict)
    unlisted: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        table: RowBatches,
        first: Frame,
        folder: Path,
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> _Rows:
        """Reserve room for all rows of a table with this first batch."""
        n_rows = table.rows
        return cls(
            table,
            first,
            mapped_array(
                folder,
                (n_rows, 0 if first.is_sparse else len(first.columns)),
                np.float32,
                order="F",
            ),
            mapped_array(folder, (table.id_bytes,), np.uint8),
            mapped_array(folder, (n_rows + 1,), np.int64),
            None if first.label is None else np.empty(n_rows),
            None if first.weight is None else np.empty(n_rows),
            {
                name: {text: place for place, text in enumerate((known or {}).get(name, ()))}
                for name in first.categories
            },
            known is not None,
        )

    def added(self, frames: Iterable[tuple[Frame, pa.Table]]) -> Iterator[pa.Table]:
        """Add the rows of each batch, then yield the table that stands beside the batch."""
        for frame, beside in frames:
            self._add_batch(frame)
            yield beside

    def _add_batch(self, frame: Frame) -> None:
        rows = slice(self.end, self.end + frame.n_rows)
        self._add_ids(frame.ids)
        self.end = rows.stop
        if not isinstance(frame.values, np.ndarray):
            self.sparse.append(frame.values)
        for place, name in () if frame.is_sparse else enumerate(frame.columns):
            column = frame.values[:, place]
            if name in self.categories:
                cells = column
                column = recode_categories(
                    cells, frame.categories[name], self._category_indices(name, frame)
                )
                self.unlisted[name] += int(np.isnan(column).sum() - np.isnan(cells).sum())
            self.values[rows, place] = column
        for whole, part in ((self.label, frame.label), (self.weight, frame.weight)):
            if whole is not None:
                whole[rows] = part
        free_pages(self.values, self.ids, self.ends)
        self.notes |= dict.fromkeys(frame.notes)
        self.merged |= dict.fromkeys(frame.merged)

    def _add_ids(self, ids: EncodedIds) -> None:
        begin = int(self.ends[self.end])
        stop = begin + len(ids.data)
        if stop > len(self.ids) or self.end + len(ids) > self.table.rows:
            raise self.table.changed_error("the table has other ids than a moment ago")
        self.ids[begin:stop] = ids.data
        self.ends[self.end + 1 : self.end + 1 + len(ids)] = ids.offsets[1:] + begin

    def _category_indices(self, name: str, frame: Frame) -> Mapping[str, int]:
        places = self.categories[name]
        if not self.is_known:
            for text in frame.categories[name]:
                places.setdefault(text, len(places))
            if len(places) > CATEGORIES_MAX:
                raise fault_errors([Fault("categories", name, "")], self.end)[0]
        return places

    def frame(self) -> Frame:
        """Return the frame of all rows; sort the categories unless they were given in advance."""
        categories = {name: tuple(places) for name, places in self.categories.items()}
        for name, texts in () if self.is_known else categories.items():
            categories[name] = tuple(sorted(texts))
            column = self.values[:, self.first.columns.index(name)]
            for begin in range(0, len(column), BATCH_ROWS):
                rows = slice(begin, begin + BATCH_ROWS)
                column[rows] = recode_categories(column[rows], texts, categories[name])
        free_pages(self.values)
        return Frame(
            ids=EncodedIds(self.ids[: self.ends[-1]], self.ends),
            values=_stack_parts(self.sparse, self.ids) if self.sparse else self.values,
            columns=self.first.columns,
            label=self.label,
            id_columns=self.first.id_columns,
            notes=tuple(self.notes),
            merged=tuple(self.merged),
            weight=self.weight,
            categories=categories,
            unlisted=dict(self.unlisted),
        )


def _stack_parts(parts: list[csc_array], beside: NDArray[np.uint8]) -> csc_array:
    """Stack parts of a sparse table, float32, into one array with its data in files.

    The files lie beside that of `beside`. The list of parts is empty afterwards.
    """
    from scipy.sparse import csc_array

    sizes = np.sum([np.diff(part.indptr) for part in parts], axis=0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    data = array_beside(beside, (int(starts[-1]),), np.float32)
    indices = array_beside(beside, (int(starts[-1]),), np.int32)
    at, first, width = starts[:-1].copy(), 0, len(sizes)
    for part in iter(lambda: parts.pop(0) if parts else None, None):
        sizes = np.diff(part.indptr)
        places = np.arange(part.nnz) + np.repeat(at - part.indptr[:-1], sizes)
        data[places], indices[places] = part.data, part.indices + first
        at, first = at + sizes, first + part.shape[0]
        free_pages(data, indices)
    below = csc_array((data, indices, starts.astype(np.int32)), shape=(first, width))
    assert below.has_canonical_format
    free_pages(data, indices)
    return below
