"""Files of machine code: numba's cache of compiled kernels, and the folders that we trust with it.

A file holds one kernel for one signature on one kind of processor. Its name is a hash of everything
the code depends on, so a file is never stale, many programs and processes can share a folder, and
the folder may be read-only. Reading a file runs its code, so we read only folders that nobody else
can write.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numba.np.linalg
from numba.core import compiler, serialize, sigutils
from numba.core.caching import _Cache

from fedboost.ground.kernel_folders import CACHE_VARIABLE, SUFFIX, kernel_folders

log = logging.getLogger(__name__)

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
FOLDER_MODE, FILE_MODE = 0o755, 0o644  # users who may run the program may read its code
CHECKSUM_BYTES = 32


@cache
def is_trusted(folder: Path) -> bool:
    """Return True if the folder exists and only root, we and the program's owner can write it."""
    try:
        held = folder.stat()
    except OSError:
        return False
    trusted = {0, os.geteuid(), Path(__file__).stat().st_uid}
    return held.st_uid in trusted and not held.st_mode & WRITABLE_BY_OTHERS


@cache
def writable_folder() -> Path | None:
    """Return the first folder that we may write, created if missing; None if there is none."""
    for folder in kernel_folders():
        with suppress(OSError):
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        is_trusted.cache_clear()
        if is_trusted(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    tried = ", ".join(str(folder) for folder in kernel_folders())
    log.warning(
        "kernels are compiled again at each start: no folder may hold them (tried %s); "
        "set %s to your own folder, or have a folder's owner run: fedboost warm",
        tried,
        CACHE_VARIABLE,
    )
    return None


class Files(_Cache):
    """numba's cache of machine code for one kernel."""

    def __init__(self, name: str, stamp: str) -> None:
        self._name = name
        self._stamp = stamp

    @property
    def cache_path(self) -> str:
        """Folder of new files."""
        return str(writable_folder() or "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature; None if its file is missing or damaged."""
        target_context.refresh()
        file = self._file_name(sig, target_context.codegen())
        for folder in filter(is_trusted, kernel_folders()):
            try:
                content = (folder / file).read_bytes()
            except OSError:
                continue
            digest, payload = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
            if hashlib.sha256(payload).digest() == digest:
                parts = pickle.loads(payload)  # noqa: S301 - the folder is trusted, see above
                return compiler.CompileResult._rebuild(target_context, *parts)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled kernel to the first writable folder, if there is one."""
        folder = writable_folder()
        if folder is None or data.library.has_dynamic_globals:
            return
        payload = serialize.dumps(data._reduce())
        try:
            _replace(folder / self._file_name(sig, data.codegen), payload)
        except OSError as error:
            log.warning("a compiled kernel was not kept in %s: %s", folder, error.strerror)

    def enable(self) -> None:
        """Do nothing: files are always asked for."""

    def disable(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: no file is ever stale."""

    def _file_name(self, sig: Any, codegen: Any) -> str:
        args, _ = sigutils.normalize_signature(sig)
        versions = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
        known = (self._stamp, str(args), versions, codegen.magic_tuple())
        return f"{self._name}-{hashlib.sha256(repr(known).encode()).hexdigest()[:32]}{SUFFIX}"


@cache
def _load_numba() -> None:
    """Load the compiler of numba without SciPy's linear algebra, which takes 0.2 s.

    numba loads it to find out whether it is installed. No kernel of ours needs it; if other code
    does, numba loads it then.
    """
    ensure_blas = numba.np.linalg.ensure_blas
    numba.np.linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")  # looks for BLAS at its import
    finally:
        numba.np.linalg.ensure_blas = ensure_blas


def dispatcher(function: Callable[..., Any], stamp: str, *, is_inlined: bool) -> Any:
    """Return numba's dispatcher of a kernel, which looks for its machine code on the disk first."""
    _load_numba()
    if is_inlined:
        return numba.njit(nogil=True, inline="always")(function)
    compiled: Any = numba.njit(nogil=True)(function)
    compiled._cache = Files(f"{function.__module__.rpartition('.')[2]}.{function.__name__}", stamp)
    return compiled


def _replace(path: Path, payload: bytes) -> None:
    """Write a file whole or not at all, even if other processes write it at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
            os.fchmod(file.fileno(), FILE_MODE)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
