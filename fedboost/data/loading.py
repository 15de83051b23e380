"""A party's table as a job uses it, and the checks it must pass before any payload leaves.

Error texts may be read by every party: they hold names, types and counts, never cells.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.columns import BEYOND_FLOAT32, READABLE, kind_of, read_numbers
from fedboost.data.conversions import without_value
from fedboost.data.features import feature_matrix, sparse_matrix
from fedboost.data.frame import Frame
from fedboost.data.ids import encode_ids, refuse_shared
from fedboost.data.label_values import (
    LabelValue,
    class_numbers,
    classes_in,
    classes_remedy,
    refuse_labels,
)
from fedboost.data.reading import locate_errors, read_sheet
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import IdFormat, SourceSpec
from fedboost.data.written_numbers import signs_to_declare
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.ids import EncodedIds

ROW_INDEX = re.compile(r"__index_level_[0-9]+__")  # how pandas stores an index without a name


def load_frame(source: SourceSpec, selection: Selection, *, party: str, needs_label: bool) -> Frame:
    """Return the party's table as a Frame of the job's features, in the table's order.

    `needs_label`: the party must bring a label (a guest; every owner in a horizontal job) and may
    then have no features; another needs at least one. ConfigError if the selection says too little;
    DataError naming party, file and column for every table that does not fit it.
    """
    check_label(selection, party, needs_label=needs_label)
    return load_with_ids(source, selection, party=party, needs_features=not needs_label)[0]


def load_with_ids(
    source: SourceSpec,
    selection: Selection,
    *,
    party: str,
    needs_features: bool,
    guest_label: str | None = None,
) -> tuple[Frame, pa.Table]:
    """Return the Frame of `load_frame`, and the id columns with the table's cells and types.

    `guest_label` is the guest's label if the job trains and this party brings no label. Then a
    column with a label's name is refused unless the selection names it.
    """
    with locate_errors(party=party):
        sheet = read_sheet(source, needs=lambda names: needed_columns(source, selection, names))
        with locate_errors(file=source.name):
            chosen = with_declared_defaults(source, selection, sheet)
            if guest_label is not None and selection.columns is None:
                refuse_unnamed(sheet, chosen, party, guest_label)
            # `frame_of` refuses an absent id column.
            ids = pa.table({n: sheet.column(n) for n in selection.id if sheet.has_column(n)})
            held = [sheet]
            del sheet  # so that each column is freed once it is read
            frame = frame_of(
                held.pop(), chosen, needs_features=needs_features, id_format=source.id_format
            )
    return frame, ids


def check_label(selection: Selection, party: str, *, needs_label: bool) -> None:
    """Refuse, by a ConfigError, a selection without the label that the party needs."""
    if needs_label and selection.label is None:
        todo = f"add 'label' to data: {party}:"
        raise ConfigError("the job names no label", todo=todo, party=party)


def refuse_unread_label(selection: Selection, party: str) -> None:
    """Refuse, by a ConfigError, a label or weight of a party whose labels the job does not read."""
    for key, column in (("label", selection.label), ("weight", selection.weight)):
        if column is not None:
            raise ConfigError(
                f"the job names the {key} {column!r} of a party whose {key}s it does not read: the "
                "guest brings them",
                todo=f"take '{key}' out of data: {party}:, and name the column in 'ignore', or in "
                "'columns' if it is a feature",
                party=party,
            )


def refuse_unnamed(sheet: Sheet, chosen: Selection, party: str, guest_label: str) -> None:
    """Refuse, by a DataError, a column with a label's name that is not named as a feature."""
    unnamed = {*_feature_names(sheet.names, chosen)} - {*chosen.categorical}
    refuse_labels([name for name in sheet.names if name in unnamed], party, guest_label)


def needed_columns(
    source: SourceSpec, selection: Selection, names: Sequence[str]
) -> Collection[str]:
    """Return the columns that a job reads; all if it names an absent one.

    The error about the absent one can then suggest another column.
    """
    used = {*selection.id, selection.label, selection.weight, *(selection.columns or ())} - {None}
    if not {*used, *selection.ignore, *selection.categorical} <= {*names}:
        return names
    if selection.columns is None:
        listed = source.columns
        kept_back = (
            {*source.kept_back, *selection.ignore} if listed is None else {*names} - {*listed}
        )
        used |= {*names} - kept_back
    return used | {*selection.categorical, *source.dates}


def with_declared_defaults(source: SourceSpec, selection: Selection, sheet: Sheet) -> Selection:
    """Return the selection with the defaults that the owner of the data set declares.

    "All others" means the columns that the owner lets jobs use. The owner's classes of the label
    and missing value count if the job has none.
    """
    if selection.missing is None and source.missing is not None:
        selection = selection.model_copy(update={"missing": source.missing})
    if selection.label is not None and selection.label_values is None and source.label_values:
        selection = selection.model_copy(update={"label_values": source.label_values})
    if selection.columns is not None:
        return selection
    used = {*selection.id, selection.label, selection.weight, *selection.ignore}
    if source.columns is not None:
        left = [name for name in source.columns if name not in used]
        return selection.model_copy(update={"columns": left})
    kept_back = [n for n in source.kept_back if n not in used and sheet.has_column(n)]
    ignored = [*selection.ignore, *dict.fromkeys(kept_back)]
    return selection.model_copy(update={"ignore": ignored})


