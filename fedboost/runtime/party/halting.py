"""How a job pauses or ends at a party: what is at work stops, the store says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from fedboost.errors import FedboostError, UnreachableError
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.job_states import PartyJobEvent, PartyJobStates
from fedboost.runtime.process.clock import now
from fedboost.runtime.store.store import Store

log = logging.getLogger(__name__)


class Halting:
    """The ends of one party's jobs. All methods belong to the event loop's thread."""

    def __init__(self, store: Store, states: PartyJobStates) -> None:
        self._store, self._states = store, states

    async def halt(self, job: PartyJob, event: PartyJobEvent, reason: FedboostError) -> None:
        """Ends this attempt of a job; every wait in it ends with `reason`."""
        await job.halt(reason)
        self._states.ends(job.id, event, job.fault or reason)
        if event is PartyJobEvent.PAUSED:  # the table is needed again, soon
            return
        await job.answers.settled()  # what still writes would leave files behind
        job.table.release()
        if event in (PartyJobEvent.CANCELLED, PartyJobEvent.DENIED):
            self._store.discard(job.id)

    async def watch(
        self,
        jobs: Mapping[str, PartyJob],
        is_there: Callable[[], Awaitable[object]],
        lost_s: float,
    ) -> None:
        """Pauses jobs whose coordinator is gone: silent, and `is_there` raises UnreachableError.

        Runs as long as the daemon.
        """
        while True:
            await asyncio.sleep(min(1.0, lost_s / 4))
            self._states.again()
            silent = [
                job
                for job in jobs.values()
                if job.session is not None and now() - job.heard > lost_s / 2
            ]
            if not silent:
                continue
            try:
                await is_there()
            except UnreachableError as error:
                by_itself = "the job goes on by itself when it is back"
                error.todo = f"{error.todo}; {by_itself}" if error.todo else by_itself
                for job in silent:
                    if now() - job.heard > lost_s:
                        await self.halt(job, PartyJobEvent.PAUSED, error)
            except FedboostError as error:
                log.warning("the coordinator: %s", "; ".join(error.lines()))
            else:
                for job in silent:
                    job.heard = now()


def restarted(party: str) -> FedboostError:
    """What a party says of an attempt that its daemon did not outlive."""
    return UnreachableError(f"{party} knows nothing of this attempt, it was restarted", party=party)
