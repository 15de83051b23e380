"""svmlight files as dense tables: `label index:value index:value …` per row.

The rows carry no ids, so `id` is the row number from 1: two parties' files belong together only
if their rows stand in the same order. Absent entries are zero, as the format defines them.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedboost.errors import DataError

CELLS_MAX = 2**27  # 1 GiB of float64 while the dense table is built


def read_rows(path: Path) -> pa.Table:
    """Columns `id` (int64), `y` (float64) and, per index up to the last, `f<index>` (float64).

    Indices start at 1, or at 0 where the file uses 0. DataError, naming the line, for anything
    else than `label index:value …` with rising indices, and for more than CELLS_MAX cells.
    """
    labels = array("d")
    starts = array("q", [0])
    indices = array("q")
    values = array("d")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            tokens = line.split(b"#", 1)[0].split()
            if tokens:
                try:
                    _read_row(tokens, labels, indices, values)
                except (ValueError, OverflowError):
                    raise DataError(
                        "a line is not 'label index:value …' with rising indices",
                        line=number,
                        todo="mend it; 'qid' (ranking) is not supported",
                    ) from None
                starts.append(len(indices))
    return _dense(labels, starts, np.array(indices, dtype=np.int64), np.array(values))


def _read_row(
    tokens: list[bytes], labels: array[float], indices: array[int], values: array[float]
) -> None:
    labels.append(float(tokens[0]))
    last = -1
    for token in tokens[1:]:
        index, _, value = token.partition(b":")
        if not index.isdigit() or int(index) <= last or b"_" in value:
            raise ValueError
        last = int(index)
        indices.append(last)
        values.append(float(value))


def _dense(
    labels: array[float], starts: array[int], indices: np.ndarray, values: np.ndarray
) -> pa.Table:
    n_rows = len(labels)
    first = min(1, int(indices.min(initial=1)))
    width = int(indices.max(initial=first - 1)) - first + 1
    if n_rows * width > CELLS_MAX:
        raise DataError(
            f"{n_rows} rows of {width} columns are more than 2^{int(math.log2(CELLS_MAX))} cells",
            rows=n_rows,
            todo="write parquet with fewer columns; sparse tables are not supported",
        )
    dense = np.zeros((n_rows, width), order="F")
    rows = np.repeat(np.arange(n_rows), np.diff(np.asarray(starts)))
    dense[rows, indices - first] = values
    columns = {"id": np.arange(1, n_rows + 1), "y": np.asarray(labels, dtype=np.float64)}
    columns |= {f"f{first + place}": dense[:, place] for place in range(width)}
    return pa.table(columns)
