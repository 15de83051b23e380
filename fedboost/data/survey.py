"""Description of a table, column by column, and the problems that a job would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedboost.data.categories import CATEGORIES_MAX, categories_max
from fedboost.data.column_blocks import number_blocks
from fedboost.data.columns import (
    BEYOND_FLOAT32,
    ColumnNumbers,
    decoded_column,
    kind_of,
    typed_column,
)
from fedboost.data.conversions import without_value
from fedboost.data.features import (
    Fault,
    Feature,
    fault_errors,
    merging_note,
    number_fault,
    read_feature,
    rounding_note,
    shown_names,
    sparse_numbers,
)
from fedboost.data.ids import encode_ids, shared_ids
from fedboost.data.label_values import classes_in, classes_remedy, likely_label
from fedboost.data.reading import read_sheet
from fedboost.data.sheet import Sheet, SparseColumns
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError

ROWS_TELLING = 20  # with fewer rows, values may all differ by chance


@dataclass(frozen=True)
class ColumnSurvey:
    """A column's description.

    `role` is id, label, feature, categorical, or empty if the column can be none of them. A
    categorical column is a feature if the job says so; features can be categorical as well.
    `type` is the kind of its cells; `missing` a share of rows; `least` and `greatest` are None
    if no cell is a finite number; `distinct` is None for nested cells.
    """

    name: str
    type: str
    role: str
    missing: float
    distinct: int | None
    least: float | None
    greatest: float | None


@dataclass(frozen=True)
class TableSurvey:
    """A file: its rows, columns, guessed id and label, and one sentence per problem or note."""

    file: str
    rows: int
    columns: tuple[ColumnSurvey, ...]
    id: str | None
    label: str | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def survey_table(source: SourceSpec) -> TableSurvey:
    """Read `source` and describe it; a table that cannot be read has one problem and no columns."""
    try:
        sheet = read_sheet(source)
    except (ConfigError, DataError) as error:
        text = f"{error.what} ({error.place}); {error.todo}"
        return TableSurvey(source.name, 0, (), None, None, (text,), ())
    if source.missing is not None:
        names = [name for name in sheet.names if name not in source.kept_back]
        sheet = without_value(sheet, names, source.missing)
    return survey_sheet(source.name, sheet)


def survey_sheet(file: str, sheet: Sheet) -> TableSurvey:
    """Describe `sheet`; jobs would refuse its problems unless they ignore the column."""
    table = sheet.columns
    columns, distinct, features = _read_columns(table)
    id_name, id_problem = _guess_id(table, distinct)
    label = likely_label(name for name in features if name != id_name)
    sparse = [] if sheet.sparse is None else _sparse_features(sheet.sparse)
    used = [feature for name, feature in features.items() if name not in (id_name, label)] + sparse
    faults = [
        feature.fault
        for feature in used
        if feature.fault is not None and feature.fault.kind != "text"
    ]
    problems = [id_problem] if id_problem else []
    problems += [f"{error.what}; {error.todo}" for error in fault_errors(faults, sheet.n_rows)]
    classes: list[str] = []
    if label is not None:
        classes = classes_in(columns[label])
        problems += _label_problems(features[label], classes)
    surveys = [
        _describe(feature, columns[name], distinct[name], _column_role(feature, id_name, label))
        for name, feature in features.items()
    ]
    surveys += [_describe_sparse(feature, sheet.n_rows) for feature in sparse]
    return TableSurvey(
        file=file,
        rows=sheet.n_rows,
        columns=tuple(surveys),
        id=id_name,
        label=label,
        problems=tuple(problems),
        notes=(
            *_reading_notes(used, distinct, sheet, label),
            *_useless_notes(surveys, sheet.n_rows),
            *_classes_note(label, classes),
        ),
    )


def _read_columns(
    table: pa.Table,
) -> tuple[dict[str, pa.ChunkedArray], dict[str, int | None], dict[str, Feature]]:
    """Return the columns by the type of their cells, their distinct values, and their features.

    A cell 0.1 in a csv file is shown as a number, as a job would read it.
    """
    names, written = table.column_names, table.columns
    columns: dict[str, pa.ChunkedArray] = {}
    distinct: dict[str, int | None] = {}
    features: dict[str, Feature] = {}
    for part, block in number_blocks(written, table.num_rows):
        columns |= zip(names[part], block.typed_columns(), strict=True)
        distinct |= zip(names[part], block.distinct_counts(), strict=True)
        for name, values in zip(names[part], block.values, strict=True):
            numbers = ColumnNumbers(values, text_cells=0, missing=int(np.isnan(values).sum()))
            features[name] = Feature(name, numbers, None)
    for name, cells in zip(names, written, strict=True):
        if name not in columns:
            columns[name] = typed_column(cells)
            distinct[name] = _distinct_count(columns[name])
            features[name] = _read_column(name, columns[name], distinct[name])
    return (
        {name: columns[name] for name in names},
        {name: distinct[name] for name in names},
        {name: features[name] for name in names},
    )


def _read_column(name: str, column: pa.ChunkedArray, distinct: int | None) -> Feature:
    """Return the column as a feature; text is a fault only with too many distinct values."""
    feature = read_feature(name, column)
    if feature.fault is None or feature.fault.kind != "text" or (distinct or 0) <= CATEGORIES_MAX:
        return feature
    return replace(feature, fault=Fault("categories", name, str(distinct)))


def _sparse_features(sparse: SparseColumns) -> list[Feature]:
    """Return the sparse columns; their `numbers` are the entries, without the zeros."""
    features = []
    for place, name in enumerate(sparse.names):
        numbers = sparse_numbers(sparse.entries_of(place))
        fault = number_fault(name, numbers, sparse.values.shape[0])
        features.append(Feature(name, numbers, fault))
    return features


def _reading_notes(
    used: Sequence[Feature], distinct: dict[str, int | None], sheet: Sheet, label: str | None
) -> list[str]:
    """Return notes on cells that a job would change, or read only if its settings say so."""
    notes = []
    if sheet.sparse is not None:
        cells = sheet.n_rows * sheet.sparse.width
        stored = f"{sheet.sparse.values.nnz} of {cells} cells of its {sheet.sparse.width} features"
        notes.append(f"a sparse table: {stored} are not zero")
    texts = [
        feature.name
        for feature in used
        if feature.fault is not None and feature.fault.kind == "text"
    ]
    few = [name for name in texts if (distinct[name] or 0) <= categories_max(sheet.n_rows)]
    for names, what in (
        (few, "text columns, features if the job names them in 'categorical' (distinct values): "),
        (
            [name for name in texts if name not in few],
            "text columns with too many distinct values for 'categorical'; group or ignore them: ",
        ),
    ):
        if names:
            notes.append(what + shown_names([f"{name} ({distinct[name]})" for name in names]))
    for feature in used:
        if feature.merges:
            notes.append(merging_note(feature.name))
        elif feature.numbers is not None and feature.numbers.rounded:
            notes.append(rounding_note(feature.name))
    if label is not None:
        notes.append(
            f"column {label} is called like a label: a host's job must name it in 'ignore', or in "
            "'columns' if it is a feature"
        )
    return notes


def _useless_notes(columns: Sequence[ColumnSurvey], n_rows: int) -> list[str]:
    """Return notes on columns that teach trees nothing about other rows."""
    asked = [column for column in columns if column.role in ("feature", "categorical")]
    empty = [column.name for column in asked if column.missing == 1]
    single = [
        column.name
        for column in asked
        if column.distinct == 1 and not column.missing and n_rows > 1
    ]
    each = [
        column.name
        for column in asked
        if column.distinct == n_rows >= ROWS_TELLING and column.type in ("integer", "text")
    ]
    found = (
        (empty, "columns without any value"),
        (single, "columns with the same value in every row"),
        (each, "columns with a different value in every row, as ids have"),
    )
    return [f"{what}: {shown_names(names)}" for names, what in found if names]


def _classes_note(label: str | None, classes: Sequence[str]) -> list[str]:
    if classes == [str(number) for number in range(len(classes))]:
        return []
    return [f"to classify by {label}, {classes_remedy(classes)}"]


def _describe(
    feature: Feature, column: pa.ChunkedArray, distinct: int | None, role: str
) -> ColumnSurvey:
    missing = column.null_count
    values = np.empty(0)
    if feature.numbers is not None:
        missing = feature.numbers.missing
        values = feature.numbers.values[np.isfinite(feature.numbers.values)]
    return ColumnSurvey(
        name=feature.name,
        type=kind_of(column.type),
        role=role,
        missing=missing / len(column),
        distinct=distinct,
        least=float(values.min()) if len(values) else None,
        greatest=float(values.max()) if len(values) else None,
    )


def _describe_sparse(feature: Feature, n_rows: int) -> ColumnSurvey:
    assert feature.numbers is not None
    entries = feature.numbers.values
    some_zero = [0.0] if len(entries) < n_rows else []
    cells = np.append(entries[~np.isnan(entries)], some_zero)
    finite = cells[np.isfinite(cells)]
    return ColumnSurvey(
        name=feature.name,
        type="number",
        role=_column_role(feature, None, None),
        missing=feature.numbers.missing / n_rows,
        distinct=len(np.unique(cells)),
        least=float(finite.min()) if len(finite) else None,
        greatest=float(finite.max()) if len(finite) else None,
    )


def _column_role(feature: Feature, id_name: str | None, label: str | None) -> str:
    if feature.name == id_name:
        return "id"
    if feature.name == label:
        return "label"
    if feature.fault is None:
        return "feature"
    return "categorical" if feature.fault.kind == "text" else ""


def _distinct_count(column: pa.ChunkedArray) -> int | None:
    """Return the number of distinct values, missing ones aside; None if Arrow cannot tell."""
    cells = decoded_column(column)
    if kind_of(cells.type) == "empty":
        return 0
    if pa.types.is_floating(cells.type):
        cells = pc.if_else(pc.is_nan(cells), None, cells)
    try:
        return int(pc.count_distinct(cells, mode="only_valid").as_py())
    except pa.ArrowNotImplementedError:  # nested and extension types
        return None


def _guess_id(table: pa.Table, distinct: dict[str, int | None]) -> tuple[str | None, str]:
    """Return the column that names rows, and a problem if it cannot name rows, or no column can.

    The column is `id`, else a unique one named …id, else the first unique one.
    """
    if "id" in distinct:
        return "id", _id_problem(table, "id") or ""
    candidates = [
        name
        for name, count in distinct.items()
        if count == table.num_rows and kind_of(table.schema.field(name).type) in ("integer", "text")
    ]
    candidates.sort(key=lambda name: not name.casefold().endswith("id"))
    id_column = next((name for name in candidates if _id_problem(table, name) is None), None)
    if id_column is None:
        return None, "no column has a different id for every row; add one"
    return id_column, ""


def _id_problem(table: pa.Table, name: str) -> str | None:
    try:
        ids = encode_ids([table.column(name)], [name])
    except DataError as error:
        return f"column {name}: {error.what}; {error.todo}"
    rows, shared = shared_ids(ids)
    if not rows:
        return None
    return (
        f"column {name}: {rows} of {len(ids)} rows share their id with another row ({shared} ids); "
        "leave one row per id, or name more id columns in the job"
    )


def _label_problems(feature: Feature, classes: Sequence[str]) -> Sequence[str]:
    """Return the problems of a label that jobs would refuse; a note covers text `classes`."""
    numbers = feature.numbers
    if numbers is None or numbers.text_cells:
        if classes:
            return []
        return [f"the label {feature.name} is not a number in every row; write classes as 0, 1, …"]
    counts = (
        (numbers.missing, "no label"),
        (numbers.infinite, "an infinite label"),
        (numbers.beyond_float32, f"a label {BEYOND_FLOAT32}"),
    )
    return [
        f"{count} of {len(numbers.values)} rows have {what} in {feature.name}; mend these rows"
        for count, what in counts
        if count
    ]
