"""Folders of compiled kernels, for programs that never load numba."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
SUFFIX = ".kernel"


def kernel_folders() -> tuple[Path, ...]:
    """Return the folders that may hold kernels, in search order.

    With $NUMBA_CACHE_DIR, that folder only. Otherwise the folder of this installation, which an
    administrator fills for all users, and then the user's own.
    """
    if named := os.environ.get(CACHE_VARIABLE):
        return (Path(named),)
    installed = Path(sys.prefix) / "share" / "fedboost" / "kernels"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return (installed, Path(cache) / "fedboost" / "kernels")


def kernel_names() -> frozenset[str]:
    """Return the names of all files with kernels, in any of the folders."""
    folders = [folder for folder in kernel_folders() if os.access(folder, os.R_OK | os.X_OK)]
    return frozenset(
        name for folder in folders for name in os.listdir(folder) if name.endswith(SUFFIX)
    )
