"""The objects that all jobs of a party share: its store and ledger, its judge, its workers."""

from __future__ import annotations

import logging
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
from fedboost.runtime.jobs.job_log import JobAct, is_logged, log_act
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Amount, Noted, disclosure_row
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
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport.identity import Peer

log = logging.getLogger(__name__)


class PartyJobs(dict[str, PartyJob]):
    """The jobs of one party by their ids. All methods belong to the event loop's thread."""

    def __init__(self, party: str, store: Store) -> None:
        super().__init__()
        self._party, self._store = party, store

    def job_led_by(self, caller: Peer, id_: str) -> PartyJob:
        """Return the job if the caller leads it.

        A PolicyError if the caller does not; an UnreachableError if this party was restarted
        meanwhile.
        """
        check_leader(caller)
        job = self.get(id_)
        if job is None:
            raise _restart_error(self._party)
        if caller.name != job.signed.manifest.coordinator:
            raise PolicyError(
                f"{caller} does not lead this job", todo="ask the coordinator that proposed it"
            )
        return job

    def job_called_by(self, caller: Peer, id_: str) -> PartyJob:
        """Return the job as `job_led_by` does, and note that its coordinator has just called."""
        job = self.job_led_by(caller, id_)
        job.heard = monotonic_s()
        return job

    def at(self, caller: Peer, id_: str, attempt: int) -> PartyJob:
        """Return the job as `job_called_by` does; a ProtocolError unless it is in this attempt."""
        job = self.job_called_by(caller, id_)
        job.check_attempt(attempt)
        return job

    def stored_job_of(self, caller: Peer, id_: str, attempt: int) -> StoredJob | None:
        """Return the stored job if the caller leads it and names its last attempt or later."""
        check_leader(caller)
        job = self._store.find(id_)
        if job is None:
            return None
        leads = manifest.read_outline(job.outline).coordinator == caller.name
        return job if leads and attempt >= job.attempt else None

    def receiver(self, caller: Peer, envelope: Envelope, *, is_known: bool) -> Session:
        """Return the session of the open stage that a message is for.

        `is_known` tells whether the caller is our peer. A PeerError if the message is for no open
        stage, an UnreachableError if this party was restarted meanwhile.
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
        if known is not None and known.state in (
            JobState.AGREED,
            JobState.QUEUED,
            JobState.PAUSED,
        ):
            raise UnreachableError(
                f"{self._party} was restarted and has left the job",
                party=self._party,
                todo="",
            )
        raise PeerError(f"{caller} sent a message of a job that is not running here")


def check_leader(caller: Peer) -> None:
    """Raise a PolicyError unless the caller is a coordinator."""
    if caller.role != "coordinator":
        raise PolicyError(
            f"{caller} does not lead jobs", todo="connect with a coordinator's certificate"
        )


def _restart_error(party: str) -> FedboostError:
    """Return the error about an attempt that a restart of our daemon has ended."""
    return UnreachableError(
        f"{party} knows nothing of this attempt, it was restarted",
        party=party,
        todo="",
    )


class PeerCalls(Links, Recalls, Protocol):
    """The calls that a party makes to other parties."""


@dataclass
class PartyCpu:
    """The processor time of a party, its worker processes included."""

    workers: Workers
    clock: Callable[[], float] | None = time.process_time  # None: only steps count

    def now(self) -> float:
        """Return the seconds so far."""
        return (self.clock() if self.clock else 0.0) + self.workers.cpu_seconds()


class PartyParts:
    """The parts of one party. The owner's settings are `judge.config`."""

    def __init__(
        self, config: PartyConfig, trust: Trust, store: Store, links: PeerCalls, workers: Workers
    ) -> None:
        self.name = config.name
        self.store, self.links, self.workers = store, links, workers
        self.part_workers: PartWorkers = Embedded()  # the workers that add up rows
        self.cpu = PartyCpu(workers)
        self.ledger = Ledger(store.database)
        self.judge = Judge(config, trust, store)
        self.heads = SignedHeads(config.name, self.ledger, self.judge.signatures_of_jobs)
        self.spending = Spending(
            config.name,
            lambda: self.judge.config.policy,
            self.judge.tables,
            Account(store.database),
        )
        # By data set the shares of unknown categories in the last table of it to predict.
        self.unknown_categories: dict[str, dict[str, float]] = {}
        self.rehearsing: Rehearsing | None = None
        if config.rehearses:
            self.start_rehearsing()
        self.states = PartyJobStates(store, config.name)
        self.jobs = PartyJobs(config.name, store)
        if config.disk_gb is not None:
            mapped.limit_folder(store.folder, config.disk_gb * GB)
        self.memory = JobMemory(config, lambda: self.judge.config.datasets, self.jobs)

    def start_rehearsing(self) -> None:
        """Have each trial from now on judged by default limits as well.

        All tables of trials have one name, so a table is known by its source.
        """
        self.judge.tables.by_name = False
        self.rehearsing = Rehearsing(self.judge, self.store, self.spending.account)

    def close(self) -> None:
        """Close the connections to the database."""
        self.ledger.close()
        self.spending.account.close()

    def has_consent(self, job: PartyJob) -> bool:
        """Return whether the job may run: by policy, or as a person approved this manifest."""
        asks = self.judge.config.policy.approve != "never"
        return self.states.has_consent(job.id, job.signed.manifest_sha256, asks=asks)

    def refuse_unapproved(self, job: PartyJob) -> None:
        """Raise a PolicyError unless our policy allows the job now and it is approved.

        It is approved if the policy asks nobody or a person approved this manifest. Checked before
        a reply says anything about a table: otherwise a coordinator would learn of tables that it
        may not use.
        """
        self.judge.job(job.signed)
        if not self.has_consent(job):
            raise PolicyError(
                "nobody has approved the job here",
                party=self.name,
                todo="fedboost party approve JOB, at that party",
            )

    def record(self, coming: Sequence[Noted], leaving: Sequence[Noted]) -> None:
        """Write messages into the ledger; charge the leaving ones in the same transaction."""
        rows = [disclosure_row("in", message) for message in coming]
        rows += [disclosure_row("out", message) for message in leaving]
        self.ledger.record(*rows, first=partial(self.spending.charge, leaving))

    def log_releases(self, job: PartyJob) -> None:
        """Log what the attempt of a job has sent to each peer, once; to be called at its end."""
        start, job.ledger_start = job.ledger_start, None
        if start is None or not is_logged():
            return
        sent: dict[str, list[Amount]] = {}
        try:
            for amount in self.ledger.amounts(job.id, after=start):
                if amount.direction == "out":
                    sent.setdefault(amount.peer, []).append(amount)
            stored, entry = self.store.job(job.id), self.spending.account.entry(job.id)
        except FedboostError as error:  # the job must end all the same
            log.error("%s: its releases cannot be read: %s", job.id, error.what)
            return
        for peer, amounts in sent.items():
            sums = ""
            if entry is not None and entry.planned and entry.guest == peer:
                sums = f"; so far {entry.counted:.2g} sums per bin and row"
            words = _amounts_in_words(amounts)
            log_act(JobAct.RELEASED, stored, self.name, peer=peer, amount=words, sums=sums)


def _amounts_in_words(amounts: Sequence[Amount]) -> str:
    """Describe amounts of messages to one peer, with the values of each kind."""
    messages, values, size = (
        sum(getattr(amount, of) for amount in amounts) for of in ("messages", "values", "bytes")
    )
    kinds = ", ".join(f"{a.kind.rpartition('.')[2]} {a.values:,}" for a in amounts)
    return f"{values:,} values in {messages:,} messages of {size:,} bytes ({kinds})"
