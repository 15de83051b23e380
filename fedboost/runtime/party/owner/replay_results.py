"""The result of a replay for an auditor or a host, signed by the job's guest.

The file has two lines: JSON, then the guest's signature over that text with its certificate. Its
claims hold if the program that made it is the published one: an auditor runs it on the guest's
machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence, Set
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import AwareDatetime, ValidationError

from fedboost import protocols
from fedboost.ground.arrays import Bits, Floats
from fedboost.ground.disk import on_disk, open_database
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import Settings
from fedboost.job import Name
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger import signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.party.job.table import load_table
from fedboost.runtime.policy.judgement import Signatures, Trust, signature_checker
from fedboost.runtime.store.rows_in_common import RowsInCommon, description_of
from fedboost.runtime.store.store import JobState

if TYPE_CHECKING:
    from fedboost.data.frame import Frame

RESULT_BYTES_MAX = 1 << 28


class ColumnSummary(Settings):
    """The spread of a column's numbers: with weights of 2^i a sum would reveal its rows."""

    least: float
    most: float
    least_above_zero: float  # the smallest absolute value except zero
    distinct: int
    zero: int  # rows

    @classmethod
    def of(cls, values: Floats) -> ColumnSummary:
        """Return the summary of float64 (n,)."""
        sizes = np.abs(values[values != 0])
        return cls(
            least=float(values.min()) if len(values) else 0.0,
            most=float(values.max()) if len(values) else 0.0,
            least_above_zero=float(sizes.min()) if len(sizes) else 0.0,
            distinct=len(np.unique(values)),
            zero=int((values == 0).sum()),
        )

    def in_words(self, what: str) -> str:
        """Return the summary in words; `what` names the numbers."""
        ratio = max(abs(self.least), abs(self.most)) / (self.least_above_zero or 1.0)
        return (
            f"{what}: {self.least:g} to {self.most:g}, {self.distinct:,} different, the "
            f"largest {ratio:,.6g} times the smallest; {self.zero:,} rows have 0"
        )


class ReplayedTable(Settings):
    """The guest's rows in the replay; the hashes are SHA-256, in hex."""

    rows: int  # of the stage, held-out ones included
    trained: int  # rows used for training
    table_sha256: str  # of the whole table of the job, as fedboost hashes tables
    ids_sha256: str  # of the stage's rows, in their order: equal at every party
    labels_sha256: str  # of their labels, float64, little endian, in that order
    weights_sha256: str  # of their weights, the same
    labels: ColumnSummary
    weights: ColumnSummary

    @classmethod
    def of(cls, frame: Frame, held_out: Bits, table: str) -> ReplayedTable:
        """Return the summary of a stage's rows."""
        assert frame.label is not None
        weight = np.ones(frame.n_rows) if frame.weight is None else frame.weight
        return cls(
            rows=frame.n_rows,
            trained=int((~held_out).sum()),
            table_sha256=table,
            ids_sha256=frame.ids_digest().hex(),
            labels_sha256=_hash_of(frame.label),
            weights_sha256=_hash_of(weight),
            labels=ColumnSummary.of(frame.label[~held_out]),
            weights=ColumnSummary.of(weight[~held_out]),
        )


class ReplayedPayloads(Settings):
    """The payloads in one direction between the guest and a peer."""

    payloads: int
    bytes: int
    signed: int  # of them, those that the peer's signed ledger holds too, as of a commit
    hashes: list[str]  # SHA-256 of place, size, salt and SHA-256 each (`place_hash`), rising


class ReplayedPeer(Settings):
    """The payloads between the guest and one peer."""

    sent: ReplayedPayloads  # the guest's payloads that equal those of honest training
    came: ReplayedPayloads  # the peer's payloads that the replay's steps took

    @property
    def unsigned(self) -> int:
        """Number of payloads that the peer has not signed."""
        return sum(way.payloads - way.signed for way in (self.sent, self.came))


