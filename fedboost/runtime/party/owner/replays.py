"""Replays a guest's job on its own machine, from the record in its store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedboost import __version__, flow
from fedboost.crypto.secrets import Secrets
from fedboost.flow import MemoryNotebook, StageContext, StageServices
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import Settings
from fedboost.ground.workers import Workers
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger import comparison, signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.party.job.job import StagePlace, stage_context
from fedboost.runtime.party.job.table import load_table
from fedboost.runtime.party.owner.replay_results import (
    ReplayedPayloads,
    ReplayedPeer,
    ReplayedTable,
    ReplayResult,
    place_hash,
    signatures_of,
    signed_job,
)
from fedboost.runtime.party.owner.replaying import DifferenceFoundError, SentPayloads, walk_attempts
from fedboost.runtime.party.stage.outbox import Terms
from fedboost.runtime.policy.judgement import signature_checker
from fedboost.runtime.store.backups import KEY
from fedboost.runtime.store.recordings import RecordedAttempt, Recordings
from fedboost.runtime.store.sealing import Vault
from fedboost.runtime.store.store import JobState

if TYPE_CHECKING:
    from fedboost.data.frame import Frame


@dataclass(frozen=True)
class _Job:
    """A job as the guest's store holds it."""

    config: PartyConfig
    signed: SignedJob
    frame: Frame  # the rows that take part
    seed: Secrets
    workers: Workers

    def terms(self, attempt: RecordedAttempt) -> Terms:
        """Return the terms in an attempt's messages."""
        return Terms(self.signed.id, self.signed.manifest_sha256, attempt.opening.attempt)

    def context(self, attempt: RecordedAttempt) -> StageContext[Settings]:
        """Return the guest's context of an attempt."""
        opening = attempt.opening
        return stage_context(
            self.signed,
            StagePlace(opening.stage, opening.attempt, opening.place),
            self.frame.take(np.arange(self.frame.n_rows)),
            self.seed,
            lasting=self.seed.child,
            services=StageServices(signatures_of(self.config), MemoryNotebook(), self.workers),
            artefacts={},
            limits=self.config.policy,
        )


def replay_job(
    config: PartyConfig, job: str, workers: Workers, done: Callable[[int], None] = lambda _: None
) -> ReplayResult:
    """Replay a guest's part of a job; `done` is called with the number of finished steps.

    A ConfigError if the job cannot be replayed here; a DataError if the table has changed since the
    training, or if the record does not fit the ledger.
    """
    signed = _replayable_job(config, job)
    stage = signed.stages[-1]
    attempts = Recordings(config.store).attempts(job)
    frame, digest = _replayed_rows(config, signed, attempts)
    if not (config.store / KEY).exists():
        raise _no_record_error(job)
    vault = Vault(config.store)
    if not vault.has_secret(job, "seed"):
        raise _no_record_error(job)
    held = _Job(config, signed, frame, Secrets(vault.unseal(job, "seed")), workers)
    with closing(Ledger(config.store / "store.sqlite", read_only=True)) as ledger:
        signed_heads.verify_ledger(ledger, config.name, signature_checker(config))
        rows = ledger.rows(job)
        against = [one.text for one in comparison.contradicted_rows(ledger, config.name, job)]
        signed_rows = comparison.rows_signed_alike(ledger, config.name, job)
        at = ledger.now()
    payloads = SentPayloads.of(signed.protocol, rows)
    difference, is_whole = "", False
    try:
        is_whole = asyncio.run(
            walk_attempts(signed.protocol, attempts, held.context, held.terms, payloads, done)
        )
    except DifferenceFoundError as found:
        difference = found.difference.sentence()
    return ReplayResult(
        job=job,
        manifest_sha256=signed.manifest_sha256.hex(),
        party=config.name,
        at=at,
        version=__version__,
        stage=stage,
        attempts=len(attempts),
        is_whole=is_whole,
        is_confirmed=not difference and not against,
        difference=difference,
        ledger=against,
        table=ReplayedTable.of(frame, signed.held_out(frame), digest),
        peers={
            peer: ReplayedPeer(
                sent=_peer_payloads(config.name, peer, payloads.confirmed.values(), signed_rows),
                came=_peer_payloads(config.name, peer, payloads.fed.values(), signed_rows),
            )
            for peer in signed.peers
        },
        other_payloads=_other_payloads(rows, stage),
    )


def forget_record(config: PartyConfig, job: str) -> None:
    """Destroy the record of a job for replays, its sealed seed first; the job itself stays.

    A ConfigError if the job has not ended, or if no record is left.
    """
    _replayable_job(config, job, over=True)
    recordings = Recordings(config.store)
    if not recordings.folder(job).exists():
        raise _no_record_error(job)
    Vault(config.store).destroy_secrets(job)
    recordings.delete(job)


def _replayable_job(config: PartyConfig, job: str, *, over: bool = False) -> SignedJob:
    """Return a job that this party guided as guest; a ConfigError if it cannot be replayed."""
    signed, state = signed_job(config, job)
    if not signed.manifest.spec.replayable:
        raise ConfigError(
            f"{job} cannot be replayed: its guest kept neither secrets nor received messages",
            todo="set replayable: true in the next job",
        )
    if signed.role is not flow.GUEST:
        raise ConfigError(
            f"{config.name} is no guest of {job}, and only the guest's part is replayed",
            todo=f"run the command at {signed.table.guest}",
        )
    going = state is JobState.RUNNING or (
        over and state not in (JobState.FAILED, JobState.FINISHED)
    )
    if going:
        raise ConfigError(f"{job} is {state.shown}", todo="wait until it is over")
    return signed


def _replayed_rows(
    config: PartyConfig, signed: SignedJob, attempts: Sequence[RecordedAttempt]
) -> tuple[Frame, str]:
    """Return the job's rows and the whole table's digest.

    A DataError if the table is not the one of the training.
    """
    source = config.datasets[signed.dataset]
    frame, _ = load_table(signed, source, config.store)
    digest = frame.digest().hex()
    if any(attempt.opening.table != digest for attempt in attempts):
        raise DataError(
            "the table differs from the one of the training",
            party=config.name,
            file=source.name,
            todo="put the table of the training back where the settings file says",
        )
    rows = Recordings(config.store).rows(signed.id)
    return (frame if rows is None else frame.take(rows)), digest


def _peer_payloads(
    party: str, peer: str, rows: Iterable[Row], signed: Mapping[str, set[int]]
) -> ReplayedPayloads:
    """Return the result's figures on the payloads of one peer."""
    some = [row for row in rows if row.peer == peer]
    return ReplayedPayloads(
        payloads=len(some),
        bytes=sum(row.bytes for row in some),
        signed=sum(row.n in signed.get(peer, ()) for row in some),
        hashes=sorted(place_hash(party, row) for row in some),
    )


def _other_payloads(rows: Sequence[Row], stage: str) -> dict[str, int]:
    """Return the number of sent payloads in each stage that is not replayed."""
    counts: Mapping[str, int] = {
        name: sum(row.direction == "out" and row.stage == name for row in rows)
        for name in dict.fromkeys(row.stage for row in rows)
    }
    return {name: count for name, count in counts.items() if count and name != stage}


def _no_record_error(job: str) -> ConfigError:
    return ConfigError(
        f"the record for a replay of {job[:80]} is no longer kept here",
        todo="a store keeps it until the job is forgotten, or fedboost audit forget",
    )
