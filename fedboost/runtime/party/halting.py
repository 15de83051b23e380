"""How a job pauses or ends at a party: what is at work stops, the store says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fedboost.errors import FedboostError, PolicyError, UnreachableError
from fedboost.messages import party_pb2
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.job_states import PartyJobEvent, stop_of
from fedboost.runtime.party.jobs import check_leader
from fedboost.runtime.party.parts import PartyParts
from fedboost.runtime.process.clock import now
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer

log = logging.getLogger(__name__)

_FOR_GOOD = (PartyJobEvent.CANCELLED, PartyJobEvent.DENIED)  # then no file of the job stays


class Halting:
    """The other ends of one party's jobs. All methods belong to the event loop's thread."""

    def __init__(self, parts: PartyParts) -> None:
        self._parts, self._jobs, self._states = parts, parts.jobs, parts.states

    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> None:
        """Ends an attempt because the coordinator says so: paused, failed or cancelled."""
        check_leader(caller)
        event, reason = stop_of(request.state), faults.from_message(request.reason)
        if request.job in self._jobs:
            job = self._jobs.called(caller, request.job)
            if request.attempt >= self._parts.store.job(job.id).attempt:
                await self._halt(job, event, reason)
        elif self._jobs.stored(caller, request.job, request.attempt):  # we were restarted meanwhile
            self._end_unknown(request.job, event, reason)

    async def deny(self, id_: str, user: str, reason: str) -> None:
        """Ends a job because our owner denies it; it fails at the coordinator's next look."""
        denial = PolicyError(self._states.deny(id_, user, reason), party=self._parts.name)
        if id_ in self._jobs:
            await self._halt(self._jobs[id_], PartyJobEvent.DENIED, denial)
        else:
            self._end_unknown(id_, PartyJobEvent.DENIED, denial)

    async def pause_all(self) -> None:
        """Pauses what runs here: the daemon stops."""
        party = self._parts.name
        reason = UnreachableError(
            f"{party}'s daemon was stopped", party=party, todo="start it again"
        )
        for job in list(self._jobs.values()):
            await self._halt(job, PartyJobEvent.PAUSED, reason)

    async def watch(self, is_there: Callable[[], Awaitable[object]], lost_s: float) -> None:
        """Pauses jobs whose coordinator is gone: silent, and `is_there` raises UnreachableError.

        Runs as long as the daemon.
        """
        while True:
            await asyncio.sleep(min(1.0, lost_s / 4))
            self._states.again()
            silent = [
                job
                for job in self._jobs.values()
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
                        await self._halt(job, PartyJobEvent.PAUSED, error)
            except FedboostError as error:
                log.warning("the coordinator: %s", "; ".join(error.lines()))
            else:
                for job in silent:
                    job.heard = now()

    async def _halt(self, job: PartyJob, event: PartyJobEvent, reason: FedboostError) -> None:
        """Ends this attempt of a job; every wait in it ends with `reason`."""
        await job.stop(reason)
        self._states.ends(job.id, event, job.fault or reason)
        if event is not PartyJobEvent.PAUSED:  # else the table is needed again, soon
            await job.forget()
        if event in _FOR_GOOD:
            self._parts.store.discard(job.id)
            self._jobs.pop(job.id, None)

    def _end_unknown(self, id_: str, event: PartyJobEvent, reason: FedboostError) -> None:
        """Ends a job that this process is not at work on."""
        self._states.ends(id_, event, reason)
        if event in _FOR_GOOD:
            self._parts.store.discard(id_)
