"""What an auditor or a host is given of a replay, signed by the guest whose job it was.

The file has two lines: JSON, and under it the guest's signature, with its certificate, over that
text. What it says holds as far as the program that made it is the published one: an auditor runs
it on the guest's machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import AwareDatetime, ValidationError

from fedboost import protocols
from fedboost.arrays import Bits, Floats
from fedboost.disk import on_disk, opened
from fedboost.errors import ConfigError, DataError
from fedboost.job import Name
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.party.table import loaded
from fedboost.runtime.policy.judgement import Signatures, Trust, checker
from fedboost.runtime.store.rows_in_common import RowsInCommon, described
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.tls import Revocations, load_identity
from fedboost.settings import Settings

if TYPE_CHECKING:
    from fedboost.data.frame import Frame

FILE_BYTES_MAX = 1 << 28


class ColumnSummary(Settings):
    """How the numbers of a column spread: with weights of 2^i a sum is read row by row."""

    least: float
    most: float
    least_above_zero: float  # the smallest size of those that are not zero
    distinct: int
    zero: int  # rows

    @classmethod
    def of(cls, values: Floats) -> ColumnSummary:
        """Return that of float64 (n,)."""
        sizes = np.abs(values[values != 0])
        return cls(
            least=float(values.min()) if len(values) else 0.0,
            most=float(values.max()) if len(values) else 0.0,
            least_above_zero=float(sizes.min()) if len(sizes) else 0.0,
            distinct=len(np.unique(values)),
            zero=int((values == 0).sum()),
        )

    def in_words(self, what: str) -> str:
        """Say it of `what` they are."""
        ratio = max(abs(self.least), abs(self.most)) / (self.least_above_zero or 1.0)
        return (
            f"{what}: {self.least:g} to {self.most:g}, {self.distinct:,} different, the "
            f"largest {ratio:,.6g} times the smallest; {self.zero:,} rows have 0"
        )


class ReplayedTable(Settings):
    """What the guest's rows were; the hashes are SHA-256, in hex."""

    rows: int  # that take part, held-out ones among them
    trained: int  # of them
    table_sha256: str  # of all that the job read, as fedboost hashes tables
    ids_sha256: str  # of the rows that take part, in their order: equal at every party
    labels_sha256: str  # of their labels, float64, little endian, in that order
    weights_sha256: str  # of their weights, the same
    labels: ColumnSummary
    weights: ColumnSummary

    @classmethod
    def of(cls, frame: Frame, held_out: Bits, table: str) -> ReplayedTable:
        """Return that of the rows that take part."""
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


class ReplayedPeer(Settings):
    """The guest's payloads to one peer that are byte for byte those of honest training."""

    payloads: int
    bytes: int
    signed: int  # of them, those before a head of its own ledger that the peer has signed
    hashes: list[str]  # of each, SHA-256 over its salt and its SHA-256, rising


class ReplayResult(Settings):
    """What is signed."""

    what: Literal["fedboost replay 1"] = "fedboost replay 1"
    job: str
    manifest_sha256: str
    party: Name
    at: AwareDatetime
    version: str
    stage: str  # that was replayed
    attempts: int
    is_whole: bool  # whether the last attempt came to the stage's end
    is_honest: bool
    difference: str  # where honest training would have sent something else; empty: nowhere
    ledger: list[str]  # where peers have signed other ledgers; nothing where all agree
    table: ReplayedTable
    peers: dict[str, ReplayedPeer]
    other_payloads: dict[str, int]  # of stages that are not replayed, by their names

    def encode(self) -> bytes:
        """Return what is signed: JSON with sorted keys and no spaces, on one line."""
        return manifest.canonical(self.model_dump(mode="json"))

    def sentences(self) -> list[str]:
        """Say it to a person."""
        tries = f"{self.attempts} attempt{'s' * (self.attempts != 1)} at {self.stage}"
        said = [f"{self.party}'s part of {self.job}, {tries}:"]
        for name, peer in self.peers.items():
            signed = f"{peer.signed:,} of them under a head that {name} has signed"
            said.append(
                f"{peer.payloads:,} payloads to {name} are those of honest training, {signed}"
            )
        said += [self.table.weights.in_words("weights"), self.table.labels.in_words("labels")]
        for stage, count in self.other_payloads.items():
            said.append(f"{count:,} payloads of the stage {stage} were not replayed")
        said += self.ledger
        if not self.is_honest:
            return [
                *said,
                f"NOT HONEST: {self.difference or 'the ledger is not what peers signed'}",
            ]
        end = "" if self.is_whole else ", as far as the job went"
        return [*said, f"honest{end}: every payload is byte for byte what honest training sends"]


