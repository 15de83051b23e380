"""Categories of a column: one canonical text per cell, for every type of column.

Every cell is written canonically by itself, so that neither the file's format nor another row
changes its category:

- whole numbers in decimal digits: integer 17, 17.0 in a float column, "17", "+17" and "17.00" in
  text are the same; other numbers as Python writes a float: 2.5 and "2.50" are ``2.5``;
- booleans, and text that is true or false in any case, as ``true`` and ``false``;
- other text, "007" too, in Unicode normal form C without blanks around it.

MISSING_WORDS are missing, as in a column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedboost.data.columns import (
    INFINITE,
    LEADING_ZERO,
    NUMBER,
    READABLE,
    decoded_column,
    kind_of,
    without_missing_words,
)
from fedboost.data.conversions import holds_dates
from fedboost.data.written_numbers import signs_to_declare
from fedboost.ground.errors import DataError

# A model keeps every text, and a column with more categories names single rows. Codes stay exact
# in float32, which counts up to 2^24.
CATEGORIES_MAX = 2**20
CATEGORY_BYTES_MAX = 1024  # a text longer than this is a document, not a category
# Limits for training: more categories tell single rows apart, or are mostly left out.
ROWS_PER_CATEGORY, BINS_MAX = 10, 16
FEW_CATEGORIES = 32  # categories that a column may have even in a small table

_NUMBER = re.compile(NUMBER)
_INFINITE = re.compile(INFINITE)
_LEADING_ZERO = re.compile(LEADING_ZERO)
_WHOLE = re.compile(r"([+-]?)(0|[1-9][0-9]*)(?:\.0*)?")


@dataclass(frozen=True, eq=False, repr=False)
class ColumnCodes:
    """A column as codes: float32 (n,), NaN where missing; code k means ``categories[k]``.

    The categories are the texts that occur in the column, in code-point order.
    """

    values: NDArray[np.float32]
    categories: tuple[str, ...]


def distinct_texts(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return the distinct texts of a READABLE column as written, and the text of each row.

    The texts are trimmed and not yet canonical; a row without a value is null.
    """
    assert kind_of(column.type) in READABLE
    texts = pc.cast(
        decoded_column(column), pa.large_string()
    )  # a number as its type's shortest digits
    texts = pc.utf8_normalize(without_missing_words(texts), form="NFC")
    return texts.combine_chunks().dictionary_encode()


def codes_of(texts: pa.DictionaryArray) -> ColumnCodes:
    """Return the codes of texts from `distinct_texts`; the order of rows does not change them."""
    names = [canonical_text(text) for text in texts.dictionary.to_pylist()]
    categories = sorted(set(names))
    place = {name: code for code, name in enumerate(categories)}
    # The last entry is for rows without a value.
    lookup = np.array([*(place[name] for name in names), np.nan], dtype=np.float32)
    rows = pc.fill_null(texts.indices, len(names)).to_numpy()
    return ColumnCodes(lookup[rows], tuple(categories))


def categories_max(n_rows: int) -> int:
    """Return the largest number of categories of a column that `n_rows` rows can train on."""
    return max(n_rows // ROWS_PER_CATEGORY, FEW_CATEGORIES)


def refuse_many(categories: Mapping[str, tuple[str, ...]], n_rows: int, max_bin: int) -> None:
    """Refuse, by a DataError, a column with almost a category per row or far too many for a model.

    `categories` by column, of a training table of `n_rows`; a model keeps `max_bin` of each.
    """
    most = min(categories_max(n_rows), BINS_MAX * max_bin)
    for name, texts in categories.items():
        if len(texts) <= most:
            continue
        column = pa.chunked_array([pa.array(texts)])
        todo = f"group its values into {most} at most, or name it in 'ignore'"
        if holds_dates(column):
            todo = "name it in 'dates' of the data set, not in 'categorical'"
        signs = signs_to_declare(column)
        if signs is not None:
            todo = f"take it out of 'categorical', and {signs.remedy}"
        raise DataError(
            f"the categorical column {name!r} has {len(texts)} different values; at most "
            f"{most} can be learned from {n_rows} rows with max_bin {max_bin}",
            column=name,
            todo=todo,
            kind="a categorical column has more different values than a model can learn from",
        )


def canonical_text(text: str) -> str:
    """Return the canonical spelling of a cell's trimmed text."""
    whole = _WHOLE.fullmatch(text)
    if whole is not None:  # by its digits: a float would round it beyond 2^53
        sign, digits = whole.groups()
        return f"-{digits}" if sign == "-" and digits != "0" else digits
    if _NUMBER.fullmatch(text) and not _LEADING_ZERO.match(text):
        value = float(text)
        if np.isfinite(value):
            return str(int(value)) if value.is_integer() else repr(value)
    if _INFINITE.fullmatch(text):
        return "-inf" if text.startswith("-") else "inf"
    folded = text.casefold()
    return folded if folded in ("true", "false") else text