def frame_of(
    sheet: Sheet,
    selection: Selection,
    *,
    needs_features: bool,
    id_format: IdFormat | None = None,
) -> Frame:
    """Return `sheet` as a Frame, like `load_frame` after reading.

    In a sparse sheet, a feature ``f<index>`` without an entry in any row is a column of zeros.
    """
    for role, names in (
        ("id", selection.id),
        ("label", [] if selection.label is None else [selection.label]),
        ("weight", [] if selection.weight is None else [selection.weight]),
        ("feature", selection.columns or []),
        ("ignored", selection.ignore),
        ("categorical", selection.categorical),
    ):
        _require_columns(names, role, sheet)
    if sheet.sparse is not None and selection.categorical:
        raise ConfigError(
            "a sparse table has no categorical columns",
            column=selection.categorical[0],
            todo="leave 'categorical' out of the job, or write the table as csv or parquet",
        )
    features = _feature_names(sheet.names, selection)
    if not features and needs_features:
        raise DataError(
            "no columns are left as features",
            rows=sheet.n_rows,
            todo="select columns, or leave this party out of the job",
            kind="no columns are left as features",
        )
    ids = _read_ids(sheet, selection.id, id_format)
    label = weight = None
    if selection.label is not None:
        label = _read_label(sheet.column(selection.label), selection.label, selection.label_values)
    if selection.weight is not None:
        column = sheet.column(selection.weight)
        weight = _complete_numbers(column, "weight", selection.weight, "write weights as numbers")
    if selection.missing is not None:
        sheet = without_value(sheet, features, selection.missing)
    table, sparse, n_rows = sheet.columns, sheet.sparse, sheet.n_rows
    del sheet
    if sparse is None:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        del table
        read = feature_matrix(columns, n_rows, features, selection.categorical)
    else:
        read = sparse_matrix(table, sparse, features)
    return Frame(
        ids=ids,
        values=read.values,
        columns=tuple(features),
        label=label,
        id_columns=tuple(selection.id),
        notes=read.notes,
        merged=read.merged,
        weight=weight,
        categories=read.categories,
    )


def absent_column(role: str, name: str, names: Sequence[str]) -> DataError:
    """Return the error for a column that the table lacks, with the nearest name it has."""
    folded = {known.casefold().strip(): known for known in reversed(names)}
    nearest = difflib.get_close_matches(name.casefold().strip(), folded, n=1, cutoff=0.6)
    # Other parties read this, so it has at most one near name, never the list of columns.
    todo = "see its columns with: fedboost data check FILE"
    if role == "id":
        todo += ", and name those of the ids in the job: data: {PARTY: {id: [COLUMN]}}"
    if nearest:
        todo = f"did you mean {folded[nearest[0]]!r}?"
    return DataError(
        f"the table has no {role} column {name!r}",
        column=name,
        todo=todo,
        kind="the table lacks a column that the job names",
    )


def _require_columns(names: Sequence[str], role: str, sheet: Sheet) -> None:
    known = sheet.can_be_feature if role == "feature" else sheet.has_column
    besides = {*sheet.unread} if role == "ignored" else set()
    for name in names:
        if not known(name) and name not in besides:
            raise absent_column(role, name, (*sheet.columns.column_names, *sheet.unread))


def _feature_names(names: Sequence[str], selection: Selection) -> list[str]:
    if selection.columns is not None:
        return list(selection.columns)
    other = {*selection.id, selection.label, selection.weight, *selection.ignore}
    other |= {name for name in names if ROW_INDEX.fullmatch(name)} - {*selection.categorical}
    return [name for name in names if name not in other]


def _read_ids(sheet: Sheet, names: Sequence[str], how: IdFormat | None) -> EncodedIds:
    ids = encode_ids([sheet.column(name) for name in names], names, how)
    refuse_shared(ids, names, len(ids))
    pa.default_memory_pool().release_unused()  # of the ids' texts and of their hash table
    return ids


def _read_label(
    column: pa.ChunkedArray, name: str, classes: Sequence[LabelValue] | None
) -> NDArray[np.float64]:
    """Return the label, float64 (n,): the numbers of its `classes` if they are listed."""
    if classes and kind_of(column.type) in READABLE:
        with locate_errors(column=name):
            column = pa.chunked_array([class_numbers(column, classes)])
            column = pc.if_else(pc.is_nan(column), None, column)
    return _complete_numbers(
        column, "label", name, "write classes as 0, 1, …, or list label_values"
    )


def _complete_numbers(
    column: pa.ChunkedArray, role: str, name: str, todo: str
) -> NDArray[np.float64]:
    """Return the label or the weights, float64 (n,), each of them a finite number."""
    with locate_errors(column=name):
        kind = kind_of(column.type)
        if kind not in READABLE:
            raise DataError(
                f"the {role} holds values of type {kind}", todo=f"write the {role} as numbers"
            )
        numbers = read_numbers(column)
        n_rows = len(numbers.values)
        signs = signs_to_declare(column) if numbers.text_cells else None
        if signs is not None:
            todo = signs.remedy
        elif numbers.text_cells and role == "label":
            todo = classes_remedy(classes_in(column)) or todo
        if numbers.is_text:
            raise DataError(f"the {role} is text", todo=todo, kind=f"the {role} is text")
        counts = (
            (numbers.missing, f"no {role}", f"leave these rows out, or give them a {role}"),
            (numbers.text_cells, f"a {role} that is not a number", todo),
            (numbers.infinite, f"an infinite {role}", f"mend these {role}s"),
            (numbers.beyond_float32, f"a {role} {BEYOND_FLOAT32}", f"rescale the {role}"),
        )
        for count, what, mend in counts:
            if count:
                raise DataError(f"{count} of {n_rows} rows have {what}", todo=mend)
        return numbers.values
