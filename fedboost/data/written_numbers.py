"""Numbers written with decimal commas, or with a sign between groups of three digits."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fedboost.data.columns import decoded_column, kind_of, without_missing_words


class OtherSigns(NamedTuple):
    """Signs in the numbers of a column that their owner has to declare."""

    kind: str
    what: str
    remedy: str


DECIMAL_COMMAS = OtherSigns(
    "comma",
    "hold numbers with decimal commas",
    'declare decimal: "," for the data set, or write points',
)
# A column of 1,500 and 12,500 can mean either: its owner's declaration decides.
THOUSANDS_SIGNS = OtherSigns(
    "thousands",
    "hold numbers with a sign between thousands",
    "declare that sign as 'thousands' of the data set, or write the numbers without it; if 1,500 "
    'means one and a half, declare decimal: ","',
)
# What is written between thousands, by how it is declared, as a class of an expression.
THOUSANDS = {",": "[,]", ".": "[.]", " ": "[ \u00a0\u202f]", "'": "['\u2019]"}
PROOF = r",|\..*\."  # that a point is no decimal one: a comma, or a second point


def number_pattern(decimal: str, thousands: str | None) -> str:
    """Return the expression of numbers with these signs."""
    groups = "" if thousands is None else f"|[1-9][0-9]{{0,2}}({THOUSANDS[thousands]}[0-9]{{3}})+"
    return rf"^[+-]?([0-9]+{groups})([{decimal}][0-9]+)?([eE][+-]?[0-9]+)?$"


def signs_to_declare(column: pa.ChunkedArray) -> OtherSigns | None:
    """Return the signs in a text column whose cells are all numbers, once a sign is declared.

    None for another column, and where only points divide groups of three digits.
    """
    cells = text_cells(column)
    if cells is None:
        return None
    if _hold_thousands(cells):
        return THOUSANDS_SIGNS
    has_commas = any_match(cells, "[0-9],[0-9]") and all_match(cells, number_pattern(",", "."))
    return DECIMAL_COMMAS if has_commas else None


def _hold_thousands(cells: pa.ChunkedArray) -> bool:
    """Return True if all cells are numbers, of which some may have a sign between thousands; not
    where a point could also be a decimal one.
    """
    for sign, signs in THOUSANDS.items():
        pattern = number_pattern("," if sign == "." else ".", sign)
        is_used = any_match(cells, r"\..*\." if sign == "." else f"[0-9]{signs}[0-9]")
        if is_used and all_match(cells, pattern):
            return sign != "." or not any_match(cells, ",")
    return False


def as_plain_numbers(column: pa.ChunkedArray, decimal: str, thousands: str | None) -> pa.Array:
    """Return numbers with these signs as text with points alone."""
    cells = without_missing_words(decoded_column(column))
    if thousands is not None:
        cells = pc.replace_substring_regex(cells, THOUSANDS[thousands], "")
    return pc.replace_substring(cells, decimal, ".")


def text_cells(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the trimmed cells of a text column with any value; None for another column."""
    if kind_of(column.type) != "text":
        return None
    cells = without_missing_words(decoded_column(column))
    return None if cells.null_count == len(cells) else cells


def all_match(cells: pa.ChunkedArray, pattern: str) -> bool:
    """Return True if all cells that are not null match the expression."""
    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def any_match(cells: pa.ChunkedArray, pattern: str) -> bool:
    """Return True if any cell matches the expression."""
    return bool(pc.any(pc.match_substring_regex(cells, pattern)).as_py())
