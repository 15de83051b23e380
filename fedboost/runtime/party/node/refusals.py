"""One party's refusals of jobs in its own log: of proposals, and of requests about running jobs."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from fedboost.ground.errors import FedboostError, OwnersError, PolicyError
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.job_log import RefusalLog, RefusedJob
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.party.node.parts import PartyJobs
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.transport.identity import Peer


class PartyRefusals:
    """The refusals of one party. All methods belong to the event loop's thread."""

    def __init__(self, party: str, store: Store, jobs: PartyJobs) -> None:
        self._party, self._store, self._jobs = party, store, jobs
        self._log = RefusalLog("party", party)
        self._proposal: Callable[[], FedboostError | None] = lambda: None  # refused last

    def log_proposal(self, caller: Peer, text: bytes, error: FedboostError) -> None:
        """Log the refusal of a proposed manifest.

        The end of a cancelled or denied job has its own line.
        """
        try:
            terms = manifest.decode_manifest(text)
        except FedboostError:
            refused = RefusedJob()
        else:
            refused = RefusedJob(terms.job, terms.spec.name, text)
        stored = self._store.find(refused.id)
        self._proposal = ref(error)
        if stored is None or stored.state is not JobState.CANCELLED:
            self._log.log_refusal(refused, caller, error)

    def log_by_key(self, id_: str, error: OwnersError) -> bool:
        """Log the refusal of a running job by a key of the party's settings, once an attempt.

        Return whether the log has the error, also as a refused proposal.
        """
        if self._proposal() is error:
            return True
        by_us = isinstance(error, PolicyError) and error.where.get("party") == self._party
        job = self._jobs.get(id_)
        if job is None or not by_us or "key" not in error.where:
            return False
        if job.refused_by != error.where["key"]:
            job.refused_by = error.where["key"]
            leader = f"coordinator {job.signed.manifest.coordinator}"
            self._log.log_refusal(self._logged(job), leader, error)
        return True

    @staticmethod
    def _logged(job: PartyJob) -> RefusedJob:
        terms = job.signed.manifest
        return RefusedJob(job.id, terms.spec.name, terms.encode())
