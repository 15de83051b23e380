"""What all jobs of a party share: its store and ledger, who judges them, what they compute with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fedboost.crypto.workers import Workers
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.messages import Noted, disclosure
from fedboost.runtime.ledger.recalled import Recalls
from fedboost.runtime.ledger.signed_heads import SignedHeads
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.job_states import PartyJobStates
from fedboost.runtime.party.jobs import PartyJobs
from fedboost.runtime.party.outbox import Links
from fedboost.runtime.party.rehearsing import Rehearsing
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.judgement import Judge, Trust
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.store.store import Store


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

    def record(self, direction: str, messages: Sequence[Noted]) -> None:
        """Writes messages into the ledger; those that leave are charged in the same transaction."""
        rows = [disclosure(direction, one) for one in messages]
        if direction == "in":
            self.ledger.record(*rows)
        else:
            self.ledger.record(*rows, first=partial(self.spending.charge, messages))
