"""Predictions as a table: beside the ids of the rows they are for, as their party wrote them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.errors import DataError

OBJECTIVE = b"fedboost.objective"  # of the table's metadata: what the model learned
NAMED = re.compile(r"prediction(?:_(0|[1-9]\d{0,3}))?_*")  # the columns behind the ids
WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"  # text that is a whole number, canonically written; fits int64


@dataclass(frozen=True)
class Predictions:
    """A table of predictions, taken apart again."""

    name: str  # of the model or file, for errors
    ids: pa.Table
    values: NDArray[np.float64]  # (rows, outputs)
    objective: str  # empty: whoever wrote the table did not say


def predictions_table(
    ids: pa.Table, rows: NDArray[np.int64], prediction: NDArray[np.generic], objective: str = ""
) -> pa.Table:
    """Id columns and predictions of the predicted rows, in the order of the party's table.

    `rows` int64 (n,) are the places in `ids` that were predicted; prediction float64 (n, outputs).
    Ids keep the type they have, but text that is whole numbers throughout (a csv) becomes int64.
    """
    order = np.argsort(rows)
    table = with_predictions(id_columns(ids, rows[order]), prediction[order])
    return table.replace_schema_metadata({OBJECTIVE: objective.encode()} if objective else None)


def id_columns(ids: pa.Table, rows: NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    """The id columns of such rows, int64 (n,), by name; typed as `predictions_table` says."""
    chosen = ids.take(pa.array(rows))
    return {name: _as_numbers(chosen.column(name)) for name in chosen.column_names}


def with_predictions(
    columns: dict[str, pa.ChunkedArray], prediction: NDArray[np.generic]
) -> pa.Table:
    """The columns and behind them `prediction`, or `prediction_0`, … of several outputs."""
    table, outputs = dict(columns), prediction.shape[1]
    for k in range(outputs):
        name = free_name("prediction" if outputs == 1 else f"prediction_{k}", table)
        table[name] = pa.array(prediction[:, k].astype(np.float64))
    return pa.table(table)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or with _ behind it where an id column has that name."""
    while name in taken:
        name += "_"
    return name


def parted(table: pa.Table, name: str) -> Predictions:
    """Read what `predictions_table` wrote; a DataError where it is something else, or cells are
    empty.

    The last columns are the predictions, as many as the very last one's number says.
    """
    names = table.column_names
    first = len(names) - _outputs(table.schema)
    if not 0 < first < len(names):
        raise DataError(
            "the table does not end with predictions behind the ids of their rows",
            todo="name files that fedboost model predict has written",
            file=name,
        )
    empty = sum(table.column(k).null_count for k in range(len(names)))
    if empty:
        raise DataError(
            f"{empty} ids or predictions are missing", file=name, todo="write the file again"
        )
    values = np.stack([table.column(k).to_numpy() for k in range(first, len(names))], axis=1)
    odd = int(np.count_nonzero(~np.isfinite(values)))
    if odd:
        raise DataError(
            f"{odd} predictions are no finite numbers", file=name, todo="write the file again"
        )
    said = (table.schema.metadata or {}).get(OBJECTIVE, b"")
    ids = table.select(names[:first])
    return Predictions(name, ids, values.astype(np.float64), said.decode(errors="replace"))


def _outputs(schema: pa.Schema) -> int:
    """Return how many of the last columns are predictions, numbered in order; 0 if unclear."""
    last = NAMED.fullmatch(schema.names[-1])
    if last is None:
        return 0
    count = 1 if last[1] is None else int(last[1]) + 1
    numbers = [None] if last[1] is None else [str(k) for k in range(count)]
    matches = [NAMED.fullmatch(name) for name in schema.names[-count:]]
    floats = all(pa.types.is_floating(kind) for kind in schema.types[-count:])
    return count if floats and [match and match[1] for match in matches] == numbers else 0


def _as_numbers(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return cells
    whole = pc.all(pc.match_substring_regex(cells, WHOLE)).as_py()
    return pc.cast(cells, pa.int64()) if whole else cells
