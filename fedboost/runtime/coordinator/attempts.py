"""The attempts of a coordinator at its jobs, from their begin to their end.

A job is either in an attempt or at rest. A job at rest goes on when a user resumes it, or when the
lost parties are back. Parties that were lost at the end of an attempt hear of it when they return.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from fedboost.ground.errors import FedboostError, JobError, StoreError, UnreachableError
from fedboost.messages.job_pb2 import Waiting
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.config.refusals import is_want_of_place
from fedboost.runtime.coordinator.auto_resume import TELL_S, Answering, AutoResume, Notifications
from fedboost.runtime.coordinator.driven_jobs import CONTACT_PAUSE_S, DrivenJob, JobStatuses
from fedboost.runtime.coordinator.job_queue import JobQueue
from fedboost.runtime.coordinator.job_states import CoordinatorJobEvent, CoordinatorJobStates
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.coordinator.outcomes import (
    JobResult,
    NoPlaceError,
    Outcome,
    SentBack,
    Stopped,
    cancelled_error,
    cause_of_end,
    end_by_interruption,
    record_end,
    result_or_loss,
)
from fedboost.runtime.coordinator.party_gates import PartyGates
from fedboost.runtime.coordinator.rooms import make_room
from fedboost.runtime.coordinator.walk import Control, JobWalk
from fedboost.runtime.coordinator.walk_maker import AgreementCalls, WalkMaker
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.process import logs, memory
from fedboost.runtime.process.pulse import Pulse
from fedboost.runtime.store.store import JobState, Store, StoredJob

log = logging.getLogger(__name__)

HEAD_START_S = 2.0  # of paused jobs before queued ones, when the coordinator starts


class PartyCalls(Control, Answering, Protocol):
    """The requests that the coordinator makes of a party, within a job and outside jobs."""


class Attempts:
    """The attempts of one coordinator. All methods belong to the event loop's thread."""

    def __init__(
        self,
        config: CoordinatorConfig,
        store: Store,
        journals: Journals,
        link: Callable[[str], PartyCalls],
        complete: Callable[[str], Awaitable[StoredJob]],
    ) -> None:
        """`complete` returns the job of an id, completed by what its parties say."""
        self._complete = complete
        self._config, self._store, self._journals, self._link = config, store, journals, link
        self._states = CoordinatorJobStates(store, journals, auto_resume=config.auto_resume)
        self._gates = PartyGates(link, config.timers)
        self._queue = JobQueue(config.jobs_at_once, self._gates, config.name)
        self._driven: dict[str, DrivenJob] = {}
        self.statuses = JobStatuses(store, journals, self._queue, self._driven)
        self._walks = WalkMaker(
            link=link,
            states=AgreementCalls(self._note_asked, self._states.note_agreed),
            journals=journals,
            journal=self.statuses.journal,
            enter=self._enter,
            timers=config.timers,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._returns = AutoResume(link, config.timers, self._resume_paused)
        self._errands = Notifications(config.timers)
        self._quiet: asyncio.TimerHandle | None = None  # since the last job has ended
        self._closed = False

    # State of jobs

    def walk(self, job: str) -> JobWalk | None:
        """Return the job's last attempt, if this process drives it and has made one."""
        driven = self._driven.get(job)
        return None if driven is None else driven.walk

    def is_driven(self, job: str) -> bool:
        """Return whether a job is queued or in an attempt."""
        return job in self._driven

    def is_settled(self, job: str) -> bool:
        """Return whether a job is at rest and all parties concerned have heard of its end."""
        return job not in self._driven and not self._errands.is_pending(job)

    # Requests of users

    def first(self, terms: Manifest, absence: UnreachableError | None = None) -> None:
        """Queue a new job; a draft waits until the party that `absence` names is there."""
        if absence is not None:
            self._gates.note_absent(absence.where["party"], absence.what)
        job = self._states.note_submitted(terms.job, terms.spec.name, terms.encode())
        self._start_driving(job)

    async def cancel(self, job: StoredJob, user: str) -> None:
        """End a job for good at every party."""
        self._states.check_cancel(job)
        self._returns.drop(job.id)
        driven = self._driven.get(job.id)
        if driven is not None and driven.unnoted is not None:
            raise driven.unnoted
        if driven is not None:
            driven.cancelled_by = driven.cancelled_by or user
            driven.task.cancel()
            await asyncio.wait((driven.task,))
        else:
            reason = cancelled_error(user)
            ended = self._states.rests(job.id, CoordinatorJobEvent.CANCELLED, reason)
            await self._notify_parties(ended, None, reason)

    def resume(self, job: StoredJob) -> None:
        """Make another attempt at a job at rest; do nothing if an attempt runs.

        If the store has yet to record the end of the last attempt, the new one begins after that.
        """
        driven = self._driven.get(job.id)
        if driven is None:
            self._states.check_resume(job)
            self._begin_again(job)
            self._returns.drop(job.id)
        else:
            driven.resumes = driven.unnoted is not None

    def drop(self, job: str) -> None:
        """Stop waiting for the parties of a job that is forgotten."""
        self._returns.drop(job)

    # Life of the process

    def resume_unfinished(self) -> None:
        """Resume the jobs that an earlier process left unfinished; called once, at the start.

        Paused jobs whose parties are there come before those that were queued.
        """
        for job in self._store.jobs(JobState.PAUSED):
            if self._states.goes_on_alone(job):
                self._returns.expect(job.id, self._remaining_parties(job), gained=True)
                self._queue.hold_for(job.id)
        asyncio.get_running_loop().call_later(HEAD_START_S, self._queue.release)
        for job in self._store.jobs(JobState.QUEUED, JobState.WAITING):
            self._start_driving(job)
        for job in self._store.jobs(JobState.CANCELLED, JobState.FINISHED):
            is_spoken = manifest.read_outline(job.outline).is_spoken
            all_know = job.state is JobState.FINISHED and "lost" not in (job.result or {})
            if all_know or not is_spoken or job.updated <= time.time() - TELL_S:
                continue
            walk = self._walks.last_walk(job)
            if job.state is JobState.FINISHED:
                walk.recall(self._journals.events(job.id))
                self._errands.part(walk)
            else:
                self._errands.notify_later(walk, job.state, JobError(job.reason), walk.everybody)

    async def close(self) -> None:
        """Pause the running jobs; the next process resumes them, and drives the queued ones."""
        self._closed = True
        self._returns.close()
        self._gates.close()
        self._errands.close()
        for driven in self._driven.values():
            driven.task.cancel()
        if self._tasks:  # parties that cannot be reached notice it themselves
            await asyncio.wait(self._tasks, timeout=self._config.timers.shutdown_s / 2)

    # Inside

    def _remaining_parties(self, job: StoredJob) -> list[str]:
        """Return the job's parties without the hosts that it has lost for good."""
        lost = self._journals.lost_hosts(job.id)
        return [p for p in manifest.read_outline(job.outline).parties if p not in lost]

    async def _resume_paused(self, id_: str) -> None:
        """Begin the paused job again, now that all its parties are there."""
        job = self._store.job(id_)
        if job.state is not JobState.PAUSED or id_ in self._driven:
            return
        try:
            self._begin_again(job)
        except StoreError as error:
            log.error("%s cannot go on: %s", id_, "; ".join(error.lines()))
            self._returns.expect(id_, self._remaining_parties(job), gained=False)
        except FedboostError as error:
            self._states.rests(id_, CoordinatorJobEvent.FAILED, error)

    def _begin_again(self, job: StoredJob) -> None:
        """Queue a job at rest for another attempt; a ConfigError if its wire is not spoken here."""
        manifest.read_outline(job.outline).check_spoken()
        self._errands.drop(job.id)
        self._states.note_resumed(job.id)
        self._start_driving(job)

    def _start_driving(self, job: StoredJob) -> None:
        """Drive a job from the queue on, or from the proposal that an earlier process has made."""
        lost = self._journals.lost_hosts(job.id) if job.attempt else ()
        driven = self._driven[job.id] = DrivenJob.of(job, lost)
        driven.task = asyncio.create_task(self._drive_to_end(driven))
        self._tasks.add(driven.task)
        driven.task.add_done_callback(self._tasks.discard)

    async def _drive_to_end(self, driven: DrivenJob) -> None:
        id_ = driven.job.id
        logs.note_context(job=id_)
        try:
            ended = await self._run_until_end(driven)
            if ended is None:  # the process ends, and the next one drives the job
                return
            job = await record_end(driven, ended, self._states, self._config)
        finally:
            self._gates.note_left(driven.job)
            self._leave_place(driven)
            if self._driven.get(id_) is driven:
                del self._driven[id_]
            if self._quiet is not None:
                self._quiet.cancel()
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(memory.QUIET_S, self._give_memory_back)
        gained = driven.walk is not None and driven.walk.gained
        if self._states.goes_on_alone(job) and not self._closed:
            self._returns.expect(id_, self._remaining_parties(job), gained=gained)
        reason = ended.reason if isinstance(ended, Stopped) else None
        await self._notify_parties(job, driven.walk, reason)  # may wait for lost parties
        self._gates.note_left(driven.job)  # they may have had it open until now
        if driven.resumes:
            await self._resume_paused(id_)

    async def _run_until_end(self, driven: DrivenJob) -> Stopped | JobResult | None:
        """Queue the job and drive attempts at it until one ends; return its end.

        Return None if this process ends while the job is queued.
        """
        try:
            while True:
                if not driven.is_asked:
                    await self._wait_for_turn(driven)
                driven.is_asked = False
                ended = await self._run_attempt(driven)
                if not isinstance(ended, SentBack):
                    return ended
                await self._send_back(driven, ended.reason)
        except asyncio.CancelledError:
            return end_by_interruption(driven)
        except StoreError as error:
            return Stopped(CoordinatorJobEvent.PAUSED, error.at(party=self._config.name))

    async def _wait_for_turn(self, driven: DrivenJob) -> None:
        """Return when the job has a place, or has to be proposed although it has none."""
        try:
            async with asyncio.timeout(driven.contact_in_s()):
                await self._take_place(driven)
        except TimeoutError:
            driven.contact_at = time.time() + CONTACT_PAUSE_S

    async def _take_place(self, driven: DrivenJob) -> None:
        """Return when the job has a place; until then it is queued."""
        note = partial(self._states.note_queued, driven.job.id)
        await self._queue.wait_for_place(driven.job, note)
        driven.has_place, driven.is_aside = True, False

    def _leave_place(self, driven: DrivenJob) -> None:
        """Give the job's place to others, if it has one."""
        if driven.has_place:
            driven.has_place = False
            self._queue.free_place(driven.job.user)

    async def _send_back(self, driven: DrivenJob, reason: FedboostError | None) -> None:
        """Put a job back into the queue; no reachable party counts it as open from then on.

        Without a reason it waits for a place here only.
        """
        job, party = driven.job, "" if reason is None else reason.where.get("party", "")
        if isinstance(reason, UnreachableError):
            self._gates.note_absent(party, reason.what)
        elif reason is not None:
            self._gates.note_full(party, job)
        else:
            driven.contact_at = None  # all parties know the job
        self._leave_place(driven)
        if driven.walk is not None:
            text = "it waits in the coordinator's queue"
            why = JobError(text, todo="nothing, it is proposed again when it has a place")
            if await driven.walk.stop(JobState.QUEUED, why):
                job.had_place = True  # so that it is soon proposed to those who may have it open
        self._states.note_queued(job.id)
        self._gates.note_left(job, refused_by=party)

    async def _notify_parties(
        self, job: StoredJob, walk: JobWalk | None, reason: FedboostError | None
    ) -> None:
        """Notify the parties of the end of a job; of its last attempt here, if there was one."""
        try:
            walk = walk or self._walks.last_walk(job)
            if walk.terms.is_draft:  # no party knows the job
                return
        except FedboostError as error:  # it is of another version
            log.warning("%s: no party hears how it ended: %s", job.id, error.what)
            return
        await self._errands.notify_parties(walk, job.state, reason)

    def _give_memory_back(self) -> None:
        """Give memory back to the system if no job runs."""
        if not self._driven and not self._closed:
            asyncio.get_running_loop().run_in_executor(None, memory.release_all_memory)

    async def _enter(self, walk: JobWalk) -> None:
        """Return when the job may begin: all have agreed, it has a place and there is memory.

        A job that waits for memory leaves its place to others; at most `places` jobs do so. A
        NoPlaceError if people have approved it and no place is free.
        """
        name, driven = self._config.name, self._driven[walk.id]

        def note_short(party: str) -> None:
            self._states.note_queued(walk.id, party)
            step = f"a place: other jobs have the memory of {party}"
            walk.waiting[name] = Waiting(party=name, step=step, since=time.time())
            aside = sum(other.is_aside for other in self._driven.values())
            if driven.has_place and aside < self._queue.places:
                driven.is_aside = driven.job.had_place = True
                self._leave_place(driven)

        self._gates.note_taken(driven.job)
        if not driven.has_place:
            driven.has_place = self._queue.take_free_place(driven.job)
            if not driven.has_place:
                raise NoPlaceError
        try:
            await make_room(walk, note_short)
            while not driven.has_place:
                await self._take_place(driven)
                await make_room(walk, note_short)
        finally:
            walk.waiting.pop(name, None)
        walk.attempt = self._store.next_attempt(walk.id)
        logs.note_context(attempt=walk.attempt)

    def _note_asked(self, id_: str, parties: Sequence[str]) -> None:
        """Note that people have to approve a job; it leaves its place to others meanwhile."""
        self._states.asked(id_, parties)
        driven = self._driven[id_]
        self._gates.note_taken(driven.job)
        driven.job.had_place = True
        self._leave_place(driven)

    async def _run_attempt(self, driven: DrivenJob) -> Outcome:
        """Drive an attempt; return the job's result, or why it has none.

        Return None if this process ends before the job has begun.
        """
        event, pulse = CoordinatorJobEvent, Pulse(self._config.timers.peer_lost_s / 4)
        try:
            walk = driven.walk = self._walks.last_walk(await self._complete(driven.job.id))
            walk.recall([event async for event in self._journals.pages(walk.id, 0)])
            self._states.note_proposed(walk.id)
            return await result_or_loss(walk, self._link, self._config.timers, pulse)
        except asyncio.CancelledError:
            return end_by_interruption(driven)
        except NoPlaceError:
            return SentBack(None)
        except FedboostError as error:
            reason = cause_of_end(error, pulse, self._config)
            if self._can_be_queued(driven, reason):
                return SentBack(reason)
            pauses = isinstance(reason, UnreachableError | StoreError)
            return Stopped(event.PAUSED if pauses else event.FAILED, reason)
        except Exception as error:
            log.exception("job %s failed unexpectedly", driven.job.id)
            what = f"unexpected {type(error).__name__}"
            failed = FedboostError(what, todo="see the coordinator's log")
            return Stopped(event.FAILED, failed)

    def _can_be_queued(self, driven: DrivenJob, reason: FedboostError) -> bool:
        """Return whether a job only waits for a party: for a place there, or to begin at all."""
        if reason.where.get("party") not in driven.job.parties:
            return False
        has_begun = self._store.job(driven.job.id).attempt > 0
        return is_want_of_place(reason) or (not has_begun and self._states.is_by_absence(reason))
