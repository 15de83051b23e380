"""How a job stands, by what the coordinator's store says of it."""

from __future__ import annotations

from collections.abc import Iterable

from fedboost.messages.job_pb2 import Event, JobStatus, Waiting
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import JobState, StoredJob


def outlined(job: StoredJob) -> JobStatus:
    """Which job it is and in which state, without what only its journal says."""
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


def at_rest(job: StoredJob, journal: Iterable[Event]) -> JobStatus:
    """The status of a job that nobody drives now; its `journal` may be condensed."""
    status = outlined(job)
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


def awaited(job: StoredJob) -> Waiting:
    """Whose return a paused job waits for."""
    return Waiting(party=job.waiting_for, step="its return", since=job.since)
