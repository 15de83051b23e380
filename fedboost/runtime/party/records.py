"""What a party's store has of a job that a coordinator speaks of."""

from __future__ import annotations

from fedboost.errors import PolicyError
from fedboost.runtime.jobs import manifest
from fedboost.runtime.store.store import Store, StoredJob
from fedboost.runtime.transport.identity import Peer


def check_leader(caller: Peer) -> None:
    """Refuses, by a PolicyError, whoever is no coordinator."""
    if caller.role != "coordinator":
        raise PolicyError(f"{caller} does not lead jobs")


def led(store: Store, caller: Peer, id_: str, attempt: int) -> StoredJob | None:
    """The job, if the caller leads it and speaks of its last attempt or a later one."""
    check_leader(caller)
    for job in store.jobs():
        if job.id == id_:
            leads = manifest.outline(job.manifest).coordinator == caller.name
            return job if leads and attempt >= job.attempt else None
    return None
