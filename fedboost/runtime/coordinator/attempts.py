"""The attempts of a coordinator at its jobs, from their begin to their end.

A job is either in an attempt or at rest. A job at rest goes on when a user resumes it, or when the
lost parties are back. Parties that were lost at the end of an attempt hear of it when they return.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fedboost import flow, protocols
from fedboost.ground.errors import FedboostError, JobError, StoreError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, Waiting
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.coordinator.auto_resume import (
    TELL_S,
    Answering,
    AutoResume,
    Notifications,
    first_gone,
)
from fedboost.runtime.coordinator.job_queue import JobQueue
from fedboost.runtime.coordinator.job_states import CoordinatorJobEvent, CoordinatorJobStates
from fedboost.runtime.coordinator.journals import Journals, awaited_party, journal_of, status_of
from fedboost.runtime.coordinator.rooms import make_room
from fedboost.runtime.coordinator.walk import Control, JobWalk
from fedboost.runtime.coordinator.walker import walk_job
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.process import logs, memory
from fedboost.runtime.process.clock import growing_pauses
from fedboost.runtime.process.pulse import Pulse
from fedboost.runtime.store.store import GOING, JobState, Store, StoredJob
from fedboost.runtime.transport import faults

log = logging.getLogger(__name__)


class PartyCalls(Control, Answering, Protocol):
    """The requests that the coordinator makes of a party, within a job and outside jobs."""


@dataclass
class _Driven:
    """An attempt that this process drives now."""

    walk: JobWalk
    task: asyncio.Task[None]
    cancelled_by: str = ""
    has_place: bool = False  # among the jobs that run at once
    is_aside: bool = False  # has given up its place until there is memory for it
    unnoted: StoreError | None = None  # why the store cannot record the end of the attempt
    resumes: bool = False  # a user has asked for another attempt meanwhile


@dataclass(frozen=True)
class _Stopped:
    """The end of an attempt without a result."""

    event: CoordinatorJobEvent
    reason: FedboostError


class Attempts:
    """The attempts of one coordinator. All methods belong to the event loop's thread."""

    def __init__(
        self,
        config: CoordinatorConfig,
        store: Store,
        journals: Journals,
        link: Callable[[str], PartyCalls],
    ) -> None:
        self._config, self._store, self._journals, self._link = config, store, journals, link
        self._states = CoordinatorJobStates(store, journals, auto_resume=config.auto_resume)
        self._queue = JobQueue(config.jobs_at_once)
        self._driven: dict[str, _Driven] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._returns = AutoResume(link, config.timers, self._resume_paused)
        self._errands = Notifications(config.timers)
        self._closed = False

    # State of jobs

    def walk(self, job: str) -> JobWalk | None:
        """Return the job's current attempt, if it has one."""
        driven = self._driven.get(job)
        return None if driven is None else driven.walk

    def is_settled(self, job: str) -> bool:
        """Return whether a job is at rest and all parties concerned have heard of its end."""
        return job not in self._driven and not self._errands.is_pending(job)

    def status(self, job: StoredJob) -> job_pb2.JobStatus:
        """Return a job's status, with the parties it waits for and since when."""
        walk = self.walk(job.id)
        events = self._journals.status_events(job.id) if walk is None else ()
        return self._with_unrecorded_end(status_of(job, walk, events))

    def _with_unrecorded_end(self, status: job_pb2.JobStatus) -> job_pb2.JobStatus:
        """Return the status, `paused` if the store could not record the attempt's end."""
        driven = self._driven.get(status.id)
        if driven is not None and driven.unnoted is not None:
            status.state = JobState.PAUSED
            status.reason.CopyFrom(faults.fault_of_error(driven.unnoted))
        return status

    async def statuses(self) -> list[job_pb2.JobStatus]:
        """Return the status of each job, oldest first; a thread reads events of jobs at rest."""

        def read_events() -> list[tuple[StoredJob, list[Event]]]:
            return [(job, self._journals.status_events(job.id)) for job in self._store.jobs()]

        jobs = await asyncio.to_thread(read_events)
        return [
            self._with_unrecorded_end(status_of(job, self.walk(job.id), events))
            for job, events in jobs
        ]

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Return the status, settings and journal of a job."""
        stored = self._store.job(job)
        events = [event async for event in self._journals.pages(job, 0)]
        return await asyncio.to_thread(journal_of, stored, self.status(stored), events)

    def needed_parties(self) -> set[str]:
        """Return the parties of all unfinished jobs."""
        goes = self._store.jobs(*GOING)
        return {party for job in goes for party in manifest.read_outline(job.outline).parties}

    def current_waits(self) -> list[job_pb2.Waiting]:
        """Return the parties that running and paused jobs wait for now."""
        waits = [waiting for driven in self._driven.values() for waiting in driven.walk.waited_for]
        for job in self._store.jobs(JobState.PAUSED):
            if job.waiting_for and job.id not in self._driven:
                waits.append(awaited_party(job))
        return waits

    # Requests of users

    def first(self, terms: Manifest) -> None:
        """Make the first attempt at a new job."""
        self._states.note_submitted(terms.job, terms.spec.name, terms.encode())
        self._start_driving(self._new_walk(terms, self._store.next_attempt(terms.job)))

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
            reason = _cancelled(user)
            ended = self._states.rests(job.id, CoordinatorJobEvent.CANCELLED, reason)
            walk = self._new_walk(manifest.decode_manifest(job.manifest), job.attempt)
            await self._errands.notify_parties(walk, ended.state, reason)

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
        """Resume the jobs that an earlier process left unfinished; called once, at the start."""
        for job in self._store.jobs(JobState.PAUSED):
            if self._states.goes_on_alone(job):
                self._returns.expect(job.id, self._remaining_parties(job), gained=True)
        for job in self._store.jobs(JobState.CANCELLED, JobState.FINISHED):
            is_spoken = manifest.read_outline(job.outline).is_spoken
            all_know = job.state is JobState.FINISHED and "lost" not in (job.result or {})
            if all_know or not is_spoken or job.updated <= time.time() - TELL_S:
                continue
            walk = self._new_walk(manifest.decode_manifest(job.manifest), job.attempt)
            if job.state is JobState.FINISHED:
                walk.recall(self._journals.events(job.id))
                self._errands.part(walk)
            else:
                self._errands.notify_later(walk, job.state, JobError(job.reason), walk.everybody)

    async def close(self) -> None:
        """Pause the running jobs; the next process resumes them."""
        self._closed = True
        self._returns.close()
        self._errands.close()
        for driven in self._driven.values():
            driven.task.cancel()
        if self._tasks:  # parties that cannot be reached notice it themselves
            await asyncio.wait(self._tasks, timeout=self._config.timers.shutdown_s / 2)

    # Inside

    def _new_walk(self, terms: Manifest, attempt: int) -> JobWalk:
        protocol = protocols.load_protocol(terms.spec.protocol)
        params = parse_settings(protocol.params, terms.params, section="params")
        stages = protocols.stages_of_job(terms.spec, params)
        return JobWalk(
            terms=terms,
            attempt=attempt,
            params=params,
            protocol=protocol,
            protocols={stage: protocols.load_protocol(stage) for stage in stages},
            controls={p: self._link(p) for p in terms.spec.parties.table().of(tuple(flow.Role))},
            states=self._states,
            emit=lambda *events: self._journals.add(terms.job, *events),
            journal=lambda: self.journal(terms.job),
            enter=self._wait_for_place,
            timers=self._config.timers,
        )

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
        """Make a new attempt at a job at rest; a ConfigError if its wire is not spoken here."""
        manifest.read_outline(job.outline).check_spoken()
        self._errands.drop(job.id)
        walk = self._new_walk(
            manifest.decode_manifest(job.manifest), self._store.next_attempt(job.id)
        )
        self._states.note_resumed(job.id)
        self._start_driving(walk)

    def _start_driving(self, walk: JobWalk) -> None:
        task = asyncio.create_task(self._drive_to_end(walk))
        self._driven[walk.id] = _Driven(walk, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive_to_end(self, walk: JobWalk) -> None:
        driven = self._driven[walk.id]
        logs.note_context(job=walk.id, attempt=walk.attempt)
        try:
            ended = await self._run_attempt(driven)
            job = await self._record_end(driven, ended)
        finally:
            if driven.has_place:
                self._queue.free_place(walk.terms.submitter)
            if self._driven.get(walk.id) is driven:
                del self._driven[walk.id]
            asyncio.get_running_loop().call_later(memory.QUIET_S, self._give_memory_back)
        if self._states.goes_on_alone(job) and not self._closed:
            self._returns.expect(walk.id, self._remaining_parties(job), gained=walk.gained)
        reason = ended.reason if isinstance(ended, _Stopped) else None
        await self._errands.notify_parties(walk, job.state, reason)  # may wait for lost parties
        if driven.resumes:
            await self._resume_paused(walk.id)

    def _give_memory_back(self) -> None:
        """Give memory back to the system if no job runs."""
        if not self._driven:
            asyncio.get_running_loop().run_in_executor(None, memory.release_all_memory)

    async def _wait_for_place(self, walk: JobWalk) -> None:
        """Return when the job may run; until then it is queued, and its status gives the reason.

        A job that waits for memory leaves its place to others; at most `places` jobs do so.
        """
        name, user, driven = self._config.name, walk.terms.submitter, self._driven[walk.id]

        def note_wait(why: str) -> None:
            self._states.note_queued(walk.id)
            walk.waiting[name] = Waiting(party=name, step=f"a place: {why}", since=time.time())

        def leave_place(why: str) -> None:
            aside = sum(other.is_aside for other in self._driven.values())
            if driven.has_place and aside < self._queue.places:
                driven.has_place, driven.is_aside = False, True
                self._queue.free_place(user)
            note_wait(why)

        try:
            while not driven.has_place:
                await self._queue.wait_for_place(user, note_wait, again=driven.is_aside)
                driven.has_place, driven.is_aside = True, False
                await make_room(walk, leave_place)
        finally:
            walk.waiting.pop(name, None)

    async def _record_end(self, driven: _Driven, ended: _Stopped | dict[str, Any]) -> StoredJob:
        """Return the job, its end recorded; retries until the store can take it.

        Until then the status shows the store's error, and parties hear that the job is paused.
        """
        job, timers = driven.walk.id, self._config.timers
        pauses_s = growing_pauses(timers.retry_first_s, timers.retry_max_s)
        while True:
            try:
                if isinstance(ended, _Stopped):
                    return self._states.rests(job, ended.event, ended.reason)
                return self._states.finished(job, ended)
            except StoreError as error:
                if driven.unnoted is None:
                    log.error("%s has ended, and: %s", job, "; ".join(error.lines()))
                    await self._pause_unnoted(driven, error)
                await asyncio.sleep(next(pauses_s))

    async def _pause_unnoted(self, driven: _Driven, error: StoreError) -> None:
        """Show users and parties that the attempt has ended although our store cannot record it."""
        name = self._config.name
        error.todo = f"{error.todo}; then the coordinator notes by itself how the attempt ended"
        error.at(party=name)
        driven.unnoted = error
        wait = Waiting(party=name, step="space for its journal", since=time.time())
        driven.walk.waiting[name] = wait
        await driven.walk.stop(JobState.PAUSED, error)

    async def _run_attempt(self, driven: _Driven) -> _Stopped | dict[str, Any]:
        """Drive an attempt; return the job's result, or the reason why it has none."""
        walk, event = driven.walk, CoordinatorJobEvent
        pulse = Pulse(self._config.timers.peer_lost_s / 4)
        try:
            walk.recall([event async for event in self._journals.pages(walk.id, 0)])
            return await self._result_or_loss(walk, pulse)
        except asyncio.CancelledError:
            if driven.cancelled_by:
                return _Stopped(event.CANCELLED, _cancelled(driven.cancelled_by))
            return _Stopped(
                event.PAUSED,
                UnreachableError("the coordinator was stopped", todo="start it again"),
            )
        except (UnreachableError, StoreError) as error:
            if isinstance(error, StoreError):  # ours, unless it names a party already
                error.at(party=self._config.name)
            return _Stopped(event.PAUSED, self._stood_still_error(pulse) or error)
        except FedboostError as error:
            return _Stopped(event.FAILED, error)
        except Exception as error:
            log.exception("job %s failed unexpectedly", walk.id)
            what = f"unexpected {type(error).__name__}"
            failed = FedboostError(what, todo="see the coordinator's log")
            return _Stopped(event.FAILED, failed)

    def _stood_still_error(self, pulse: Pulse) -> UnreachableError | None:
        """Return an error if this process stood still; its parties are then not lost."""
        stood_s = pulse.stood_still_s(within_s=self._config.timers.peer_lost_s)
        if not stood_s:
            return None
        return UnreachableError(
            f"the coordinator stood still for {stood_s:.1f} s and heard nobody",
            party=self._config.name,
            todo="see whether it was stopped, or its machine is overloaded or was asleep",
        )

    async def _result_or_loss(self, walk: JobWalk, pulse: Pulse) -> dict[str, Any]:
        """Return the walk's result; raise the error of a lost party, idle parties included."""
        running = asyncio.create_task(walk_job(walk))
        looking = asyncio.create_task(first_gone(walk, self._link, self._config.timers))
        beating = asyncio.create_task(pulse.beat_until_cancelled())
        try:
            await asyncio.wait((running, looking), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise looking.result()
            return running.result()
        finally:
            tasks = running, looking, beating
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _cancelled(user: str) -> JobError:
    return JobError(f"cancelled by {user}", todo="submit it again if this was a mistake")
