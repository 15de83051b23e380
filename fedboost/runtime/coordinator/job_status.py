"""How a job stands, by the coordinator's store and by the walk that is under way."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fedboost.messages.job_pb2 import Event, JobJournal, JobStatus, Waiting
from fedboost.runtime.coordinator.journals import condensed
from fedboost.runtime.coordinator.walker import JobWalk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import JobState, StoredJob


def status_of(job: StoredJob, walk: JobWalk | None, journal: Iterable[Event]) -> JobStatus:
    """The status of a job, which is on its `walk` or rests; its `journal` may be condensed."""
    if walk is None:
        return at_rest(job, journal)
    status = _outlined(job)
    status.progress.CopyFrom(walk.progress)
    status.waiting.extend(walk.waited_for)
    status.warnings.extend(walk.warned)
    return status


def at_rest(job: StoredJob, journal: Iterable[Event]) -> JobStatus:
    """The status of a job that nobody drives now."""
    status = _outlined(job)
    for event in journal:
        if event.WhichOneof("what") == "round":
            status.progress.CopyFrom(event.round.progress)
        elif event.WhichOneof("what") == "warned":
            status.warnings.append(event.warned.warning)
        elif event.WhichOneof("what") == "state" and job.reason:
            status.reason.CopyFrom(event.state.reason)
    if job.state is JobState.PAUSED and job.waiting_for:
        status.waiting.append(awaited(job))
    return status


def journal_of(job: StoredJob, status: JobStatus, journal: list[Event]) -> JobJournal:
    """Everything the coordinator knows of a job."""
    spec = manifest.decode(job.manifest).spec.model_dump(mode="json")
    return JobJournal(status=status, spec=json.dumps(spec).encode(), events=condensed(journal))


def awaited(job: StoredJob) -> Waiting:
    """Return whose return a paused job waits for."""
    return Waiting(party=job.waiting_for, step="its return", since=job.since)


def _outlined(job: StoredJob) -> JobStatus:
    """Return which job it is and in which state, without what only its journal says."""
    terms = manifest.outline(job.manifest)
    return JobStatus(
        id=job.id,
        name=job.name,
        protocol=terms.protocol,
        state=job.state,
        attempt=job.attempt,
        created=job.created,
        updated=job.updated,
        submitter=terms.submitter,
    )
