"""Columns of a party in its model: found by name, categories by their indices in the model's lists.

A table may have further columns in another order. Its codes of categories depend on the rest of the
table; a model's indices do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedboost.core import monotone
from fedboost.core.binning import BinCodes, Binning
from fedboost.core.monotone import Directions
from fedboost.data.frame import Frame, FrameValues, recode_categories
from fedboost.flow import MODEL, StageContext
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import Settings

Facts = Mapping[str, Any]  # of a shard: `columns`, and `categories` by the name of a column


def directions(
    constraints: Mapping[str, int],
    names: Sequence[str],
    categorical: Collection[str],
    others: int = 0,
) -> Directions | None:
    """Return by column 1 or −1 if predictions may only rise or fall with it; None without
    constraints.

    `others` is the number of hosts' columns behind these, which have no direction. A ConfigError
    names a column that is none of these, or has no order.
    """
    strangers = [name for name in constraints if name not in names]
    if strangers:
        raise ConfigError(
            "monotone_constraints names a column that the guest does not have",
            column=strangers[0],
            todo="name columns of the guest: the direction of predictions with a host's column "
            "would reveal its values",
        )
    unordered = [name for name, sign in constraints.items() if sign and name in categorical]
    if unordered:
        raise ConfigError(
            "monotone_constraints names a column of categories, which have no order",
            column=unordered[0],
            todo="take it out of monotone_constraints, or write it as numbers",
        )
    return monotone.directions([*(constraints.get(name, 0) for name in names), *[0] * others])


def column_indices(facts: Facts, frame: Frame) -> list[int]:
    """Return the indices of the model's columns of this party in a table.

    A DataError names a column that the table lacks, or that has categories in one of them and
    numbers in the other.
    """
    place = {name: i for i, name in enumerate(frame.columns)}
    wanted: list[str] = facts["columns"]
    absent = [name for name in wanted if name not in place]
    if absent:
        raise DataError(
            f"the table lacks {len(absent)} columns of the model",
            column=absent[0],
            todo="give the columns that the model was trained with",
            kind="the table lacks columns of the model",
        )
    for name in wanted:
        kinds = [
            "categories" if name in known else "numbers"
            for known in (facts["categories"], frame.categories)
        ]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"the model knows {kinds[0]} in a column where the job has {kinds[1]}",
                column=name,
                todo="name the same columns in 'categorical' as the model's training did",
            )
    return [place[name] for name in wanted]


def model_values(facts: Facts, frame: Frame) -> FrameValues:
    """Return float32 (rows, the model's columns), as its trees read them; dense or sparse, as the
    table.

    A category becomes its index in the model's list, NaN if it has none. If the frame's values
    already fit, they are returned as they are. Errors as in `column_indices`.
    """
    places = column_indices(facts, frame)
    known = {name: tuple(texts) for name, texts in facts["categories"].items()}
    same = all(frame.categories[name] == known[name] for name in facts["columns"] if name in known)
    if places == [*range(len(frame.columns))] and same:
        return frame.values
    chosen = frame.values[:, places]
    if not isinstance(chosen, np.ndarray):
        chosen.sort_indices()
        return chosen
    read = np.asfortranarray(chosen)
    for i, name in enumerate(facts["columns"]):
        if name in facts["categories"]:
            read[:, i] = recode_categories(read[:, i], frame.categories[name], known[name])
    return read


def values_of_seat(context: StageContext[Settings]) -> FrameValues:
    """Return the values of a party that predicts; a DataError names a wrong column."""
    try:
        return model_values(context.artefacts[MODEL].facts, context.data)
    except DataError as error:
        raise error.at(party=context.party) from None


def known_codes(facts: Facts, frame: Frame) -> dict[int, BinCodes]:
    """Return the code of each category that the model lists, by the table's categorical column.

    Categories that the table lacks get codes after the table's, which no row has.
    """
    columns = {}
    for column in frame.categorical:
        texts = frame.categories[frame.columns[column]]
        code = {text: number for number, text in enumerate(texts)}
        members = facts["categories"].get(frame.columns[column], ())
        codes = [code.get(text, len(texts) + i) for i, text in enumerate(members)]
        columns[column] = np.array(codes, np.int32)
    return columns


def categories(frame: Frame, cuts: Binning, earlier: Facts | None = None) -> dict[str, list[str]]:
    """Return the categories of each column that a model of this table and these bins must keep;
    JSON.

    The lists begin with the lists of the `earlier` model, whose `known_codes` the bins were fitted
    with.
    """
    lists = {}
    for column, codes in cuts.categories.items():
        name = frame.columns[column]
        before: list[str] = [] if earlier is None else earlier["categories"].get(name, [])
        fresh = [frame.categories[name][code] for code in codes[len(before) :].tolist()]
        lists[name] = [*before, *fresh]
    return lists


def join_columns(parts: Sequence[FrameValues]) -> FrameValues:
    """Return columns of several parties (at least one) as one table; sparse if one of them is."""
    from scipy.sparse import csc_array, hstack

    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, csc_array) for part in parts):
        return np.asfortranarray(np.hstack(parts))
    stacked = csc_array(hstack([csc_array(part) for part in parts]))
    stacked.sort_indices()
    return stacked
