"""Releases of a party's tables by all jobs: charges that only add up, kept after the jobs are gone.

A charge is written in the transaction of the ledger's row about its message. `same_tables` finds
tables that share an account. Beside the charges is the expected amount of each job: an unfinished
job reserves it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from fedboost.flow import Charge, Spent
from fedboost.runtime.policy.same_tables import SAME, Owned
from fedboost.runtime.store.database import Database, utc_now
from fedboost.runtime.store.schema import HASHED
from fedboost.runtime.store.store import GOING

BY_COLUMN = (Spent.SUMS, Spent.PLACED)  # the worst column counts, guests together
Guests = Callable[[str], bool]  # whether a guest belongs to a group
Amounts = Mapping[str, float]  # by column; of "": of every column


@dataclass(frozen=True)
class AccountEntry:
    """Expected and charged releases of a table by one job."""

    job: str
    at: str  # UTC, ISO 8601: when it last began to
    dataset: str
    source: str
    guest: str
    protocol: str
    rows: int  # that it learns from
    planned: float  # equations about a bin by rows, expected
    epsilon: float  # of a row's values, expected; inf: without noise
    state: str = ""  # of the job; empty where the store has forgotten it
    charged: Mapping[str, Amounts] = field(default_factory=dict)  # by kind (`Spent`)

    @property
    def table(self) -> Owned:
        """Return which table it is about."""
        return Owned(self.dataset, self.source)

    @property
    def told(self) -> Amounts:
        """The equations by rows that have left, by column."""
        return self.charged.get(Spent.SUMS, {})

    @property
    def counted(self) -> float:
        """Return the number of equations about the column with most of them."""
        return largest_amount(self.told)

    @property
    def placed(self) -> float:
        """Return the share of rows that could be placed in the worst column; 1 at most."""
        return min(1.0, largest_amount(self.charged.get(Spent.PLACED, {})))

    @property
    def amount_reserved(self) -> float:
        """Return the expected amount that is not charged yet."""
        return max(0.0, self.planned - self.counted) if self.state in GOING else 0.0

    @property
    def sums(self) -> float:
        """The equations by rows that count for it."""
        return self.counted + self.amount_reserved

    @property
    def totals(self) -> float:
        """The values of sums under masks by rows."""
        return largest_amount(self.charged.get(Spent.TOTALS, {}))

    @property
    def scored(self) -> int:
        """Return the number of rows with scores sent to guests: predicted and held-out ones."""
        return int(sum(self.charged.get(Spent.ROWS, {}).values()))

    @property
    def noise(self) -> float:
        """The ε per row that counts for it."""
        left = sum(self.charged.get(Spent.EPSILON, {}).values())
        return max(left, self.epsilon) if self.state in GOING else left


def largest_amount(amounts: Amounts) -> float:
    """Return the amount of the column with the highest amount."""
    return amounts.get("", 0.0) + max((v for c, v in amounts.items() if c), default=0.0)


def sums_for_guests(entries: Collection[AccountEntry], guests: Guests = lambda _: True) -> float:
    """Return the released and reserved sums of one column, for some guests together."""
    chosen = [entry for entry in entries if guests(entry.guest)]
    return _charged_amounts(chosen, Spent.SUMS) + sum(entry.amount_reserved for entry in chosen)


def share_placed_for_guests(
    entries: Collection[AccountEntry], guests: Guests = lambda _: True
) -> float:
    """Return the share of rows that some guests together could place in one column; 1 at most."""
    return min(
        1.0, _charged_amounts([entry for entry in entries if guests(entry.guest)], Spent.PLACED)
    )


def _charged_amounts(entries: Collection[AccountEntry], kind: Spent) -> float:
    amounts: dict[str, float] = defaultdict(float)
    for entry in entries:
        for column, amount in entry.charged.get(kind, {}).items():
            amounts[column] += amount
    return largest_amount(amounts)


def amounts_of_table(entries: Collection[AccountEntry], guests: Guests) -> dict[Spent, float]:
    """Return the released and expected amounts of a table, by kind, like `told`."""
    metrics = sum(sum(entry.charged.get(Spent.METRICS, {}).values()) for entry in entries)
    amounts = {
        Spent.SUMS: sums_for_guests(entries, guests),
        Spent.PLACED: share_placed_for_guests(entries, guests),
        Spent.TOTALS: sum(entry.totals for entry in entries),
        Spent.METRICS: metrics,
    }
    epsilon = sum(entry.noise for entry in entries)
    return amounts | ({Spent.EPSILON: epsilon} if epsilon else {})


@dataclass(frozen=True)
class Total:
    """Totals over the jobs of one data set."""

    dataset: str
    guest: str  # receivers of sums; empty: the ε per row of noisy values, for any receiver
    told: float
    placed: float = 0.0  # the share of rows that they could place


def totals_by_dataset(entries: Sequence[AccountEntry], apart: Collection[str]) -> list[Total]:
    """Return the totals of each data set: sums for guests together, except for those `apart`, and
    noisy values for all receivers.
    """
    listed: list[Total] = []
    for dataset in dict.fromkeys(entry.dataset for entry in entries):
        of_dataset = [entry for entry in entries if entry.dataset == dataset]
        guests = dict.fromkeys(e.guest for e in of_dataset if e.sums or e.placed)
        together = [guest for guest in guests if guest not in apart]
        for group in (*([together] if together else []), *([g] for g in guests if g in apart)):
            told, placed = (
                of(of_dataset, group.__contains__)
                for of in (sums_for_guests, share_placed_for_guests)
            )
            listed.append(Total(dataset, ", ".join(group), told, placed))
        if any(entry.noise for entry in of_dataset):
            listed.append(Total(dataset, "", sum(entry.noise for entry in of_dataset)))
    return listed


_COLUMNS = HASHED["account"]


class Account(Database):
    """The accounts of a party's data sets, in its store's file; thread-safe."""

    def __init__(
        self, path: Path, *, read_only: bool = False, clock: Callable[[], datetime] = utc_now
    ) -> None:
        """Open the accounts in the file of a store that is, or was, open."""
        super().__init__(path, "ro" if read_only else "rw", clock)

    @property
    def today(self) -> str:
        """The day (``2026-01-31``, UTC)."""
        return self.now().strftime("%Y-%m-%d")

    def expect(self, entry: AccountEntry) -> None:
        """Record a job's expected amount; a repeated attempt uses the same row."""
        with self.changes() as sql:
            self.note(sql, entry)

    def note(self, sql: sqlite3.Connection, entry: AccountEntry, *, is_new: bool = True) -> None:
        """Note it inside a transaction; unless it `is_new`, a row that is there stays."""
        dated = replace(entry, at=self.now().isoformat(timespec="seconds"))
        values = [getattr(dated, name) for name in _COLUMNS]
        marks = ", ".join("?" for _ in values)
        again = "DO UPDATE SET at = excluded.at, rows = excluded.rows, planned = excluded.planned,"
        again = f"{again} epsilon = excluded.epsilon" if is_new else "DO NOTHING"
        sql.execute(
            f"INSERT INTO account ({', '.join(_COLUMNS)}) VALUES ({marks})"  # noqa: S608  our columns
            f" ON CONFLICT (job) {again}",
            values,
        )

    def entries(self) -> list[AccountEntry]:
        """Return all rows, oldest first; empty if nothing was released."""
        return self._select_entries("1", {})

    def entry(self, job: str) -> AccountEntry | None:
        """Return a job's entry, if it may tell anything."""
        return next(iter(self._select_entries("account.job = :job", {"job": job})), None)

    def _select_entries(self, which: str, values: Mapping[str, str]) -> list[AccountEntry]:
        columns = ", ".join(f"account.{name}" for name in _COLUMNS)
        text = (
            f"SELECT {columns}, coalesce(jobs.state, '') FROM account"  # noqa: S608  our columns
            f" LEFT JOIN jobs ON jobs.id = account.job WHERE {which}"
            " ORDER BY account.at, account.rowid"
        )
        query = "SELECT kind, about, sum(amount) FROM charges WHERE job = ? GROUP BY kind, about"
        entries = []
        with self._mutex:
            for row in self._select(text, values) if self._has_table("charges") else ():
                charged: dict[str, dict[str, float]] = {}
                for kind, column, amount in self._select(query, row[:1]):
                    charged.setdefault(kind, {})[column] = amount
                entries.append(replace(AccountEntry(*row), charged=charged))
        return entries

    def others(self, table: Owned, besides: str = "") -> list[AccountEntry]:
        """Return the entries about one table, except those of one job."""
        return [entry for entry in self._select_entries(SAME, vars(table)) if entry.job != besides]


