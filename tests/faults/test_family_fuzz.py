"""Every decoder is fed bytes that nearly are what it reads: a result, or one typed error.

`make fuzz` runs the same for minutes, with the hypothesis profile `fuzz`.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedboost import protocols, wire
from fedboost.data.sources import SourceSpec, read_table
from fedboost.errors import FedboostError
from fedboost.flow import Artefact
from fedboost.job import JobSpec
from fedboost.messages import exchange_pb2, fault_pb2
from fedboost.messages.array_pb2 import Array
from fedboost.model import shards
from fedboost.runtime import authority, comparison, faults, heads, identity, manifest
from fedboost.runtime.authority import Leaf, Term
from fedboost.runtime.checkpoints import Checkpoints
from fedboost.runtime.config import CoordinatorConfig, PartyConfig
from fedboost.runtime.heads import Pair, Statement
from fedboost.runtime.identity import CertificateFaultError
from fedboost.runtime.ledger import Disclosure, Head, Kept, Ledger
from fedboost.runtime.sealing import Vault
from fedboost.runtime.store import JobState, Store
from fedboost.settings import load
from tests import small_jobs

VECTORS = Path(__file__).parents[1] / "vectors"
BYTES_MAX = 4096  # of an input that is made up
EVERY_TYPE = sorted(
    {s.gives for p in protocols.known().values() for s in p.flow if s.gives is not None},
    key=lambda kind: kind.DESCRIPTOR.full_name,
)
KNOWN = ("u1", "i4", "i8", "f4", "f8")  # the dtypes that travel
AT_EACH = settings(suppress_health_check=list(HealthCheck))

# Bytes that nearly are what they should be


def edits(sample: bytes) -> st.SearchStrategy[bytes]:
    """A sample with a few octets changed, cut out, put in or told twice."""
    place = st.integers(0, max(len(sample) - 1, 0))
    edit = st.one_of(
        st.tuples(st.just("set"), place, st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("flip"), place, st.integers(0, 7).map(lambda bit: bytes([1 << bit]))),
        st.tuples(st.just("insert"), place, st.binary(max_size=12)),
        st.tuples(st.just("cut"), place, st.binary(max_size=64)),
        st.tuples(st.just("double"), place, st.binary(max_size=64)),
        st.tuples(st.just("end"), place, st.just(b"")),
    )

    def spoilt(changes: list[tuple[str, int, bytes]]) -> bytes:
        octets = bytearray(sample)
        for how, at, given_octets in changes:
            size = len(given_octets)
            if how == "set":
                octets[at : at + size] = given_octets
            elif how == "flip" and at < len(octets):
                octets[at] ^= given_octets[0]
            elif how == "insert":
                octets[at:at] = given_octets
            elif how == "cut":
                del octets[at : at + size]
            elif how == "double":
                octets[at:at] = octets[at : at + size]
            elif how == "end":
                del octets[at:]
        return bytes(octets)

    return st.lists(edit, min_size=1, max_size=4).map(spoilt)


def near(*samples: bytes) -> st.SearchStrategy[bytes]:
    """Changed samples, and now and then something else altogether."""
    return st.one_of(*map(edits, samples), st.binary(max_size=BYTES_MAX))


def survives(decode: Callable[[bytes], object], octets: bytes) -> None:
    """It decodes, or says with a typed error of one line that it cannot."""
    try:
        decode(octets)
    except FedboostError as error:
        refused = error
    else:
        return
    assert refused.code != "internal", refused
    assert refused.what
    assert "\n" not in refused.what


# What travels


def samples_of(kind) -> list[bytes]:
    """The golden vectors of a message type."""
    name = kind.DESCRIPTOR.full_name
    files = [json.loads(path.read_text()) for path in VECTORS.glob("*.json")]
    found = [file[name] for file in files if isinstance(file, dict) and name in file]
    return [bytes.fromhex(one["bytes"]) for one in found if "bytes" in one]  # not its digest


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.DESCRIPTOR.full_name)
@AT_EACH
@given(draw=st.data())
def test_every_message_is_read_or_refused(kind, draw):
    def decode(octets):
        message = wire.decode(kind, octets, "telco")
        assert wire.decode(kind, wire.encode(message), "telco") == message
        assert wire.count_values(message) >= 0
        assert len(wire.describe(message)) < 100 + 2 * len(octets) + 8 * len(repr(kind))
        for _, value in message.ListFields():
            if isinstance(value, Array):
                wanted = value.dtype if value.dtype in KNOWN else "i4"
                unpacked = wire.unpack(value, wanted, (None,) * len(value.shape), "numbers")
                assert unpacked.nbytes == len(value.data)

    survives(decode, draw.draw(near(*samples_of(kind))))


DTYPES = st.sampled_from([*KNOWN, "", "O", ">i4", "u8"])
SIDES = st.one_of(st.integers(0, 5), st.sampled_from([2**31, 2**62 + 1, 2**63, 2**64 - 1]))


@AT_EACH
@given(
    dtype=DTYPES,
    shape=st.lists(SIDES, max_size=5),
    data=st.binary(max_size=64),
    wanted=st.sampled_from(KNOWN),
    sides=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4),
)
def test_every_array_is_read_or_refused(dtype, shape, data, wanted, sides):
    array = Array(dtype=dtype, shape=shape, data=data)

    def decode(_):
        values = wire.unpack(array, wanted, tuple(sides), "numbers")
        assert values.nbytes == len(data)
        assert not values.flags.writeable
        wire.unpack_bits(array, 9, "bits")

    survives(decode, b"")


@AT_EACH
@given(octets=near(exchange_pb2.Piece(data=b"some octets", crc32=1234).SerializeToString()))
def test_every_piece_is_taken_or_refused(octets):
    def decode(given_octets):
        piece = wire.decode(exchange_pb2.Piece, given_octets, "telco")
        assert wire.piece_data(piece, "telco") == piece.data

    survives(decode, octets)


@AT_EACH
@given(
    octets=near(fault_pb2.Fault(code="data", what="a column", todo="mend it").SerializeToString())
)
def test_what_another_side_says_of_its_failure_is_one_clean_error(octets):
    def decode(given_octets):
        fault = wire.decode(fault_pb2.Fault, given_octets, "telco")
        error = faults.from_message(fault)
        assert all(line.isprintable() for line in error.lines())

    survives(decode, octets)


# What is written down


def a_manifest() -> bytes:
    """A job's manifest as the coordinator writes it."""
    pem = "-----BEGIN CERTIFICATE-----"
    return manifest.Manifest(
        job="job-1",
        coordinator="coordinator",
        submitter="ann",
        spec=small_jobs.spec("secureboost"),
        members=[manifest.Member(name=name, certificate=pem) for name in small_jobs.PARTIES],
    ).encode()


