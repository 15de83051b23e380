"""Everything that reads bytes which somebody else may have written, as one table.

A decoder reads them, or refuses them by one typed error; what it must hold besides, it asserts.
"""

import contextlib
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import yaml
from google.protobuf.message import Message
from pyarrow import feather

from fedboost import protocols
from fedboost.core.early_stopping import EarlyStopping
from fedboost.data.reading import read_table
from fedboost.data.sources import SourceSpec
from fedboost.encrypted.guest.rounds import RoundsState
from fedboost.flow import Artefact
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError
from fedboost.ground.printable import printable
from fedboost.ground.settings import load_settings, parse_settings
from fedboost.ground.state import split_state
from fedboost.job import JobSpec
from fedboost.messages import exchange_pb2, fault_pb2
from fedboost.messages.array_pb2 import Array
from fedboost.messages.job_pb2 import JobJournal
from fedboost.model import arrays, shards
from fedboost.report import story
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.submitted import read_spec
from fedboost.runtime.ledger import comparison, signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import DisclosureRow, Head, KeptHead
from fedboost.runtime.ledger.signed_heads import PairDigest, Statement
from fedboost.runtime.party.owner import releases
from fedboost.runtime.store.checkpoints import Checkpoints
from fedboost.runtime.store.sealing import Vault
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.store.transcripts import Transcripts
from fedboost.runtime.transport import authorities, authority, faults, identity
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.identity import CertificateFaultError
from tests.conftest import ROOT
from tests.support import models, small_jobs

VECTORS = ROOT / "tests" / "vectors"
EVERY_TYPE = sorted(
    {s.gives for p in protocols.load_all().values() for s in p.flow if s.gives is not None},
    key=lambda kind: kind.DESCRIPTOR.full_name,
)
KNOWN = ("u1", "i4", "i8", "f4", "f8")  # the dtypes that travel


@dataclass(frozen=True)
class Decoder:
    """What reads bytes, and some that it reads."""

    read: Callable[[bytes], object]
    samples: tuple[bytes, ...]

    def survives(self, data: bytes) -> None:
        """It reads them, or says by a typed error of one line that it cannot."""
        try:
            self.read(data)
        except FedboostError as error:
            refused = error
        else:
            return
        assert refused.code != "internal", refused
        assert refused.what
        assert "\n" not in refused.what


# What travels


def samples_of(kind: type[Message]) -> tuple[bytes, ...]:
    """The golden vectors of a message type."""
    name = kind.DESCRIPTOR.full_name
    files = [json.loads(path.read_text()) for path in VECTORS.glob("*.json")]
    found = [file[name] for file in files if isinstance(file, dict) and name in file]
    return tuple(bytes.fromhex(one["bytes"]) for one in found if "bytes" in one)  # not its digest


def message(kind: type[Message]) -> Decoder:
    """Of one type of message."""

    def read(data):
        found = wire.decode(kind, data, "telco")
        assert wire.decode(kind, wire.encode(found), "telco") == found
        assert wire.count_values(found) >= 0
        assert len(wire.describe(found)) < 100 + 2 * len(data) + 8 * len(repr(kind))
        for _, value in found.ListFields():
            if isinstance(value, Array):
                wanted = value.dtype if value.dtype in KNOWN else "i4"
                unpacked = wire.unpack(value, wanted, (None,) * len(value.shape), "numbers")
                assert unpacked.nbytes == len(value.data)

    return Decoder(read, samples_of(kind))


def messages(_: Path) -> Decoder:
    """Of all of them: the first octet says which."""
    each = [message(kind) for kind in EVERY_TYPE]
    samples = [bytes([n]) + sample for n, one in enumerate(each) for sample in one.samples]

    def read(data):
        which = sum(data[:1]) % len(each)
        each[which].read(data[1:])

    return Decoder(read, tuple(samples))


def piece(_: Path) -> Decoder:
    """Of a part of a payload on its way."""

    def read(data):
        found = wire.decode(exchange_pb2.Piece, data, "telco")
        assert wire.piece_data(found, "telco") == found.data

    (sample,) = wire.cut_payload(b"some bytes")
    return Decoder(read, (sample.SerializeToString(),))


