"""One daemon per store: a lock that the operating system frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from fedboost.ground.disk import SECRET_MODE, on_disk
from fedboost.ground.errors import StoreError

MOVED = "moved"  # in the folder of a store that another machine has taken over: the backup's name

_held: set[str] = set()
_held_lock = threading.Lock()


class StoreLock:
    """Held from its making to `release` or the process's death; a StoreError if another has it.

    A POSIX record lock and not flock, which forked workers would inherit and keep. Such locks
    do not see their own process, hence the set beside it.
    """

    def __init__(self, path: Path) -> None:
        self._key = str(path.resolve())
        with _held_lock:
            if self._key in _held:
                raise _taken_store_error(path, os.getpid())
            self._file = self._lock_file(path)
            _held.add(self._key)

    def release(self) -> None:
        """Free the lock; a second call does nothing."""
        with _held_lock:
            if self._key in _held and self._file >= 0:
                os.close(self._file)
                _held.discard(self._key)
                self._file = -1

    def _lock_file(self, path: Path) -> int:
        with on_disk(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                holder = os.pread(file, 20, 0).decode("ascii", "replace").strip()
                os.close(file)
                raise _taken_store_error(path, holder or "unknown") from None
            except OSError:
                os.close(file)
                raise
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            return file


def check_here(store: Path) -> None:
    """Refuse, by a StoreError, a store that was moved to another machine."""
    if (store / MOVED).exists():
        raise StoreError(
            "this store was moved: its daemon runs elsewhere",
            todo="start the daemon there; if the move failed, restore the backup elsewhere",
            file=str(store / MOVED),
        )


def _taken_store_error(path: Path, holder: int | str) -> StoreError:
    return StoreError(
        f"another daemon (process {holder}) uses this store",
        todo="stop it, or give this daemon its own folder",
        file=str(path),
    )