@AT_EACH
@given(octets=near(a_manifest()))
def test_every_manifest_is_read_or_refused(octets):
    survives(manifest.decode, octets)


def party_file(folder: Path) -> bytes:
    """A party's settings."""
    return yaml.safe_dump(
        {
            "name": "bank",
            "listen": "127.0.0.1:7001",
            "insecure_loopback": True,
            "store": str(folder / "store"),
            "workers": 1,
            "coordinator": {"name": "coord", "address": "127.0.0.1:7000"},
            "peers": {"telco": "127.0.0.1:7002"},
            "datasets": {"data": {"path": "bank.csv"}},
            "policy": {"peers": ["telco"], "datasets": ["data"]},
        }
    ).encode()


JOB_FILE = yaml.safe_dump(small_jobs.raw("federboost-horizontal")).encode()
COORDINATOR_FILE = yaml.safe_dump(
    {
        "name": "coord",
        "listen": "127.0.0.1:7000",
        "insecure_loopback": True,
        "store": "store",
        "parties": {"bank": "127.0.0.1:7001"},
        "users": {"submit": ["ann"]},
    }
).encode()
FILES: dict[str, tuple[Any, bytes]] = {
    "a job": (JobSpec, JOB_FILE),
    "a party": (PartyConfig, party_file(Path("var"))),
    "a coordinator": (CoordinatorConfig, COORDINATOR_FILE),
}


