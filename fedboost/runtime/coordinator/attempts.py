"""A coordinator's attempts at its jobs: begun, driven to their ends, begun again.

A job is in an attempt, or it rests: until somebody resumes it, or until those are back whom it
waits for. How it ended, parties hear that were gone, however late.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fedboost import __version__, flow, protocols
from fedboost.ground.errors import FedboostError, JobError, StoreError, UnreachableError
from fedboost.ground.settings import parse
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
from fedboost.runtime.coordinator.journals import Journals, awaited, journal_of, status_of
from fedboost.runtime.coordinator.rooms import make_room
from fedboost.runtime.coordinator.walk import Control, JobWalk
from fedboost.runtime.coordinator.walker import walk_job
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import Manifest
from fedboost.runtime.process import logs, memory
from fedboost.runtime.process.clock import pauses
from fedboost.runtime.process.pulse import Pulse
from fedboost.runtime.store.store import GOING, JobState, Store, StoredJob
from fedboost.runtime.transport import faults

log = logging.getLogger(__name__)


class PartyCalls(Control, Answering, Protocol):
    """What the coordinator asks of a party, in and out of a job."""


@dataclass
class _Driven:
    """An attempt that this process drives now."""

    walk: JobWalk
    task: asyncio.Task[None]
    cancelled_by: str = ""
    has_place: bool = False  # among the jobs that run at once
    is_aside: bool = False  # has left its place to others until there is memory for it
    unnoted: StoreError | None = None  # why the store cannot say yet that the attempt is over
    resumes: bool = False  # somebody has asked for another one meanwhile


@dataclass(frozen=True)
class _Stopped:
    """How an attempt ended that brought no result."""

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
        self._returns = AutoResume(link, config.timers, self._carry_on)
        self._errands = Notifications(config.timers)
        self._closed = False

    # What people see

    def walk(self, job: str) -> JobWalk | None:
        """The attempt at a job that is under way."""
        driven = self._driven.get(job)
        return None if driven is None else driven.walk

    def is_settled(self, job: str) -> bool:
        """Return whether a job rests, and all that have to know how it ended do."""
        return job not in self._driven and not self._errands.is_on(job)

    def status(self, job: StoredJob) -> job_pb2.JobStatus:
        """Return how a job stands, and who is waited for since when."""
        walk = self.walk(job.id)
        events = self._journals.of_status(job.id) if walk is None else ()
        return self._as_it_is(status_of(job, walk, events))

    def _as_it_is(self, status: job_pb2.JobStatus) -> job_pb2.JobStatus:
        """The status of a job, paused where its attempt is over and our disk cannot take that."""
        driven = self._driven.get(status.id)
        if driven is not None and driven.unnoted is not None:
            status.state = JobState.PAUSED
            status.reason.CopyFrom(faults.to_message(driven.unnoted))
        return status

    async def statuses(self) -> list[job_pb2.JobStatus]:
        """Return how all jobs stand, oldest first; jobs go on while those at rest are read."""

        def read() -> list[tuple[StoredJob, list[Event]]]:
            return [(job, self._journals.of_status(job.id)) for job in self._store.jobs()]

        jobs = await asyncio.to_thread(read)
        return [self._as_it_is(status_of(job, self.walk(job.id), events)) for job, events in jobs]

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Everything the coordinator knows of a job."""
        stored = self._store.job(job)
        events = [event async for event in self._journals.pages(job, 0)]
        return await asyncio.to_thread(journal_of, stored, self.status(stored), events)

    def needed(self) -> set[str]:
        """Return the parties of all jobs that are not over."""
        goes = self._store.jobs(*GOING)
        return {party for job in goes for party in manifest.outline(job.outline).parties}

    def waits(self) -> list[job_pb2.Waiting]:
        """Whom jobs wait for now: of those that run, and of those that are paused."""
        waits = [waiting for driven in self._driven.values() for waiting in driven.walk.waited_for]
        for job in self._store.jobs(JobState.PAUSED):
            if job.waiting_for and job.id not in self._driven:
                waits.append(awaited(job))
        return waits

    # What they ask for

    def first(self, terms: Manifest) -> None:
        """Makes the first attempt at a new job."""
        self._states.submitted(terms.job, terms.spec.name, terms.encode())
        self._drive(self._walk(terms, self._store.next_attempt(terms.job)))

    async def cancel(self, job: StoredJob, user: str) -> None:
        """Ends a job for good, on every party."""
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
            walk = self._walk(manifest.decode(job.manifest), job.attempt)
            await self._errands.tell(walk, ended.state, reason)

    def resume(self, job: StoredJob) -> None:
        """Makes another attempt at a job that rests; nothing where one is under way.

        Where our store has yet to take how the last one ended, as soon as it has.
        """
        driven = self._driven.get(job.id)
        if driven is None:
            self._states.check_resume(job)
            self._begin_again(job)
            self._returns.drop(job.id)
        else:
            driven.resumes = driven.unnoted is not None

    def drop(self, job: str) -> None:
        """Leaves alone a job that is forgotten."""
        self._returns.drop(job)

    # While the process lives

    def wake(self) -> None:
        """Goes on where an earlier process of ours was interrupted; called once, at the start."""
        for job in self._store.jobs(JobState.PAUSED):
            if self._states.goes_on_alone(job):
                self._returns.expect(job.id, self._needed(job), gained=True)
        for job in self._store.jobs(JobState.CANCELLED, JobState.FINISHED):
            is_ours = manifest.outline(job.outline).version == __version__
            all_know = job.state is JobState.FINISHED and "lost" not in (job.result or {})
            if all_know or not is_ours or job.updated <= time.time() - TELL_S:
                continue
            walk = self._walk(manifest.decode(job.manifest), job.attempt)
            if job.state is JobState.FINISHED:
                walk.recall(self._journals.events(job.id))
                self._errands.part(walk)
            else:
                self._errands.tell_later(walk, job.state, JobError(job.reason), walk.everybody)

    async def close(self) -> None:
        """Pauses what runs; it goes on when the next process wakes."""
        self._closed = True
        self._returns.close()
        self._errands.close()
        for driven in self._driven.values():
            driven.task.cancel()
        if self._tasks:  # parties that cannot be reached notice it themselves
            await asyncio.wait(self._tasks, timeout=self._config.timers.shutdown_s / 2)

    # Inside

    def _walk(self, terms: Manifest, attempt: int) -> JobWalk:
        protocol = protocols.named(terms.spec.protocol)
        params = parse(protocol.params, terms.params, section="params")
        stages = protocols.stages(terms.spec, params)
        return JobWalk(
            terms=terms,
            attempt=attempt,
            params=params,
            protocol=protocol,
            protocols={stage: protocols.named(stage) for stage in stages},
            controls={p: self._link(p) for p in terms.spec.parties.table().of(tuple(flow.Role))},
            states=self._states,
            emit=lambda *events: self._journals.add(terms.job, *events),
            journal=lambda: self.journal(terms.job),
            enter=self._enter,
            timers=self._config.timers,
        )

    def _needed(self, job: StoredJob) -> list[str]:
        """The parties without which a job cannot go on: all but those that it has lost for good."""
        lost = self._journals.lost(job.id)
        return [p for p in manifest.outline(job.outline).parties if p not in lost]

    async def _carry_on(self, id_: str) -> None:
        """Everybody whom the paused job needs is there."""
        job = self._store.job(id_)
        if job.state is not JobState.PAUSED or id_ in self._driven:
            return
        try:
            self._begin_again(job)
        except StoreError as error:
            log.error("%s cannot go on: %s", id_, "; ".join(error.lines()))
            self._returns.expect(id_, self._needed(job), gained=False)
        except FedboostError as error:
            self._states.rests(id_, CoordinatorJobEvent.FAILED, error)

    def _begin_again(self, job: StoredJob) -> None:
        """A new attempt at a job that rests; a ConfigError where it is another version's."""
        manifest.outline(job.outline).check_version()
        self._errands.drop(job.id)
        walk = self._walk(manifest.decode(job.manifest), self._store.next_attempt(job.id))
        self._states.resumed(job.id)
        self._drive(walk)

    def _drive(self, walk: JobWalk) -> None:
        task = asyncio.create_task(self._to_its_end(walk))
        self._driven[walk.id] = _Driven(walk, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _to_its_end(self, walk: JobWalk) -> None:
        driven = self._driven[walk.id]
        logs.note(job=walk.id, attempt=walk.attempt)
        try:
            ended = await self._walked(driven)
            job = await self._noted(driven, ended)
        finally:
            if driven.has_place:
                self._queue.leave(walk.terms.submitter)
            if self._driven.get(walk.id) is driven:
                del self._driven[walk.id]
            asyncio.get_running_loop().call_later(memory.QUIET_S, self._rest)
        if self._states.goes_on_alone(job) and not self._closed:
            self._returns.expect(walk.id, self._needed(job), gained=walk.gained)
        reason = ended.reason if isinstance(ended, _Stopped) else None
        await self._errands.tell(walk, job.state, reason)  # shown first: who is gone hears it late
        if driven.resumes:
            await self._carry_on(walk.id)

    def _rest(self) -> None:
        """Give back what jobs have used, where none is under way."""
        if not self._driven:
            asyncio.get_running_loop().run_in_executor(None, memory.give_all_back)

    async def _enter(self, walk: JobWalk) -> None:
        """Return when the job may run; until then it is queued, and its status says behind whom.

        While it waits for memory, others have its place; as many do so as there are places.
        """
        name, user, driven = self._config.name, walk.terms.submitter, self._driven[walk.id]

        def note(why: str) -> None:
            self._states.queued(walk.id)
            walk.waiting[name] = Waiting(party=name, step=f"a place: {why}", since=time.time())

        def short(why: str) -> None:
            aside = sum(other.is_aside for other in self._driven.values())
            if driven.has_place and aside < self._queue.places:
                driven.has_place, driven.is_aside = False, True
                self._queue.leave(user)
            note(why)

        try:
            while not driven.has_place:
                await self._queue.enter(user, note, again=driven.is_aside)
                driven.has_place, driven.is_aside = True, False
                await make_room(walk, short)
        finally:
            walk.waiting.pop(name, None)

    async def _noted(self, driven: _Driven, ended: _Stopped | dict[str, Any]) -> StoredJob:
        """The job, its end noted as soon as the store can take it.

        Until then its status says so, and parties hear that it is paused.
        """
        job, timers = driven.walk.id, self._config.timers
        pauses_s = pauses(timers.retry_first_s, timers.retry_max_s)
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
        """Has everybody see that nothing runs, although our store cannot say so."""
        name = self._config.name
        error.todo = f"{error.todo}; then the coordinator notes by itself how the attempt ended"
        error.at(party=name)
        driven.unnoted = error
        wait = Waiting(party=name, step="space for its journal", since=time.time())
        driven.walk.waiting[name] = wait
        await driven.walk.stop(JobState.PAUSED, error)

    async def _walked(self, driven: _Driven) -> _Stopped | dict[str, Any]:
        """Drives an attempt; gives the job's result, or why there is none."""
        walk, event = driven.walk, CoordinatorJobEvent
        pulse = Pulse(self._config.timers.peer_lost_s / 4)
        try:
            walk.recall([event async for event in self._journals.pages(walk.id, 0)])
            return await self._watched(walk, pulse)
        except asyncio.CancelledError:
            if driven.cancelled_by:
                return _Stopped(event.CANCELLED, _cancelled(driven.cancelled_by))
            return _Stopped(
                event.PAUSED,
                UnreachableError("the coordinator was stopped", todo="start it again"),
            )
        except (UnreachableError, StoreError) as error:
            if isinstance(error, StoreError):  # a party has named itself; then it is ours
                error.at(party=self._config.name)
            return _Stopped(event.PAUSED, self._ours(pulse) or error)
        except FedboostError as error:
            return _Stopped(event.FAILED, error)
        except Exception as error:
            log.exception("job %s failed unexpectedly", walk.id)
            what = f"unexpected {type(error).__name__}"
            failed = FedboostError(what, todo="see the coordinator's log")
            return _Stopped(event.FAILED, failed)

    def _ours(self, pulse: Pulse) -> UnreachableError | None:
        """Return that we have stood still, where we have: who waited for us is not lost."""
        stood_s = pulse.stood_still_s(within_s=self._config.timers.peer_lost_s)
        if not stood_s:
            return None
        return UnreachableError(
            f"the coordinator stood still for {stood_s:.1f} s and heard nobody",
            party=self._config.name,
            todo="see whether it was stopped, or its machine is overloaded or was asleep",
        )

    async def _watched(self, walk: JobWalk, pulse: Pulse) -> dict[str, Any]:
        """The walk's result; raises who is gone, also of those it asks for nothing now."""
        running = asyncio.create_task(walk_job(walk))
        looking = asyncio.create_task(first_gone(walk, self._link, self._config.timers))
        beating = asyncio.create_task(pulse.beat())
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
