"""Rows to predict, of any number: their cells lie in files, as the model reads them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from fedboost.data.frame import BATCH_ROWS, Frame
from fedboost.data.mapped import let_go, mapped_matrix, mapped_table
from fedboost.data.reading import placed
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.encoded_ids import joined
from fedboost.model import columns
from fedboost.model.columns import Facts


def mapped_rows(
    source: SourceSpec,
    selection: Selection,
    facts: Facts,
    folder: Path,
    *,
    party: str,
    needs_features: bool,
) -> tuple[Frame, pa.Table]:
    """Return what `load_with_ids` does of a table to predict, without its label and weights.

    It is read in batches; of more rows than a batch has, the ids alone stay in memory, and values
    and the id columns' cells lie in files of that folder's disk. Then the categories of a column
    are those that the model knows, and others are missing. Errors are those of `RowBatches`.
    """
    selection = selection.model_copy(update={"label": None, "label_values": None, "weight": None})
    with placed(party=party):
        table = RowBatches.of(source, selection)
        frames = table.frames(BATCH_ROWS, needs_features=needs_features)
        frame, ids = next(frames)
        if frame.n_rows == table.rows:
            return frame, ids
        known = {name: tuple(facts["categories"][name]) for name in selection.categorical}
        parts, notes, merged = [], dict[str, None](), dict[str, None]()
        values, end = mapped_matrix(folder, table.rows, len(frame.columns)), 0

        def cells() -> Iterator[pa.Table]:
            """Yield the cells of the ids of each batch, once its values are in their file."""
            nonlocal end
            for part, some in chain([(frame, ids)], frames):
                first, end = end, end + part.n_rows
                for place, name in enumerate(part.columns):
                    column = part.values[:, place]
                    if name in known:
                        column = columns.listed(column, part.categories[name], known[name])
                    values[first:end, place] = column
                let_go(values)
                parts.append(part.ids)
                notes.update(dict.fromkeys(part.notes))
                merged.update(dict.fromkeys(part.merged))
                yield some

        written = mapped_table(folder, cells())
    return Frame(
        ids=joined(parts),
        values=values,
        columns=frame.columns,
        label=None,
        id_columns=frame.id_columns,
        notes=tuple(notes),
        merged=tuple(merged),
        categories=known,
    ), written
