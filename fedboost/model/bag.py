"""A bag: predictions of several models for the same rows become one, by their mean or by votes.

Each model may know other rows; a row has the predictions of the models that have scored it.
HybridTree (Li et al., 2023), appendix C.2: each of several label holders trains a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from fedboost.core import objectives
from fedboost.data.predictions import Predictions, free_name, with_predictions
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError, DataError

By = Literal["mean", "vote"]
HALF = 0.5  # from which on a single probability votes for the class
SUM_GAP_MAX = 1e-6  # of the probabilities of a row from 1


@dataclass(frozen=True)
class Kind:
    """What predictions are of, and beside which ids they stand; those of a bag have the same."""

    name: str  # of the model or file, for errors
    objective: str  # empty: not known
    outputs: int
    ids: tuple[str, ...]  # the id columns


def check_alike(kinds: Sequence[Kind], by: By) -> None:
    """Refuses, by a ConfigError, what does not fit together or cannot vote."""
    like, *others = sorted(kinds, key=lambda kind: not kind.objective)
    for kind in others:
        if kind.ids != like.ids:
            values = ("id " + ", ".join(kind.ids), "id " + ", ".join(like.ids))
        elif kind.outputs != like.outputs:
            values = (f"outputs {kind.outputs}", f"outputs {like.outputs}")
        elif kind.objective and like.objective and kind.objective != like.objective:
            values = (kind.objective, like.objective)
        else:
            continue
        raise ConfigError(
            f"{kind.name} does not fit the others: it has {values[0]}, {like.name} has {values[1]}",
            todo="bag models of the same objective, classes and id columns",
        )
    for kind in kinds:
        if by == "vote" and kind.objective and not objectives.named(kind.objective).classifies:
            raise ConfigError(
                f"{kind.name} was trained with {kind.objective}: numbers cannot vote",
                todo="take the mean",
            )


def bagged(parts: Sequence[Predictions], by: By) -> pa.Table:
    """Every row that a model has scored, in the order in which they come first, with its ids.

    `mean`: the mean of its predictions; `vote`: the share of its models that vote for the class,
    by a probability of 0.5 or more, or of several classes by the greatest (the first of equals).
    The last column, `models` int64, counts the models that scored the row.

    A ConfigError where they do not fit together or cannot vote, a DataError for ids that stand
    twice in one table, or where votes are wanted of what is no probability.
    """
    check_alike([_kind(part) for part in parts], by)
    ids, indices = _joined(parts)
    total = np.zeros((ids.num_rows, parts[0].values.shape[1]))
    count = np.zeros(ids.num_rows, np.int64)
    for part, rows in zip(parts, indices, strict=True):
        count[rows] += 1
        total[rows] += part.values if by == "mean" else _votes(part)
    columns = dict(zip(ids.column_names, ids.columns, strict=True))
    scored = with_predictions(columns, total / count[:, None])
    return scored.append_column(free_name("models", scored.column_names), pa.array(count))


def _kind(part: Predictions) -> Kind:
    return Kind(part.name, part.objective, part.values.shape[1], tuple(part.ids.column_names))


def _votes(part: Predictions) -> Floats:
    """1.0 for the class that each row's prediction votes for; float64 (rows, outputs)."""
    values = part.values
    bad = ((values < 0.0) | (values > 1.0)).any(axis=1)
    if values.shape[1] == 1:
        votes = values >= HALF
    else:
        bad |= np.abs(values.sum(axis=1) - 1.0) > SUM_GAP_MAX
        votes = np.arange(values.shape[1]) == values.argmax(axis=1)[:, None]
    if bad.any():
        raise DataError(
            f"{np.count_nonzero(bad)} predictions are no probabilities of classes and cannot vote",
            todo="take the mean",
            file=part.name,
        )
    return votes.astype(np.float64)


def _joined(parts: Sequence[Predictions]) -> tuple[pa.Table, list[Indices]]:
    """Every id once, as they come first, and for each part where its rows stand among them."""
    names = parts[0].ids.column_names
    columns = {name: _stacked([part.ids.column(name) for part in parts], name) for name in names}
    rows = sum(part.ids.num_rows for part in parts)
    keys = [str(number) for number in range(len(names))]  # ids may have any name
    numbered = pa.table([*columns.values(), pa.array(np.arange(rows))], names=[*keys, "row"])
    groups = numbered.group_by(keys, use_threads=False).aggregate([("row", "list")])
    lists = groups.column("row_list").combine_chunks()
    sizes, members = lists.value_lengths().to_numpy(), lists.flatten().to_numpy()
    first = np.minimum.reduceat(members, np.cumsum(sizes) - sizes) if rows else members
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place = np.empty(rows, np.int64)
    place[members] = np.repeat(rank, sizes)
    ends = np.cumsum([part.ids.num_rows for part in parts])
    indices = np.split(place, ends[:-1])
    for part, part_rows in zip(parts, indices, strict=True):
        twice = len(part_rows) - len(np.unique(part_rows))
        if twice:
            raise DataError(
                f"{twice} ids stand there more than once",
                file=part.name,
                todo="leave one row per id",
            )
    return pa.table(columns).take(pa.array(first[order])), indices


def _stacked(columns: Sequence[pa.ChunkedArray], name: str) -> pa.ChunkedArray:
    """One column of several: a csv's ids are numbers only where all of them are."""
    types = {column.type for column in columns}
    text = any(_is_text(kind) for kind in types)
    if len(types) > 1 and not all(pa.types.is_integer(t) or (text and _is_text(t)) for t in types):
        kinds = ", ".join(sorted(map(str, types)))
        raise ConfigError(
            f"the ids of the files have different types: {kinds}",
            todo="write the ids alike",
            column=name,
        )
    wanted = types.pop() if len(types) == 1 else pa.large_string() if text else pa.int64()
    try:
        chunks = [chunk for column in columns for chunk in column.cast(wanted).chunks]
    except pa.ArrowInvalid:
        raise DataError(
            "ids are too large for whole numbers of 64 bits",
            column=name,
            todo="write ids as text in every file",
        ) from None
    return pa.chunked_array(chunks, wanted)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