def sign(config: PartyConfig, result: ReplayResult) -> bytes:
    """Return the file: the result under the guest's signature.

    A ConfigError where the party has no certificate.
    """
    text = result.encode()
    return text + b"\n" + base64.b64encode(signatures_of(config).sign(text)) + b"\n"


def read(config: PartyConfig, content: bytes) -> ReplayResult:
    """Return what a guest has signed; a ConfigError where the file is no such thing.

    A PeerError where the party named in it did not sign it.
    """
    text, _, rest = content.partition(b"\n")
    try:
        if len(content) > FILE_BYTES_MAX:
            raise ValueError
        result = ReplayResult.model_validate_json(text)
        signature = base64.b64decode(rest[:-1], validate=True)
    except (ValidationError, binascii.Error, ValueError):
        raise ConfigError(
            "the file is no result of a replay",
            todo="the guest's owner writes one with: fedboost audit replay JOB --out FILE",
        ) from None
    checker(config)(result.party, text, signature, result.at)
    return result


def compare(config: PartyConfig, result: ReplayResult) -> list[str]:
    """Return in words what a host knows otherwise: other terms of the job, other rows in common, or
    payloads of the guest that the result does not confirm; a ConfigError where it has no such job.
    """
    signed, _ = signed_job(config, result.job)
    with closing(Ledger(config.store / "store.sqlite", read_only=True)) as ledger:
        rows = [
            row
            for row in ledger.rows(result.job)
            if (row.direction, row.peer, row.stage) == ("in", result.party, result.stage)
        ]
    peer = result.peers.get(config.name)
    known = set() if peer is None else {*peer.hashes}
    differing = [
        f"row {row.n}: {row.kind.rpartition('.')[2]} of step {row.step} (attempt {row.attempt}, "
        f"number {row.number}, part {row.part}) is not among the payloads that were replayed"
        for row in rows
        if salted(row) not in known
    ]
    if signed.manifest_sha256.hex() != result.manifest_sha256:
        differing.insert(0, "the job that was replayed is not the one that this party signed")
    if _ids_of(config, signed) not in (None, result.table.ids_sha256):
        differing.insert(0, "the rows that were replayed are not those in common with this party")
    return differing


def signed_job(config: PartyConfig, job: str) -> tuple[SignedJob, JobState]:
    """Return a job of a party's store, which a daemon may have open; a ConfigError for another."""
    path = config.store / "store.sqlite"
    text = "SELECT text, state FROM jobs LEFT JOIN manifests ON job = id WHERE id = ?"
    with on_disk(path), closing(opened(path, "ro")) as connection:
        row = connection.execute(text, (job,)).fetchone()
    if row is None:
        raise ConfigError(f"this party has no job {job[:80]}", todo="fedboost party jobs")
    if row[0] is None:
        raise ConfigError(
            f"{job[:80]} never began here, and its text is no longer kept",
            todo="only a job that began can be replayed",
        )
    manifest.outline(row[0]).check_version()
    terms = manifest.decode(row[0])
    return SignedJob(config.name, terms, manifest.sha256(row[0])), JobState(row[1])


def _ids_of(config: PartyConfig, signed: SignedJob) -> str | None:
    """Return the hash of the ids that a host has in common; None where it no longer knows them."""
    aligned, source = RowsInCommon(config.store), config.datasets[signed.dataset]
    job = signed.aligned_by or signed.id
    try:
        [left] = aligned.load(job).values()
        frame, _ = loaded(signed, source, config.store)
        stage = protocols.aligns(signed.manifest.spec, signed.params) or ""
        aligned.check(job, described(stage, config.name, signed.manifest.spec, frame), 0)
    except (ConfigError, DataError):
        return None
    return frame.take(left.arrays["rows"].astype(np.int64)).ids_digest().hex()


def salted(row: Row) -> str:
    """Return what two ends of a payload know of it and nobody else can guess."""
    return hashlib.sha256(f"{row.salt} {row.sha256}".encode()).hexdigest()


def _hash_of(values: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").data).hexdigest()


def signatures_of(config: PartyConfig) -> Signatures:
    """Return what signs for a party; a ConfigError where it has no certificate."""
    if config.tls is None:
        raise ConfigError(
            "insecure_loopback has no certificate that a result could be signed by",
            todo="give the party tls: fedboost certs create",
        )
    tls = config.tls
    identity = load_identity(tls, role="party", name=config.name)
    trust = Trust(lambda: identity, lambda: tls.read().ca, Revocations(tls).check)
    return Signatures(trust, insecure=False)
