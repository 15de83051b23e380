"""Return of free memory to the system."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

DONTNEED = 4  # <bits/mman-linux.h>: MADV_DONTNEED
QUIET_S = 10.0  # without a job at work, before a daemon gives all back
ARENA_MAX, ARENAS = -8, 2  # <malloc.h>: M_ARENA_MAX; one for each thread would stay in fragments
MMAP_THRESHOLD, APART_BYTES = -3, 1 << 21  # a larger block goes back to the system when it is freed
TRIM_THRESHOLD, TOP_BYTES = -1, 1 << 23  # that an arena keeps free at its end
LARGE_ROWS = 1 << 18  # of fewer, taking memory again costs more than is saved


def limit_freed_memory() -> None:
    """Make allocators keep little freed memory; call it before threads and Arrow start."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    system = _c_library()
    if hasattr(system, "mallopt"):  # glibc
        system.mallopt(ARENA_MAX, ARENAS)


def map_large_arrays_apart() -> None:
    """Give large arrays their own pages, which leave no holes, from here on.

    The system clears such pages each time, which slows down small jobs.
    """
    system = _c_library()
    if hasattr(system, "mallopt"):  # glibc
        system.mallopt(MMAP_THRESHOLD, APART_BYTES)
        system.mallopt(TRIM_THRESHOLD, TOP_BYTES)


def release_memory(*, of_cycles: bool = False) -> None:
    """Return memory that Arrow and the C library keep for later; takes some milliseconds.

    With `of_cycles` also free objects in reference cycles, which takes 0.1 s.
    """
    if of_cycles:
        gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    system = _c_library()
    if hasattr(system, "malloc_trim"):  # glibc
        system.malloc_trim(0)


def release_all_memory() -> None:
    """Return free memory, and the unchanged pages of libraries.

    Allocators hold free memory between used blocks; pages of libraries are read again from their
    files on the next use. On a system without such calls nothing happens.
    """
    release_memory(of_cycles=True)
    if sys.platform != "linux":
        return
    import ctypes

    import psutil

    system = _c_library()
    for part in psutil.Process().memory_maps(grouped=False):
        # Private pages that we never wrote: the file has all their bytes.
        if part.path.startswith("/") and part.perms in ("r-xp", "r--p") and not part.anonymous:
            begin, end = (int(address, 16) for address in part.addr.split("-"))
            system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), DONTNEED)


def _c_library() -> Any:
    import ctypes  # half a megabyte, which an idle coordinator does without

    return ctypes.CDLL(None)
