"""Predictions as a table: beside the ids of the rows they are for, as their party wrote them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"  # text that is a whole number, canonically written; fits int64


def predictions_table(
    ids: pa.Table, rows: NDArray[np.int64], prediction: NDArray[np.generic]
) -> pa.Table:
    """Id columns and predictions of the predicted rows, in the order of the party's table.

    `rows` int64 (n,) are the places in `ids` that were predicted; prediction float64 (n, outputs).
    Ids keep the type they have, but text that is whole numbers throughout (a csv) becomes int64.
    """
    order = np.argsort(rows)
    predicted = ids.take(pa.array(rows[order]))
    columns = {name: _as_numbers(predicted.column(name)) for name in predicted.column_names}
    outputs = prediction.shape[1]
    for k in range(outputs):
        name = "prediction" if outputs == 1 else f"prediction_{k}"
        while name in columns:  # an id column has that name
            name += "_"
        columns[name] = pa.array(prediction[order, k].astype(np.float64))
    return pa.table(columns)


def _as_numbers(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return cells
    whole = pc.all(pc.match_substring_regex(cells, WHOLE)).as_py()
    return pc.cast(cells, pa.int64()) if whole else cells
