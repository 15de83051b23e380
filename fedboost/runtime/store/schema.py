"""Tables of a daemon's store: their versions, and hashes that reveal a damaged row."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from fedboost.ground.disk import transaction
from fedboost.ground.errors import StoreError
from fedboost.ground.formats import STORE_VERSION
from fedboost.runtime.store.outlines import encode_outline

# Tables with an own hash of each row in the last column, since SQLite has none.
HASHED = {
    "jobs": (
        "id", "name", "state", "reason", "waiting_for", "since", "created", "updated", "attempt",
        "result", "outline",
    ),
    "manifests": ("job", "text"),
    "events": ("job", "n", "at", "json"),
    "predictions": ("peer", "day", "rows"),
    "alignments": ("peer", "dataset", "day", "runs"),
    "account": (
        "job", "at", "dataset", "source", "guest", "protocol", "rows", "planned", "epsilon",
    ),
    "decisions": ("job", "manifest_sha256", "verdict", "user", "at", "reason"),
    "charges": ("dataset", "source", "kind", "about", "peer", "job", "amount"),
    "summed": ("dataset", "source", "parties"),
    "value_groups": ("dataset", "source", "about", "groups"),
    "tags": ("job", "tag"),
    "aliases": ("source", "alias"),
    "peer_ids": ("peer", "dataset", "day", "ids"),
    "noisy_values": ("noise", "columns", "ids", "codes"),
    "atoms": ("dataset", "source", "part", "partitions", "rows", "sha256"),
}  # fmt: skip
_HELD_OUT_6 = ("dataset", "source", "classes", "cells")
_ACCOUNT_3 = (
    "job", "at", "dataset", "guest", "protocol", "rows", "planned", "round", "counted", "epsilon",
    "told",
)  # fmt: skip
_JOBS_4 = (
    "id", "name", "manifest", "state", "reason", "waiting_for", "since", "created", "updated",
    "attempt", "result",
)  # fmt: skip
# Tables whose rows are looked up by content, so a damaged row is not found: all their rows are
# checked when the store is opened.
COUNTERS = (
    "predictions", "alignments", "account", "decisions", "charges", "summed", "atoms",
    "value_groups", "aliases", "peer_ids",
)  # fmt: skip


def _row_hash(*values: object) -> str:
    """Return a hash that detects a flipped bit in a row."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).hexdigest()


