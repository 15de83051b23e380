"""Memory that a process needs no more, given back to the system."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

DONTNEED = 4  # <bits/mman-linux.h>: MADV_DONTNEED
QUIET_S = 10.0  # without a job at work, before a daemon gives all back
ARENA_MAX, ARENAS = -8, 2  # <malloc.h>: M_ARENA_MAX; one for each thread would stay in fragments
MMAP_THRESHOLD, APART_BYTES = -3, 1 << 21  # from here on memory goes back as soon as it is freed
TRIM_THRESHOLD, TOP_BYTES = -1, 1 << 23  # that an arena keeps free at its end
LARGE_ROWS = 1 << 18  # of fewer, taking memory again costs more than is saved


def be_frugal() -> None:
    """Have allocators keep little of what is freed; before threads start and Arrow is loaded."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    system = _c_library()
    if hasattr(system, "mallopt"):  # glibc
        system.mallopt(ARENA_MAX, ARENAS)


def keep_apart() -> None:
    """Have large arrays lie in pages of their own, where they leave no holes, from here on.

    The system clears such pages anew each time, which small jobs would feel.
    """
    system = _c_library()
    if hasattr(system, "mallopt"):  # glibc
        system.mallopt(MMAP_THRESHOLD, APART_BYTES)
        system.mallopt(TRIM_THRESHOLD, TOP_BYTES)


def give_back(*, of_cycles: bool = False) -> None:
    """Give back what Arrow and the C library keep for later; some milliseconds.

    With `of_cycles` also what objects hold that only name one another, which takes 0.1 s.
    """
    if of_cycles:
        gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    system = _c_library()
    if hasattr(system, "malloc_trim"):  # glibc
        system.malloc_trim(0)


def give_all_back() -> None:
    """Give back what is free, and let go of the pages of libraries that nothing has changed.

    What allocators hold is free memory between what is used; pages of libraries are read again
    from their files when they are next used. Where the system has no such calls, nothing happens.
    """
    give_back(of_cycles=True)
    if sys.platform != "linux":
        return
    import ctypes

    import psutil

    system = _c_library()
    for part in psutil.Process().memory_maps(grouped=False):
        # Private, never written by us: the file has every byte of it.
        if part.path.startswith("/") and part.perms in ("r-xp", "r--p") and not part.anonymous:
            begin, end = (int(address, 16) for address in part.addr.split("-"))
            system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), DONTNEED)


def _c_library() -> Any:
    import ctypes  # half a megabyte, which an idle coordinator does without

    return ctypes.CDLL(None)
