"""The coordinator's side of every job: takes it in, drives it, keeps its journal, answers users.

No network here: `daemon` serves these methods over gRPC, `simulate` calls them directly.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf.json_format import MessageToDict, ParseDict

from fedboost import __version__, flow, protocols, wire
from fedboost.errors import ConfigError, FedboostError, JobError, PolicyError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, JobStatus, StateChanged
from fedboost.runtime import faults, manifest, walker
from fedboost.runtime.config import CoordinatorConfig
from fedboost.runtime.costs import condensed
from fedboost.runtime.identity import Identity, Peer
from fedboost.runtime.manifest import Manifest, Member
from fedboost.runtime.store import Job, JobState, Store
from fedboost.runtime.walker import JobWalk
from fedboost.settings import parse

log = logging.getLogger(__name__)

RESTS = (JobState.PAUSED, JobState.FAILED, JobState.CANCELLED, JobState.FINISHED)


class PartyLink(walker.Control, Protocol):
    """What the coordinator asks of a party, in and out of a job."""

    async def hello(self) -> job_pb2.HelloReply: ...


@dataclass
class Driven:
    """A job that this process drives now."""

    walk: JobWalk
    task: asyncio.Task[None] | None = None
    cancelled_by: str = ""


@dataclass
class Bell:
    """Rings when a job's journal has grown."""

    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        """Wakes everybody who waits."""
        self.rung.set()
        self.rung = asyncio.Event()


