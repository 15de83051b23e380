"""The jobs that a coordinator's process drives, and the status of every job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from fedboost.ground.errors import StoreError
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, Waiting
from fedboost.runtime.coordinator.job_queue import JobQueue
from fedboost.runtime.coordinator.journals import Journals, awaited_party, journal_of, status_of
from fedboost.runtime.coordinator.party_gates import QueuedJob
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import GOING, RESTS, JobState, Store, StoredJob
from fedboost.runtime.transport import faults

# A party takes in no job whose submission is older than a day (`submitted.AGE_MAX_S`), so one that
# has been queued for so long is proposed before its turn, and withdrawn if there is no place.
FIRST_CONTACT_S = 20 * 3600.0
CONTACT_PAUSE_S = 1800.0  # until a job is proposed before its turn again


@dataclass
class DrivenJob:
    """A job that this process drives: it is queued or in an attempt."""

    job: QueuedJob
    walk: JobWalk | None = None  # the last attempt; None before the first one
    task: asyncio.Task[None] = field(init=False)
    is_asked: bool = False  # an earlier process has proposed it: it is proposed without a place
    contact_at: float | None = None  # when it is proposed without a place; None: parties know it
    has_place: bool = False  # among the jobs that run at once
    is_aside: bool = False  # has given up its place until there is memory for it
    cancelled_by: str = ""
    unnoted: StoreError | None = None  # why the store cannot record the end of the attempt
    resumes: bool = False  # a user has asked for another attempt meanwhile

    @classmethod
    def of(cls, job: StoredJob, lost: Collection[str] = ()) -> Self:
        """Return a job that this process begins to drive; it has `lost` hosts for good.

        One that has begun before, or is proposed, comes first in the queue: parties have it open.
        """
        outline = manifest.read_outline(job.outline)
        is_asked = job.state is JobState.WAITING or (
            job.state is JobState.QUEUED and bool(job.waiting_for)
        )
        is_known = is_asked or job.attempt > 0
        queued = QueuedJob(
            job.id,
            outline.submitter,
            tuple(party for party in outline.parties if party not in lost),
            job.created,
            had_place=is_known,
            is_open=is_known,
        )
        contact_at = None if is_known else job.created + FIRST_CONTACT_S
        return cls(queued, is_asked=is_asked, contact_at=contact_at)

    def contact_in_s(self) -> float | None:
        """Return the seconds until the job is proposed without a place; None: it need not be."""
        return None if self.contact_at is None else max(0.0, self.contact_at - time.time())


class JobStatuses:
    """The statuses of one coordinator's jobs. All methods belong to the event loop's thread."""

    def __init__(
        self,
        store: Store,
        journals: Journals,
        queue: JobQueue,
        driven: Mapping[str, DrivenJob],
    ) -> None:
        self._store, self._journals, self._queue, self._driven = store, journals, queue, driven
        # Events of jobs at rest for their status, with the time of the job's last change.
        self._at_rest: dict[str, tuple[float, list[Event]]] = {}

    def of(self, job: StoredJob) -> job_pb2.JobStatus:
        """Return a job's status, with the parties it waits for and since when."""
        events = [] if self._walk(job.id) else self._journals.status_events(job)
        return self._status(job, events, self._queue.waits())

    async def of_all(self) -> list[job_pb2.JobStatus]:
        """Return the status of each job, oldest first; a thread reads events of jobs at rest."""

        jobs = await asyncio.to_thread(self._read_events)
        waits = self._queue.waits()
        return [self._status(job, events, waits) for job, events in jobs]

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Return the status, settings and journal of a job."""
        stored = self._store.job(job)
        events = [event async for event in self._journals.pages(job, 0)]
        return await asyncio.to_thread(journal_of, stored, self.of(stored), events)

    def needed_parties(self) -> set[str]:
        """Return the parties of all unfinished jobs."""
        goes = self._store.jobs(*GOING)
        return {party for job in goes for party in manifest.read_outline(job.outline).parties}

    def current_waits(self) -> list[Waiting]:
        """Return the parties that queued, running and paused jobs wait for now."""
        waits = [*self._queue.waits().values()]
        for driven in self._driven.values():
            waits += [] if driven.walk is None else driven.walk.waited_for
        for job in self._store.jobs(JobState.PAUSED):
            if job.waiting_for and job.id not in self._driven:
                waits.append(awaited_party(job))
        return waits

    def _read_events(self) -> list[tuple[StoredJob, list[Event]]]:
        """Return all jobs with the events of their statuses; of those at rest, read new ones."""
        known, at_rest = self._at_rest, dict[str, tuple[float, list[Event]]]()
        found = []
        for job in self._store.jobs():
            changed, events = known.get(job.id, (0.0, []))
            if changed != job.updated:
                events = self._journals.status_events(job)
            if job.state in RESTS:
                at_rest[job.id] = job.updated, events
            found.append((job, events))
        self._at_rest = at_rest
        return found

    def _walk(self, job: str) -> JobWalk | None:
        driven = self._driven.get(job)
        return None if driven is None else driven.walk

    def _status(
        self, job: StoredJob, events: list[Event], waits: Mapping[str, Waiting]
    ) -> job_pb2.JobStatus:
        """Return a job's status; `paused` if the store could not record the attempt's end."""
        status = status_of(job, self._walk(job.id), events)
        if job.id in waits:
            status.waiting.append(waits[job.id])
        driven = self._driven.get(job.id)
        if driven is not None and driven.unnoted is not None:
            status.state = JobState.PAUSED
            status.reason.CopyFrom(faults.fault_of_error(driven.unnoted))
        return status