class ReplayResult(Settings):
    """The signed content."""

    what: Literal["fedboost replay 1"] = "fedboost replay 1"
    job: str
    manifest_sha256: str
    party: Name
    at: AwareDatetime
    version: str
    stage: str  # the replayed one
    attempts: int
    is_whole: bool  # whether the last attempt reached the stage's end
    is_confirmed: bool  # all sent payloads equal those of honest training on the received ones
    difference: str  # the first one that honest training would not have sent; empty if none
    ledger: list[str]  # the differences between peers' signed ledgers and ours
    table: ReplayedTable
    peers: dict[str, ReplayedPeer]
    other_payloads: dict[str, int]  # number in each stage that is not replayed

    def encode(self) -> bytes:
        """Return the signed text: JSON with sorted keys and no spaces, on one line."""
        return manifest.canonical_json(self.model_dump(mode="json"))

    @property
    def unsigned_counts(self) -> dict[str, int]:
        """Number of payloads that each peer has not signed: no other record of them exists."""
        return {name: peer.unsigned for name, peer in self.peers.items() if peer.unsigned}

    @property
    def is_honest(self) -> bool:
        """Return whether all payloads are confirmed, and signed by the peers."""
        return self.is_confirmed and not self.unsigned_counts

    def sentences(self) -> list[str]:
        """Return the result in sentences for a person."""
        tries = f"{self.attempts} attempt{'s' * (self.attempts != 1)} at {self.stage}"
        said = [f"{self.party}'s part of {self.job}, {tries}:"]
        for name, peer in self.peers.items():
            said += [
                f"{peer.sent.payloads:,} payloads to {name} are those of honest training, "
                f"{peer.sent.signed:,} of them under a head that {name} has signed",
                f"{peer.came.payloads:,} payloads of {name} were given to the replay, "
                f"{peer.came.signed:,} of them under a head that {name} has signed",
            ]
        said += [self.table.weights.in_words("weights"), self.table.labels.in_words("labels")]
        for stage, count in self.other_payloads.items():
            said.append(f"{count:,} payloads of the stage {stage} were not replayed")
        said += self.ledger
        if not self.is_confirmed:
            return [
                *said,
                f"NOT HONEST: {self.difference or 'the ledger is not what peers signed'}",
            ]
        end = "" if self.is_whole else ", as far as the job went"
        same = "every payload is byte for byte what honest training sends"
        if self.is_honest:
            return [*said, f"honest{end}: {same}, and hosts have signed all that passed"]
        for name, count in self.unsigned_counts.items():
            said.append(
                f"NOT SHOWN: {count:,} payloads that passed with {name} are under no head that "
                f"{name} has signed; check there: fedboost audit verify"
            )
        return [*said, f"{same}{end}, if the payloads that came are those that hosts sent"]


def sign_result(config: PartyConfig, result: ReplayResult) -> bytes:
    """Return the file: the result under the guest's signature.

    A ConfigError if the party has no certificate.
    """
    text = result.encode()
    return text + b"\n" + base64.b64encode(signatures_of(config).sign(text)) + b"\n"


def read_result(config: PartyConfig, content: bytes) -> ReplayResult:
    """Return a guest's signed result; a ConfigError if the file is none.

    A PeerError if the party named in it did not sign it.
    """
    text, _, rest = content.partition(b"\n")
    try:
        if len(content) > RESULT_BYTES_MAX:
            raise ValueError
        result = ReplayResult.model_validate_json(text)
        signature = base64.b64decode(rest[:-1], validate=True)
    except (ValidationError, binascii.Error, ValueError):
        raise ConfigError(
            "the file is no result of a replay",
            todo="the guest's owner writes one with: fedboost audit replay JOB --out FILE",
        ) from None
    signature_checker(config)(result.party, text, signature, result.at)
    return result


