"""A daemon's data on disk: jobs, journals, checkpoints and counters, in one locked folder.

STORE/store.sqlite          jobs, events, counts for limits (see `schema`); the ledger's table
STORE/store.lock            held while a daemon runs; the system frees it when it dies
STORE/store.key             seals the jobs' secrets (see `sealing`)
STORE/jobs/ID/              checkpoints and secret/ of a job; once it is finished, its `STAYS`
STORE/models/ predictions/ reports/
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from fedboost.ground.disk import (
    NEW,
    SECRET_MODE,
    make_own_folder,
    on_disk,
    open_database,
    transaction,
)
from fedboost.ground.errors import JobError, ProtocolError
from fedboost.runtime.store.lock import StoreLock, check_here
from fedboost.runtime.store.outlines import encode_outline, sha256_of
from fedboost.runtime.store.recordings import FOLDER
from fedboost.runtime.store.schema import (
    EVENT_KIND_SQL,
    checked_values,
    damaged_store_error,
    migrate,
)
from fedboost.runtime.store.sealing import SECRETS, Vault, job_id

FOLDERS = ("jobs", "models", "predictions", "reports")
# Files of a job, by folder, with the ends of their names.
JOB_FILE_KINDS = {
    "models": "", "disclosures": "", "alignments": "", "predictions": ".parquet",
    "reports": ".html", "jobs": "",
}  # fmt: skip
# Files of a finished job that stay in its folder; the others only serve resuming.
STAYS = frozenset({"result.json", "transcript", FOLDER})


class JobState(StrEnum):
    """State of a job. `coordinator.job_states` and `party.job.states` define the transitions."""

    WAITING = "waiting for approval"
    QUEUED = "queued"  # waits for a place, at a party too, which does not count it as open
    AGREED = "agreed"  # at a party, which has not begun it
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINISHED = "finished"

    @property
    def shown(self) -> JobState:
        """Return the state shown to people, one of seven; an agreed job is shown as paused."""
        return JobState.PAUSED if self is JobState.AGREED else self


FINAL = frozenset({JobState.CANCELLED, JobState.FINISHED})
OVER = (JobState.FAILED, JobState.CANCELLED, JobState.FINISHED)  # a failed job can be resumed
RESTS = (JobState.PAUSED, *OVER)  # at a coordinator: nothing happens
# States of jobs that may still release their expected amount.
GOING = (JobState.WAITING, JobState.QUEUED, JobState.AGREED, JobState.RUNNING, JobState.PAUSED)
# States of jobs that a party counts in `jobs_open_max`.
OPEN = (JobState.WAITING, JobState.AGREED, JobState.RUNNING, JobState.PAUSED)


@dataclass(frozen=True)
class StoredJob:
    """One job in the store; times in seconds since 1970, UTC."""

    id: str
    name: str
    state: JobState
    reason: str  # reason of a failure or pause, or the user who cancelled; one sentence
    waiting_for: str  # the party that approval or resumption waits for
    since: float  # when it entered this state
    created: float
    updated: float
    attempt: int
    result: dict[str, Any] | None = field(repr=False)
    outline: bytes = field(repr=False)  # of its manifest (`outlines`)
    read_manifest: Callable[[], bytes] = field(repr=False, compare=False)

    @property
    def manifest(self) -> bytes:
        """Read the signed text; the outline of a job without a stored text."""
        return self.read_manifest()

    @property
    def manifest_sha256(self) -> bytes:
        """Return the hash of the text that all sign."""
        return sha256_of(self.outline)


@dataclass(frozen=True)
class JournalEvent:
    """Entry `n` (from 1) of a job's journal."""

    n: int
    at: float
    event: dict[str, Any]


