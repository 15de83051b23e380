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
def _opened(source: SourceSpec) -> Iterator[Stored]:
    from fedboost.data import queries

    with queries.opened(source) as stored:
        yield stored


KIND = SourceKind("sql", "sql", _opened)
