"""Durable files, written whole or not at all, and errors of the disk in words for its owner."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from fedboost.ground.errors import StoreError
from fedboost.ground.printable import printable

FOLDER_MODE, SECRET_MODE, PUBLIC_MODE = 0o700, 0o600, 0o644
NEW = ".new"  # ends the name of a file that is being written
SQLITE_REASON_CHARS_MAX = 200  # SQLite quotes damaged names, which may be any text
BUSY_S = 10.0  # another connection (ledger, `ledger show`) may write for this long
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_FULL = "full"  # "database or disk is full": SQLite's own text for ENOSPC


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn errors of the operating system and of SQLite into a StoreError that names `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise _disk_error(error.strerror or type(error).__name__, full, path) from None
    except UnicodeDecodeError:  # SQLite's message about a damaged name
        raise _disk_error("it is damaged", False, path) from None
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise _disk_error(str(error), _SQLITE_FULL in str(error), path) from None


def _disk_error(reason: str, full: bool, path: Path) -> StoreError:
    todo = "free some space" if full else "check that the folder is ours and the disk is well"
    # Peers may read this error: they learn the file's name, the log the whole path.
    said = printable(reason, instead=" ", most=SQLITE_REASON_CHARS_MAX)
    what = f"cannot read or write the file: {said}"
    return StoreError(what, todo=todo, private=str(path), file=path.name)


def open_database(path: Path, mode: Literal["ro", "rw", "rwc"]) -> sqlite3.Connection:
    """Connect to an SQLite file in one of SQLite's modes, for any thread; errors as in `on_disk`.

    A StoreError if a file to be read is missing.
    """
    if mode == "ro" and not path.exists():
        raise StoreError("there is no store yet", todo="run the party once", file=str(path))
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    with on_disk(path):
        return sqlite3.connect(
            uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )


@contextmanager
def transaction(
    connection: sqlite3.Connection, path: Path, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[None]:
    """Make all changes inside durable at the end, or none of them; errors as in `on_disk`."""
    with on_disk(path):
        connection.execute(f"BEGIN {kind}")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Replace the file at `path` in one durable step, with `mode` from its first byte on."""
    with replace_file(path, mode) as file:
        file.write(content)


@contextmanager
def replace_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Open a new file that replaces the one at `path` in one durable step when it is complete.

    An exception inside leaves the old file as it was. A StoreError if someone else writes it now.
    """
    fresh = path.with_name(path.name + NEW)
    with on_disk(path):
        _remove_remains(fresh, path)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        lock_opened(handle)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def _remove_remains(fresh: Path, path: Path) -> None:
    """Remove what a writer that ended left behind; a StoreError if the writer is at work."""
    try:
        handle = os.open(fresh, os.O_WRONLY)
    except FileNotFoundError:
        return
    try:
        if not lock_opened(handle):
            raise StoreError(
                "another command is writing the file",
                todo="wait until it ends, or choose another name",
                private=str(path),
                file=path.name,
            )
    finally:
        os.close(handle)
    fresh.unlink(missing_ok=True)


def lock_opened(handle: int) -> bool:
    """Return False if another process, or another opening of the file, has its lock; else take it.

    The lock ends with the opening. True where the disk knows no locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def append_file(path: Path, at: int, content: bytes, mode: int) -> None:
    """Replace everything behind the first `at` bytes of a file with `content`, durably.

    The first write creates the file. If the disk refuses, the first `at` bytes stay as they were.
    """
    with on_disk(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | (0 if at else os.O_EXCL), mode)
        with os.fdopen(handle, "wb") as file:
            file.truncate(at)
            file.seek(at)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), at)  # a full disk: half a piece would keep it full
                raise


def check_room(folder: Path, least: int) -> int:
    """Return how many bytes are free in a folder, after a trial file of `least` bytes was written.

    A StoreError if the disk refuses the trial file.
    """
    probe = folder / f"room{NEW}"
    with on_disk(folder):
        try:
            with probe.open("wb") as file:
                file.write(bytes(least))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
        held = os.statvfs(folder)
    return held.f_bavail * held.f_frsize


def read_file(path: Path) -> bytes:
    """Read a file; a StoreError if it cannot be read."""
    with on_disk(path):
        return path.read_bytes()


def make_folder(path: Path) -> None:
    """Make the folder and its parents, readable by us only; existing folders keep their mode."""
    with on_disk(path):
        missing = [path, *itertools.takewhile(lambda parent: not parent.exists(), path.parents)]
        for folder in reversed(missing):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_own_folder(path: Path) -> None:
    """Make the folder, or close an existing one to everybody but us.

    A StoreError refuses a folder that several users share, such as /tmp (its sticky bit is set).
    """
    make_folder(path)
    with on_disk(path):
        mode = path.stat().st_mode
        if mode & stat.S_ISVTX:
            raise StoreError(
                "several users share the folder, so it cannot be closed to others",
                todo="name a folder inside it that serves nothing else",
                file=str(path),
            )
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            path.chmod(FOLDER_MODE)


def sync_folder(path: Path) -> None:
    """Make renames and removals in the folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
