"""The journals of the coordinator's jobs: events in order, and the readers who follow them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from google.protobuf.json_format import MessageToDict, ParseDict

from fedboost.messages.job_pb2 import (
    Event,
    JobJournal,
    JobStatus,
    LinkBytes,
    StateChanged,
    StepCost,
    StepDone,
    Waiting,
)
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import JobState, JournalEvent, Store, StoredJob


class Costs:
    """Adds up the costs of one event of a step, one entry for each party and each link."""

    def __init__(self, done: StepDone) -> None:
        """`done` is the event to add to; it may hold costs already."""
        self.done = done
        self._parties: dict[str, StepCost] = {cost.party: cost for cost in done.costs}
        self._links: dict[tuple[str, str], LinkBytes] = {
            (cost.party, link.peer): link for cost in done.costs for link in cost.sent
        }

    def add(self, cost: StepCost) -> None:
        """Add one party's share of one call."""
        if cost.party not in self._parties:
            self._parties[cost.party] = self.done.costs.add(party=cost.party)
        total = self._parties[cost.party]
        total.seconds += cost.seconds
        total.cpu_seconds += cost.cpu_seconds
        for link in cost.sent:
            to = cost.party, link.peer
            if to not in self._links:
                self._links[to] = total.sent.add(peer=link.peer)
            self._links[to].bytes += link.bytes
            self._links[to].messages += link.messages


def condensed(events: list[Event]) -> list[Event]:
    """Return the journal with all calls of a step as one event, at the time of the first call.

    A step is called once per layer: a job of a thousand trees would not fit into a message
    otherwise.
    """
    kept: list[Event] = []
    sums: dict[tuple[str, str], Costs] = {}
    for event in events:
        if event.WhichOneof("what") != "step":
            kept.append(event)
            continue
        step = event.step
        key = step.stage, step.step
        if key not in sums:
            kept.append(Event(number=event.number, at=event.at))
            kept[-1].step.MergeFrom(StepDone(stage=step.stage, step=step.step))
            sums[key] = Costs(kept[-1].step)
        total = sums[key]
        total.done.calls += step.calls or 1
        total.done.seconds += step.seconds
        total.done.exchanges += step.exchanges
        for cost in step.costs:
            total.add(cost)
    return kept


log = logging.getLogger(__name__)

PAGE_EVENTS = 512  # events per read
READ_MAX = 4096  # parsed events that are kept: parsing one takes as long as a small step


@dataclass
class Bell:
    """Rings when a job's journal has grown."""

    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        """Wake all readers who wait."""
        self.rung.set()
        self.rung = asyncio.Event()


