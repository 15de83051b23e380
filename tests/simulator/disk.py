"""What a process makes durable, point by point; a plan may kill it just before or just after."""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest import mock

from fedboost.ground import disk
from fedboost.runtime.store import pieces, store
from fedboost.runtime.store.lock import StoreLock
from tests.simulator.processes import PROCESS, Process

When = Literal["before", "after"]
T = TypeVar("T")

_STATE = re.compile(r"UPDATE jobs SET (\w+)")
_NUMBERED = re.compile(r"-[0-9a-f]{8,16}")
_INSIDE = re.compile(r"(\.\d{8})+")  # a round, as a file of a place there is called


@dataclass(frozen=True)
class Write:
    """One thing that a process made durable: whose, and what."""

    process: str
    what: str


# What to do at a write: told whose and which it is, and whether it has been done.
Watch = Callable[[Process, Write, When], None]


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Inside, every durable write is seen by `watch`, and no disk has to spin for it."""

    def guarded(what: Callable[[], str], act: Callable[[], T]) -> T:
        process = PROCESS.get()
        if process is None:
            return act()
        process.check()
        write = Write(process.name, what())
        watch(process, write, "before")
        done = act()
        watch(process, write, "after")
        return done

    def moving(name: str) -> Callable[[Path, Any], Any]:
        real = getattr(Path, name)

        def move(self: Path, target: Any) -> Any:
            return guarded(lambda: _file(Path(target)), lambda: real(self, target))

        return move

    append = disk.append_file

    def appending(path: Path, *content: Any) -> None:
        guarded(lambda: _file(path), lambda: append(path, *content))

    connect = sqlite3.connect

    def connected(*args: Any, **more: Any) -> sqlite3.Connection:
        own = type("Own", (_Connection,), {"guarded": staticmethod(guarded)})
        made: sqlite3.Connection = connect(*args, factory=own, **more)
        process = PROCESS.get()
        if process is not None:
            process.connections.append(made)
        return made

    with ExitStack() as stack:
        for name in ("replace", "rename"):
            stack.enter_context(mock.patch.object(Path, name, moving(name)))
        stack.enter_context(mock.patch.object(pieces, "append_file", appending))
        stack.enter_context(mock.patch.object(sqlite3, "connect", connected))
        stack.enter_context(mock.patch.object(os, "fsync", _at_once))
        stack.enter_context(mock.patch.object(store, "StoreLock", _lock))
        yield


def _at_once(_: int) -> None:
    """What takes a disk its time, and is of no use where only processes die."""


def _lock(path: Path) -> StoreLock:
    """A lock that the system frees with its process."""
    lock, process = StoreLock(path), PROCESS.get()
    if process is not None:
        process.locks.append(lock)
    return lock


class _Connection(sqlite3.Connection):
    """A connection whose commits are points; its statements say what was written."""

    guarded: Callable[..., Any]
    _said = ""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """See sqlite3; a dead process does nothing but roll back."""
        process = PROCESS.get()
        if process is not None and sql != "ROLLBACK":
            process.check()
        if sql.startswith("PRAGMA synchronous"):
            sql = "PRAGMA synchronous = OFF"
        if sql.startswith("BEGIN"):
            self._said = ""
        elif sql == "COMMIT" and self._said:
            commit = super().execute
            done: sqlite3.Cursor = type(self).guarded(lambda: self._said, lambda: commit(sql))
            return done
        else:
            self._say(sql, values[0] if values else ())
        return super().execute(sql, *values)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        """See sqlite3."""
        kept = list(rows)
        if sql.startswith("INSERT INTO ledger "):
            self._said = "ledger " + ", ".join(dict.fromkeys(map(_ledgered, kept)))
        else:
            self._say(sql, kept[0] if kept else ())
        return super().executemany(sql, kept)

    def _say(self, sql: str, row: Any) -> None:
        if self._said or not sql.startswith(("INSERT", "UPDATE", "DELETE")):
            return
        if sql.startswith("INSERT INTO events"):
            event = json.loads(row[3])
            own = next(iter(event))
            inner = event[own].get("state") or event[own].get("step") or event[own].get("stage")
            self._said = f"event {own} {inner or ''}".strip()
        elif sql.startswith("UPDATE jobs SET state"):
            self._said = f"job {row[0]}"
        else:
            found = _STATE.match(sql)
            self._said = f"job's {found[1]}" if found else " ".join(sql.split()[:3]).lower()


def _ledgered(row: Any) -> str:
    """A row of the ledger by its direction and kind."""
    return f"{row[2]} {row[9].rpartition('.')[2]}"


def _file(path: Path) -> str:
    """A file by its folder and name, without numbers, hashes and jobs."""
    folder = path.parent.name
    if path.parent.parent.name == "jobs" or folder in ("models", "predictions", "reports"):
        known = {"result.json"} if path.parent.parent.name == "jobs" else set()
        return path.name if path.name in known else f"{folder}{path.suffix}"
    return f"{folder}/{_INSIDE.sub(' inside', _NUMBERED.sub('', path.name))}"
