"""The disclosure ledger: one hash-chained row per sent or received payload, never changed.

Row n holds the hash of row n-1; its own hash covers that and the hash of every other column. A
second table holds the number and hash of the last row, so missing rows at the end are detected too.
A third keeps the heads signed by this party and its peers (see `heads`): an attacker who rewrites
the whole database can write another chain, but cannot make it fit the signatures.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fedboost.ground.disk import on_disk
from fedboost.ground.errors import StoreError
from fedboost.runtime.ledger.rows import (
    GENESIS,
    Amount,
    DisclosureRow,
    Gap,
    Head,
    KeptHead,
    Row,
    broken_chain_error,
    check_row,
    row_hash,
)
from fedboost.runtime.store.database import Database, utc_now

TABLES = ("ledger", "ledger_head", "ledger_signed")

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS ledger (
        n INTEGER PRIMARY KEY, at TEXT NOT NULL, direction TEXT NOT NULL, job TEXT NOT NULL,
        attempt INTEGER NOT NULL, stage TEXT NOT NULL, step TEXT NOT NULL,
        number INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT NOT NULL, peer TEXT NOT NULL,
        bytes INTEGER NOT NULL, "values" INTEGER NOT NULL, "rows" INTEGER, "groups" INTEGER,
        smallest_group INTEGER, epsilon REAL, protection TEXT NOT NULL, reveals TEXT NOT NULL,
        sha256 TEXT NOT NULL, salt TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS ledger_head (
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL, hash TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS ledger_signed (
        k INTEGER PRIMARY KEY, job TEXT NOT NULL, party TEXT NOT NULL, text BLOB NOT NULL,
        signature BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS ledger_gaps (
        hash TEXT PRIMARY KEY, n INTEGER NOT NULL, job TEXT NOT NULL, peer TEXT NOT NULL,
        found TEXT NOT NULL, seen TEXT NOT NULL DEFAULT ''
    ) STRICT""",
    "CREATE INDEX IF NOT EXISTS ledger_job ON ledger (job)",
    "CREATE INDEX IF NOT EXISTS ledger_signed_job ON ledger_signed (job, party)",
    *(
        f"""CREATE TRIGGER IF NOT EXISTS {table}_{name} BEFORE {change} ON {table}
        BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END"""
        for table in ("ledger", "ledger_signed")
        for name, change in (("keeps", "DELETE"), ("stays", "UPDATE"))
    ),
)


_COLUMNS = ", ".join(f'"{column.name}"' for column in fields(Row))
_MARKS = ", ".join("?" for _ in fields(Row))