class Store:
    """One daemon's store; thread-safe. A second daemon on the same folder is refused."""

    def __init__(self, folder: Path, owner: str, clock: Callable[[], float] = time.time) -> None:
        """Open or make the store of `owner` (``party bank``, ``coordinator coord``).

        Raise StoreError if another process uses it, if it belongs to another daemon or a newer
        fedboost, or if the disk refuses.
        """
        self.folder = folder
        self.database = folder / "store.sqlite"
        self._clock = clock
        self._mutex = threading.RLock()
        for part in (folder, *(folder / name for name in FOLDERS)):
            make_own_folder(part)
        with ExitStack() as undoing:
            self._lock = StoreLock(folder / "store.lock")
            undoing.callback(self._lock.release)
            check_here(folder)
            self.vault = Vault(folder)
            self._connection = self._connect(owner)
            undoing.callback(self._connection.close)
            self._finish_interrupted_work()
            undoing.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and free the lock; further calls do nothing."""
        with self._mutex:
            self._connection.close()
            self._lock.release()

    def add_job(
        self, id_: str, name: str, manifest: bytes, state: JobState, *, reason: str = ""
    ) -> StoredJob:
        """Add a new job that has not ended; raise ProtocolError if the id is taken."""
        if state in (JobState.FAILED, *FINAL):
            raise ProtocolError(f"a job cannot begin as {state}", job=job_id(id_))
        now = self._clock()
        row = (job_id(id_), name, state, reason, now, now, now, encode_outline(manifest))
        columns = "id, name, state, reason, since, created, updated, outline"
        with self.transaction() as sql:
            if self.find(id_) is not None:
                raise ProtocolError("there is a job of that id already", job=id_)
            sql.execute(f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608  our columns
            sql.execute("INSERT INTO manifests (job, text) VALUES (?, ?)", (id_, manifest))
        return self.job(id_)

    def job(self, id_: str) -> StoredJob:
        """Return the job; raise JobError if there is none."""
        job = self.find(id_)
        if job is None:
            raise JobError("there is no such job", todo="fedboost job list", job=id_)
        return job

    def find(self, id_: str) -> StoredJob | None:
        """Return the job, or None if it is unknown; `id_` may be any text."""
        rows = self._select("SELECT * FROM jobs WHERE id = ?", (id_,))
        with self.raise_if_damaged():
            return self._job_of_row(rows[0]) if rows else None

    def jobs(self, *states: JobState) -> list[StoredJob]:
        """Return all jobs, or those in one of `states`, oldest first; read no manifests."""
        rows = self._select("SELECT * FROM jobs ORDER BY created, id")
        with self.raise_if_damaged():
            jobs = [self._job_of_row(row) for row in rows]
        return [job for job in jobs if not states or job.state in states]

    def keep_manifest(self, id_: str, text: bytes | None) -> None:
        """Keep the text of a job again, or with None its outline alone."""
        with self.transaction() as sql:
            sql.execute("DELETE FROM manifests WHERE job = ?", (id_,))
            if text is not None:
                sql.execute("INSERT INTO manifests (job, text) VALUES (?, ?)", (id_, text))

    def replace_draft(self, id_: str, text: bytes) -> StoredJob:
        """Replace the manifest of a job that no party has seen yet; return the job."""
        with self.transaction() as sql:
            self._set_column(id_, "outline", encode_outline(text))
            sql.execute("UPDATE manifests SET text = ? WHERE job = ?", (text, id_))
        return self.job(id_)

    def newest_jobs(self, states: Collection[JobState], count: int = -1) -> list[StoredJob]:
        """Return the `count` newest jobs in one of `states`, or all of them; read no others."""
        marks = ", ".join("?" * len(states))
        text = f"SELECT * FROM jobs WHERE state IN ({marks}) ORDER BY created DESC, id DESC LIMIT ?"  # noqa: S608  nothing of others
        rows = self._select(text, (*states, count))
        with self.raise_if_damaged():
            return [self._job_of_row(row) for row in rows]

    def counts(self) -> Counter[JobState]:
        """Return the number of jobs in each shown state."""
        counts: Counter[JobState] = Counter()
        with self.raise_if_damaged():
            for state, count in self._select("SELECT state, count(*) FROM jobs GROUP BY state"):
                counts[JobState(state).shown] += count
        return counts

    def move_to_state(
        self,
        id_: str,
        state: JobState,
        *,
        reason: str = "",
        waiting_for: str = "",
        event: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> StoredJob:
        """Put the job into `state`; only the two `job_states` do. A ProtocolError once it is over.

        Moving to the state it is in changes reason and owner of the wait and keeps `since`. With
        a final state the job's secrets are destroyed. An `event` stands in the journal from the
        same moment on, and so does a `result`.
        """
        with self.transaction() as sql:
            old = self.job(id_)
            if old.state in FINAL:
                raise ProtocolError(f"the job is {old.state} already", job=id_)
            now = self._clock()
            since = old.since if state == old.state else now
            sql.execute(
                "UPDATE jobs SET state = ?, reason = ?, waiting_for = ?, since = ?, updated = ?"
                " WHERE id = ?",
                (state, reason, waiting_for, since, now, id_),
            )
            self._append_events(id_, () if event is None else (event,))
            if result is not None:
                self._set_column(id_, "result", json.dumps(result))
        self._end_secrets(id_, state)
        return self.job(id_)

    def next_attempt(self, id_: str) -> int:
        """Count one more attempt (from 1) of the job; durable before it returns."""
        with self.transaction():
            attempt = self.job(id_).attempt + 1
            self._set_column(id_, "attempt", attempt)
        return attempt

    def set_attempt(self, id_: str, attempt: int) -> None:
        """Take over the coordinator's number of the attempt; a ProtocolError if it is lower than
        ours.
        """
        with self.transaction():
            if attempt < self.job(id_).attempt:
                raise ProtocolError(f"attempt {attempt} of the job is over", job=id_)
            self._set_column(id_, "attempt", attempt)

    def discard(self, id_: str, *kinds: str) -> None:
        """Remove a job's files of these `JOB_FILE_KINDS`, or, as of a cancelled job, of all."""
        for kind in kinds or JOB_FILE_KINDS:
            path = self.folder / kind / f"{job_id(id_)}{JOB_FILE_KINDS[kind]}"
            with on_disk(path):
                _remove_path(path)

    def clear(self, id_: str) -> None:
        """Remove a finished job's files except for `STAYS`."""
        folder = self.job_folder(id_)
        with on_disk(folder):
            stays = STAYS | ({SECRETS} if (folder / FOLDER).exists() else set())
            for path in folder.iterdir() if folder.exists() else ():
                if path.name not in stays:
                    _remove_path(path)

    def _end_secrets(self, id_: str, state: JobState) -> None:
        """Destroy the secrets of a job that is over for good, unless it can be replayed."""
        is_replayable = state is JobState.FINISHED and (self.job_folder(id_) / FOLDER).exists()
        if state in FINAL and not is_replayable:
            self.vault.destroy_secrets(id_)

    def _finish_interrupted_work(self) -> None:
        """Finish work interrupted by a crash: half-written files, half-ended jobs."""
        with on_disk(self.folder):
            for path in self.folder.rglob(f"*{NEW}"):
                _remove_path(path)
        for ended in self.jobs(*FINAL):
            self._end_secrets(ended.id, ended.state)
            if ended.state is JobState.CANCELLED:
                self.discard(ended.id)
            else:
                self.clear(ended.id)

    def add_event(self, id_: str, *events: Mapping[str, Any]) -> int:
        """Append to the job's journal; returns the number of the last entry, all durable."""
        with self.transaction():
            self.job(id_)
            return self._append_events(id_, events)

    def _append_events(self, id_: str, events: Sequence[Mapping[str, Any]]) -> int:
        sql = self._connection
        row = sql.execute("SELECT max(n) FROM events WHERE job = ?", (id_,)).fetchone()
        last, now = row[0] or 0, self._clock()
        rows = [(id_, last + 1 + i, now, json.dumps(event)) for i, event in enumerate(events)]
        sql.executemany("INSERT INTO events (job, n, at, json) VALUES (?, ?, ?, ?)", rows)
        return int(last + len(rows))

    def events(self, id_: str, after: int = 0, most: int = -1) -> list[JournalEvent]:
        """Return the journal after entry `after`, in order; `most` entries of it, all if -1."""
        text = "SELECT * FROM events WHERE job = ? AND n > ? ORDER BY n LIMIT ?"
        with self.raise_if_damaged():
            return list(_journal_events(self._select(text, (id_, after, most)), after))

    def events_of(self, id_: str, kind: str, *, last: bool = False) -> list[JournalEvent]:
        """Return the job's journal entries of `kind`, in order, or the last of them."""
        text = (
            f"SELECT * FROM events WHERE job = ? AND {EVENT_KIND_SQL} = ? ORDER BY n DESC LIMIT ?"  # noqa: S608  our words
        )
        with self.raise_if_damaged():
            rows = self._select(text, (id_, kind, 1 if last else -1))
            return [_event_of_row(row) for row in reversed(rows)]

    def rounds(self, id_: str) -> list[dict[str, Any]]:
        """Return the rounds that a job's journal has, in order, without its other entries."""
        text = "SELECT * FROM events WHERE job = ? AND json LIKE '{\"round\"%' ORDER BY n"
        with self.raise_if_damaged():
            rows = [checked_values(row) for row in self._select(text, (id_,))]
            return [json.loads(text)["round"] for *_, text in rows]

    def now(self) -> float:
        """Return seconds since 1970, UTC, by the clock of all entries here."""
        return self._clock()

    def today(self) -> str:
        """Return the day (``2026-01-31``, UTC)."""
        return day_of(self._clock())

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make everything inside durable at its end, or nothing."""
        with self._mutex, transaction(self._connection, self.database):
            yield self._connection

    @contextmanager
    def raise_if_damaged(self) -> Iterator[None]:
        """Raise StoreError for an impossible value: the file is damaged."""
        try:
            yield
        except (ValueError, TypeError, RecursionError):
            raise damaged_store_error(self.database) from None

    @property
    def models(self) -> Path:
        """The folder of models, one folder for each."""
        return self.folder / "models"

    def job_folder(self, id_: str) -> Path:
        """Return the job's folder; raise ProtocolError if the id could lead elsewhere."""
        return self.folder / "jobs" / job_id(id_)

    def _connect(self, owner: str) -> sqlite3.Connection:
        with on_disk(self.database):
            os.close(os.open(self.database, os.O_RDWR | os.O_CREAT, SECRET_MODE))
            connection = open_database(self.database, "rw")
            try:
                # FULL: an entry is on the disk before the message it speaks of leaves.
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                    connection.execute(f"PRAGMA {pragma}").fetchall()
                migrate(connection, owner, self.database)
            except BaseException:
                connection.close()
                raise
            return connection

    def _select(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._mutex, on_disk(self.database):
            return self._connection.execute(text, values).fetchall()

    def _job_of_row(self, row: tuple[Any, ...]) -> StoredJob:
        id_, name, state, *middle, attempt, result, outline = checked_values(row)
        reason, waiting_for, since, created, updated = middle
        return StoredJob(
            id=id_,
            name=name,
            state=JobState(state),
            reason=reason,
            waiting_for=waiting_for,
            since=since,
            created=created,
            updated=updated,
            attempt=attempt,
            result=json.loads(result or "null"),
            outline=outline,
            read_manifest=partial(self._manifest, id_, outline),
        )

    def _manifest(self, id_: str, outline: bytes) -> bytes:
        rows = self._select("SELECT * FROM manifests WHERE job = ?", (id_,))
        with self.raise_if_damaged():
            return bytes(checked_values(rows[0])[1]) if rows else outline

    def _set_column(self, id_: str, column: str, value: str | int | bytes) -> None:
        text = f"UPDATE jobs SET {column} = ?, updated = ? WHERE id = ?"  # noqa: S608  our columns
        self._connection.execute(text, (value, self._clock(), id_))


def day_of(at: float) -> str:
    """Return the day (``2026-01-31``, UTC) of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _remove_path(path: Path) -> None:
    """Remove a file or a whole folder, if there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _journal_events(rows: list[tuple[Any, ...]], after: int) -> Iterator[JournalEvent]:
    """Yield a journal's entries after `after`; raise ValueError if one is damaged or missing."""
    for place, row in enumerate(rows):
        event = _event_of_row(row)
        if event.n != after + 1 + place:
            raise ValueError
        yield event


def _event_of_row(row: tuple[Any, ...]) -> JournalEvent:
    _, n, at, text = checked_values(row)
    return JournalEvent(n, at, json.loads(text))
