"""How a job pauses or ends at a party: what is at work stops, the store says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from fedboost.errors import FedboostError, StoreError, UnreachableError
from fedboost.runtime.clock import now
from fedboost.runtime.store import FINAL, Job, JobState, Store
from fedboost.runtime.work import Work

log = logging.getLogger(__name__)

UNBEGUN = (JobState.WAITING, JobState.FAILED)  # nothing runs here that could pause


class Halting:
    """The ends of one party's jobs. All methods belong to the event loop's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._untold: dict[str, tuple[JobState, FedboostError]] = {}  # what the store did not take

    async def halt(self, work: Work, state: JobState, reason: FedboostError) -> None:
        """Ends this attempt of a job; every wait in it ends with `reason`."""
        work.halted = work.halted or reason
        if work.session is not None:
            await work.session.stop(reason)
            work.settle()
        self.note(work.id, state, reason)
        if state is JobState.PAUSED:  # the table is needed again, soon
            return
        await work.answers.settled()  # what still writes would leave files behind
        work.frame = work.id_cells = None
        if state is JobState.CANCELLED:
            self._store.discard(work.id)

    def note(self, id_: str, state: JobState, reason: FedboostError) -> None:
        """Has the store say how a job stands; `again` tries once more what a full disk refused."""
        self._untold.pop(id_, None)
        try:
            moved = self._moved(self._store.job(id_), state, reason)
        except StoreError as error:
            log.error("the store cannot note that %s is %s: %s", id_, state, error.what)
            self._untold[id_] = state, reason
            return
        if moved:
            log.warning("%s is %s: %s", id_, state, "; ".join(reason.lines()))

    def again(self) -> None:
        """Tries to note what the store has not taken."""
        for id_, (state, reason) in list(self._untold.items()):
            self.note(id_, state, reason)

    def begins(self, id_: str) -> None:
        """Forgets what could not be noted: a new attempt runs."""
        self._untold.pop(id_, None)

    async def watch(
        self,
        works: Mapping[str, Work],
        is_there: Callable[[], Awaitable[object]],
        lost_s: float,
    ) -> None:
        """Pauses jobs whose coordinator is gone: silent, and `is_there` raises UnreachableError.

        Runs as long as the daemon.
        """
        while True:
            await asyncio.sleep(min(1.0, lost_s / 4))
            self.again()
            silent = [
                work
                for work in works.values()
                if work.session is not None and now() - work.heard > lost_s / 2
            ]
            if not silent:
                continue
            try:
                await is_there()
            except UnreachableError as error:
                by_itself = "the job goes on by itself when it is back"
                error.todo = f"{error.todo}; {by_itself}" if error.todo else by_itself
                for work in silent:
                    if now() - work.heard > lost_s:
                        await self.halt(work, JobState.PAUSED, error)
            except FedboostError as error:
                log.warning("the coordinator: %s", "; ".join(error.lines()))
            else:
                for work in silent:
                    work.heard = now()

    def _moved(self, job: Job, state: JobState, reason: FedboostError) -> bool:
        if job.state in FINAL or (state is JobState.PAUSED and job.state in UNBEGUN):
            return False
        if job.state is JobState.PAUSED and state is JobState.FAILED:
            self._store.move(job.id, JobState.RUNNING)
        named = reason.where.get("party", "")
        self._store.move(job.id, state, reason=reason.what, waiting_for=named)
        return True


def restarted(party: str) -> FedboostError:
    """What a party says of an attempt that its daemon did not outlive."""
    return UnreachableError(f"{party} knows nothing of this attempt, it was restarted", party=party)
