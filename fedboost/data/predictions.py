"""Predictions as a table: beside the ids of the rows they are for, as their party wrote them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedboost.data.frame import BATCH_ROWS
from fedboost.ground.disk import PUBLIC_MODE, replacing
from fedboost.ground.errors import DataError
from fedboost.ground.mapped import LET_GO_ROWS, let_go, let_go_table

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


def predictions_tables(
    ids: pa.Table, rows: NDArray[np.int64], prediction: NDArray[np.generic], objective: str = ""
) -> Iterator[pa.Table]:
    """Id columns and predictions of the predicted rows, in the order of the party's table, batch
    after batch.

    `rows` int64 (n,) are the places in `ids` that were predicted; prediction float64 (n, outputs).
    Ids keep the type they have, but text that is whole numbers throughout (a csv)
    becomes int64.
    """
    order = np.argsort(rows)
    starts = range(0, max(1, len(order)), BATCH_ROWS)
    batches = [order[first : first + BATCH_ROWS] for first in starts]
    numbers = set(ids.column_names)
    for batch in batches:
        numbers &= whole_numbers(_at(ids, rows[batch]))
    for number, batch in enumerate(batches, 1):
        columns = as_numbers(_at(ids, rows[batch]), numbers)
        yield with_predictions(columns, prediction[batch], objective)
        if not number % (LET_GO_ROWS // BATCH_ROWS):
            let_go(prediction)


def _at(ids: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """The rows of such places, ascending; Arrow would put all chunks of a column together first."""
    first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
    taken = ids.slice(first, end - first).take(pa.array(rows - first))
    let_go_table(ids)
    return taken


def id_columns(ids: pa.Table, rows: NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    """The id columns of such rows, int64 (n,), by name; typed as `predictions_tables` says."""
    chosen = ids.take(pa.array(rows))
    return as_numbers(chosen, whole_numbers(chosen))


def whole_numbers(ids: pa.Table) -> set[str]:
    """Return which id columns are text that is whole numbers throughout."""
    return {n for n, cells in zip(ids.column_names, ids.columns, strict=True) if _are_whole(cells)}


def as_numbers(ids: pa.Table, names: Collection[str]) -> dict[str, pa.ChunkedArray]:
    """The id columns by name, those in `names` as int64."""
    columns = zip(ids.column_names, ids.columns, strict=True)
    return {n: pc.cast(cells, pa.int64()) if n in names else cells for n, cells in columns}


def write_parquet(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write tables of the same columns, one at least, as one file that everybody here may read.

    Gives its number of rows. What is raised while they are made leaves an older file as it is.
    """
    rest = iter(tables)
    first, rows = next(rest), 0
    with replacing(path, PUBLIC_MODE) as file, pq.ParquetWriter(file, first.schema) as writer:
        for table in chain([first], rest):
            writer.write_table(table)
            rows += len(table)
    return rows


def with_predictions(
    columns: dict[str, pa.ChunkedArray], prediction: NDArray[np.generic], objective: str = ""
) -> pa.Table:
    """The columns and behind them `prediction`, or `prediction_0`, … of several outputs; the
    metadata say the objective, if it is known.
    """
    table, outputs = dict(columns), prediction.shape[1]
    for k in range(outputs):
        name = free_name("prediction" if outputs == 1 else f"prediction_{k}", table)
        table[name] = pa.array(prediction[:, k].astype(np.float64))
    said = {OBJECTIVE: objective.encode()} if objective else None
    return pa.table(table).replace_schema_metadata(said)


def _are_whole(cells: pa.ChunkedArray) -> bool:
    is_text = pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)
    return is_text and bool(pc.all(pc.match_substring_regex(cells, WHOLE)).as_py())


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or with _ behind it where an id column has that name."""
    while name in taken:
        name += "_"
    return name


def parted(table: pa.Table, name: str) -> Predictions:
    """Read what `predictions_tables` wrote; a DataError where it is something else, or cells are
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
