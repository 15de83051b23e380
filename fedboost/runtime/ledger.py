"""The disclosure ledger: one hash-chained row per payload that left or came, never changed.

Row n holds the hash of row n-1; its own hash covers every other column. A second table holds the
number and hash of the last row, so that rows cut off the end are missed too. Whoever can rewrite
the whole database can write another whole chain: peers that keep our `head` notice that.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from fedboost.errors import DataError, StoreError
from fedboost.runtime.disk import on_disk

Direction: TypeAlias = Literal["out", "in"]

GENESIS = hashlib.sha256(b"fedboost ledger 1").hexdigest()  # what the first row follows
BUSY_S = 10.0  # the store writes into the same file
TEXT_CHARS_MAX = 2000  # of one column; a peer cannot fill the disk with a name

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS ledger (
        n INTEGER PRIMARY KEY, at TEXT NOT NULL, direction TEXT NOT NULL, job TEXT NOT NULL,
        step TEXT NOT NULL, kind TEXT NOT NULL, peer TEXT NOT NULL, bytes INTEGER NOT NULL,
        "values" INTEGER NOT NULL, protection TEXT NOT NULL, reveals TEXT NOT NULL,
        sha256 TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS ledger_head (
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL, hash TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX IF NOT EXISTS ledger_job ON ledger (job)",
    """CREATE TRIGGER IF NOT EXISTS ledger_keeps BEFORE DELETE ON ledger
        BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS ledger_stays BEFORE UPDATE ON ledger
        BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END""",
)


@dataclass(frozen=True)
class Disclosure:
    """What one payload told whom."""

    direction: Direction
    job: str
    step: str
    kind: str  # the message's type
    peer: str
    bytes: int  # of the payload
    values: int  # how many numbers, ids or ciphertexts it holds
    protection: str  # a word: "paillier-2048 blinded", "curve25519", "plain"
    reveals: str  # the message's own sentence on what it reveals
    sha256: str  # of the payload, in hex


@dataclass(frozen=True)
class Row:
    """One row of the ledger, in the order of its columns."""

    n: int  # from 1
    at: str  # UTC, ISO 8601
    direction: str
    job: str
    step: str
    kind: str
    peer: str
    bytes: int
    values: int
    protection: str
    reveals: str
    sha256: str
    previous: str
    hash: str


@dataclass(frozen=True)
class Head:
    """The end of the chain: how many rows, and the last one's hash."""

    n: int
    hash: str


_COLUMNS = ", ".join(f'"{column.name}"' for column in fields(Row))
_MARKS = ", ".join("?" for _ in fields(Row))


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The ledger in an SQLite file, a party's store for instance; thread-safe."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Open the ledger in `path`; made there unless `read_only`. A StoreError if refused."""
        self._path = path
        self._clock = clock
        self._mutex = threading.RLock()
        if read_only and not path.exists():
            raise StoreError("there is no store yet", todo="run the party once", file=str(path))
        mode = "ro" if read_only else "rwc"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        with on_disk(path):
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(read_only=read_only)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            self._connection.close()

    def record(self, *disclosures: Disclosure) -> list[Row]:
        """Append a row for each, in their order; all on the disk when this returns."""
        for disclosure in disclosures:
            _check(disclosure)
        at = self._clock().astimezone(UTC).isoformat(timespec="microseconds")
        rows: list[Row] = []
        with self._mutex, self._transaction("IMMEDIATE"):
            head = self._head()
            for disclosure in disclosures:
                bare = Row(n=head.n + 1, at=at, **vars(disclosure), previous=head.hash, hash="")
                rows.append(replace(bare, hash=row_hash(bare)))
                head = Head(rows[-1].n, rows[-1].hash)
            self._connection.executemany(
                f"INSERT INTO ledger ({_COLUMNS}) VALUES ({_MARKS})",  # noqa: S608  our columns
                [tuple(vars(row).values()) for row in rows],
            )
            self._connection.execute(
                "INSERT INTO ledger_head VALUES (1, ?, ?)"
                " ON CONFLICT (one) DO UPDATE SET n = excluded.n, hash = excluded.hash",
                (head.n, head.hash),
            )
        return rows

    def rows(self, job: str | None = None) -> list[Row]:
        """All rows, or those of one job, in order."""
        return list(self._rows(job))

    def head(self) -> Head:
        """The number of rows and the last hash; peers that keep it can hold us to it."""
        with self._mutex, on_disk(self._path):
            return self._head()

    def verify(self) -> Head:
        """The head of a chain that is whole; a DataError names the first row that is broken."""
        with self._mutex, self._transaction("DEFERRED"):
            n, previous = 0, GENESIS
            for row in self._rows(None):
                n += 1
                if row.n != n:
                    raise _broken(n, f"is missing: row {row.n} follows row {n - 1}")
                if row.previous != previous:
                    raise _broken(n, f"does not follow row {n - 1}")
                if row.hash != row_hash(row):
                    raise _broken(n, "was changed: its hash does not fit what it says")
                previous = row.hash
            head = self._head()
            if head.n > n:
                raise _broken(n + 1, f"is missing: the ledger had {head.n} rows")
            if head != Head(n, previous):
                raise _broken(n, "is not the row that was recorded last")
            return head

    def _rows(self, job: str | None) -> Iterator[Row]:
        where, values = ("", ()) if job is None else (" WHERE job = ?", (job,))
        text = f"SELECT {_COLUMNS} FROM ledger{where} ORDER BY n"  # noqa: S608  our columns
        with (
            self._mutex,
            on_disk(self._path),
            closing(self._connection.execute(text, values)) as found,
        ):
            for row in found:
                yield Row(*row)

    def _head(self) -> Head:
        found = self._connection.execute("SELECT n, hash FROM ledger_head").fetchone()
        head = Head(*found) if found else Head(0, GENESIS)
        if not isinstance(head.n, int) or not isinstance(head.hash, str):
            raise StoreError("the ledger's head is damaged", file=self._path.name)
        return head

    def _prepare(self, *, read_only: bool) -> None:
        if read_only:
            known = "SELECT count(*) FROM sqlite_master WHERE name IN ('ledger', 'ledger_head')"
            if self._connection.execute(known).fetchone()[0] != 2:
                raise StoreError("the store has no ledger", file=str(self._path))
            return
        self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
        # FULL: a row is on the disk before its payload leaves.
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction("IMMEDIATE"):
            for statement in SCHEMA:
                self._connection.execute(statement)

    @contextmanager
    def _transaction(self, kind: Literal["IMMEDIATE", "DEFERRED"]) -> Iterator[None]:
        with on_disk(self._path):
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def row_hash(row: Row) -> str:
    """SHA-256, in hex, over every column of the row but its own hash, names included."""
    content = {key: value for key, value in vars(row).items() if key != "hash"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check(disclosure: Disclosure) -> None:
    """Our own caller's duty: rows that cannot be stored as they are would break the chain."""
    assert disclosure.direction in ("out", "in")
    assert len(disclosure.sha256) == 64
    assert disclosure.bytes >= 0
    assert disclosure.values >= 0
    for text in (value for value in vars(disclosure).values() if isinstance(value, str)):
        if len(text) > TEXT_CHARS_MAX or "\0" in text:
            raise DataError(f"a ledger's text has at most {TEXT_CHARS_MAX} characters and no NUL")


def _broken(n: int, what: str) -> DataError:
    return DataError(
        f"the ledger is broken: row {n} {what}",
        todo="do not trust rows from here on; compare with the peers' ledgers",
        row=n,
    )
