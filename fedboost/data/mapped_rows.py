"""A table of any number of rows, whose cells lie in files; its ids and label are in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedboost.data.categories import CATEGORIES_MAX
from fedboost.data.features import Fault, fault_errors
from fedboost.data.frame import BATCH_ROWS, Frame, listed
from fedboost.data.ids import refuse_shared
from fedboost.data.reading import placed
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.encoded_ids import EncodedIds, joined
from fedboost.mapped import let_go, mapped_matrix, mapped_table


def rows_to_train(
    source: SourceSpec,
    selection: Selection,
    folder: Path,
    *,
    party: str,
    needs_features: bool,
    guest_label: str | None = None,
) -> Frame:
    """Return the frame of `load_with_ids`, read in batches; values lie in a file of that folder's
    disk.

    Errors are those of `load_with_ids`, with the rows of the batch that they count, and those of
    `RowBatches`.
    """
    with placed(party=party):
        table = RowBatches.of(source, selection)
        frames = table.frames(
            BATCH_ROWS, needs_features=needs_features, party=party, guest_label=guest_label
        )
        first, cells = next(frames)
        if first.n_rows == table.rows:
            return first
        rows = _Rows.of(first, table.rows, folder)
        deque(rows.added(chain([(first, cells)], frames)), maxlen=0)
        frame = rows.frame()
        with placed(file=source.name):
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
    """Return what `load_with_ids` does of a table to predict, without its label and weights.

    The id columns' cells lie in a file, too. Of a table of more rows than a batch the categories of
    a column are those that the model knows, `known`, and others are missing.
    """
    selection = selection.model_copy(update={"label": None, "label_values": None, "weight": None})
    with placed(party=party):
        table = RowBatches.of(source, selection)
        frames = table.frames(BATCH_ROWS, needs_features=needs_features)
        first, ids = next(frames)
        if first.n_rows == table.rows:
            return first, ids
        rows = _Rows.of(first, table.rows, folder, known)
        cells = mapped_table(folder, rows.added(chain([(first, ids)], frames)))
    return rows.frame(), cells


@dataclass
class _Rows:
    """The rows of a table that have been read so far."""

    first: Frame  # whose columns all have
    values: NDArray[np.float32]  # of all rows, in their file
    label: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    categories: dict[str, dict[str, int]]  # by column: the place of each text
    is_known: bool  # all categories that count were known before
    end: int = 0
    ids: list[EncodedIds] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    merged: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        first: Frame,
        n_rows: int,
        folder: Path,
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> _Rows:
        """Room for all rows of a table with that first batch."""
        return cls(
            first,
            mapped_matrix(folder, n_rows, len(first.columns)),
            None if first.label is None else np.empty(n_rows),
            None if first.weight is None else np.empty(n_rows),
            {
                name: {text: place for place, text in enumerate((known or {}).get(name, ()))}
                for name in first.categories
            },
            known is not None,
        )

    def added(self, frames: Iterable[tuple[Frame, pa.Table]]) -> Iterator[pa.Table]:
        """Yield what stands beside each batch, once its rows are here."""
        for frame, beside in frames:
            self._add(frame)
            yield beside

    def _add(self, frame: Frame) -> None:
        rows = slice(self.end, self.end + frame.n_rows)
        self.end = rows.stop
        for place, name in enumerate(frame.columns):
            column = frame.values[:, place]
            if name in self.categories:
                column = listed(column, frame.categories[name], self._places(name, frame))
            self.values[rows, place] = column
        for whole, part in ((self.label, frame.label), (self.weight, frame.weight)):
            if whole is not None:
                whole[rows] = part
        let_go(self.values)
        self.ids.append(frame.ids)
        self.notes |= dict.fromkeys(frame.notes)
        self.merged |= dict.fromkeys(frame.merged)

    def _places(self, name: str, frame: Frame) -> Mapping[str, int]:
        places = self.categories[name]
        if not self.is_known:
            for text in frame.categories[name]:
                places.setdefault(text, len(places))
            if len(places) > CATEGORIES_MAX:
                raise fault_errors([Fault("categories", name, "")], self.end)[0]
        return places

    def frame(self) -> Frame:
        """Return all rows; categories that were not known are in order from here on."""
        categories = {name: tuple(places) for name, places in self.categories.items()}
        for name, texts in () if self.is_known else categories.items():
            categories[name] = tuple(sorted(texts))
            column = self.values[:, self.first.columns.index(name)]
            for begin in range(0, len(column), BATCH_ROWS):
                rows = slice(begin, begin + BATCH_ROWS)
                column[rows] = listed(column[rows], texts, categories[name])
        let_go(self.values)
        return Frame(
            ids=joined(self.ids),
            values=self.values,
            columns=self.first.columns,
            label=self.label,
            id_columns=self.first.id_columns,
            notes=tuple(self.notes),
            merged=tuple(self.merged),
            weight=self.weight,
            categories=categories,
        )
