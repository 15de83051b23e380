"""Answers to queries; `queries` sends a query to the engine of its connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedboost.data.kinds.kind import SourceKind

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec
    from fedboost.data.stored import Stored


@contextmanager
def _open_table(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import queries

    with queries.open_answer(source) as stored:
        yield stored


QUERY_KIND = SourceKind("sql", "sql", _open_table)
