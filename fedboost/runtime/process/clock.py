"""The clock that waits are measured by: the event loop's own, so that a test may bring another."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator


def monotonic_s() -> float:
    """Return seconds that never fall, of the running loop's clock or else the system's."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def growing_pauses(first_s: float, most_s: float) -> Iterator[float]:
    """Yield ever longer pauses between tries, each twice the one before, up to `most_s`.

    Each is drawn from the upper half of its range, so that retries do not coincide.
    """
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s * random.uniform(0.5, 1.0)  # noqa: S311 (jitter)
        pause_s = min(2 * pause_s, most_s)
