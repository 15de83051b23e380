"""The clock that waits are measured by: the event loop's own, so that a test may bring another."""

from __future__ import annotations

import asyncio
import random
import time


def now() -> float:
    """Seconds since some moment, never falling; the running loop's, outside of one the system's."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def jittered(pause_s: float) -> float:
    """A pause somewhere in its upper half, so that not everybody comes at once."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (jitter)
