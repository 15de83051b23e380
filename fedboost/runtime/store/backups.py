"""A daemon's store in one file: written while the daemon runs, checked and put back elsewhere.

The file is a tar archive: `store.sqlite` as of one moment, then the store's other files, last a
list of SHA-256 hashes in the format of `sha256sum`.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedboost.ground.disk import (
    NEW,
    SECRET_MODE,
    make_folder,
    on_disk,
    open_database,
    sync_folder,
    write_file,
)
from fedboost.ground.errors import StoreError
from fedboost.runtime.store.lock import MOVED, StoreLock

DATABASE, KEY, LOCK, SUMS = "store.sqlite", "store.key", "store.lock", "SHA256SUMS"
# Of this machine and this process; SQLite's own files are in the copy of the database.
_STAYS_HERE = (LOCK, MOVED, "page-token", DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")


@dataclass(frozen=True)
class Backup:
    """Size of a backup."""

    files: int
    bytes: int


class _Hashed:
    """A file that is hashed while it is read or written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


def write_backup(store: Path, file: Path, *, with_key: bool = True) -> Backup:
    """Write the store in the folder `store`, also of a running daemon, into `file` (0600).

    Without its key a backup holds no readable secret of a job. A StoreError if there is no store,
    or if the disk refuses.
    """
    if file.exists():
        raise StoreError("the file is there already", todo="name a new file", file=str(file))
    fresh = file.with_name(file.name + NEW)
    sums: dict[str, str] = {}
    with on_disk(fresh), _copy_of_database(store / DATABASE, file.parent) as database:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, SECRET_MODE)
        try:
            with os.fdopen(handle, "wb") as out:
                with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
                    _add_file(archive, sums, DATABASE, database)
                    for path in _backed_up_files(store, with_key):
                        _add_file(archive, sums, str(path.relative_to(store)), path)
                    listed = "".join(f"{sha}  {name}\n" for name, sha in sums.items()).encode()
                    entry = tarfile.TarInfo(SUMS)
                    entry.size = len(listed)
                    archive.addfile(entry, io.BytesIO(listed))
                out.flush()
                os.fsync(out.fileno())
            size = fresh.stat().st_size
            fresh.replace(file)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(file.parent)
    return Backup(len(sums), size)


def move_store(store: Path, file: Path) -> Backup:
    """Write the backup of a stopped daemon's store, which no daemon opens here from then on.

    Two copies of one store would sign two ledgers. A StoreError where the daemon runs.
    """
    lock = StoreLock(store / LOCK)
    try:
        written = write_backup(store, file)
        write_file(store / MOVED, f"{file.name}\n".encode(), SECRET_MODE)
    finally:
        lock.release()
    return written


def restore_backup(file: Path, store: Path) -> Backup:
    """Put a backup's store into the folder `store`, which is empty or missing.

    Raise StoreError if the file differs from the written backup; then nothing is left behind.
    """
    if store.exists() and any(store.iterdir()):
        raise StoreError("the folder is not empty", todo="name a new folder", file=str(store))
    fresh = store.with_name(store.name + NEW)
    with on_disk(fresh):
        shutil.rmtree(fresh, ignore_errors=True)
        make_folder(fresh)
        try:
            restored = _unpack_files(file, fresh)
            _check_database(fresh / DATABASE)
            if store.exists():
                store.rmdir()
            fresh.rename(store)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        sync_folder(store.parent)
    return restored


@contextmanager
def _copy_of_database(database: Path, beside: Path) -> Iterator[Path]:
    """Yield a copy of the database as of one moment, in a folder that is removed afterwards."""
    with (
        tempfile.TemporaryDirectory(dir=beside) as folder,
        closing(open_database(database, "ro")) as live,
    ):
        copy = Path(folder) / DATABASE
        with closing(sqlite3.connect(copy)) as other:
            live.backup(other)
        yield copy


def _backed_up_files(store: Path, with_key: bool) -> Iterator[Path]:
    for path in sorted(store.rglob("*")):
        name = str(path.relative_to(store))
        stays = name in _STAYS_HERE or name.endswith(NEW) or (name == KEY and not with_key)
        if path.is_file() and not path.is_symlink() and not stays:
            yield path


def _add_file(archive: tarfile.TarFile, sums: dict[str, str], name: str, path: Path) -> None:
    """Add a file, unless a running daemon has removed it meanwhile."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        entry = tarfile.TarInfo(name)
        held = os.fstat(file.fileno())
        entry.size, entry.mtime, entry.mode = held.st_size, held.st_mtime, held.st_mode & 0o777
        hashed: Any = _Hashed(file)
        archive.addfile(entry, hashed)
        sums[name] = hashed.hex


def _unpack_files(file: Path, folder: Path) -> Backup:
    sums: dict[str, str] = {}
    listed = b""
    try:
        with tarfile.open(file, mode="r:") as archive:
            for entry in archive:
                content = archive.extractfile(entry)
                if content is None or not _is_inside(folder, entry.name):
                    raise _damaged_backup_error(file, entry.name)
                if entry.name == SUMS:
                    listed = content.read()
                else:
                    sums[entry.name] = _write_and_hash(content, folder / entry.name, entry.mode)
    except tarfile.TarError:
        raise _damaged_backup_error(file, "") from None
    expected = dict(line.split("  ", 1)[::-1] for line in listed.decode().splitlines())
    for name in sorted(sums.keys() | expected.keys()):
        if sums.get(name) != expected.get(name):
            raise _damaged_backup_error(file, name)
    if DATABASE not in sums:
        raise _damaged_backup_error(file, DATABASE)
    return Backup(len(sums), file.stat().st_size)


def _is_inside(folder: Path, name: str) -> bool:
    return (folder / name).resolve().is_relative_to(folder.resolve())


def _write_and_hash(content: IO[bytes], path: Path, mode: int) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed: Any = _Hashed(content)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        shutil.copyfileobj(hashed, out)
        out.flush()
        os.fsync(out.fileno())
    return str(hashed.hex)


def _check_database(database: Path) -> None:
    with closing(open_database(database, "rw")) as connection:  # which removes SQLite's other files
        if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            raise _damaged_backup_error(database, DATABASE)


def _damaged_backup_error(file: Path, name: str) -> StoreError:
    return StoreError(
        "the backup is damaged: its content has changed since it was written",
        todo="use another backup",
        file=str(file),
        **({"entry": name} if name else {}),
    )
