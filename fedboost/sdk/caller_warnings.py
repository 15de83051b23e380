"""Warnings to the program that called the SDK, at the line of its call."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import re
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fedboost.model.unknown_categories import UnknownCategories

_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
_SHOWN: set[str] = set()  # kinds of warnings that searches have had here


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn the caller of the SDK; a search of scikit-learn, which fits often, is warned once of
    texts that differ only by numbers.
    """
    if _SILENT.get():
        return
    depth = 1
    while _module(depth).startswith("fedboost."):
        depth += 1
    is_search = _module(depth).startswith("sklearn.") and category is UserWarning
    if not is_search or _is_first(re.sub(r"[\d.,]+", "0", text)):
        warnings.warn(text, category, stacklevel=depth + 1)


def warn_of_unknown(unknown: UnknownCategories, party: str = "") -> None:
    """Warn the caller of categories that a model does not know, if a table has any."""
    if unknown.shares:
        warn_caller(unknown.warning(party))


@contextmanager
def silenced(is_silent: bool) -> Iterator[None]:
    """Drop the warnings of this thread during the `with`, if `is_silent`."""
    before = _SILENT.set(is_silent or _SILENT.get())
    try:
        yield
    finally:
        _SILENT.reset(before)


def _module(depth: int) -> str:
    """Return the name of the module of the function `depth` calls above `warn_caller`'s own."""
    return str(sys._getframe(depth + 1).f_globals.get("__name__", ""))


def _is_first(kind: str) -> bool:
    """Return True if neither this process nor another one of a search has had a warning `kind`.

    A process of a search holds an address that no one writes to until it ends: unlike a file, it
    leaves nothing behind.
    """
    if kind in _SHOWN:
        return False
    is_worker = multiprocessing.parent_process() is not None
    search = os.getppid() if is_worker else os.getpid()
    mark = hashlib.sha256(f"{os.getuid()} {search} {kind}".encode()).hexdigest()
    _SHOWN.add(kind)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(f"\0fedboost-{mark}")
        except OSError as error:
            return error.errno != errno.EADDRINUSE
        held.detach()
    return True
