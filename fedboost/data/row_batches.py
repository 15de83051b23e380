"""A table of any number of rows, read in batches; only 8 bytes a row stay, to compare ids.

All rows are read twice: first their ids, which must all differ, then the columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedboost.data.conversions import WholeColumns
from fedboost.data.frame import Frame
from fedboost.data.ids import encode_ids, refuse_shared
from fedboost.data.loading import (
    absent_column,
    frame_of,
    needed_columns,
    refuse_unnamed,
    with_declared_defaults,
)
from fedboost.data.predictions import whole_number_columns
from fedboost.data.reading import locate_errors, read_batches, read_sheet, whole_columns
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError
from fedboost.ground.ids import EncodedIds


@dataclass(frozen=True)
class RowBatches:
    """A table with checked ids."""

    source: SourceSpec
    selection: Selection
    rows: int
    id_bytes: int  # of all encoded ids
    numbers: Collection[str]  # id columns whose texts are whole numbers throughout
    whole: WholeColumns

    @classmethod
    def of(cls, source: SourceSpec, selection: Selection) -> RowBatches:
        """Check all ids; a DataError if rows lack an id, or share it.

        Other errors are those of `read_batches`.
        """
        hashes, numbers, id_bytes = [np.empty(0, np.uint64)], {*selection.id}, 0
        whole = whole_columns(source, partial(needed_columns, source, selection))
        for ids, encoded in _read_ids(source, selection.id, whole):
            hashes.append(encoded.hashes())
            id_bytes += len(encoded.data)
            numbers &= whole_number_columns(ids)
        every = np.concatenate(hashes)
        del hashes
        every.sort()
        again = np.unique(every[1:][every[1:] == every[:-1]])
        if len(again):  # equal ids, or different ones of one hash
            refuse_shared(
                _ids_of_hashes(_read_ids(source, selection.id, whole), again),
                selection.id,
                len(every),
            )
        return cls(source, selection, len(every), id_bytes, numbers, whole)

    def frames(
        self,
        rows: int,
        *,
        needs_features: bool = True,
        party: str = "",
        guest_label: str | None = None,
    ) -> Iterator[tuple[Frame, pa.Table]]:
        """Yield `rows` rows at a time: a frame and the cells of their ids, in the table's order.

        Rows of a sparse table come in the batches of its file. All rows come at once if only a
        whole column says which categories are a declared missing value. `guest_label` is as in
        `load_with_ids`. A DataError if a batch cannot be used, or the table has changed.
        """
        source, selection = self.source, self.selection
        missing = source.missing if selection.missing is None else selection.missing
        if selection.categorical and missing in (0.0, 1.0):
            rows = self.rows  # words for yes and no are numbers only in a column without others
        seen = 0
        needs = partial(needed_columns, source, selection)
        sheets = read_batches(source, needs=needs, whole=self.whole)
        if self.whole.extent is not None and rows >= self.rows:
            sheets = iter([read_sheet(source, needs=needs)])
        for sheet in _regrouped_sheets(sheets, rows):
            first, seen = seen, seen + sheet.n_rows
            with locate_errors(file=source.name):
                chosen = with_declared_defaults(source, selection, sheet)
                if guest_label is not None and selection.columns is None:
                    refuse_unnamed(sheet, chosen, party, guest_label)
                how = source.id_format
                with self._locate_rows(first, seen):
                    frame = frame_of(sheet, chosen, needs_features=needs_features, id_format=how)
                yield frame, pa.table({name: sheet.column(name) for name in selection.id})
        if seen != self.rows:
            raise self.changed_error(f"the table had {self.rows} rows and has {seen} now")

    def changed_error(self, what: str) -> DataError:
        """Return the error for a table that has changed since its ids were checked."""
        return DataError(what, file=self.source.name, todo="try again once nobody changes it")

    @contextmanager
    def _locate_rows(self, first: int, end: int) -> Iterator[None]:
        """Add the rows of a batch to a DataError, unless the batch is the whole table."""
        try:
            yield
        except DataError as error:
            if (first, end) != (0, self.rows):
                error.where["rows"] = f"{first + 1} to {end}"
            raise


def _read_ids(
    source: SourceSpec, names: Sequence[str], whole: WholeColumns
) -> Iterator[tuple[pa.Table, EncodedIds]]:
    """Yield the cells of the id columns and the ids, batch by batch."""
    wanted = Selection(id=list(names), columns=[])
    for sheet in read_batches(source, needs=partial(needed_columns, source, wanted), whole=whole):
        with locate_errors(file=source.name):
            for name in names:
                if not sheet.has_column(name):
                    raise absent_column("id", name, (*sheet.columns.column_names, *sheet.unread))
            columns = [sheet.column(name) for name in names]
            cells = pa.table(dict(zip(names, columns, strict=True)))
            yield cells, encode_ids(columns, names, source.id_format)


def _ids_of_hashes(
    parts: Iterator[tuple[pa.Table, EncodedIds]], hashes: NDArray[np.uint64]
) -> EncodedIds:
    """Return the ids with one of these hashes."""
    ids: list[bytes] = []
    for _, encoded in parts:
        ids += encoded.take(np.flatnonzero(np.isin(encoded.hashes(), hashes)))
    return EncodedIds.of(ids)


def _regrouped_sheets(sheets: Iterator[Sheet], rows: int) -> Iterator[Sheet]:
    """Yield the same rows, `rows` at a time; sparse sheets unchanged."""
    held: list[pa.Table] = []
    count, sheet = 0, None
    for sheet in sheets:
        if sheet.sparse is not None:
            yield sheet
            continue
        held.append(sheet.columns)
        count += sheet.n_rows
        while count >= rows:
            table = pa.concat_tables(held)
            yield replace(sheet, columns=table.slice(0, rows))
            held, count = [table.slice(rows)], count - rows
    if sheet is not None and count:
        yield replace(sheet, columns=pa.concat_tables(held))
