"""Detection of equal tables under different names and paths.

Two tables are equal if they share a name or a source, if one is in the other's folder, or if their
files or addresses were ever equal. Equality, once found, stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fedboost.data.sources import SourceSpec

Changes = Callable[[], AbstractContextManager[sqlite3.Connection]]


@dataclass(frozen=True)
class Owned:
    """A table as its owner's file declares it."""

    dataset: str  # its name
    source: str  # its place (`SourceSpec.identity`); empty in rows of earlier versions


# The sources and aliases that lead to a source, over any number of tables in between.
_LINKED = (
    "WITH RECURSIVE linked(name) AS (SELECT :source"
    " UNION SELECT aliases.alias FROM aliases JOIN linked ON aliases.source = linked.name"
    " UNION SELECT aliases.source FROM aliases JOIN linked ON aliases.alias = linked.name)"
)
# A condition on rows with a `dataset` and a `source`; its values are the fields of an `Owned`.
_SOURCE = f"source IN ({_LINKED} SELECT name FROM linked)"  # noqa: S608  our words
SAME = f"(dataset = :dataset OR (source != '' AND :source != '' AND {_SOURCE}))"


def owned_table(
    changes: Changes, tables: Mapping[str, SourceSpec], dataset: str, *, by_name: bool = True
) -> Owned:
    """Return a declared data set of `tables`, after recording the tables that are equal now.

    `changes` opens a transaction. A data set that is no longer declared is identified by its name.
    Without `by_name` tables of one name are equal only if they lie in one place.
    """
    declared = {name: spec.identity for name, spec in tables.items()}
    found = {
        (declared[name], alias)
        for name, spec in tables.items()
        for alias in {declared[name]}
        | spec.identity_marks()
        | spec.folder_identities() & {*declared.values()}
    }
    with changes() as sql:
        known = set(sql.execute("SELECT source, alias FROM aliases").fetchall())
        rows = sorted(found - known)
        sql.executemany("INSERT INTO aliases (source, alias) VALUES (?, ?)", rows)
    source = declared.get(dataset, "")
    return Owned(dataset if by_name or not source else source, source)


@dataclass
class OwnTables:
    """The data sets that a party declares, as its accounts know them."""

    changes: Changes
    declared: Callable[[], Mapping[str, SourceSpec]]
    by_name: bool = True  # whether tables of one name are equal

    def owned(self, dataset: str) -> Owned:
        """Return a data set; see `owned_table`."""
        return owned_table(self.changes, self.declared(), dataset, by_name=self.by_name)


def names_of(sql: sqlite3.Connection, table: Owned) -> list[str]:
    """Return the names that count a table: its own, its source's, and those of equal tables."""
    query = f"{_LINKED} SELECT DISTINCT source FROM aliases WHERE source IN linked"  # noqa: S608  our words
    same = [source for (source,) in sql.execute(query, {"source": table.source})]
    return sorted({table.dataset, *same} | ({table.source} if table.source else set()))