def fault(_: Path) -> Decoder:
    """Of what another side says of its failure."""

    def read(data):
        error = faults.error_of_fault(wire.decode(fault_pb2.Fault, data, "telco"))
        assert all(line == printable(line, most=None) for line in error.lines())

    sample = fault_pb2.Fault(code="data", what="a column", todo="mend it")
    return Decoder(read, (sample.SerializeToString(),))


def submission(_: Path) -> Decoder:
    """Of a job that a user hands in."""
    specs = [small_jobs.spec(name) for name in ("secureboost", "federboost-horizontal", "gbun")]
    return Decoder(read_spec, tuple(spec.model_dump_json().encode() for spec in specs))


def journal(_: Path) -> Decoder:
    """Of a job's journal, as a report and a client read it."""

    def read(data):
        story.read_story(wire.decode(JobJournal, data, "the coordinator"))

    sample = JobJournal(spec=small_jobs.spec("secureboost").model_dump_json().encode())
    sample.status.state = "finished"
    sample.events.add().stage.stage = "align"
    result = {"state": "finished", "metrics": {"train": {"auc": 0.75}}, "rows": {"train": 20}}
    sample.events.add().finished.result = json.dumps(result).encode()
    return Decoder(read, (sample.SerializeToString(),))


# What is written down


def a_manifest() -> bytes:
    """A job's manifest as the coordinator writes it."""
    pem = "-----BEGIN CERTIFICATE-----"
    return manifest.Manifest(
        job="job-1",
        coordinator="coordinator",
        submitter="ann",
        spec=small_jobs.spec("secureboost"),
        members=[manifest.JobMember(name=name, certificate=pem) for name in small_jobs.PARTIES],
    ).encode()


def signed_manifest(_: Path) -> Decoder:
    """Of what all parties sign."""
    return Decoder(manifest.decode_manifest, (a_manifest(),))


PARTY = {
    "name": "bank",
    "listen": "127.0.0.1:7001",
    "insecure_loopback": True,
    "store": "var/store",
    "workers": 1,
    "coordinator": {"name": "coord", "address": "127.0.0.1:7000"},
    "peers": {"telco": "127.0.0.1:7002"},
    "datasets": {"data": {"path": "bank.csv"}},
    "policy": {"peers": ["telco"], "datasets": ["data"]},
}
COORDINATOR = {
    "name": "coord",
    "listen": "127.0.0.1:7000",
    "insecure_loopback": True,
    "store": "store",
    "parties": {"bank": "127.0.0.1:7001"},
    "users": {"submit": ["ann"]},
}


def settings(kind: type[Any], sample: dict[str, Any], folder: Path) -> Decoder:
    """Of a settings file."""
    path = folder / "settings.yaml"

    def read(data):
        path.write_bytes(data)
        load_settings(kind, path)

    return Decoder(read, (yaml.safe_dump(sample).encode(),))


# What lies in a store


def a_file(folder: Path, path: Path, read: Callable[[], object]) -> Decoder:
    """Of a file among others in a folder, which are as they were after each reading."""
    sound = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    read()

    def replaced(data):
        path.write_bytes(data)
        try:
            read()
        finally:
            for one in [p for p in folder.rglob("*") if p.is_file() and p not in sound]:
                one.unlink(missing_ok=True)  # SQLite may do it first
            for one, content in sound.items():
                one.write_bytes(content)

    return Decoder(replaced, (sound[path],))


ARRAYS = {"gradient": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False])}


ROUNDS = RoundsState(
    margin=np.zeros((2, 1)),
    stopping=EarlyStopping(None, bigger_is_better=True),
    history=[{"train": {"auc": 0.5}}],
    forest=[1],
    start=None,
)


def archive(_: Path) -> Decoder:
    """Of arrays in an archive."""

    def read(data):
        with contextlib.suppress(ValueError):  # whoever reads one says whose it is
            arrays.read_arrays(data)

    packed, plain = io.BytesIO(), dict[str, Any](ARRAYS)
    np.savez(packed, **plain)
    return Decoder(read, (packed.getvalue(),))


