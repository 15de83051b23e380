"""Limits on answers about sets that differ by few ids or parties, over all jobs: alignments of ids,
sums over parties. The store counts or keeps each of them; see `row_sets` for rows.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from fedboost.ground.errors import PolicyError
from fedboost.runtime.policy.same_tables import SAME, Owned, names_of
from fedboost.runtime.store.store import Store


def alignments_today(store: Store, peer: str, table: Owned) -> int:
    """Return the number of alignments of `peer` with a table today (UTC)."""
    text = "SELECT runs FROM alignments WHERE peer = ? AND dataset = ? AND day = ?"
    return _most_today(store, text, peer, table)


def peer_ids_today(store: Store, peer: str, table: Owned) -> int:
    """Return the number of ids that `peer` brought to alignments with a table today (UTC)."""
    text = "SELECT ids FROM peer_ids WHERE peer = ? AND dataset = ? AND day = ?"
    return _most_today(store, text, peer, table)


def _most_today(store: Store, text: str, peer: str, table: Owned) -> int:
    """Return the largest count that a query finds under any of the names of a table."""
    with store.transaction() as sql:
        counts = [
            sql.execute(text, (peer, name, store.today())).fetchone()
            for name in names_of(sql, table)
        ]
    return max((row[0] for row in counts if row), default=0)


def count_alignment(store: Store, peers: Sequence[str], table: Owned, most: int) -> None:
    """Count one more alignment of a table with each of `peers` today (UTC), durably.

    The table counts by its name and by all equal sources (`same_tables`). Raise PolicyError, and
    count nothing, if one of them would exceed `most`.
    """
    day = store.today()
    with store.transaction() as sql:
        names = names_of(sql, table)
        for name in names:
            text = "SELECT peer, runs FROM alignments WHERE dataset = ? AND day = ?"
            used = dict(sql.execute(text, (name, day)).fetchall())
            for peer in peers:
                if used.get(peer, 0) >= most:
                    raise PolicyError(
                        f"the policy allows {most} alignments of a data set per peer and day; "
                        f"{peer} has had {used.get(peer, 0)} today",
                        todo="wait for tomorrow (UTC), or ask the party's owner",
                        key="policy.alignments_per_day",
                    )
        sql.executemany(
            "INSERT INTO alignments (peer, dataset, day, runs) VALUES (?, ?, ?, 1)"
            " ON CONFLICT (peer, dataset, day) DO UPDATE SET runs = runs + 1",
            [(peer, name, day) for peer in peers for name in names],
        )


PartySet = frozenset[str]


def isolated_parties(sets: Collection[PartySet], least: int) -> PartySet | None:
    """Return fewer than `least` parties that some combination of sums over the sets isolates.

    Return None if there are none. The test is exact: a combination without any other party exists
    if, and only if, the sets have a greater rank than without these parties.
    """
    members: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for party in sorted(frozenset().union(*sets)):
        members[tuple(party in group for group in sets)].append(party)
    alike = list(members.values())  # parties in the same sets: no combination separates them
    holds = np.array(list(members), np.float64)  # (groups, sets)
    rank = np.linalg.matrix_rank(holds)
    few = [place for place, parties in enumerate(alike) if len(parties) < least]
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
    """Sets of parties in sums with one store's tables; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def isolated_parties(self, table: Owned, least: int) -> PartySet | None:
        """Return fewer than `least` parties isolated by sums over all sets, or None."""
        with self._store.transaction() as sql:
            known = _read_sets(sql, table)
        return isolated_parties(known, least) if known else None

    def keep_unless_isolating(
        self, table: Owned, parties: Collection[str], least: int
    ) -> PartySet | None:
        """Return the parties that one more set would isolate; otherwise keep the set and return
        None.
        """
        added = frozenset(parties)
        with self._store.transaction() as sql:
            known = _read_sets(sql, table)
            if added in known:
                return None
            alone = isolated_parties([*known, added], least)
            if alone is None:
                sql.execute(
                    "INSERT INTO summed (dataset, source, parties) VALUES (?, ?, ?)",
                    (table.dataset, table.source, json.dumps(sorted(added))),
                )
            return alone


def _read_sets(sql: sqlite3.Connection, table: Owned) -> set[PartySet]:
    text = f"SELECT parties FROM summed WHERE {SAME}"  # noqa: S608  our columns
    return {frozenset(json.loads(named)) for (named,) in sql.execute(text, vars(table))}
