"""What all jobs of a party share: its store and ledger, who judges them, what they compute with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fedboost.ground import mapped
from fedboost.ground.errors import FedboostError, PeerError, PolicyError, UnreachableError
from fedboost.ground.part_workers import Embedded, PartWorkers
from fedboost.ground.workers import Workers
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Noted, disclosure
from fedboost.runtime.ledger.signed_heads import Recalls, SignedHeads
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.party.job.memory import GB, JobMemory
from fedboost.runtime.party.job.states import PartyJobStates
from fedboost.runtime.party.owner.rehearsing import Rehearsing
from fedboost.runtime.party.stage.outbox import Links
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.judgement import Judge, Trust
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.process.clock import now
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport.identity import Peer


class PartyJobs(dict[str, PartyJob]):
    """The jobs of one party by their ids. All methods belong to the event loop's thread."""

    def __init__(self, party: str, store: Store) -> None:
        super().__init__()
        self._party, self._store = party, store

    def led(self, caller: Peer, id_: str) -> PartyJob:
        """The job, if the caller leads it; a PolicyError, or that we were restarted meanwhile."""
        check_leader(caller)
        job = self.get(id_)
        if job is None:
            raise _restarted(self._party)
        if caller.name != job.signed.manifest.coordinator:
            raise PolicyError(
                f"{caller} does not lead this job", todo="ask the coordinator that proposed it"
            )
        return job

    def called(self, caller: Peer, id_: str) -> PartyJob:
        """The same, whose coordinator has called just now."""
        job = self.led(caller, id_)
        job.heard = now()
        return job

    def at(self, caller: Peer, id_: str, attempt: int) -> PartyJob:
        """The same, in this attempt."""
        job = self.called(caller, id_)
        job.check_attempt(attempt)
        return job

    def stored(self, caller: Peer, id_: str, attempt: int) -> StoredJob | None:
        """Return the store's job if the caller leads it and speaks of its last attempt or later."""
        check_leader(caller)
        job = self._store.find(id_)
        if job is None:
            return None
        leads = manifest.outline(job.outline).coordinator == caller.name
        return job if leads and attempt >= job.attempt else None

    def receiver(self, caller: Peer, envelope: Envelope, *, is_known: bool) -> Session:
        """The open stage that a message is for; `is_known` says that the caller is a peer of ours.

        A PeerError where it is for none, an UnreachableError where we were restarted meanwhile.
        """
        if caller.role != "party" or caller.name != envelope.sender:
            raise PeerError(f"{caller} sent a message in the name of {envelope.sender[:64]!r}")
        job = self.get(envelope.job)
        if job is not None and caller.name in job.signed.peers:
            if job.session is not None:
                return job.session
            if job.halted is not None:
                raise job.halted
        known = self._store.find(envelope.job) if is_known else None
        if known is not None and known.state in (JobState.AGREED, JobState.PAUSED):
            raise UnreachableError(
                f"{self._party} was restarted and has left the job",
                party=self._party,
                todo="",
            )
        raise PeerError(f"{caller} sent a message of a job that is not running here")


def check_leader(caller: Peer) -> None:
    """Refuses, by a PolicyError, whoever is no coordinator."""
    if caller.role != "coordinator":
        raise PolicyError(
            f"{caller} does not lead jobs", todo="connect with a coordinator's certificate"
        )


def _restarted(party: str) -> FedboostError:
    """Return what a party says of an attempt that its daemon did not outlive."""
    return UnreachableError(
        f"{party} knows nothing of this attempt, it was restarted",
        party=party,
        todo="",
    )


class PeerCalls(Links, Recalls, Protocol):
    """What a party asks of others."""


@dataclass
class PartyCpu:
    """The processor time of a party, its worker processes included."""

    workers: Workers
    clock: Callable[[], float] | None = time.process_time  # None: only steps count

    def now(self) -> float:
        """Seconds so far."""
        return (self.clock() if self.clock else 0.0) + self.workers.cpu_seconds()


class PartyParts:
    """The parts of one party. The owner's settings are `judge.config`."""

    def __init__(
        self, config: PartyConfig, trust: Trust, store: Store, links: PeerCalls, workers: Workers
    ) -> None:
        self.name = config.name
        self.store, self.links, self.workers = store, links, workers
        self.part_workers: PartWorkers = Embedded()  # who adds up rows
        self.cpu = PartyCpu(workers)
        self.ledger = Ledger(store.database)
        self.judge = Judge(config, trust, store)
        self.heads = SignedHeads(config.name, self.ledger, self.judge.signatures_of_jobs)
        self.spending = Spending(
            config.name,
            lambda: self.judge.config.policy,
            lambda: self.judge.config.datasets,
            Account(store.database),
        )
        self.rehearsing: Rehearsing | None = None
        if config.rehearses:
            self.rehearse()
        self.states = PartyJobStates(store, config.name)
        self.jobs = PartyJobs(config.name, store)
        if config.disk_gb is not None:
            mapped.limit(store.folder, config.disk_gb * GB)
        self.memory = JobMemory(config, lambda: self.judge.config.datasets, self.jobs)

    def rehearse(self) -> None:
        """Say of each job that is tried from now on what default limits would allow."""
        self.rehearsing = Rehearsing(self.judge, self.store, self.spending.account)

    def close(self) -> None:
        """Closes what was opened here."""
        self.ledger.close()
        self.spending.account.close()

    def consents(self, job: PartyJob) -> bool:
        """Return whether nobody needs to be asked now, or somebody approved exactly this job."""
        asks = self.judge.config.policy.approve != "never"
        return self.states.consents(job.id, job.signed.manifest_sha256, asks=asks)

    def refuse_unapproved(self, job: PartyJob) -> None:
        """Raise a PolicyError unless our policy allows the job as it is now, and asks nobody or
        somebody approved exactly this manifest.

        Asked before anything about a table goes into an answer: without it a coordinator would
        learn of tables that no owner lets it use.
        """
        self.judge.job(job.signed)
        if not self.consents(job):
            raise PolicyError(
                "nobody has approved the job here",
                party=self.name,
                todo="fedboost party approve JOB, at that party",
            )

    def record(self, coming: Sequence[Noted], leaving: Sequence[Noted]) -> None:
        """Writes messages into the ledger; those that leave are charged in the same transaction."""
        rows = [disclosure("in", message) for message in coming]
        rows += [disclosure("out", message) for message in leaving]
        self.ledger.record(*rows, first=partial(self.spending.charge, leaving))
