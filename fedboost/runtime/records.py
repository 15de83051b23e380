"""What a party's store has of a job that a coordinator speaks of."""

from __future__ import annotations

from fedboost.errors import PeerError, PolicyError
from fedboost.runtime import manifest
from fedboost.runtime.identity import Peer
from fedboost.runtime.store import Job, JobState, Store
from fedboost.runtime.work import Work


def recorded(store: Store, work: Work, text: bytes, *, needs_person: bool) -> Job:
    """The job as the store has it, new or known; a PeerError where it was proposed otherwise."""
    for job in store.jobs():
        if job.id == work.id:
            if job.manifest != text:
                raise PeerError("the coordinator proposed two different jobs under one name")
            return job
    state = JobState.WAITING if needs_person else JobState.RUNNING
    job = store.add_job(work.id, work.terms.spec.name, text, state)
    if not needs_person:
        store.move(work.id, JobState.PAUSED, reason="agreed to, not begun")
    return store.job(work.id)


def check_leader(caller: Peer) -> None:
    """Refuses, by a PolicyError, whoever is no coordinator."""
    if caller.role != "coordinator":
        raise PolicyError(f"{caller} does not lead jobs")


def led(store: Store, caller: Peer, id_: str, attempt: int) -> Job | None:
    """The job, if the caller leads it and speaks of its last attempt or a later one."""
    check_leader(caller)
    for job in store.jobs():
        if job.id == id_:
            leads = manifest.outline(job.manifest).coordinator == caller.name
            return job if leads and attempt >= job.attempt else None
    return None