class CoordinatorNode:
    """One coordinator. Every method that a user can reach takes the caller first."""

    def __init__(
        self,
        config: CoordinatorConfig,
        identity: Callable[[], Identity],
        store: Store,
        link: Callable[[str], PartyLink],
    ) -> None:
        self.config = config
        self.store = store
        self._identity = identity
        self._link = link
        self._driven: dict[str, Driven] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._bells: dict[str, Bell] = {}
        self._interrupted = [job.id for job in store.jobs(JobState.RUNNING, JobState.WAITING)]
        for job in self._interrupted:
            self._rest(job, JobState.PAUSED, _restarted(job))

    async def hello(self, _: Peer, __: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Who we are."""
        ours = self._identity()
        return job_pb2.HelloReply(
            name=ours.name,
            role=ours.role,
            version=__version__,
            wire_version=wire.WIRE_VERSION,
            clock=time.time(),
            certificate=ours.certificate_pem.decode(),
        )

    async def submit(self, caller: Peer, request: job_pb2.SubmitRequest) -> job_pb2.SubmitReply:
        """Takes in a job; it runs as soon as every party has agreed."""
        self._check(caller, "submit")
        spec = read_spec(request.spec)
        for party in spec.parties.table().of(tuple(flow.Role)):
            if party not in self.config.parties:
                nearest = difflib.get_close_matches(party, self.config.parties, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"the coordinator knows no party {party!r}", todo=f"did you mean {nearest!r}?"
                )
        members = await asyncio.gather(
            *(self._member(p) for p in spec.parties.table().of(tuple(flow.Role)))
        )
        stem = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40]
        terms = Manifest(
            job=f"{stem}-{secrets.token_hex(4)}",
            coordinator=self.config.name,
            submitter=caller.name,
            spec=spec,
            members=list(members),
        )
        self.store.add_job(terms.job, spec.name, terms.encode(), JobState.WAITING)
        self._drive(terms)
        return job_pb2.SubmitReply(id=terms.job)

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
            bell = self._bell(request.id).rung
            rests = self.store.job(request.id).state in RESTS and request.id not in self._driven
            for event in self._events(request.id, after):
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
        driven = self._driven.get(job.id)
        if driven is not None and driven.task is not None:
            driven.cancelled_by = caller.name
            driven.task.cancel()
            await asyncio.wait((driven.task,))
        else:
            reason = JobError(f"cancelled by {caller.name}")
            await self._walk(manifest.decode(job.manifest), job.attempt).stop("cancelled", reason)
            self._rest(job.id, JobState.CANCELLED, reason)
        return self._status(self.store.job(request.id))

    async def resume(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Carries a paused or failed job on from the last round that all parties have kept."""
        self._check(caller, "submit")
        job = self.store.job(request.id)
        if job.state not in (JobState.PAUSED, JobState.FAILED):
            raise JobError(f"the job is {job.state}, there is nothing to resume", job=job.id)
        self.store.move(job.id, JobState.RUNNING)
        self._drive(manifest.decode(job.manifest))
        return self._status(self.store.job(job.id))

    async def tell_restarted(self) -> None:
        """Tells the parties of the jobs that our end interrupted that these are paused."""
        for id_ in self._interrupted:
            job = self.store.job(id_)
            if job.state is JobState.PAUSED:
                walk = self._walk(manifest.decode(job.manifest), job.attempt)
                await walk.stop("paused", _restarted(id_))

    async def close(self) -> None:
        """Pauses what runs; jobs can be resumed later."""
        for driven in self._driven.values():
            if driven.task is not None:
                driven.task.cancel()
        if self._tasks:  # parties that cannot be reached notice it themselves
            await asyncio.wait(self._tasks, timeout=self.config.timers.shutdown_s / 2)

    # Inside

    def _check(self, caller: Peer, action: Any) -> None:
        if caller.role != "user":
            raise PolicyError(f"{caller} is not a user")
        self.config.users.judge(action, caller.name)

    async def _member(self, party: str) -> Member:
        said = await self._link(party).hello()
        if said.wire_version != wire.WIRE_VERSION or said.version != __version__:
            raise ConfigError(
                f"{party} runs fedboost {said.version}, the coordinator {__version__}",
                party=party,
                todo="run the same version everywhere",
            )
        return Member(name=party, certificate=said.certificate)

    def _walk(self, terms: Manifest, attempt: int) -> JobWalk:
        protocol = protocols.named(terms.spec.protocol)
        return JobWalk(
            terms=terms,
            attempt=attempt,
            params=parse(protocol.params, terms.spec.params, section="params"),
            protocol=protocol,
            protocols=protocols.known(),
            controls={p: self._link(p) for p in terms.spec.parties.table().of(tuple(flow.Role))},
            emit=lambda *events: self._emit(terms.job, *events),
            journal=lambda: self._journal(terms.job),
            timers=self.config.timers,
        )

    def _drive(self, terms: Manifest) -> None:
        walk = self._walk(terms, self.store.next_attempt(terms.job))
        driven = self._driven[terms.job] = Driven(walk)
        driven.task = asyncio.create_task(self._to_its_end(driven))
        self._tasks.add(driven.task)
        driven.task.add_done_callback(self._tasks.discard)

    async def _to_its_end(self, driven: Driven) -> None:
        walk = driven.walk
        state, reason = await self._walked(driven)
        if self._driven.get(walk.id) is driven:
            del self._driven[walk.id]
        self._rest(walk.id, state, reason)  # shown first: a party that is gone hears it late
        if reason is not None:
            await walk.stop(state, reason)

    async def _walked(self, driven: Driven) -> tuple[JobState, FedboostError | None]:
        """Drives an attempt; gives the state in which it ended, and why."""
        walk = driven.walk
        resume = f"fedboost job resume {walk.id}"
        try:
            self.store.set_result(walk.id, await walk.run())
        except asyncio.CancelledError:
            if driven.cancelled_by:
                return JobState.CANCELLED, JobError(f"cancelled by {driven.cancelled_by}")
            return JobState.PAUSED, UnreachableError("the coordinator was stopped", todo=resume)
        except UnreachableError as error:
            if "job resume" not in error.todo:
                error.todo = f"{error.todo}; then: {resume}" if error.todo else resume
            return JobState.PAUSED, error
        except FedboostError as error:
            return JobState.FAILED, error
        except Exception as error:
            log.exception("job %s failed unexpectedly", walk.id)
            what = f"unexpected {type(error).__name__}"
            return JobState.FAILED, FedboostError(what, todo="see the coordinator's log")
        return JobState.FINISHED, None

    def _rest(self, job: str, state: JobState, reason: FedboostError | None) -> None:
        """Puts a job into a state in which nothing happens, and says why."""
        if self.store.job(job).state is JobState.WAITING and state is JobState.PAUSED:
            self.store.move(job, JobState.RUNNING)
        lines = "" if reason is None else reason.what
        waiting = "" if reason is None else reason.where.get("party", "")
        self.store.move(job, state, reason=lines, waiting_for=waiting)
        changed = StateChanged(state=state)
        if reason is not None:
            changed.reason.CopyFrom(faults.to_message(reason))
            log.warning("%s is %s: %s", job, state, "; ".join(reason.lines()))
        self._emit(job, Event(state=changed))

    def _emit(self, job: str, *events: Event) -> None:
        for event in events:
            if event.WhichOneof("what") == "state" and event.state.state == JobState.RUNNING:
                self.store.move(job, JobState.RUNNING)
        texts = (MessageToDict(event, preserving_proto_field_name=True) for event in events)
        self.store.add_event(job, *texts)
        self._bell(job).ring()

    def _bell(self, job: str) -> Bell:
        return self._bells.setdefault(job, Bell())

    def _events(self, job: str, after: int) -> list[Event]:
        events = []
        for row in self.store.events(job, after):
            event = ParseDict(row.event, Event())
            event.number, event.at = row.n, row.at
            events.append(event)
        return events

    def _journal(self, job: str) -> job_pb2.JobJournal:
        stored = self.store.job(job)
        terms = manifest.decode(stored.manifest)
        return job_pb2.JobJournal(
            status=self._status(stored),
            spec=json.dumps(terms.spec.model_dump(mode="json")).encode(),
            events=condensed(self._events(job, 0)),
        )

    def _status(self, job: Job) -> JobStatus:
        terms = manifest.decode(job.manifest)
        status = JobStatus(
            id=job.id,
            name=job.name,
            protocol=terms.spec.protocol,
            state=job.state,
            attempt=job.attempt,
            created=job.created,
            updated=job.updated,
            submitter=terms.submitter,
        )
        driven = self._driven.get(job.id)
        if driven is not None:
            status.progress.CopyFrom(driven.walk.progress)
            status.waiting.extend(driven.walk.waited_for)
            return status
        for event in self._events(job.id, 0):
            if event.WhichOneof("what") == "round":
                status.progress.CopyFrom(event.round.progress)
            elif event.WhichOneof("what") == "state" and job.reason:
                status.reason.CopyFrom(event.state.reason)
        if job.state is JobState.PAUSED and job.waiting_for:
            status.waiting.add(party=job.waiting_for, step="its return", since=job.since)
        return status


def _restarted(job: str) -> FedboostError:
    return UnreachableError("the coordinator was restarted", todo=f"fedboost job resume {job}")


def read_spec(text: bytes) -> JobSpec:
    """A job file's content, checked as far as one can without the parties."""
    try:
        raw = json.loads(text)
    except ValueError:
        raise ConfigError("the job is not JSON") from None
    spec = parse(JobSpec, raw)
    table = spec.parties.table()  # one guest
    protocol = protocols.named(spec.protocol)
    parse(protocol.params, spec.params, section="params")
    adds_up = flow.AGGREGATOR in protocol.modules
    if adds_up and table.aggregator is None:
        raise ConfigError(
            f"{spec.protocol} needs an aggregator and parties names none",
            todo=f"aggregator: a party of its own, or {table.guest}",
            key="parties.aggregator",
        )
    if table.aggregator is not None and not adds_up:
        raise ConfigError(
            f"{spec.protocol} has no part for an aggregator",
            todo="leave it out",
            key="parties.aggregator",
        )
    return spec
