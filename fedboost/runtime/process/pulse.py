"""Detection of a process that stood still: stopped, starved, or asleep with its machine.

A process that stood still received nothing, and must not take its peers for lost.
"""

from __future__ import annotations

import asyncio

from fedboost.runtime.process.clock import monotonic_s


class Pulse:
    """The beats of an event loop, and the last gap between them."""

    def __init__(self, every_s: float) -> None:
        """Start; a pause longer than two beats, of `every_s` seconds each, counts as a gap."""
        self._every_s, self._last = every_s, monotonic_s()
        self._gap_s, self._gap_ended = 0.0, 0.0

    async def beat_until_cancelled(self) -> None:
        """Beat until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            self._measure_gap()

    def stood_still_s(self, within_s: float) -> float:
        """Return the seconds of the last gap, if it ended at most `within_s` ago, otherwise 0."""
        self._measure_gap()
        return self._gap_s if self._gap_s and monotonic_s() - self._gap_ended <= within_s else 0.0

    def _measure_gap(self) -> None:
        gap_s, self._last = monotonic_s() - self._last, monotonic_s()
        if gap_s > 2 * self._every_s:
            self._gap_s, self._gap_ended = gap_s, self._last