def checkpoint(ending: str, folder: Path) -> Decoder:
    """Of one of the files of a checkpoint."""
    facts, arrays, grown = split_state(RoundsState, ROUNDS)
    Checkpoints().save(folder, (1,), {"tree": 1, **facts}, {**ARRAYS, **arrays}, grown)
    (path,) = folder.glob(f"*.{ending}")
    return a_file(folder, path, lambda: Checkpoints().load(folder))


def shard(name: str, folder: Path) -> Decoder:
    """Of one of the files of a model."""
    own = folder / "job-1"
    shards.save_shard(own, Artefact({"party": "bank", "base_margin": 0.25}, ARRAYS))
    return a_file(own, own / name, lambda: shards.load_shard(own))


def transcript(folder: Path) -> Decoder:
    """Of what a party keeps for an audit."""
    kept = Transcripts(folder)
    kept.add("job-1", (1,), Artefact({"trees": 1}, ARRAYS))
    (path,) = folder.rglob("*.npz")
    return a_file(folder, path, lambda: kept.load("job-1"))


def store(part: str, folder: Path) -> Decoder:
    """Of a file of a party's store with two jobs, events, a ledger and a sealed seed."""
    with Store(folder, "party bank") as made:
        for id_ in ("job-1", "job-2"):
            made.add_job(id_, "toy", a_manifest(), JobState.RUNNING)
            made.add_event(id_, {"what": "step", "step": "open_layer"})
            made.move_to_state(id_, JobState.RUNNING, result={"auc": 0.75})
            made.vault.seed(id_)
        with closing(Ledger(made.database)) as ledger:
            ledger.record(*[entry(n) for n in range(20)])
            ledger.keep(KeptHead("job-1", "bank", statement(ledger.head()).encode(), b"signed"))
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def read():
        with Store(folder, "party bank") as opened:
            for job in opened.jobs():
                opened.events(job.id)
                opened.vault.unseal(job.id, "seed")
            with closing(Ledger(opened.database)) as found:
                found.rows("job-1")
                signed_heads.verify_ledger(found, "bank", lambda *_: None)

    return a_file(folder, folder / part, read)


def sealed_secret(folder: Path) -> Decoder:
    """Of a secret at rest."""
    Vault(folder).seed("job-1")
    path = next(p for p in folder.rglob("*seed*") if p.is_file())
    return a_file(folder, path, lambda: Vault(folder).unseal("job-1", "seed"))


# Ledgers


def entry(number: int) -> DisclosureRow:
    """One row of a ledger."""
    return DisclosureRow(
        direction="out", job="job-1", attempt=1, stage="echo", step="call", number=number, part=0,
        kind="fedboost.echo.Call", peer="telco", bytes=number, values=1, rows=20, groups=None,
        smallest_group=None, epsilon=2.0, protection="plain", reveals="numbers",
        sha256=f"{number:064x}", salt=f"{number:032x}",
    )  # fmt: skip


def statement(head: Head) -> Statement:
    """Where the bank's ledger stands."""
    place = {"job": "job-1", "attempt": 1, "stage": "echo", "round": 2}
    pairs = {"telco": PairDigest(entries=3, sha256="0" * 64)}
    at = datetime(2026, 1, 31, tzinfo=UTC)
    return Statement(party="bank", **place, at=at, n=head.n, hash=head.hash, pairs=pairs)  # type: ignore[arg-type]


def signed_head(_: Path) -> Decoder:
    """Of what parties sign of their ledgers."""
    sample = statement(Head(20, "f" * 64)).encode()
    return Decoder(lambda data: signed_heads.read_statement("bank", data), (sample,))


def exported_ledger(folder: Path) -> Decoder:
    """Of the rows of a job that another party gives out, compared with our own."""
    ledger = Ledger(folder / "store.sqlite")
    ledger.record(*[entry(n) for n in range(3)])
    ledger.keep(KeptHead("job-1", "bank", statement(ledger.head()).encode(), b"signed"))
    sample = comparison.export_rows(ledger, "bank", "job-1", None, lambda _: b"signed")

    def read(data):
        comparison.compare_ledgers(ledger, "telco", comparison.read_export(data, lambda *_: None))

    return Decoder(read, (sample,))


