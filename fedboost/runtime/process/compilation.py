"""Compilation as people see it: kernels that are new on this machine, counted while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedboost.ground.kernel_folders import kernel_names

COUNTED_EVERY_S = 0.5


@contextmanager
def count_new_kernels(tell: Callable[[int], None]) -> Iterator[None]:
    """Call `tell` from a thread with the number of new kernels, each time that it has grown.

    It counts files, so kernels that daemons compile in processes of their own are counted too.
    """
    known, ended = kernel_names(), threading.Event()

    def count() -> None:
        told = 0
        while not ended.wait(COUNTED_EVERY_S):
            if (new := len(kernel_names() - known)) > told:
                told = new
                tell(new)

    thread = threading.Thread(target=count, name="count-kernels", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
