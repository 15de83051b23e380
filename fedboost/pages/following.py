"""A page's view of a coordinator's jobs: each journal is read once, then only its new entries.

Reading and rendering happen in threads: a long journal must not hold up the jobs that run.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, JobJournal, JobStatus
from fedboost.pages import runs
from fedboost.pages.runs import ListedRun, RoundCurves
from fedboost.runtime.coordinator.journals import Journals, condensed, status_at_rest
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.store.store import FINAL, GOING, OVER, RESTS, StoredJob
from fedboost.runtime.transport.identity import Peer

CURVES_MAX = 512  # ended jobs whose curves are kept
JOURNALS_MAX = 16  # that are kept at hand, those looked at last


@dataclass
class _Read:
    """A journal as far as it has been read."""

    events: list[Event] = field(default_factory=list)  # condensed
    last: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class Followed:
    """Jobs of one coordinator, for users who may read them."""

    def __init__(self, node: CoordinatorNode, user: Callable[[], Peer]) -> None:
        """Follow a node; `user` returns the user of the current request."""
        self._node, self._user = node, user
        self._journals = Journals(node.store)
        self._read: OrderedDict[str, _Read] = OrderedDict()
        self._curves: OrderedDict[str, RoundCurves] = OrderedDict()  # of jobs that change no more
        self._specs: dict[str, ListedRun] = {}

    async def jobs(self, ended: int) -> tuple[list[StoredJob], list[StoredJob]]:
        """Return the jobs that go on, and so many that have ended, the newest first."""
        self._check_user()
        newest = self._node.store.newest_jobs
        return await asyncio.to_thread(lambda: (newest(GOING), newest(OVER, ended)))

    async def all_runs(self) -> list[ListedRun]:
        """Return all jobs as the list of runs has them, the newest first; reads no journal."""
        self._check_user()
        return await asyncio.to_thread(self._list_runs)

    def _list_runs(self) -> list[ListedRun]:
        tags, listed = self._node.tags(self._user()), {}
        for job in reversed(self._node.store.jobs()):
            labels = tags.get(job.id, ())
            known = self._specs.get(job.id) or self._read_run(job)  # a manifest never changes
            listed[job.id] = replace(known, job=job, tags=labels)
        self._specs = listed
        return list(listed.values())

    def _read_run(self, job: StoredJob) -> ListedRun:
        run = runs.run_of(job)
        return replace(run, is_mine=self._node.is_users_job(self._user(), run.submitter))

    async def curves(self, some: Iterable[ListedRun]) -> dict[str, RoundCurves]:
        """Return each run's metrics by round, from the journals of these runs alone."""
        self._check_user()
        return await asyncio.to_thread(lambda: {run.job.id: self._curves_of(run) for run in some})

    def _curves_of(self, run: ListedRun) -> RoundCurves:
        known = self._curves.get(run.job.id)
        if known is not None:
            return known
        curves = runs.curves_of(run, self._node.store.rounds(run.job.id))
        if run.job.state in FINAL:
            self._curves[run.job.id] = curves
            if len(self._curves) > CURVES_MAX:
                self._curves.popitem(last=False)
        return curves

    async def status(self, job: StoredJob) -> JobStatus:
        """Return a job's status, with the awaited parties and times."""
        if job.state not in RESTS:
            return await self._node.status(self._user(), job_pb2.JobId(id=job.id))
        self._check_user()
        return status_at_rest(job, await self._read_events(job.id))

    async def journal(self, id_: str) -> JobJournal:
        """Return a job's journal, condensed; a JobError where there is none."""
        self._check_user()
        job = await asyncio.to_thread(self._node.store.job, id_)
        status = await self.status(job)
        events = await self._read_events(id_)
        spec = json.loads(job.manifest)["spec"]  # also of a job that another version wrote
        return JobJournal(status=status, spec=json.dumps(spec).encode(), events=events)

    def _check_user(self) -> None:
        self._node.config.users.judge("read", self._user().name)

    async def _read_events(self, id_: str) -> list[Event]:
        known = self._read.setdefault(id_, _Read())
        self._read.move_to_end(id_)
        while len(self._read) > JOURNALS_MAX:
            self._read.popitem(last=False)
        async with known.busy:
            known.events, known.last = await asyncio.to_thread(self._with_new_events, id_, known)
        return known.events

    def _with_new_events(self, id_: str, known: _Read) -> tuple[list[Event], int]:
        fresh = self._journals.events(id_, known.last)
        if not fresh:
            return known.events, known.last
        # Condensed entries keep the number of their calls, so they can be condensed again with new
        # ones.
        return condensed([*known.events, *fresh]), fresh[-1].number
