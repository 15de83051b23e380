"""Lies about who said what: replays, other bytes, jobs and ledgers, and names that are code."""

import importlib
import re
import sys
from contextlib import closing, suppress
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from fedboost import protocols
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError, FedboostError, PeerError
from fedboost.messages import party_pb2
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.jobs import manifest
from fedboost.runtime.ledger import ledger
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.party.stage.inbox import Inbox
from fedboost.runtime.party.stage.outbox import Terms
from fedboost.runtime.policy.judgement import Judge
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, job_spec, now, run_job
from tests.unit.runtime.ledger import test_ledger as ledgers
from tests.unit.runtime.party import test_session as sessions

HOST = HOSTS[0]


# Messages of another job


async def replayed():
    """Gradients of an earlier job reach a host in place of this one's; what it then works with."""
    room = await conversations.secureboost().until("encrypt_gradients")
    earlier = await conversations.secureboost().until("open_layer")
    for posted in earlier.posted:
        if posted.envelope.receiver == HOST and posted.envelope.kind.endswith("EncryptedGradients"):
            old = type(posted.envelope)()
            old.CopyFrom(posted.envelope)
            old.job, old.manifest_sha256 = "job-0", bytes([1]) * 32
            await room.sessions[HOST].accept(old, posted.payload)
    room.number = earlier.number  # what is replayed is not of a later step
    await room.call("receive_gradients", HOST)
    return room.state(HOST)


def test_gradients_of_another_job_are_refused():
    with pytest.raises(PeerError, match="a message of another job, attempt or stage"):
        now(replayed())


def test_gradients_of_another_job_are_worked_with_where_envelopes_say_nothing(monkeypatch):
    monkeypatch.setattr(Terms, "__eq__", lambda *_: True)
    assert now(replayed()).tree_batch.trees


# Two messages in one place


async def two_in_one_place():
    """A host says one thing, and then another under the same envelope key."""
    room = await sessions.echo().open()
    for value in (1, 2):
        await room.sessions[GUEST].accept(*sessions.answered(value))
    return len(room.sessions[GUEST]._inbox._waiting[sessions.ANSWER, sessions.HOST])


def test_other_bytes_under_the_same_key_are_refused():
    with pytest.raises(PeerError, match="two different messages in one place"):
        now(two_in_one_place())


def test_other_bytes_under_the_same_key_lie_beside_the_first_where_nobody_remembers(monkeypatch):
    monkeypatch.setattr(Inbox, "seen", lambda *_: False)
    assert now(two_in_one_place()) == 2


# A coordinator that shows one party another job


def tables():
    return {
        party: pa.table({"id": [1, 2, 3], "x": np.arange(3.0)}) for party in (GUEST, *HOSTS[:2])
    }


def lies_to(party, monkeypatch):
    """The coordinator proposes and begins a job with more rounds at one party alone."""
    method = local.LocalControl.__getattr__

    def changed(text):
        terms = manifest.decode_manifest(text)
        params = {**terms.spec.params, "rounds": 3}
        spec = terms.spec.model_copy(update={"params": params})
        return terms.model_copy(update={"spec": spec}).encode()

    shown: dict[str, bytes] = {}

    def lying(self, name):
        call = method(self, name)
        if self._node.config.name != party or name not in ("propose", "begin"):
            return call

        async def other(request):
            own = type(request)()
            own.CopyFrom(request)
            if isinstance(own, party_pb2.Proposal):
                own.manifest = shown["manifest"] = changed(own.manifest)
            else:
                own.manifest_sha256 = manifest.manifest_sha256(shown["manifest"])
            return await call(own)

        return other

    monkeypatch.setattr(local.LocalControl, "__getattr__", lying)


def altered(tmp_path, monkeypatch):
    lies_to(HOST, monkeypatch)
    spec = job_spec("echo", (GUEST, *HOSTS[:2]), params={"rounds": 1, "parts": 1, "numbers": 2})
    return run_job(tmp_path / "job", tables(), spec)


def test_a_job_that_one_party_was_shown_otherwise_does_not_begin(tmp_path, monkeypatch):
    done = altered(tmp_path, monkeypatch)
    assert done.state == "failed"
    assert isinstance(done.error, PeerError)
    assert "signature" in done.error.what
    assert all(rows == [] for rows in done.ledgers.values())


def test_a_job_that_one_party_was_shown_otherwise_begins_where_signatures_are_not_checked(
    tmp_path, monkeypatch
):
    """Every envelope names the manifest once more, so that is not looked at either."""
    monkeypatch.setattr(Judge, "signatures", lambda *_: None)
    monkeypatch.setattr(Judge, "_judge_submission", lambda *_: None)
    monkeypatch.setattr(Terms, "__eq__", lambda *_: True)
    done = altered(tmp_path, monkeypatch)
    assert done.state == "finished", done.error.lines()


# A ledger that somebody has rewritten


@pytest.fixture
def book(tmp_path):
    """Where a ledger of four rows will be."""
    return SimpleNamespace(path=tmp_path / "store.sqlite")


def rewritten(book):
    """What the ledger says after its second row was given another peer."""
    with closing(Ledger(book.path, clock=ledgers.Clock())) as written:
        for _ in range(4):
            written.record(ledgers.SENT)
    ledgers.tamper(book.path, ("UPDATE ledger SET peer = ? WHERE n = 2", ("nobody",)))
    with closing(Ledger(book.path, read_only=True)) as read:
        return read.verify().n


def test_a_rewritten_row_of_a_ledger_is_found(book):
    with pytest.raises(DataError, match="row 2 was changed"):
        rewritten(book)


def test_a_rewritten_row_of_a_ledger_passes_without_the_chain(book, monkeypatch):
    monkeypatch.setattr(ledger, "row_hash", lambda row: f"{row.n:064x}")
    assert rewritten(book) == 4


# Paths and modules in fields

ESCAPE = "../../stolen"


def read_as_a_model(store):
    """A job names a model by a path that leads out of the store."""
    shards.save_shard(store.parent / "stolen", Artefact({"secret": 42}))
    return shards.load_shard(shards.folder_of(store / "models", ESCAPE)).facts["secret"]


def test_a_path_in_a_field_leads_nowhere(tmp_path):
    (tmp_path / "store" / "models").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not a model's id"):
        read_as_a_model(tmp_path / "store")


def test_a_path_in_a_field_leads_out_of_the_store_where_it_may_be_any(tmp_path, monkeypatch):
    (tmp_path / "store" / "models").mkdir(parents=True)
    monkeypatch.setattr(shards, "MODEL_ID", re.compile(r".*"))
    assert read_as_a_model(tmp_path / "store") == 42


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """The name of a module that notes that it was run."""
    (tmp_path / "foreign_code.py").write_text("import sys\nsys.ran_foreign_code = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "ran_foreign_code", False, raising=False)
    yield "foreign_code"
    sys.modules.pop("foreign_code", None)


def named_by_a_peer(name):
    """A manifest names its protocol; whether that ran anything."""
    with suppress(FedboostError):
        protocols.load_protocol(name)
    return sys.ran_foreign_code  # type: ignore[attr-defined]


def test_a_module_named_in_a_field_is_not_run(stranger):
    assert not named_by_a_peer(stranger)


def test_a_module_named_in_a_field_is_run_where_names_are_looked_up(stranger, monkeypatch):
    monkeypatch.setattr(protocols, "load_protocol", importlib.import_module)
    assert named_by_a_peer(stranger)