@pytest.mark.parametrize("name", FILES)
@AT_EACH
@given(draw=st.data())
def test_every_settings_file_is_read_or_refused(name, draw, tmp_path_factory):
    kind, sample = FILES[name]
    path = tmp_path_factory.getbasetemp() / "settings.yaml"

    def decode(octets):
        path.write_bytes(octets)
        load(kind, path)

    survives(decode, draw.draw(near(sample)))


# What lies in a store


def spoiling(folder: Path, read: Callable[[], object]) -> Callable[[str, bytes], None]:
    """A function that puts other bytes in a file's place, reads, and puts the old ones back."""
    sound = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def spoil(name: str, octets: bytes) -> None:
        (folder / name).write_bytes(octets)
        try:
            survives(lambda _: read(), octets)
        finally:
            for path in [p for p in folder.rglob("*") if p.is_file() and p not in sound]:
                path.unlink()
            for path, content in sound.items():
                path.write_bytes(content)

    return spoil


ARRAYS = {"gradient": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False])}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    Checkpoints().save(folder, (1,), {"tree": 1, "loss": [0.5]}, ARRAYS)
    return folder, spoiling(folder, lambda: Checkpoints().load(folder))


@pytest.mark.parametrize("ending", ["json", "npz"])
@AT_EACH
@given(draw=st.data())
def test_every_checkpoint_is_read_or_refused(checkpoint, ending, draw):
    folder, spoil = checkpoint
    (path,) = folder.glob(f"*.{ending}")
    spoil(path.name, draw.draw(near(path.read_bytes())))


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "job-1"
    shards.save(folder, Artefact({"party": "bank", "base_margin": 0.25}, ARRAYS))
    return folder, spoiling(folder, lambda: shards.load(folder))


@pytest.mark.parametrize("name", [shards.FACTS, shards.ARRAYS])
@AT_EACH
@given(draw=st.data())
def test_every_shard_is_read_or_refused(shard, name, draw):
    folder, spoil = shard
    spoil(name, draw.draw(near((folder / name).read_bytes())))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A party's store with two jobs, events, a ledger and a sealed seed."""
    folder = tmp_path_factory.mktemp("store")
    with Store(folder, "party bank") as made:
        for id_ in ("job-1", "job-2"):
            made.add_job(id_, "toy", a_manifest(), JobState.RUNNING)
            made.add_event(id_, {"what": "step", "step": "open_layer"})
            made.set_result(id_, {"auc": 0.75})
            made.vault.seed(id_)
        ledger = Ledger(made.database)
        ledger.record(*[entry(n) for n in range(20)])
        ledger.keep(Kept("job-1", "bank", statement(ledger.head()).encode(), b"signed"))
        ledger.close()
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def read():
        with Store(folder, "party bank") as opened:
            for job in opened.jobs():
                opened.events(job.id)
                opened.vault.unseal(job.id, "seed")
            found = Ledger(opened.database)
            try:
                found.rows("job-1")
                heads.verify(found, "bank", lambda *_: None)
            finally:
                found.close()

    read()
    return folder, spoiling(folder, read)


def entry(number: int) -> Disclosure:
    """One row of a ledger."""
    return Disclosure(
        direction="out", job="job-1", attempt=1, stage="echo", step="call", number=number, part=0,
        kind="fedboost.echo.Call", peer="telco", bytes=number, values=1, rows=20, groups=None,
        smallest_group=None, epsilon=2.0, protection="plain", reveals="numbers",
        sha256=f"{number:064x}", salt=f"{number:032x}",
    )  # fmt: skip


