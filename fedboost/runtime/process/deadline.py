"""A process that has been told to stop ends in time, whatever its threads are still at."""

from __future__ import annotations

import logging
import os
import threading

log = logging.getLogger(__name__)


def end_within(seconds: float) -> None:
    """Ends this process with code 0 after so many seconds, if it has not ended by then.

    What is journalled is on the disk already, files appear whole or not at all, the system frees
    locks, and worker processes end with their parent: nothing is lost by not waiting any longer.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True  # it holds up nothing itself
    timer.start()


def _end() -> None:
    log.warning("something still runs; the process ends without it")
    logging.shutdown()
    os._exit(0)