def release(folder: Path) -> Decoder:
    """Of what a host gives out of a model, whose guest looks at it before its signature."""
    authority.create_certificates(
        folder, [Leaf("party", name) for name in models.PARTIES], Term(datetime.now(UTC))
    )

    def config(party):
        files = {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"}
        own = {"tls": {key: str(folder / file) for key, file in files.items()}}
        others = [name for name in models.PARTIES if name != party]
        own |= {"name": party, "peers": dict.fromkeys(others, "127.0.0.1:7002")}
        raw = {**PARTY, **own, "insecure_loopback": False, "policy": {"peers": others}}
        return parse_settings(PartyConfig, raw)

    shard = models.random_model(21)["telco"]
    with closing(Ledger(folder / "telco.sqlite")) as ledger:
        draft = releases.draft_release(config("telco"), shard, "bank", ledger)
        sample = releases.sign_release(config("telco"), draft, ledger).file_bytes
    bank = config("bank")
    return Decoder(lambda data: releases.read_release(bank, data, models.MODEL), (sample,))


# Certificates


def certificate(folder: Path) -> Decoder:
    """Of whom a certificate names."""
    authority.create_certificates(folder, [Leaf("party", "bank")], Term(datetime.now(UTC)))

    def read(pem):
        with contextlib.suppress(CertificateFaultError):  # whoever reads one says what of it
            identity.owner_of_certificate(identity.read_certificate(pem))

    return Decoder(read, ((folder / "bank.pem").read_bytes(),))


def revocations(folder: Path) -> Decoder:
    """Of a list of revoked certificates."""
    now = datetime.now(UTC)
    authority.create_certificates(folder, [Leaf("party", "bank")], Term(now))
    authority.revoke_certificates(folder, "bank", now)
    ca, path = (folder / "ca.pem").read_bytes(), folder / "list.pem"

    def read(data):
        path.write_bytes(data)
        authorities.read_revoked(path, ca)

    return Decoder(read, ((folder / "ca.crl").read_bytes(),))


# Tables


def table(format_: Any, folder: Path) -> Decoder:
    """Of a table in one of the formats."""
    made = small_jobs.tables("secureboost", rows=20)["bank"]
    sink = pa.BufferOutputStream()
    if format_ == "parquet":
        pq.write_table(made, sink)
    elif format_ == "arrow":
        feather.write_feather(made, sink)
    elif format_ == "csv":
        pa.csv.write_csv(made, sink)
    else:
        sink.write(b"1 1:0.5 3:-2\n0 2:1e3\n1 1:1 2:2 3:3\n")
    path = folder / f"table.{format_}"

    def read(data):
        path.write_bytes(data)
        read_table(SourceSpec(path=str(path), format=format_), party="bank")

    return Decoder(read, (sink.getvalue().to_pybytes(),))


# Each is made in a folder of its own.
DECODERS: dict[str, Callable[[Path], Decoder]] = {
    "messages": messages,
    "piece": piece,
    "fault": fault,
    "submission": submission,
    "journal": journal,
    "manifest": signed_manifest,
    "job file": partial(settings, JobSpec, small_jobs.raw("federboost-horizontal")),
    "party file": partial(settings, PartyConfig, PARTY),
    "coordinator file": partial(settings, CoordinatorConfig, COORDINATOR),
    "archive": archive,
    "checkpoint json": partial(checkpoint, "json"),
    "checkpoint arrays": partial(checkpoint, "arrays"),
    "checkpoint pieces": partial(checkpoint, "pieces"),
    "shard json": partial(shard, shards.FACTS),
    "shard npz": partial(shard, shards.ARRAYS),
    "transcript": transcript,
    "store": partial(store, "store.sqlite"),
    "store key": partial(store, "store.key"),
    "sealed secret": sealed_secret,
    "signed head": signed_head,
    "exported ledger": exported_ledger,
    "release": release,
    "certificate": certificate,
    "revocations": revocations,
    "table parquet": partial(table, "parquet"),
    "table arrow": partial(table, "arrow"),
    "table csv": partial(table, "csv"),
    "table svmlight": partial(table, "svmlight"),
}
