"""Connection of ledger and accounts to a store's SQLite file, beside the store's own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fedboost.ground.disk import on_disk, open_database, transaction
from fedboost.runtime.store.schema import with_row_hash


def utc_now() -> datetime:
    """Return the moment by the system's clock."""
    return datetime.now(UTC)


class Database:
    """One connection with its clock; thread-safe. Errors of the disk become a StoreError."""

    def __init__(
        self, path: Path, mode: Literal["ro", "rw", "rwc"], clock: Callable[[], datetime]
    ) -> None:
        self._path, self._clock = path, clock
        self._mutex = threading.RLock()
        self._connection = with_row_hash(open_database(path, mode))
        with on_disk(path):
            try:
                self._prepare(read_only=mode == "ro")
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, *, read_only: bool) -> None:
        """Make each row durable before its payload leaves."""
        self._connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            self._connection.close()

    def now(self) -> datetime:
        """Return the moment, in UTC, by the clock of the rows."""
        return self._clock().astimezone(UTC)

    @contextmanager
    def changes(
        self, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
    ) -> Iterator[sqlite3.Connection]:
        """Make all changes inside durable at the end of the context, or none."""
        with self._mutex, transaction(self._connection, self._path, kind):
            yield self._connection

    def _select(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with self._mutex, on_disk(self._path):
            return self._connection.execute(text, values).fetchall()

    def _has_table(self, table: str) -> bool:
        """Return whether a table is there, which stores of earlier versions may lack."""
        return bool(self._select("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)))
