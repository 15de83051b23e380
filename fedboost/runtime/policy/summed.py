"""With whom a party's tables have been added up: sums over sets of parties that differ by few tell,
by their differences, of these few.

{a, b, c, d} less {a, b, c} is d alone; {a, b}, {b, c} and {a, c} together tell each of the three.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection

import numpy as np

from fedboost.runtime.policy.account import SAME, Owned
from fedboost.runtime.store.store import Store

Parties = frozenset[str]


def isolated(sets: Collection[Parties], least: int) -> Parties | None:
    """Fewer than `least` parties, about whom alone a combination of sums over the sets is.

    None where there are no such. Exact: a combination that leaves out everybody else is there if,
    and only if, the sets have a greater rank than without these parties.
    """
    members: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for party in sorted(frozenset().union(*sets)):
        members[tuple(party in one for one in sets)].append(party)
    alike = list(members.values())  # parties that are in the same sets: no combination parts them
    holds = np.array(list(members), np.float64)  # (groups, sets)
    rank = np.linalg.matrix_rank(holds)
    few = [place for place, own in enumerate(alike) if len(own) < least]
    for count in range(1, least):
        for some in itertools.combinations(few, count):
            named = [party for place in some for party in alike[place]]
            if len(named) >= least:
                continue
            others = np.delete(holds, some, axis=0)
            if not len(others) or np.linalg.matrix_rank(others) < rank:
                return frozenset(named)
    return None


class Summed:
    """The sets of parties with which one store's tables were added up; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def isolated(self, table: Owned, least: int) -> Parties | None:
        """Whom sums over all sets of the table isolate together: fewer than `least`; or None."""
        with self._store.transaction() as sql:
            known = _sets(sql, table)
        return isolated(known, least) if known else None

    def isolates(self, table: Owned, parties: Collection[str], least: int) -> Parties | None:
        """Whom sums over one more set of parties would isolate, beside all earlier ones of the
        table: fewer than `least`. The set is kept where they isolate nobody.
        """
        own = frozenset(parties)
        with self._store.transaction() as sql:
            known = _sets(sql, table)
            if own in known:
                return None
            found = isolated([*known, own], least)
            if found is None:
                sql.execute(
                    "INSERT INTO summed (dataset, source, parties) VALUES (?, ?, ?)",
                    (table.dataset, table.source, json.dumps(sorted(own))),
                )
            return found


def _sets(sql: sqlite3.Connection, table: Owned) -> set[Parties]:
    text = f"SELECT parties FROM summed WHERE {SAME}"  # noqa: S608  our columns
    return {frozenset(json.loads(named)) for (named,) in sql.execute(text, vars(table))}
