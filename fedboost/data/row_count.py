"""How many rows a table has at most, without reading its cells."""

from __future__ import annotations

from fedboost.data.reading import of_open_table
from fedboost.data.sources import SourceSpec


def row_count_most(source: SourceSpec) -> int:
    """Return at least the number of rows of a table: lines of a text file, rows of any other.

    Errors are those of `read_sheet`, as far as they show without reading cells.
    """
    return of_open_table(source, lambda table: table.count())
