"""What answers about sets that differ by few would tell of these few, over all jobs: alignments of
ids, metrics of rows, sums over parties. Each is counted or kept in the store, and judged.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.encoded_ids import BLOCK
from fedboost.errors import PolicyError
from fedboost.runtime.policy.same_tables import SAME, Owned, names_of
from fedboost.runtime.store.store import Store


def alignments_today(store: Store, peer: str, table: Owned) -> int:
    """Return how often `peer` has aligned its ids with those of a table today (UTC)."""
    text = "SELECT runs FROM alignments WHERE peer = ? AND dataset = ? AND day = ?"
    with store.transaction() as sql:
        runs = [
            sql.execute(text, (peer, name, store.today())).fetchone()
            for name in names_of(sql, table)
        ]
    return max((row[0] for row in runs if row), default=0)


def peer_ids_today(store: Store, peer: str, table: Owned) -> int:
    """Return how many ids `peer` has brought to alignments with a table today (UTC)."""
    text = "SELECT ids FROM peer_ids WHERE peer = ? AND dataset = ? AND day = ?"
    with store.transaction() as sql:
        counts = [
            sql.execute(text, (peer, name, store.today())).fetchone()
            for name in names_of(sql, table)
        ]
    return max((row[0] for row in counts if row), default=0)


def count_alignment(store: Store, peers: Sequence[str], table: Owned, most: int) -> None:
    """One more alignment of a table with each of `peers` today (UTC), durable.

    The table counts by its name and by the sources that are the same (`same_tables`). A
    PolicyError, and nothing counted, where that would be more than `most` for one of them.
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


DIFFERENCE_MAX = 100  # rows; sets that differ by more are not told from any others
PARTS, PART_CELLS = 3, 128  # an id lies in one cell of each part; up to 300 can be told apart
WORDS = 2  # of a cell: the ids in it, and their check words, each added up by XOR

Sketch = NDArray[np.uint64]  # (words, cells)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def sketch(ids: Sequence[bytes]) -> Sketch:
    """The sketch of a set of ids."""
    cells = np.zeros((WORDS, PARTS * PART_CELLS), np.uint64)
    for start in range(0, len(ids), BLOCK):
        some = ids[start : start + BLOCK]
        digests = b"".join([hashlib.blake2b(id_, digest_size=8).digest() for id_ in some])
        _added(cells, np.frombuffer(digests, "<u8").astype(np.uint64))
    return cells


def difference(left: Sketch, right: Sketch) -> int:
    """Return how many ids are in one of two sets only; beyond `DIFFERENCE_MAX` at least so many."""
    cells, count = left ^ right, 0
    while cells.any():
        alone = (cells[0] != 0) & (_checks(cells[0]) == cells[1])
        ids = np.unique(cells[0][alone])
        if not len(ids):
            by_part = cells.any(axis=0).reshape(PARTS, PART_CELLS)
            return count + int(by_part.sum(axis=1).max())
        count += len(ids)
        _added(cells, ids)
    return count


def _added(cells: Sketch, ids: NDArray[np.uint64]) -> Sketch:
    for indices in _indices(ids):
        np.bitwise_xor.at(cells[0], indices, ids)
        np.bitwise_xor.at(cells[1], indices, _checks(ids))
    return cells


def _checks(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (ids ^ (ids >> np.uint64(29))) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


def _indices(ids: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    for part in range(PARTS):
        within = (ids >> np.uint64(20 * part)) % np.uint64(PART_CELLS)
        yield within.astype(np.int64) + part * PART_CELLS


class MeasuredRows:
    """The sets of rows of one store's tables that metrics were about; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def differs(
        self, table: Owned, classes: Iterable[tuple[str, Sequence[bytes]]], least: int
    ) -> bool:
        """Return whether a set differs from each earlier one of the table by `least` rows, or none.

        By `least` in all, and in each of its `classes` in which it differs at all. It is kept if
        it does and is new.
        """
        least = min(least, DIFFERENCE_MAX)
        sketches = {name: sketch(ids) for name, ids in classes}
        with self._store.transaction() as sql:
            text = f"SELECT classes, cells FROM held_out WHERE {SAME}"  # noqa: S608  our columns
            is_known = False
            for names, cells in sql.execute(text, vars(table)):
                fewest = _fewest(sketches, _read(names, cells))
                if 0 < fewest < least:
                    return False
                is_known = is_known or not fewest
            if not is_known:
                sql.execute(
                    "INSERT INTO held_out (dataset, source, classes, cells) VALUES (?, ?, ?, ?)",
                    (table.dataset, table.source, *_written(sketches)),
                )
            return True


def _fewest(left: Mapping[str, Sketch], right: Mapping[str, Sketch]) -> int:
    """The fewest rows in which two sets differ, of a class or of all; 0 where in none."""
    none = sketch(())
    counts = [difference(_whole(left), _whole(right))]
    if left.keys() & right.keys():
        names = left.keys() | right.keys()
        counts += [difference(left.get(name, none), right.get(name, none)) for name in names]
    return min((count for count in counts if count), default=0)


def _whole(classes: Mapping[str, Sketch]) -> Sketch:
    return np.bitwise_xor.reduce(list(classes.values()))


def _written(classes: Mapping[str, Sketch]) -> tuple[str, bytes]:
    names = sorted(classes)
    return json.dumps(names), b"".join(classes[name].astype("<u8").tobytes() for name in names)


def _read(names: str, cells: bytes) -> dict[str, Sketch]:
    shape = (-1, WORDS, PARTS * PART_CELLS)
    sketches = np.frombuffer(cells, "<u8").astype(np.uint64).reshape(shape)
    return dict(zip(json.loads(names), sketches, strict=True))


Parties = frozenset[str]


def isolated(sets: Collection[Parties], least: int) -> Parties | None:
    """Fewer than `least` parties, about whom alone a combination of sums over the sets is.

    None where there are no such. Exact: a combination that leaves out everybody else is there if,
    and only if, the sets have a greater rank than without these parties.
    """
    members: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for party in sorted(frozenset().union(*sets)):
        members[tuple(party in group for group in sets)].append(party)
    alike = list(members.values())  # parties that are in the same sets: no combination parts them
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
    """The sets of parties with which one store's tables were added up; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def isolated(self, table: Owned, least: int) -> Parties | None:
        """Return whom sums over all sets of the table isolate: fewer than `least`; or None."""
        with self._store.transaction() as sql:
            known = _sets(sql, table)
        return isolated(known, least) if known else None

    def isolates(self, table: Owned, parties: Collection[str], least: int) -> Parties | None:
        """Return whom sums over one more set would isolate, or None: then the set is kept."""
        added = frozenset(parties)
        with self._store.transaction() as sql:
            known = _sets(sql, table)
            if added in known:
                return None
            alone = isolated([*known, added], least)
            if alone is None:
                sql.execute(
                    "INSERT INTO summed (dataset, source, parties) VALUES (?, ?, ?)",
                    (table.dataset, table.source, json.dumps(sorted(added))),
                )
            return alone


def _sets(sql: sqlite3.Connection, table: Owned) -> set[Parties]:
    text = f"SELECT parties FROM summed WHERE {SAME}"  # noqa: S608  our columns
    return {frozenset(json.loads(named)) for (named,) in sql.execute(text, vars(table))}
