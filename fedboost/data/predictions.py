"""Predictions as a table, beside the ids of their rows as their party wrote them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedboost.data.columns import WHOLE
from fedboost.data.frame import BATCH_ROWS
from fedboost.ground.mapped import ROWS_PER_FREE, free_pages, free_table_pages

UNKNOWN = "fedboost.unknown_categories"  # metadata of a file of predictions


def predictions_tables(
    ids: pa.Table, rows: NDArray[np.int64], prediction: NDArray[np.generic]
) -> Iterator[pa.Table]:
    """Yield id columns and predictions of the predicted rows in the table's order, in batches.

    `rows` int64 (n,) are indices into `ids`; `prediction` is float64 (n, outputs). Ids keep their
    type, but text that is whole numbers throughout (a csv) becomes int64.
    """
    order = np.argsort(rows)
    starts = range(0, max(1, len(order)), BATCH_ROWS)
    batches = [order[first : first + BATCH_ROWS] for first in starts]
    numbers = set(ids.column_names)
    for batch in batches:
        numbers &= whole_number_columns(_rows_at(ids, rows[batch]))
    for number, batch in enumerate(batches, 1):
        columns = as_numbers(_rows_at(ids, rows[batch]), numbers)
        yield with_predictions(columns, prediction[batch])
        if not number % (ROWS_PER_FREE // BATCH_ROWS):
            free_pages(prediction)


def _rows_at(ids: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return the rows at ascending indices; Arrow alone would join all chunks first."""
    first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    taken = ids.slice(first, end - first).take(pa.array(rows - first))
    free_table_pages(ids)
    return taken


def id_columns(ids: pa.Table, rows: NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    """Return the id columns of rows, int64 (n,), by name, typed as in `predictions_tables`."""
    chosen = ids.take(pa.array(rows))
    return as_numbers(chosen, whole_number_columns(chosen))


def whole_number_columns(ids: pa.Table) -> set[str]:
    """Return the names of the id columns that are text of whole numbers throughout."""
    return {n for n, cells in zip(ids.column_names, ids.columns, strict=True) if _are_whole(cells)}


def as_numbers(ids: pa.Table, names: Collection[str]) -> dict[str, pa.ChunkedArray]:
    """Return the id columns by name, the columns in `names` as int64."""
    columns = zip(ids.column_names, ids.columns, strict=True)
    return {n: pc.cast(cells, pa.int64()) if n in names else cells for n, cells in columns}


def unknown_note(shares: Mapping[str, float]) -> dict[str, str]:
    """Return the metadata of a file of predictions: by column the share of unknown categories."""
    return {UNKNOWN: json.dumps(dict(shares))} if shares else {}


def unknown_shares(path: Path) -> dict[str, float]:
    """Return what `unknown_note` wrote into a file of predictions; empty without a note."""
    metadata = pq.read_metadata(path).metadata or {}
    shares: dict[str, float] = json.loads(metadata.get(UNKNOWN.encode(), b"{}"))
    return shares


def with_predictions(
    columns: dict[str, pa.ChunkedArray], prediction: NDArray[np.generic]
) -> pa.Table:
    """Return the columns, then `prediction`, or `prediction_0`, … for several outputs."""
    table, outputs = dict(columns), prediction.shape[1]
    for k in range(outputs):
        name = free_name("prediction" if outputs == 1 else f"prediction_{k}", table)
        table[name] = pa.array(prediction[:, k].astype(np.float64))
    return pa.table(table)


def _are_whole(cells: pa.ChunkedArray) -> bool:
    is_text = pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)
    return is_text and bool(pc.all(pc.match_substring_regex(cells, WHOLE)).as_py())


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with _ appended as long as it is taken."""
    while name in taken:
        name += "_"
    return name


def prediction_values(table: pa.Table, outputs: int) -> NDArray[np.float64]:
    """Return the predictions of a table of `predictions_tables`, float64 (rows, outputs)."""
    return np.stack([column.to_numpy() for column in table.columns[-outputs:]], axis=1)