# Inside the transaction of a row of the ledger


def add_charges(
    sql: sqlite3.Connection, table: Owned, job: str, peer: str, charges: Collection[Charge]
) -> None:
    """Add the charges of one message to `peer`."""
    sql.executemany(
        "INSERT INTO charges (dataset, source, kind, about, peer, job, amount)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (dataset, kind, about, peer, job, source)"
        " DO UPDATE SET amount = amount + excluded.amount",
        [(*vars(table).values(), c.kind, c.column, peer, job, c.amount) for c in charges],
    )


def has_been_sent(sql: sqlite3.Connection, job: str, peer: str, sha256: str) -> bool:
    """Return whether the same bytes have gone to a peer in a job before."""
    text = "SELECT 1 FROM ledger WHERE job = ? AND direction = 'out' AND peer = ? AND sha256 = ?"
    return sql.execute(f"{text} LIMIT 1", (job, peer, sha256)).fetchone() is not None


def released_amounts(sql: sqlite3.Connection, table: Owned, guests: Guests) -> dict[Spent, float]:
    """Return the released amounts of a table, by kind: for sums and placed rows those sent to some
    guests, of the worst column; otherwise those sent to anyone.
    """
    amounts: dict[Spent, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    text = f"SELECT kind, about, peer, sum(amount) FROM charges WHERE {SAME}"  # noqa: S608  ours
    grouped = f"{text} GROUP BY kind, about, peer"
    for kind, column, peer, amount in sql.execute(grouped, vars(table)):
        if kind not in BY_COLUMN or guests(peer):
            amounts[Spent(kind)][column] += amount
    totals_by_kind = {
        kind: largest_amount(by_column) if kind in BY_COLUMN else sum(by_column.values())
        for kind, by_column in amounts.items()
    }
    return {Spent.SUMS: 0.0, **totals_by_kind}


def count_new_rows(sql: sqlite3.Connection, job: str, peer: str, rows: float) -> int:
    """Return the number of a job's rows that were not predicted for `peer` before."""
    text = (
        "SELECT coalesce(sum(amount), 0) FROM charges WHERE kind = 'rows' AND job = ? AND peer = ?"
    )
    return max(0, int(rows - sql.execute(text, (job, peer)).fetchone()[0]))


def count_peer_ids(sql: sqlite3.Connection, peer: str, table: str, day: str, ids: int) -> int:
    """Add ids that `peer` brought to alignments with a table on a day; return the new total."""
    sql.execute(
        "INSERT INTO peer_ids (peer, dataset, day, ids) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (peer, dataset, day) DO UPDATE SET ids = ids + excluded.ids",
        (peer, table, day, ids),
    )
    text = "SELECT ids FROM peer_ids WHERE peer = ? AND dataset = ? AND day = ?"
    return int(sql.execute(text, (peer, table, day)).fetchone()[0])


def count_prediction(sql: sqlite3.Connection, peer: str, day: str, rows: int) -> int:
    """Add rows predicted for `peer` on a day; return the new total."""
    sql.execute(
        "INSERT INTO predictions (peer, day, rows) VALUES (?, ?, ?)"
        " ON CONFLICT (peer, day) DO UPDATE SET rows = rows + excluded.rows",
        (peer, day, rows),
    )
    text = "SELECT rows FROM predictions WHERE peer = ? AND day = ?"
    return int(sql.execute(text, (peer, day)).fetchone()[0])
