"""Parties that were gone when a job ended, and have to hear how, however late."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from fedboost.errors import FedboostError, JobError
from fedboost.runtime.process.clock import now, pauses
from fedboost.runtime.transport.addresses import Timers

log = logging.getLogger(__name__)

TELL_S = 7 * 24 * 3600.0  # a party that is gone for longer hears it when it asks


class Ending(Protocol):
    """An attempt that is over; see `walker.JobWalk`."""

    id: str
    lost: list[str]  # hosts that the job has gone on without

    async def stop(
        self, state: str, reason: FedboostError, parties: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Tells parties (none named: all); gives those that could not be reached."""


class Notifications:
    """Ends of jobs that not all parties know. All methods belong to the event loop's thread."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def tell(self, walk: Ending, state: str, reason: FedboostError | None) -> None:
        """Tells all parties of a job how it ended; those that are gone, when they are back.

        Without a reason it has finished, which all know but the hosts that it has lost.
        """
        if reason is None:
            self.part(walk)
            return
        late = await walk.stop(state, reason)
        if late and state != "paused":  # whoever missed a pause finds it out alone
            self.tell_later(walk, state, reason, late)

    def part(self, walk: Ending) -> None:
        """Has the hosts that a finished job has lost forget it, as soon as they are there."""
        if walk.lost:
            reason = JobError(
                "the job has finished without this party, which was lost on the way",
                todo="nothing is left to do here",
            )
            self.tell_later(walk, "cancelled", reason, tuple(walk.lost))

    def tell_later(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        """Tells these parties as soon as they are there."""
        self.drop(walk.id)
        self._under_way[walk.id] = asyncio.create_task(self._tell(walk, state, reason, late))

    def drop(self, job: str) -> None:
        """Says no more of a job: it goes on."""
        errand = self._under_way.pop(job, None)
        if errand is not None:
            errand.cancel()

    def is_on(self, job: str) -> bool:
        """Return whether somebody has to hear yet how the job ended."""
        return job in self._under_way

    def close(self) -> None:
        """Leaves the rest to whoever starts next."""
        for job in list(self._under_way):
            self.drop(job)

    async def _tell(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        until = now() + TELL_S
        pauses_s = pauses(self._timers.retry_first_s, self._timers.retry_max_s)
        while late and now() < until:
            await asyncio.sleep(next(pauses_s))
            late = await walk.stop(state, reason, late)
        del self._under_way[walk.id]