class Journals:
    """One coordinator's journals, kept in its store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hear: Callable[[Event], None] = lambda _: None  # called with each stored event
        self._bells: dict[str, Bell] = {}
        self._read: dict[tuple[str, int, float], Event] = {}  # by job, number and time

    def add(self, job: str, *events: Event) -> None:
        """Append events, durably."""
        self._store.add_event(job, *map(as_dict, events))
        self.tell_followers(job, *events)

    def tell_followers(self, job: str, *events: Event) -> None:
        """Pass stored events to all followers of a job."""
        for event in events:
            self._log_event(job, event)
        self.bell_of(job).ring()

    def _log_event(self, job: str, event: Event) -> None:
        what = event.WhichOneof("what")
        if what == "step":
            step = event.step
            log.debug("%s: %s %s took %.3f s", job, step.stage, step.step, step.seconds)
        else:
            log.debug("%s: %s", job, what)
        self.hear(event)

    def bell_of(self, job: str) -> Bell:
        """Return the bell that rings at each event of a job."""
        return self._bells.setdefault(job, Bell())

    def drop(self, job: str) -> None:
        """Wake the followers of a deleted journal, so that they notice."""
        bell = self._bells.pop(job, None)
        if bell is not None:
            bell.ring()

    def events(self, job: str, after: int = 0, most: int = -1) -> list[Event]:
        """Return a job's events after number `after`. Callers must not change them."""
        return [self._parsed_event(job, row) for row in self._store.events(job, after, most)]

    async def pages(self, job: str, after: int) -> AsyncIterator[Event]:
        """Yield a job's events after number `after`; pages of events are read in a thread."""
        while page := await asyncio.to_thread(self.events, job, after, PAGE_EVENTS):
            for event in page:
                yield event
            after = page[-1].number

    def status_events(self, job: StoredJob) -> list[Event]:
        """Return the few events that make up the status of a job at rest."""
        return [
            *self._events_of_kind(job.id, "round", last=True),
            *self._events_of_kind(job.id, "warned"),
            *(self._events_of_kind(job.id, "state", last=True) if job.reason else ()),
        ]

    def _events_of_kind(self, job: str, kind: str, *, last: bool = False) -> list[Event]:
        rows = self._store.events_of(job, kind, last=last)
        return [self._parsed_event(job, row) for row in rows]

    def _parsed_event(self, job: str, row: JournalEvent) -> Event:
        key = job, row.n, row.at
        event = self._read.get(key)
        if event is None:
            event = ParseDict(row.event, Event())
            event.number, event.at = row.n, row.at
            if len(self._read) == READ_MAX:
                self._read.clear()
            self._read[key] = event
        return event

    def states(self, job: str) -> list[StateChanged]:
        """Return the states of a job in order."""
        return [event.state for event in self._events_of_kind(job, "state")]

    def lost_hosts(self, job: str) -> list[str]:
        """Return the hosts that a job has lost for good."""
        return [event.lost.party for event in self._events_of_kind(job, "lost")]


def as_dict(event: Event) -> dict[str, object]:
    """Return an event as the store keeps it."""
    return MessageToDict(event, preserving_proto_field_name=True)


def status_of(job: StoredJob, walk: JobWalk | None, journal: Iterable[Event]) -> JobStatus:
    """Return the status of a job in an attempt (`walk`) or at rest.

    `journal` may be condensed.
    """
    if walk is None:
        return status_at_rest(job, journal)
    status = _outlined(job)
    status.progress.CopyFrom(walk.progress)
    status.waiting.extend(walk.waited_for)
    status.warnings.extend(walk.warned)
    return status


def status_at_rest(job: StoredJob, journal: Iterable[Event]) -> JobStatus:
    """Return the status of a job at rest."""
    status = _outlined(job)
    for event in journal:
        if event.WhichOneof("what") == "round":
            status.progress.CopyFrom(event.round.progress)
        elif event.WhichOneof("what") == "warned":
            status.warnings.append(event.warned.warning)
        elif event.WhichOneof("what") == "state" and job.reason:
            status.reason.CopyFrom(event.state.reason)
    if job.state is JobState.PAUSED and job.waiting_for:
        status.waiting.append(awaited_party(job))
    return status


def journal_of(job: StoredJob, status: JobStatus, journal: list[Event]) -> JobJournal:
    """Return the status, settings and journal of a job."""
    spec = manifest.decode_manifest(job.manifest).spec.model_dump(mode="json")
    return JobJournal(status=status, spec=json.dumps(spec).encode(), events=condensed(journal))


def awaited_party(job: StoredJob) -> Waiting:
    """Return the party that a paused job waits for."""
    return Waiting(party=job.waiting_for, step="its return", since=job.since)


def _outlined(job: StoredJob) -> JobStatus:
    """Return a job's status without the facts that only its journal holds."""
    terms = manifest.read_outline(job.outline)
    return JobStatus(
        id=job.id,
        name=job.name,
        protocol=terms.protocol,
        state=job.state,
        attempt=job.attempt,
        created=job.created,
        updated=job.updated,
        submitter=terms.submitter,
        encryption=terms.encryption,
    )
