"""Labels with other names than 0, 1, …: a job or the table's owner lists their classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.categories import canonical_text, distinct_texts
from fedboost.data.columns import READABLE, kind_of
from fedboost.ground.errors import ConfigError, DataError

LABEL_NAMES = ("y", "label", "target", "class")


def likely_label(names: Iterable[str]) -> str | None:
    """Return the first column with a usual name for a label, in any case; None without one."""
    by_name = {name.casefold(): name for name in reversed(list(names))}
    return next((by_name[usual] for usual in LABEL_NAMES if usual in by_name), None)


def refuse_labels(features: Sequence[str], party: str, label: str) -> None:
    """Refuse, by a DataError, a feature with the name of the guest's `label` or a usual label.

    `features` are columns that a party without a label would use only because they are there.
    """
    folded = {name.casefold(): name for name in reversed(features)}
    same = folded.get(label.casefold())
    name = same or likely_label(features)
    if name is None:
        return
    like = "the guest's label" if same else "a label"
    raise DataError(
        f"the column {name!r} is called like {like}, and the job does not say whether it is a "
        "feature",
        column=name,
        todo=f"name it in 'ignore' of data: {party}:, or in 'columns' if it is a feature",
        kind=f"a column is called like {like}, and the job does not say whether it is a feature",
    )


LabelValue: TypeAlias = bool | int | float | str
CLASSES_SHOWN = 10  # a label with more values has no classes
ROWS_MIN = 2  # a value of fewer rows is a single cell, and errors show no cells
_PLAIN = re.compile(r"[A-Za-z_]+|-?(0|[1-9][0-9]*)(\.[0-9]+)?")
# YAML reads these words as true and false unless they stand in quotes.
_WORDS = {False: ("false", "no", "off"), True: ("true", "yes", "on")}


def class_numbers(column: pa.ChunkedArray, classes: Sequence[LabelValue]) -> NDArray[np.float64]:
    """Return the index of each row's class in `classes`, float64 (n,), NaN for a missing label.

    A DataError counts rows of other classes; a ConfigError says that two `classes` are one.
    """
    places: dict[str, int] = {}
    for place, value in enumerate(classes):
        for word in _spellings(value):
            if places.setdefault(word, place) != place:
                raise ConfigError(
                    f"label_values names {word!r} twice", todo="name every class once"
                )
    texts = distinct_texts(column)
    names = [canonical_text(text) for text in texts.dictionary.to_pylist()]
    codes = [places.get(name, places.get(name.casefold(), -1)) for name in names]
    lookup = np.array([*codes, np.nan])
    rows: NDArray[np.float64] = lookup[pc.fill_null(texts.indices, len(names)).to_numpy()]
    strange = int(np.count_nonzero(rows == -1))
    if strange:
        raise DataError(
            f"{strange} of {len(rows)} rows have a label that label_values does not name",
            todo=classes_remedy(classes_in(column))
            or "name every class in label_values, or leave these rows out",
            kind="the label has values that label_values does not name",
        )
    return rows


def classes_in(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a label that looks like classes, in order; else an empty list."""
    if kind_of(column.type) not in READABLE:
        return []
    texts = distinct_texts(column)
    counts = np.bincount(pc.drop_null(texts.indices).to_numpy(), minlength=len(texts.dictionary))
    if not 2 <= len(counts) <= CLASSES_SHOWN or counts.min() < ROWS_MIN:
        return []
    names = {canonical_text(text) for text in texts.dictionary.to_pylist()}
    return sorted(names, key=lambda name: (_as_number(name), name))


def classes_remedy(classes: Sequence[str]) -> str:
    """Return the setting that a job needs for these classes of a label; empty without any."""
    if not classes:
        return ""
    second = ", of two the positive one last" if len(classes) == 2 else ""
    listed = ", ".join(name if _is_plain(name) else repr(name) for name in classes)
    return f"name the classes in their order{second}, beside the label: label_values: [{listed}]"


def _spellings(value: LabelValue) -> tuple[str, ...]:
    return _WORDS[value] if isinstance(value, bool) else (canonical_text(str(value).strip()),)


def _as_number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _is_plain(name: str) -> bool:
    """Return whether a name needs no quotes in YAML."""
    return _PLAIN.fullmatch(name) is not None
