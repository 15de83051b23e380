"""What jobs have told of a party's data sets: a row for each job, kept when the job is gone.

Two things add up. The equations that released sums are, about the most told column's bins, by
training rows (see `encrypted.meter`): of the jobs with one guest, since each guest can solve its
own. And the ε of values disclosed with noise: of all jobs, since anybody may put them together.

A job that goes on counts with all that it may tell; one that has ended early with what it had told
at its last checkpoint and one round more, or with nothing if no message had left.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedboost.runtime.disk import on_disk, opened, transaction
from fedboost.runtime.schema import HASHED, hashes
from fedboost.runtime.store import JobState

GOING = (JobState.WAITING, JobState.RUNNING, JobState.PAUSED)  # may still tell all that they may


@dataclass(frozen=True)
class Entry:
    """What one job may tell, and has told, of a data set."""

    job: str
    at: str  # UTC, ISO 8601: when it was last about to tell anything
    dataset: str
    guest: str
    protocol: str
    rows: int  # that it learns from
    planned: float  # equations about a bin by rows, at most
    round: float  # of them, of one round; 0 once the job has told all
    counted: float  # up to the last round that was kept
    epsilon: float  # of a row's values; inf: without noise
    told: int  # 1 once a message has left
    state: str  # of the job; empty where the store has forgotten it

    @property
    def sums(self) -> float:
        """The equations by rows that count for it."""
        if self.state in GOING:
            return self.planned
        return min(self.planned, self.counted + self.round) if self.told else 0.0

    @property
    def noise(self) -> float:
        """The ε per row that counts for it."""
        return self.epsilon if self.told or self.state in GOING else 0.0


@dataclass(frozen=True)
class Total:
    """What adds up over the jobs of one data set."""

    dataset: str
    guest: str  # who has got sums; empty: the ε per row of noisy values, which anybody may have
    told: float


def totals(entries: Sequence[Entry]) -> list[Total]:
    """Of each data set what each guest has got of sums, and what all have got of noisy values."""
    found: list[Total] = []
    for dataset in dict.fromkeys(entry.dataset for entry in entries):
        own = [entry for entry in entries if entry.dataset == dataset]
        for guest in dict.fromkeys(entry.guest for entry in own if entry.planned):
            sums = sum(entry.sums for entry in own if entry.guest == guest)
            found.append(Total(dataset, guest, sums))
        if any(entry.epsilon for entry in own):
            found.append(Total(dataset, "", sum(entry.noise for entry in own)))
    return found


_COLUMNS = HASHED["account"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Account:
    """The accounts of a party's data sets, in its store's file; thread-safe."""

    def __init__(
        self, path: Path, *, read_only: bool = False, clock: Callable[[], datetime] = _utc_now
    ) -> None:
        """Open the accounts in the file of a store that is, or was, open."""
        self._path, self._clock = path, clock
        self._mutex = threading.RLock()
        self._connection = hashes(opened(path, "ro" if read_only else "rw"))
        with on_disk(path):
            try:
                # FULL: a row is on the disk before the payload leaves that it counts.
                self._connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            self._connection.close()

    def open(self, entry: Entry) -> None:
        """Reserves what a job may tell; once for all its attempts, which keep what they told."""
        own = tuple(getattr(entry, name) for name in _COLUMNS)
        at = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        marks = ", ".join("?" for _ in own)
        with self._changes() as sql:
            sql.execute(
                f"INSERT INTO account ({', '.join(_COLUMNS)}) VALUES ({marks})"  # noqa: S608  our columns
                " ON CONFLICT (job) DO UPDATE SET at = excluded.at, rows = excluded.rows,"
                " planned = excluded.planned, round = excluded.round, epsilon = excluded.epsilon",
                (own[0], at, *own[2:]),
            )

    def tell(self, job: str) -> None:
        """Notes that a message of the job is about to leave."""
        with self._changes() as sql:
            sql.execute("UPDATE account SET told = 1 WHERE job = ?", (job,))

    def count(self, job: str, counted: float, *, is_all: bool = False) -> None:
        """Notes what the job has told by now; `is_all`: it will not tell more."""
        with self._changes() as sql:
            sql.execute(
                "UPDATE account SET counted = ?, round = CASE WHEN ? THEN 0 ELSE round END"
                " WHERE job = ?",
                (counted, is_all, job),
            )

    def entries(self) -> list[Entry]:
        """All rows, oldest first; none of a store in which nothing has been told."""
        return self._found("1", ())

    def entry(self, job: str) -> Entry | None:
        """That of a job, if it may tell anything."""
        return next(iter(self._found("account.job = ?", (job,))), None)

    def _found(self, which: str, values: tuple[str, ...]) -> list[Entry]:
        columns = ", ".join(f"account.{name}" for name in _COLUMNS)
        text = (
            f"SELECT {columns}, coalesce(jobs.state, '') FROM account"  # noqa: S608  our columns
            f" LEFT JOIN jobs ON jobs.id = account.job WHERE {which}"
            " ORDER BY account.at, account.job"
        )
        with self._mutex, on_disk(self._path):
            known = "SELECT count(*) FROM sqlite_master WHERE name = 'account'"
            if not self._connection.execute(known).fetchone()[0]:
                return []  # of a store that an earlier version wrote
            return [Entry(*row) for row in self._connection.execute(text, values)]

    def sums(self, dataset: str, guest: str, *, besides: str = "") -> float:
        """Equations by rows that count for all jobs with a guest, but `besides`."""
        own = self._found("account.dataset = ? AND account.guest = ?", (dataset, guest))
        return sum(entry.sums for entry in own if entry.job != besides)

    def noise(self, dataset: str, *, besides: str = "") -> float:
        """The ε per row that counts for all jobs, but `besides`."""
        own = self._found("account.dataset = ?", (dataset,))
        return sum(entry.noise for entry in own if entry.job != besides)

    @contextmanager
    def _changes(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, transaction(self._connection, self._path):
            yield self._connection
