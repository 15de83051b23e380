"""An upper bound on the rows of a table, without reading its cells."""

from __future__ import annotations

from fedboost.data.reading import with_open_table
from fedboost.data.sources import SourceSpec


def row_count_bound(source: SourceSpec) -> int:
    """Return a bound on the rows of a table: the lines of a text file, the rows of any other.

    Errors are those of `read_sheet`, as far as they show without reading cells.
    """
    return with_open_table(source, lambda table: table.count())