def compare_with_ledger(config: PartyConfig, result: ReplayResult) -> list[str]:
    """Return the differences between a result and a host's own records, in words.

    They concern the terms of the job, the rows in common, payloads from the guest that the result
    does not confirm, and payloads from the host that the replay did not take. A ConfigError if the
    host has no such job.
    """
    signed, state = signed_job(config, result.job)
    with closing(Ledger(config.store / "store.sqlite", read_only=True)) as ledger:
        rows = [
            row
            for row in ledger.rows(result.job)
            if (row.peer, row.stage) == (result.party, signed.stages[-1])
        ]
    peer = result.peers.get(config.name)
    sent = set() if peer is None else {*peer.sent.hashes}
    came = set() if peer is None else {*peer.came.hashes}
    got = [row for row in rows if row.direction == "in"]
    left = [row for row in rows if row.direction == "out"]
    # Messages in flight at the end of an interrupted attempt may be lost.
    whole = max((row.attempt for row in rows), default=0) if state is JobState.FINISHED else None
    differing = [
        f"{_row_text(row)} is not among the payloads that were replayed"
        for row in got
        if place_hash(config.name, row) not in sent
    ]
    differing += _payload_differences(config.name, left, came, whole)
    if signed.manifest_sha256.hex() != result.manifest_sha256:
        differing.insert(0, "the job that was replayed is not the one that this party signed")
    if _ids_of(config, signed) not in (None, result.table.ids_sha256):
        differing.insert(0, "the rows that were replayed are not those in common with this party")
    return differing


def _payload_differences(
    party: str, left: Sequence[Row], came: Set[str], whole: int | None
) -> list[str]:
    """Return the differences between the host's payloads and those of a replay.

    All payloads of attempt `whole` must have arrived.
    """
    ours = {place_hash(party, row): row for row in left}
    differing = [
        f"{_row_text(row)} left this party and is not what the replay was given"
        for digest, row in ours.items()
        if digest not in came and row.attempt == whole
    ]
    others = len(came - ours.keys())
    if others:
        differing.append(f"the replay was given {others:,} payloads that this party never sent")
    return differing


def _row_text(row: Row) -> str:
    kind, place = row.kind.rpartition(".")[2], f"number {row.number}, part {row.part}"
    return f"row {row.n}: {kind} of step {row.step} (attempt {row.attempt}, {place})"


def signed_job(config: PartyConfig, job: str) -> tuple[SignedJob, JobState]:
    """Return a job of a party's store, which a daemon may have open; a ConfigError if unknown."""
    path = config.store / "store.sqlite"
    text = "SELECT text, state FROM jobs LEFT JOIN manifests ON job = id WHERE id = ?"
    with on_disk(path), closing(open_database(path, "ro")) as connection:
        row = connection.execute(text, (job,)).fetchone()
    if row is None:
        raise ConfigError(f"this party has no job {job[:80]}", todo="fedboost party jobs")
    if row[0] is None:
        raise ConfigError(
            f"{job[:80]} never began here, and its text is no longer kept",
            todo="only a job that began can be replayed",
        )
    manifest.read_outline(row[0]).check_spoken()
    terms = manifest.decode_manifest(row[0])
    return SignedJob(config.name, terms, manifest.manifest_sha256(row[0])), JobState(row[1])


def _ids_of(config: PartyConfig, signed: SignedJob) -> str | None:
    """Return the hash of a host's ids in common; None if the host no longer has them."""
    aligned, source = RowsInCommon(config.store), config.datasets[signed.dataset]
    job = signed.alignment_job or signed.id
    try:
        [left] = aligned.load(job).values()
        frame, _ = load_table(signed, source, config.store)
        stage = protocols.aligning_stage(signed.manifest.spec, signed.params) or ""
        aligned.check(job, description_of(stage, config.name, signed.manifest.spec, frame), 0)
    except (ConfigError, DataError):
        return None
    return frame.take(left.arrays["rows"].astype(np.int64)).ids_digest().hex()


def place_hash(party: str, row: Row) -> str:
    """Return a hash of the facts about a payload that only its two parties know, its salt included.

    `party` is the owner of the row.
    """
    return hashlib.sha256(json.dumps(signed_heads.shared_fields(party, row)).encode()).hexdigest()


def _hash_of(values: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").data).hexdigest()


def signatures_of(config: PartyConfig) -> Signatures:
    """Return the signer of a party; a ConfigError if the party has no certificate."""
    if config.tls is None:
        raise ConfigError(
            "insecure_loopback has no certificate to sign a result with",
            todo="give the party tls: fedboost certs create",
        )
    return Signatures(Trust.of_files(config.tls, config.name), insecure=False)
