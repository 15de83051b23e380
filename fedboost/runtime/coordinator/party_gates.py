"""Parties that queued jobs wait for: they cannot be reached, or have no place for another job.

A job is proposed to its parties only when none of their gates is closed. The gate of a party that
refused a job for want of a place opens for one job at a time, when a job of the party ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.messages.job_pb2 import Waiting
from fedboost.runtime.coordinator.auto_resume import CHECK_PAUSE_MAX_S, Answering
from fedboost.runtime.process.clock import growing_pauses
from fedboost.runtime.transport.addresses import Timers

log = logging.getLogger(__name__)

ABSENT = "which cannot be reached"
FULL = "a place: its policy allows no more jobs at once"
FULL_PAUSE_S = 10.0  # a full party is asked again after it: its owner may allow more jobs
DOUBLINGS_MAX = 10  # of the pause before an absent party is asked again


@dataclass(eq=False)
class QueuedJob:
    """A job as the queue needs it."""

    id: str
    user: str
    parties: tuple[str, ...]
    created: float
    since: float = field(default_factory=time.time)
    had_place: bool = False  # it precedes jobs that had none
    is_open: bool = False  # its parties count it among their open jobs

    @property
    def order(self) -> tuple[bool, float, str]:
        """Its place in the queue."""
        return not self.had_place, self.created, self.id


@dataclass
class _FullParty:
    """A party that refused a job for want of a place."""

    since: float
    is_ajar: bool = False  # one job may be proposed
    proposed: QueuedJob | None = None


@dataclass
class _AbsentParty:
    """A party that could not be reached."""

    since: float
    step: str  # the wait of a job, with its reason
    look: asyncio.Task[None]


class PartyGates:
    """The gates of one coordinator. All methods belong to the event loop's thread."""

    def __init__(self, link: Callable[[str], Answering], timers: Timers) -> None:
        self._link, self._timers = link, timers
        self.opened: Callable[[], None] = lambda: None  # called when jobs may pass a gate
        self._full: dict[str, _FullParty] = {}
        self._absent: dict[str, _AbsentParty] = {}
        self._vain: Counter[str] = Counter()  # proposals in a row that did not reach a party

    def barrier(self, job: QueuedJob) -> Waiting | None:
        """Return the first party that a job waits for; None if it may be proposed to all."""
        for party in job.parties:
            if party in self._absent:
                absent = self._absent[party]
                return Waiting(party=party, step=absent.step, since=absent.since)
            full = self._full.get(party)
            if full and not job.is_open and not (full.is_ajar and full.proposed is None):
                return Waiting(party=party, step=FULL, since=full.since)
        return None

    def pass_through(self, job: QueuedJob) -> None:
        """Note that a job is about to be proposed."""
        for party in set(job.parties) & set(self._full):
            if not job.is_open:
                self._full[party].proposed = job

    def note_taken(self, job: QueuedJob) -> None:
        """Note that all parties have taken a job in; full ones may have a place for another."""
        job.is_open = True
        for party in job.parties:
            self._vain.pop(party, None)
        self._end_proposal(job)

    def note_left(self, job: QueuedJob, *, refused_by: str = "") -> None:
        """Note that a job's parties do not count it as open any more; one never did."""
        job.is_open = False
        for party in set(job.parties) & set(self._full) - {refused_by}:
            self._full[party].is_ajar = True
        self._end_proposal(job)

    def note_full(self, party: str, job: QueuedJob) -> None:
        """Close the gate of a party that has no place for a job."""
        full = self._full.setdefault(party, _FullParty(time.time()))
        full.is_ajar = False
        if full.proposed is job:
            full.proposed = None
        asyncio.get_running_loop().call_later(FULL_PAUSE_S, self._set_ajar, party)

    def note_absent(self, party: str, reason: str) -> None:
        """Close the gate of a party that cannot be reached, until it answers."""
        if party not in self._absent:
            self._vain[party] += 1
            look = asyncio.create_task(self._open_when_back(party))
            self._absent[party] = _AbsentParty(time.time(), f"{ABSENT}: {reason}", look)

    def close(self) -> None:
        """Look for no party any more."""
        for absent in self._absent.values():
            absent.look.cancel()

    def _end_proposal(self, job: QueuedJob) -> None:
        for full in self._full.values():
            if full.proposed is job:
                full.proposed = None
        self.opened()

    def _set_ajar(self, party: str) -> None:
        self._full[party].is_ajar = True
        self.opened()

    async def _open_when_back(self, party: str) -> None:
        first_s, most_s = self._timers.retry_first_s, self._timers.retry_max_s
        doublings = min(self._vain[party] - 1, DOUBLINGS_MAX)
        await asyncio.sleep(next(growing_pauses(min(first_s * 2**doublings, most_s), most_s)))
        pauses_s = growing_pauses(first_s, CHECK_PAUSE_MAX_S)
        while not await _answers(self._link(party)):
            await asyncio.sleep(next(pauses_s))
        del self._absent[party]
        log.info("%s can be reached again", party)
        self.opened()


async def _answers(party: Answering) -> bool:
    try:
        await party.hello(retries=False)
    except UnreachableError:
        return False
    except FedboostError:
        return True  # its refusal is an answer: a proposal meets it
    return True