def statement(head: Head) -> Statement:
    """Where the bank's ledger stands."""
    place = {"job": "job-1", "attempt": 1, "stage": "echo", "round": 2}
    pairs = {"telco": Pair(entries=3, sha256="0" * 64)}
    at = datetime(2026, 1, 31, tzinfo=UTC)
    return Statement(party="bank", **place, at=at, n=head.n, hash=head.hash, pairs=pairs)  # type: ignore[arg-type]


@AT_EACH
@given(draw=st.data())
def test_every_signed_head_is_read_or_refused(draw):
    sample = statement(Head(20, "f" * 64)).encode()
    survives(lambda octets: heads.read("bank", octets), draw.draw(near(sample)))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A ledger, and the file with the rows of one of its jobs."""
    with closing(Ledger(tmp_path_factory.mktemp("ledger") / "store.sqlite")) as ledger:
        ledger.record(*[entry(n) for n in range(3)])
        ledger.keep(Kept("job-1", "bank", statement(ledger.head()).encode(), b"signed"))
        yield ledger, comparison.export(ledger, "bank", "job-1", None, lambda _: b"signed")


@AT_EACH
@given(draw=st.data())
def test_every_exported_ledger_is_read_and_compared_or_refused(exported, draw):
    ledger, sample = exported

    def decode(octets):
        comparison.compare(ledger, "telco", comparison.read(octets, lambda *_: None))

    survives(decode, draw.draw(near(sample)))


@pytest.mark.parametrize("part", ["store.sqlite", "store.key", "sealed"])
@AT_EACH
@given(draw=st.data())
def test_every_store_is_read_or_refused(store, part, draw):
    folder, spoil = store
    files = [p for p in folder.rglob("*") if p.is_file() and "seed" in p.name]
    path = files[0] if part == "sealed" else folder / part
    spoil(str(path.relative_to(folder)), draw.draw(edits(path.read_bytes())))


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vault")
    Vault(folder).seed("job-1")
    return folder, spoiling(folder, lambda: Vault(folder).unseal("job-1", "seed"))


@AT_EACH
@given(draw=st.data())
def test_every_sealed_secret_is_opened_or_refused(vault, draw):
    folder, spoil = vault
    path = next(p for p in folder.rglob("*seed*") if p.is_file())
    spoil(str(path.relative_to(folder)), draw.draw(near(path.read_bytes())))


# Certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    authority.create(folder, [Leaf("party", "bank")], Term(datetime.now(UTC)))
    return (folder / "bank.pem").read_bytes()


@AT_EACH
@given(draw=st.data())
def test_every_certificate_is_read_or_refused(certificate, draw):
    def decode(pem):
        with contextlib.suppress(CertificateFaultError):  # whoever reads one says what of it
            identity.owner(identity.read_certificate(pem))

    survives(decode, draw.draw(near(certificate)))


# Tables


def table_files() -> dict[str, bytes]:
    """The same small table in every format that is read."""
    table = small_jobs.tables("secureboost", rows=20)["bank"]
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    csv = pa.BufferOutputStream()
    pa.csv.write_csv(table, csv)
    svm = b"1 1:0.5 3:-2\n0 2:1e3\n1 1:1 2:2 3:3\n"
    return {
        "parquet": sink.getvalue().to_pybytes(),
        "csv": csv.getvalue().to_pybytes(),
        "svmlight": svm,
    }


TABLES = table_files()


@pytest.mark.parametrize("format_", TABLES)
@AT_EACH
@given(draw=st.data())
def test_every_table_is_read_or_refused(format_, draw, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"table.{format_}"

    def decode(octets):
        path.write_bytes(octets)
        read_table(SourceSpec(path=str(path), format=format_), party="bank")

    survives(decode, draw.draw(near(TABLES[format_])))