class Ledger(Database):
    """The ledger in an SQLite file, a party's store for instance; thread-safe."""

    def __init__(
        self, path: Path, *, read_only: bool = False, clock: Callable[[], datetime] = utc_now
    ) -> None:
        """Open the ledger in `path`; made there unless `read_only`. A StoreError if refused."""
        super().__init__(path, "ro" if read_only else "rwc", clock)

    def record(
        self,
        *disclosures: DisclosureRow,
        first: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> list[Row]:
        """Append a row for each, in their order; all on the disk when this returns.

        Changes of `first` are written with the rows or not at all; an exception leaves nothing
        behind.
        """
        for disclosure in disclosures:
            check_row(disclosure)
        at = self.now().isoformat(timespec="microseconds")
        rows: list[Row] = []
        with self.changes() as sql:
            first(sql)
            head = self.head()
            for disclosure in disclosures:
                bare = Row(n=head.n + 1, at=at, **vars(disclosure), previous=head.hash, hash="")
                rows.append(replace(bare, hash=row_hash(bare)))
                head = Head(rows[-1].n, rows[-1].hash)
            sql.executemany(
                f"INSERT INTO ledger ({_COLUMNS}) VALUES ({_MARKS})",  # noqa: S608  our columns
                [tuple(vars(row).values()) for row in rows],
            )
            sql.execute(
                "INSERT INTO ledger_head VALUES (1, ?, ?)"
                " ON CONFLICT (one) DO UPDATE SET n = excluded.n, hash = excluded.hash",
                (head.n, head.hash),
            )
        return rows

    def rows(self, job: str | None = None, *, first: int = 1, last: int | None = None) -> list[Row]:
        """Return all rows, or those of one job, in order; from row `first` on and up to row `last`.

        Raise DataError for the first row that is no longer in its written form.
        """
        return list(self._select_rows(job, first, last))

    def latest_rows(self, job: str, kind: str, before: int, count: int) -> list[Row]:
        """Return at most `count` rows before row `before`, newest first; of a job, of a kind."""
        where = "n < :before" + (" AND job = :job" if job else "")
        where += " AND kind = :kind" if kind else ""
        text = (
            f"SELECT {_COLUMNS} FROM ledger WHERE {where}"  # noqa: S608  our columns
            " ORDER BY n DESC LIMIT :count"
        )
        values = {"job": job, "kind": kind, "before": before, "count": count}
        return [Row(*row) for row in self._select(text, values)]

    def amounts(self, job: str = "", *, after: int = 0, last: int | None = None) -> list[Amount]:
        """Return the amounts sent and received in a job, or in every job, in order of first
        appearance; of rows after `after` and up to `last`.
        """
        text = (
            'SELECT direction, peer, kind, count(*), sum(bytes), sum("values"), job, max(at)'
            " FROM ledger WHERE n > :after"
        )
        text += "" if last is None else " AND n <= :last"
        text += " AND job = :job" if job else ""
        text += " GROUP BY job, direction, peer, kind ORDER BY min(n)"
        values = {"job": job, "after": after, "last": last}
        return [Amount(*row) for row in self._select(text, values)]

    def head(self) -> Head:
        """Return the number of rows and the last hash; peers that keep it can detect changes."""
        rows = self._select("SELECT n, hash FROM ledger_head")
        head = Head(*rows[0]) if rows else Head(0, GENESIS)
        if not isinstance(head.n, int) or not isinstance(head.hash, str):
            raise self._damaged("the ledger's head is damaged")
        return head

    def keep(self, *heads: KeptHead) -> None:
        """Keep signed heads, in their order; all on the disk when this returns."""
        if not heads:
            return
        with self.changes() as sql:
            sql.executemany(
                "INSERT INTO ledger_signed (job, party, text, signature) VALUES (?, ?, ?, ?)",
                [tuple(vars(head).values()) for head in heads],
            )

    def kept(self, job: str | None = None) -> list[KeptHead]:
        """Return the signed heads of all jobs, or of one, oldest first."""
        where, values = ("", ()) if job is None else (" WHERE job = ?", (job,))
        return self._select_heads(f"{where} ORDER BY k", values)

    def last_head_in_job(self, job: str, party: str) -> KeptHead | None:
        """Return the newest head that a party has signed in a job."""
        where = " WHERE job = ? AND party = ? ORDER BY k DESC LIMIT 1"
        return next(iter(self._select_heads(where, (job, party))), None)

    def newest_head(self, party: str) -> KeptHead | None:
        """Return the newest head that a party has signed, in any job."""
        return next(
            iter(self._select_heads(" WHERE party = ? ORDER BY k DESC LIMIT 1", (party,))), None
        )

    def note_gap(self, n: int, hash_: str, job: str, peer: str) -> None:
        """Note a row that was signed and is not there; once."""
        text = (
            "INSERT OR IGNORE INTO ledger_gaps (hash, n, job, peer, found) VALUES (?, ?, ?, ?, ?)"
        )
        with self.changes() as sql:
            sql.execute(text, (hash_, n, job, peer, self.now().isoformat(timespec="seconds")))

    def recorded_gaps(self) -> list[Gap]:
        """Return the recorded gaps, oldest first."""
        text = "SELECT hash, n, job, peer, found, seen FROM ledger_gaps ORDER BY found, n"
        return [Gap(*row) for row in self._select(text)] if self._has_table("ledger_gaps") else []

    def mark_gaps_seen(self) -> None:
        """Note that the owner knows of all of them."""
        with self.changes() as sql:
            at = self.now().isoformat(timespec="seconds")
            sql.execute("UPDATE ledger_gaps SET seen = ? WHERE seen = ''", (at,))

    def verify(self, signed: Mapping[int, str] | None = None) -> Head:
        """Return the head of an intact chain; raise DataError for the first broken row.

        `signed` holds required hashes by number of row.
        """
        marks = dict(signed or {})
        with self.changes("DEFERRED"):
            n, previous = 0, GENESIS
            for row in self._select_rows(None):
                n += 1
                if row.n != n:
                    raise broken_chain_error(n, f"is missing: row {row.n} follows row {n - 1}")
                if row.previous != previous:
                    raise broken_chain_error(n, f"does not follow row {n - 1}")
                if row.hash != row_hash(row):
                    raise broken_chain_error(n, "was changed: its hash does not fit what it says")
                if marks.pop(n, row.hash) != row.hash:
                    raise broken_chain_error(n, "is not the one that this party signed")
                previous = row.hash
            head = self.head()
            if head.n > n:
                raise broken_chain_error(n + 1, f"is missing: the ledger had {head.n} rows")
            if head != Head(n, previous):
                raise broken_chain_error(n, "is not the row that was recorded last")
            if marks.pop(0, GENESIS) != GENESIS or marks:
                raise broken_chain_error(
                    min(marks, default=0), "is missing, and this party has signed it"
                )
            return head

    def _select_rows(
        self, job: str | None, first: int = 1, last: int | None = None
    ) -> Iterator[Row]:
        values: dict[str, Any] = {"job": job, "first": first, "last": last}
        where = "n >= :first"
        where += "" if last is None else " AND n <= :last"
        where += "" if job is None else " AND job = :job"
        text = f"SELECT {_COLUMNS} FROM ledger WHERE {where} ORDER BY n"  # noqa: S608  our columns
        with (
            self._mutex,
            on_disk(self._path),
            closing(self._connection.execute(text, values)) as cursor,
        ):
            for values_of_row in cursor:
                row = Row(*values_of_row)
                if any(isinstance(value, bytes) for value in values_of_row):
                    raise broken_chain_error(
                        row.n, "is damaged: the file has bytes where text belongs"
                    )
                yield row

    def _select_heads(self, where: str, values: tuple[str, ...]) -> list[KeptHead]:
        text = f"SELECT job, party, text, signature FROM ledger_signed{where}"  # noqa: S608  ours
        kept = [KeptHead(*row) for row in self._select(text, values)]
        for entry in kept:
            if [type(value) for value in vars(entry).values()] != [str, str, bytes, bytes]:
                raise self._damaged("a signed head in the ledger is damaged")
        return kept

    def _damaged(self, what: str) -> StoreError:
        todo = "restore the store from a backup"
        return StoreError(what, file=self._path.name, todo=todo)

    def _prepare(self, *, read_only: bool) -> None:
        known = "SELECT name FROM sqlite_master WHERE type = 'table'"
        present = {name for (name,) in self._connection.execute(known).fetchall()}
        if "ledger" in present:
            self._check_columns()
        if read_only:
            if not present.issuperset(TABLES):
                raise StoreError(
                    "the store has no ledger",
                    file=str(self._path),
                    todo="check `store` in the party's settings file",
                )
            return
        self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
        super()._prepare(read_only=read_only)
        with self.changes() as sql:
            for statement in SCHEMA:
                sql.execute(statement)

    def _check_columns(self) -> None:
        """Refuse a table of an earlier fedboost: rewritten rows would be no record any more."""
        columns = self._connection.execute("PRAGMA table_info(ledger)").fetchall()
        if [column[1] for column in columns] != [column.name for column in fields(Row)]:
            raise StoreError(
                "the store's ledger was written by another version of fedboost",
                todo="keep this store as the record of its jobs and begin with a new folder; "
                "models/ may be copied into it",
                file=str(self._path),
            )
