"""How often others have aligned their ids with ours: with sets that differ by one id, the second
alignment tells of that id alone. Counted in the store, by peer, data set and day.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedboost.errors import PolicyError
from fedboost.runtime.store.store import Store


def alignments_today(store: Store, peer: str, name: str) -> int:
    """Return how often `peer` has aligned its ids with those of a table today (UTC)."""
    text = "SELECT runs FROM alignments WHERE peer = ? AND dataset = ? AND day = ?"
    with store.transaction() as sql:
        row = sql.execute(text, (peer, name, store.today())).fetchone()
    return row[0] if row else 0


def count_alignment(store: Store, peers: Sequence[str], table: Sequence[str], most: int) -> None:
    """One more alignment of a table with each of `peers` today (UTC), durable.

    The table counts by its name and by its source: two names of one source are one table. A
    PolicyError, and nothing counted, where that would be more than `most` for one of them.
    """
    day = store.today()
    with store.transaction() as sql:
        for name in table:
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
            [(peer, name, day) for peer in peers for name in table],
        )
