"""The coordinator's side of every job: takes it in, drives it, keeps its journal, answers users.

No network here: `daemon` serves these methods over gRPC, `simulate` calls them directly.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fedboost import __version__, flow, protocols, wire
from fedboost.errors import (
    ConfigError,
    FedboostError,
    JobError,
    PolicyError,
    StoreError,
    UnreachableError,
)
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, JobStatus, StateChanged
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.coordinator import walker
from fedboost.runtime.coordinator.auto_resume import Answering, Returns
from fedboost.runtime.coordinator.costs import condensed
from fedboost.runtime.coordinator.job_status import at_rest, awaited, outlined
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.coordinator.liveness import first_gone
from fedboost.runtime.coordinator.notifications import TELL_S, Errands
from fedboost.runtime.coordinator.walker import JobWalk, UnapprovedError
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest, Submission
from fedboost.runtime.jobs.submitted import (
    KEY_BYTES,
    read_spec,
    sign_submission,
    submission_id,
    submitter_of,
)
from fedboost.runtime.process import logs
from fedboost.runtime.process.clock import pauses
from fedboost.runtime.store.forgetting import Forgetting, check_over
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Identity, Peer, greeting
from fedboost.settings import parse

log = logging.getLogger(__name__)

RESTS = (JobState.PAUSED, JobState.FAILED, JobState.CANCELLED, JobState.FINISHED)


class PartyCalls(walker.Control, Answering, Protocol):
    """What the coordinator asks of a party, in and out of a job."""


@dataclass
class Driven:
    """A job that this process drives now."""

    walk: JobWalk
    task: asyncio.Task[None] | None = None
    cancelled_by: str = ""


class CoordinatorNode:
    """One coordinator. Every method that a user can reach takes the caller first."""

    def __init__(
        self,
        config: CoordinatorConfig,
        identity: Callable[[], Identity],
        store: Store,
        link: Callable[[str], PartyCalls],
    ) -> None:
        self.config = config
        self.store = store
        self._identity = identity
        self._link = link
        self._driven: dict[str, Driven] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._journals = Journals(store)
        self._closed = False
        self._returns = Returns(link, config.timers, self._carry_on)
        self._errands = Errands(config.timers)
        self._forgetting = Forgetting(store)
        for job in store.jobs(JobState.RUNNING, JobState.WAITING):
            self._rest(job.id, JobState.PAUSED, UnreachableError("the coordinator was restarted"))

    async def hello(self, _: Peer, __: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Who we are."""
        return greeting(self._identity())

    async def submit(self, caller: Peer, request: job_pb2.SubmitRequest) -> job_pb2.SubmitReply:
        """Takes in a job; it runs as soon as every party has agreed.

        One key of a caller's names one job, however often it comes: an answer may have been lost.
        """
        self._check(caller, "submit")
        spec, key = read_spec(request.spec), request.key or secrets.token_hex(KEY_BYTES)
        submission = None if self.config.tls is None else _signed(caller, request)
        return await self._take_in(caller.name, spec, key, submission)

    async def submit_here(self, user: Peer, spec: JobSpec, key: str) -> job_pb2.SubmitReply:
        """Takes in a job from our own page, whose user's key is not here: we sign for ourselves."""
        self._check(user, "submit")
        own, key = self._identity(), key or secrets.token_hex(KEY_BYTES)
        signature = None if self.config.tls is None else sign_submission(spec, key, own.name, own)
        return await self._take_in(str(own.peer), spec, key, signature)

    async def _take_in(
        self, submitter: str, spec: JobSpec, key: str, submission: Submission | None
    ) -> job_pb2.SubmitReply:
        id_ = submission_id(spec, submitter, key)
        if self._is_taken(id_, submitter, spec):
            return job_pb2.SubmitReply(id=id_)
        for party in spec.parties.table().of(tuple(flow.Role)):
            if party not in self.config.parties:
                nearest = difflib.get_close_matches(party, self.config.parties, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"the coordinator knows no party {party!r}", todo=f"did you mean {nearest!r}?"
                )
        members = await asyncio.gather(
            *(self._member(p) for p in spec.parties.table().of(tuple(flow.Role)))
        )
        if self._is_taken(id_, submitter, spec):  # meanwhile
            return job_pb2.SubmitReply(id=id_)
        terms = Manifest(
            job=id_,
            coordinator=self.config.name,
            submitter=submitter,
            spec=spec,
            members=list(members),
            submission=submission,
        )
        if self.config.tls is not None:  # what every party will ask, so that its user hears it
            submitter_of(terms, self.config.tls.read().ca)
        self.store.add_job(id_, spec.name, terms.encode(), JobState.WAITING)
        self._drive(self._walk(terms, self.store.next_attempt(id_)))
        return job_pb2.SubmitReply(id=id_)

    async def list_jobs(self, caller: Peer, _: job_pb2.ListRequest) -> job_pb2.JobList:
        """All jobs, oldest first."""
        self._check(caller, "read")
        return job_pb2.JobList(jobs=[self._status(job) for job in self.store.jobs()])

    async def status(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """How a job stands, and who is waited for since when."""
        self._check(caller, "read")
        return self._status(self.store.job(request.id))

    async def watch(self, caller: Peer, request: job_pb2.WatchRequest) -> AsyncIterator[Event]:
        """The job's journal from a number on, as it grows; ends when the job rests."""
        self._check(caller, "read")
        after = request.after
        while True:
            bell = self._journals.bell(request.id).rung
            rests = self.store.job(request.id).state in RESTS and request.id not in self._driven
            for event in self._journals.events(request.id, after):
                after = event.number
                yield event
            if rests:
                return
            try:
                await asyncio.wait_for(bell.wait(), self.config.timers.peer_lost_s)
            except TimeoutError:
                continue

    async def journal(self, caller: Peer, request: job_pb2.JobId) -> job_pb2.JobJournal:
        """Everything the coordinator knows of a job."""
        self._check(caller, "read")
        return self._journal(request.id)

    async def cancel(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Ends a job for good, on every party."""
        self._check(caller, "cancel")
        job = self.store.job(request.id)
        if job.state in (JobState.FINISHED, JobState.CANCELLED):
            raise JobError(f"the job is {job.state} already", job=job.id)
        self._returns.drop(job.id)
        driven = self._driven.get(job.id)
        if driven is not None and driven.task is not None:
            driven.cancelled_by = driven.cancelled_by or caller.name
            driven.task.cancel()
            await asyncio.wait((driven.task,))
        else:
            reason = JobError(f"cancelled by {caller.name}")
            self._rest(job.id, JobState.CANCELLED, reason)
            walk = self._walk(manifest.decode(job.manifest), job.attempt)
            await self._errands.tell(walk, "cancelled", reason)
        return self._status(self.store.job(request.id))

    async def resume(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Carries a paused or failed job on from the last round that all parties have kept.

        One that goes on already, by itself or because somebody else asked, is left to it.
        """
        self._check(caller, "submit")
        job = self.store.job(request.id)
        if job.id not in self._driven:
            if job.state not in (JobState.PAUSED, JobState.FAILED):
                raise JobError(f"the job is {job.state}, there is nothing to resume", job=job.id)
            self._begin_again(job)
            self._returns.drop(job.id)
        return self._status(self.store.job(job.id))

    async def delete(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Forgets a job that is over, with its journal; gives how it stood."""
        self._check(caller, "cancel")
        job = check_over(self.store.job(request.id))
        status = self._status(job)
        if job.id in self._driven or self._errands.is_on(job.id):
            raise JobError(
                "not every party has heard yet how the job ended",
                todo="start those that are gone, or wait a moment",
                job=job.id,
            )
        await self._forget(job.id)
        return status

    async def forget_old(self) -> None:
        """Deletes jobs that are older than the coordinator's owner wants to keep them."""
        due = self._forgetting.jobs_due(self.config.retention.jobs_days)
        for job in due:
            if job not in self._driven and not self._errands.is_on(job):
                await self._forget(job)

    async def wake(self) -> None:
        """Goes on where an earlier process of ours was interrupted; called once, at the start."""
        for job in self.store.jobs(JobState.PAUSED):
            if self._goes_on_alone(job):
                self._returns.expect(job.id, self._needed(job), gained=True)
        for job in (*self.store.jobs(JobState.CANCELLED), *self.store.jobs(JobState.FINISHED)):
            is_ours = manifest.outline(job.manifest).version == __version__
            all_know = job.state is JobState.FINISHED and "lost" not in (job.result or {})
            if all_know or not is_ours or job.updated <= time.time() - TELL_S:
                continue
            walk = self._walk(manifest.decode(job.manifest), job.attempt)
            if job.state is JobState.FINISHED:
                walk.recall()
                self._errands.part(walk)
            else:
                self._errands.tell_later(walk, "cancelled", JobError(job.reason), walk.everybody)

    async def close(self) -> None:
        """Pauses what runs; it goes on when the next process wakes."""
        self._closed = True
        self._returns.close()
        self._errands.close()
        for driven in self._driven.values():
            if driven.task is not None:
                driven.task.cancel()
        if self._tasks:  # parties that cannot be reached notice it themselves
            await asyncio.wait(self._tasks, timeout=self.config.timers.shutdown_s / 2)

    # The daemon

    def listen(self, hear: Callable[[Event], None]) -> None:
        """Has `hear` told of every event of every journal, once it is on the disk."""
        self._journals.hear = hear

    def waits(self) -> list[job_pb2.Waiting]:
        """Whom jobs wait for now: of those that run, and of those that are paused."""
        waits = [one for driven in self._driven.values() for one in driven.walk.waited_for]
        for job in self.store.jobs(JobState.PAUSED):
            if job.waiting_for and job.id not in self._driven:
                waits.append(awaited(job))
        return waits

    # Inside

    def _check(self, caller: Peer, action: Any) -> None:
        if caller.role != "user":
            raise PolicyError(f"{caller} is not a user")
        self.config.users.judge(action, caller.name)

    async def _forget(self, job: str) -> None:
        await asyncio.to_thread(self._forgetting.forget, job)
        self._returns.drop(job)
        self._journals.drop(job)

    def _is_taken(self, id_: str, submitter: str, spec: JobSpec) -> bool:
        """Whether the job of that id is this one, handed in before."""
        try:
            terms = manifest.decode(self.store.job(id_).manifest)
        except JobError:
            return False
        return (terms.submitter, terms.spec) == (submitter, spec)

    async def _member(self, party: str) -> JobMember:
        said = await self._link(party).hello()
        if said.wire_version != wire.WIRE_VERSION or said.version != __version__:
            raise ConfigError(
                f"{party} runs fedboost {said.version}, the coordinator {__version__}",
                party=party,
                todo="run the same version everywhere",
            )
        return JobMember(name=party, certificate=said.certificate)

    def _walk(self, terms: Manifest, attempt: int) -> JobWalk:
        protocol = protocols.named(terms.spec.protocol)
        params = parse(protocol.params, terms.spec.params, section="params")
        stages = protocols.stages(terms.spec, params)
        return JobWalk(
            terms=terms,
            attempt=attempt,
            params=params,
            protocol=protocol,
            protocols={stage: protocols.named(stage) for stage in stages},
            controls={p: self._link(p) for p in terms.spec.parties.table().of(tuple(flow.Role))},
            emit=lambda *events: self._journals.add(terms.job, *events),
            journal=lambda: self._journal(terms.job),
            timers=self.config.timers,
        )

    def _needed(self, job: StoredJob) -> list[str]:
        """The parties without which a job cannot go on: all but those that it has lost for good."""
        lost = self._journals.lost(job.id)
        return [p for p in manifest.outline(job.manifest).parties if p not in lost]

    def _goes_on_alone(self, job: StoredJob) -> bool:
        """Whether a paused job waits for nothing but somebody's return."""
        states = self._journals.states(job.id)
        return job.state is JobState.PAUSED and bool(states) and states[-1].goes_on

    async def _carry_on(self, id_: str) -> None:
        """Everybody whom the paused job needs is there."""
        job = self.store.job(id_)
        if job.state is not JobState.PAUSED or id_ in self._driven:
            return
        try:
            self._begin_again(job)
        except StoreError as error:
            log.error("%s cannot go on: %s", id_, "; ".join(error.lines()))
            self._returns.expect(id_, self._needed(job), gained=False)
        except FedboostError as error:
            self._rest(id_, JobState.FAILED, error)

    def _begin_again(self, job: StoredJob) -> None:
        """A new attempt at a job that rests; a ConfigError where it is another version's."""
        manifest.outline(job.manifest).check_version()
        self._errands.drop(job.id)
        ran = any(one.state == JobState.RUNNING for one in self._journals.states(job.id))
        walk = self._walk(manifest.decode(job.manifest), self.store.next_attempt(job.id))
        self.store.move(job.id, JobState.RUNNING if ran else JobState.WAITING)
        self._drive(walk)

    def _drive(self, walk: JobWalk) -> None:
        driven = self._driven[walk.id] = Driven(walk)
        driven.task = asyncio.create_task(self._to_its_end(driven))
        self._tasks.add(driven.task)
        driven.task.add_done_callback(self._tasks.discard)

    async def _to_its_end(self, driven: Driven) -> None:
        walk = driven.walk
        logs.note(job=walk.id, attempt=walk.attempt)
        try:
            state, reason = await self._walked(driven)
            await self._rested(walk.id, state, reason)
        finally:
            if self._driven.get(walk.id) is driven:
                del self._driven[walk.id]
        job = self.store.job(walk.id)
        if self._goes_on_alone(job) and not self._closed:
            self._returns.expect(walk.id, self._needed(job), gained=walk.gained)
        await self._errands.tell(walk, state, reason)  # shown first: who is gone hears it late

    async def _rested(self, job: str, state: JobState, reason: FedboostError | None) -> None:
        """Puts a job to rest, as soon as the store can take it."""
        timers = self.config.timers
        for pause_s in pauses(timers.retry_first_s, timers.retry_max_s):
            try:
                self._rest(job, state, reason)
            except StoreError as error:
                log.error("%s is %s, and: %s", job, state, "; ".join(error.lines()))
                await asyncio.sleep(pause_s)
            else:
                return

    async def _walked(self, driven: Driven) -> tuple[JobState, FedboostError | None]:
        """Drives an attempt; gives the state in which it ended, and why."""
        walk = driven.walk
        try:
            self.store.set_result(walk.id, await self._watched(walk))
        except asyncio.CancelledError:
            if driven.cancelled_by:
                return JobState.CANCELLED, JobError(f"cancelled by {driven.cancelled_by}")
            return JobState.PAUSED, UnreachableError("the coordinator was stopped")
        except (UnreachableError, StoreError) as error:
            if isinstance(error, StoreError):  # a party has named itself; then it is ours
                error.at(party=self.config.name)
            return JobState.PAUSED, error
        except FedboostError as error:
            return JobState.FAILED, error
        except Exception as error:
            log.exception("job %s failed unexpectedly", walk.id)
            what = f"unexpected {type(error).__name__}"
            return JobState.FAILED, FedboostError(what, todo="see the coordinator's log")
        return JobState.FINISHED, None

    async def _watched(self, walk: JobWalk) -> dict[str, Any]:
        """The walk's result; raises who is gone, also of those it asks for nothing now."""
        running = asyncio.create_task(walk.run())
        looking = asyncio.create_task(first_gone(walk, self._link, self.config.timers))
        try:
            await asyncio.wait((running, looking), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise looking.result()
            return running.result()
        finally:
            for task in (running, looking):
                task.cancel()
            await asyncio.gather(running, looking, return_exceptions=True)

    def _rest(self, job: str, state: JobState, reason: FedboostError | None) -> None:
        """Puts a job into a state in which nothing happens, and says why."""
        changed = StateChanged(state=state)
        if reason is not None and state is JobState.PAUSED:
            changed.goes_on = self._is_by_absence(reason)
            reason.todo = _todo(reason.todo, job, alone=changed.goes_on)
        if reason is not None:
            changed.reason.CopyFrom(faults.to_message(reason))
        self._journals.rest(job, changed)
        if reason is not None:
            log.warning("%s is %s: %s", job, state, "; ".join(reason.lines()))

    def _is_by_absence(self, reason: FedboostError) -> bool:
        """Whether a job pauses for nothing but somebody's absence, which ends by itself."""
        absent = isinstance(reason, UnreachableError) and not isinstance(reason, UnapprovedError)
        return absent and self.config.auto_resume

    def _journal(self, job: str) -> job_pb2.JobJournal:
        stored = self.store.job(job)
        terms = manifest.decode(stored.manifest)
        return job_pb2.JobJournal(
            status=self._status(stored),
            spec=json.dumps(terms.spec.model_dump(mode="json")).encode(),
            events=condensed(self._journals.events(job)),
        )

    def _status(self, job: StoredJob) -> JobStatus:
        driven = self._driven.get(job.id)
        if driven is None:
            return at_rest(job, self._journals.events(job.id))
        status = outlined(job)
        status.progress.CopyFrom(driven.walk.progress)
        status.waiting.extend(driven.walk.waited_for)
        status.warnings.extend(driven.walk.warned)
        return status


def _signed(caller: Peer, request: job_pb2.SubmitRequest) -> Submission:
    if not request.signature:
        raise ConfigError(
            "the submission is not signed",
            todo="hand it in with this version of fedboost, by the user's own certificate",
            user=caller.name,
        )
    raw = {
        "key": request.key,
        "certificate": request.certificate.decode("ascii", "replace"),
        "signature": request.signature.hex(),
    }
    return parse(Submission, raw, section="the submission")


def _todo(first: str, job: str, *, alone: bool) -> str:
    """What to do about a paused job, behind what its reason says."""
    resume = f"fedboost job resume {job}"
    if "job resume" in first:
        return first
    if not alone:
        return f"{first}; then: {resume}" if first else resume
    by_itself = "the job goes on by itself when everybody is there"
    return f"{first}; {by_itself}, or: {resume}" if first else f"nothing, {by_itself}"