def with_row_hash(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Let a connection write into hashed tables; returns it."""
    connection.create_function("row_hash", -1, _row_hash, deterministic=True)
    connection.create_function("sha256", 1, lambda text: hashlib.sha256(text).hexdigest())
    connection.create_function("outlined", 1, encode_outline)
    return connection


def _hash_statements(table: str, columns: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield statements that add hashes to a table's existing and future rows."""
    columns = columns or HASHED[table]
    new = ", ".join(f"NEW.{column}" for column in columns)
    hashed = f"UPDATE {table} SET hash = row_hash({new}) WHERE rowid = NEW.rowid"  # noqa: S608  our words
    yield f"ALTER TABLE {table} ADD COLUMN hash TEXT NOT NULL DEFAULT ''"
    yield f"UPDATE {table} SET hash = row_hash({', '.join(columns)})"  # noqa: S608  our words
    for when in ("INSERT", f"UPDATE OF {', '.join(columns)}"):
        name = f"{table}_{when.partition(' ')[0].lower()}"
        yield f"CREATE TRIGGER {name} AFTER {when} ON {table} BEGIN {hashed}; END"


# Kind of an event: the one key of its JSON, as written by `json.dumps`.
EVENT_KIND_SQL = "substr(json, 3, instr(substr(json, 3), '\"') - 1)"

# Additions of each version of a store.
VERSIONS: Mapping[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE owner (name TEXT NOT NULL) STRICT",
        """CREATE TABLE jobs (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, manifest BLOB NOT NULL,
            state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
            waiting_for TEXT NOT NULL DEFAULT '',
            since REAL NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
            attempt INTEGER NOT NULL DEFAULT 0, approved_by TEXT NOT NULL DEFAULT '', result TEXT
        ) STRICT""",
        """CREATE TABLE events (
            job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
            n INTEGER NOT NULL, at REAL NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job, n)
        ) STRICT""",
        """CREATE TABLE predictions (
            peer TEXT NOT NULL, day TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (peer, day)
        ) STRICT""",
    ),
    2: (*_hash_statements("jobs", _JOBS_4), *_hash_statements("events")),
    3: (
        # Earlier versions made these two when they were first written to.
        """CREATE TABLE IF NOT EXISTS alignments (
            peer TEXT NOT NULL, dataset TEXT NOT NULL, day TEXT NOT NULL, runs INTEGER NOT NULL,
            PRIMARY KEY (peer, dataset, day)
        ) STRICT""",
        """CREATE TABLE IF NOT EXISTS account (
            job TEXT PRIMARY KEY, at TEXT NOT NULL, dataset TEXT NOT NULL, guest TEXT NOT NULL,
            protocol TEXT NOT NULL, rows INTEGER NOT NULL, planned REAL NOT NULL,
            round REAL NOT NULL, counted REAL NOT NULL, epsilon REAL NOT NULL, told INTEGER NOT NULL
        ) STRICT""",
        *(
            statement
            for name in ("predictions", "alignments")
            for statement in _hash_statements(name)
        ),
        *_hash_statements("account", _ACCOUNT_3),
    ),
    4: (
        """CREATE TABLE decisions (
            job TEXT NOT NULL, manifest_sha256 TEXT NOT NULL, verdict TEXT NOT NULL,
            user TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL
        ) STRICT""",
        *_hash_statements("decisions"),
        """INSERT INTO decisions (job, manifest_sha256, verdict, user, at, reason)
            SELECT id, sha256(manifest), 'approved', approved_by, updated, '' FROM jobs
            WHERE approved_by != ''""",
        *(f"DROP TRIGGER jobs_{when}" for when in ("insert", "update")),
        *(f"ALTER TABLE jobs DROP COLUMN {column}" for column in ("hash", "approved_by")),
        *_hash_statements("jobs", _JOBS_4),
    ),
    5: (
        # Charges only grow. `about` is a column, or empty for the whole table.
        """CREATE TABLE charges (
            dataset TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL, about TEXT NOT NULL,
            peer TEXT NOT NULL, job TEXT NOT NULL, amount REAL NOT NULL,
            PRIMARY KEY (dataset, kind, about, peer, job, source)
        ) STRICT""",
        "CREATE INDEX charges_source ON charges (source, kind, about)",
        "CREATE INDEX charges_job ON charges (job)",
        """INSERT INTO charges SELECT dataset, '', 'sums', '', guest, job,
            min(planned, counted + round) FROM account WHERE told AND planned > 0""",
        """INSERT INTO charges SELECT dataset, '', 'epsilon', '', guest, job, epsilon
            FROM account WHERE told AND epsilon > 0""",
        *_hash_statements("charges"),
        """CREATE TRIGGER charges_stay BEFORE DELETE ON charges
        BEGIN SELECT raise(ABORT, 'charges only add up'); END""",
        """CREATE TRIGGER charges_rise BEFORE UPDATE OF amount ON charges
        WHEN NEW.amount < OLD.amount BEGIN SELECT raise(ABORT, 'charges only add up'); END""",
        # A job's expected amount is no bound.
        "DROP TRIGGER account_insert",
        "DROP TRIGGER account_update",
        *(
            f"ALTER TABLE account DROP COLUMN {name}"
            for name in ("hash", "round", "counted", "told")
        ),
        "ALTER TABLE account ADD COLUMN source TEXT NOT NULL DEFAULT ''",
        *_hash_statements("account"),
    ),
    6: (
        # Sets of rows that metrics are about, of each class a sketch.
        """CREATE TABLE held_out (
            dataset TEXT NOT NULL, source TEXT NOT NULL, classes TEXT NOT NULL, cells BLOB NOT NULL
        ) STRICT""",
        *_hash_statements("held_out", _HELD_OUT_6),
        """CREATE TRIGGER held_out_stay BEFORE DELETE ON held_out
        BEGIN SELECT raise(ABORT, 'what was held out stays'); END""",
    ),
    7: (
        # Sets of parties, JSON, in sums with tables: see `summed`.
        """CREATE TABLE summed (
            dataset TEXT NOT NULL, source TEXT NOT NULL, parties TEXT NOT NULL
        ) STRICT""",
        *_hash_statements("summed"),
        """CREATE TRIGGER summed_stay BEFORE DELETE ON summed
        BEGIN SELECT raise(ABORT, 'what was summed stays'); END""",
    ),
    8: (
        # Of a party: agreed to and not begun, so without an attempt, was paused.
        """UPDATE jobs SET state = 'agreed' WHERE state = 'paused' AND attempt = 0
            AND EXISTS (SELECT 1 FROM owner WHERE name LIKE 'party %')""",
    ),
    9: (
        # Users' words to find a job by.
        """CREATE TABLE tags (
            job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, tag TEXT NOT NULL,
            PRIMARY KEY (job, tag)
        ) STRICT""",
        *_hash_statements("tags"),
    ),
    # A status needs few of a journal's entries: they are found by their kind.
    10: (f"CREATE INDEX IF NOT EXISTS events_kind ON events (job, {EVENT_KIND_SQL}, n)",),
    11: (
        # The groups of a column's values that jobs may tell apart, JSON: see `value_groups`.
        """CREATE TABLE value_groups (
            dataset TEXT NOT NULL, source TEXT NOT NULL, about TEXT NOT NULL, groups TEXT NOT NULL
        ) STRICT""",
        *_hash_statements("value_groups"),
        """CREATE TRIGGER value_groups_stay BEFORE DELETE ON value_groups
        BEGIN SELECT raise(ABORT, 'cut points stay'); END""",
        # Further names of a source: tables that share an alias are one.
        """CREATE TABLE aliases (
            source TEXT NOT NULL, alias TEXT NOT NULL, PRIMARY KEY (source, alias)
        ) STRICT""",
        "CREATE INDEX aliases_alias ON aliases (alias)",
        *_hash_statements("aliases"),
        """CREATE TRIGGER aliases_stay BEFORE DELETE ON aliases
        BEGIN SELECT raise(ABORT, 'aliases only add up'); END""",
        # Texts of jobs, which no listing reads.
        """CREATE TABLE manifests (
            job TEXT PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE, text BLOB NOT NULL
        ) STRICT""",
        *_hash_statements("manifests"),
        "INSERT INTO manifests (job, text) SELECT id, manifest FROM jobs",
        *(f"DROP TRIGGER jobs_{when}" for when in ("insert", "update")),
        "ALTER TABLE jobs ADD COLUMN outline BLOB NOT NULL DEFAULT x''",
        "UPDATE jobs SET outline = outlined(manifest)",
        *(f"ALTER TABLE jobs DROP COLUMN {column}" for column in ("hash", "manifest")),
        *_hash_statements("jobs"),
        # Ids that peers have brought to alignments with a table.
        """CREATE TABLE peer_ids (
            peer TEXT NOT NULL, dataset TEXT NOT NULL, day TEXT NOT NULL, ids INTEGER NOT NULL,
            PRIMARY KEY (peer, dataset, day)
        ) STRICT""",
        *_hash_statements("peer_ids"),
        # Values released with noise, under keys: see `policy.noisy_values`.
        """CREATE TABLE noisy_values (
            noise TEXT NOT NULL, columns TEXT NOT NULL, ids BLOB NOT NULL, codes BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX noisy_values_noise ON noisy_values (noise)",
        *_hash_statements("noisy_values"),
        """CREATE TRIGGER noisy_values_stay BEFORE DELETE ON noisy_values
        BEGIN SELECT raise(ABORT, 'values that were told stay'); END""",
        # Atoms of the sets of rows that sums and metrics are about: see `row_sets`. Of the sets
        # before there are sketches alone, which tell no atoms.
        "DROP TABLE IF EXISTS held_out",
        """CREATE TABLE atoms (
            dataset TEXT NOT NULL, source TEXT NOT NULL, part INTEGER NOT NULL,
            partitions TEXT NOT NULL, rows INTEGER NOT NULL, sha256 TEXT NOT NULL,
            PRIMARY KEY (dataset, source, part)
        ) STRICT""",
        *_hash_statements("atoms"),
        "ALTER TABLE atoms ADD COLUMN cells BLOB NOT NULL DEFAULT x''",  # last: read by few
        """CREATE TRIGGER atoms_stay BEFORE DELETE ON atoms
        BEGIN SELECT raise(ABORT, 'atoms stay'); END""",
        """CREATE TRIGGER atoms_rise BEFORE UPDATE OF rows ON atoms
        WHEN NEW.rows < OLD.rows BEGIN SELECT raise(ABORT, 'atoms stay'); END""",
    ),
    # Outlines have the job's number of the wire.
    12: (
        """UPDATE jobs SET outline = outlined((SELECT text FROM manifests WHERE job = id))
            WHERE id IN (SELECT job FROM manifests)""",
    ),
}


def migrate(connection: sqlite3.Connection, owner: str, path: Path) -> None:
    """Create the tables, or upgrade those of an older version, in one step.

    Raise StoreError if a newer fedboost wrote them, or if they belong to another daemon or are
    inconsistent.
    """
    version = with_row_hash(connection).execute("PRAGMA user_version").fetchone()[0]
    if version > STORE_VERSION:
        raise StoreError(
            f"the store has version {version}, this fedboost knows {STORE_VERSION}",
            todo="run the newer fedboost, or start with another folder",
            file=str(path),
        )
    if version:
        _check_store(connection, owner, path)
    if version == STORE_VERSION:
        _check_counters(connection, path)
        return
    with transaction(connection, path):
        for statement in _upgrade_statements(version) if version else _creation_statements():
            connection.execute(statement)
        if not version:
            connection.execute("INSERT INTO owner VALUES (?)", (owner,))
        connection.execute(f"PRAGMA user_version = {STORE_VERSION}")


def _upgrade_statements(version: int) -> Iterator[str]:
    """Yield statements that upgrade a store of an older version."""
    for number in range(version + 1, STORE_VERSION + 1):
        yield from VERSIONS[number]


@cache
def _creation_statements() -> tuple[str, ...]:
    """Return statements that create a new store's tables in their final form: six times as fast."""
    with closing(with_row_hash(sqlite3.connect(":memory:"))) as connection:
        for statement in _upgrade_statements(0):
            connection.execute(statement)
        made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        return tuple(sql for (sql,) in connection.execute(made))


def _check_store(connection: sqlite3.Connection, owner: str, path: Path) -> None:
    """Refuse another daemon's store, and a store with inconsistent pages."""
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    for table in known & HASHED.keys():
        checked = connection.execute(f"PRAGMA integrity_check({table})").fetchone()
        if checked[0] != "ok":
            raise damaged_store_error(path)
    recorded = connection.execute("SELECT name FROM owner").fetchone()
    if recorded is None or recorded[0] != owner:
        whose = recorded[0] if recorded else "nobody"
        raise StoreError(
            f"the store belongs to {whose}, not to {owner}",
            todo="give every daemon its own folder",
            file=str(path),
        )


def _check_counters(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a store with a damaged row that counts for a limit."""
    for table in COUNTERS:
        columns = ", ".join((*HASHED[table], "hash"))
        try:
            for row in connection.execute(f"SELECT {columns} FROM {table}"):  # noqa: S608  our words
                checked_values(row)
        except ValueError:
            raise damaged_store_error(path) from None


def damaged_store_error(path: Path) -> StoreError:
    """Return the error of a store with damaged content."""
    return StoreError(
        "the store is damaged: it holds a value that no fedboost has written",
        todo="restore it from a backup",
        private=str(path),
        file=path.name,
    )


def checked_values(row: tuple[Any, ...]) -> list[Any]:
    """Return a hashed row's values; raise ValueError if one is damaged."""
    *values, digest = row
    if digest != _row_hash(*values):
        raise ValueError
    return values
