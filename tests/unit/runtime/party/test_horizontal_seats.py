"""What horizontal jobs need of a party's seat and refuse in a job: signatures, notes, numbers."""

import json
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from fedboost.flow import START
from fedboost.ground.errors import ConfigError, PeerError, UnreachableError
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.jobs.submitted import read_spec
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.policy.judgement import SEPARATOR, Signatures, Trust
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.tls import load_identity
from tests.support.federated import Hand, job_spec, run_job

NOW = datetime.now(UTC).replace(microsecond=0)
PARTIES = ("bank", "telco", "shop")
LEAVES = [Leaf("party", "bank"), Leaf("party", "telco"), Leaf("user", "ana")]
STAGE = "federboost-horizontal"
TEXT = b"fedboost survivors 1 ..."


# Signatures


@pytest.fixture
def certs(tmp_path):
    """Certificates of two parties and a user."""
    folder = tmp_path / "certs"
    authority.create_certificates(folder, LEAVES, Term(NOW))
    return folder


def hand(certs, name, *, insecure=False):
    """How a party signs with the certificate that lies there now."""
    tls = tls_of(certs, name)
    return Signatures(Trust(lambda: load_identity(tls), Authorities(tls)), insecure=insecure)


def test_what_one_party_signs_the_other_believes(certs):
    hand(certs, "telco").check("bank", TEXT, hand(certs, "bank").sign(TEXT))


def test_a_certificate_may_be_renewed_while_a_job_runs(certs):
    bank, telco = hand(certs, "bank"), hand(certs, "telco")
    before = bank.sign(TEXT)
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    after = bank.sign(TEXT)
    assert before.partition(SEPARATOR)[0] != after.partition(SEPARATOR)[0]
    telco.check("bank", TEXT, after)
    telco.check("bank", TEXT, before)


def test_a_signature_under_a_revoked_certificate_is_refused(certs):
    signature = hand(certs, "bank").sign(TEXT)
    authority.revoke_certificates(certs, "bank", NOW)
    with pytest.raises(UnreachableError, match="revoked"):
        hand(certs, "telco").check("bank", TEXT, signature)


def test_the_old_certificate_and_the_new_key_do_not_fit(certs):
    bank = hand(certs, "bank")
    old, _, _ = bank.sign(TEXT).partition(SEPARATOR)
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    _, _, signature = bank.sign(TEXT).partition(SEPARATOR)
    with pytest.raises(PeerError, match="does not fit"):
        hand(certs, "telco").check("bank", TEXT, old + SEPARATOR + signature)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda own: b"",
        lambda own: SEPARATOR,
        lambda own: own[:-1],
        lambda own: own + b"\0",
        lambda own: own.partition(SEPARATOR)[0],
        lambda own: own.partition(SEPARATOR)[2],
        lambda own: b"\xff" * 200 + SEPARATOR + own.partition(SEPARATOR)[2],
        lambda own: own.replace(b"CERTIFICATE", b"CERTIFICATF"),
    ],
)
def test_anything_else_is_refused_with_a_typed_error(certs, spoil):
    signature = spoil(hand(certs, "bank").sign(TEXT))
    with pytest.raises(PeerError):
        hand(certs, "telco").check("bank", TEXT, signature)


def test_anothers_signature_another_text_and_another_ca_are_refused(certs, tmp_path):
    telco = hand(certs, "telco")
    for name, signer, text in (
        ("bank", "telco", TEXT),
        ("bank", "ana", TEXT),
        ("bank", "bank", TEXT + b"."),
    ):
        with pytest.raises(PeerError):
            telco.check(name, text, hand(certs, signer).sign(TEXT))
    authority.create_certificates(tmp_path / "other", LEAVES, Term(NOW))
    with pytest.raises(PeerError, match="not signed by our CA"):
        telco.check("bank", TEXT, hand(tmp_path / "other", "bank").sign(TEXT))


def test_on_loopback_without_certificates_everybody_is_believed(certs):
    hand(certs, "telco", insecure=True).check("bank", TEXT, b"")


# Notes


def spec_of(parties=PARTIES, aggregator="bank", protocol=STAGE, **params):
    data = {p: {"label": "y"} for p in parties if protocol == STAGE}
    spec = job_spec(protocol, parties, data=data, params=params)
    named = spec.parties.model_copy(update={"aggregator": aggregator})
    return spec.model_copy(update={"parties": named})


def manifest_of(job="job-1", **more):
    spec = spec_of(**more)
    members = [JobMember(name=p, certificate="none") for p in PARTIES]
    return Manifest(
        job=job, coordinator=local.COORDINATOR, submitter="ann", spec=spec, members=members
    )


@pytest.fixture
def store(tmp_path):
    """A party's store."""
    with Store(tmp_path / "store", "party bank") as made:
        yield made


def work_of(store, job="job-1", attempt=1, digest=bytes(32), **more):
    """A party's side of a job, as after a restart."""
    work = PartyJob(SignedJob("bank", manifest_of(job, **more), digest), store)
    work.attempt = attempt
    return work


def seat_of(work):
    return work.context(STAGE, START, Serial(), Policy(), Hand("bank"))


def test_what_a_step_notes_outlasts_the_attempt_and_the_process(store):
    book = seat_of(work_of(store)).services.notebook
    assert book.read() == {}
    book.write({"opened": [[4, ["bank", "telco"]]]})
    later = seat_of(work_of(store, attempt=2)).services.notebook
    assert later.read() == {"opened": [[4, ["bank", "telco"]]]}
    later.write({"opened": []})
    assert book.read() == {"opened": []}


def test_notes_belong_to_one_job_and_go_with_it(store):
    work = work_of(store)
    work.files.write({"opened": [[0, ["bank"]]]})
    assert work_of(store, "job-2").files.read() == {}
    store.clear(work.id)
    assert work_of(store).files.read() == {}


def test_masks_of_two_attempts_jobs_and_manifests_have_nothing_in_common(store):
    works = [
        work_of(store),
        work_of(store, attempt=2),
        work_of(store, "job-2"),
        work_of(store, digest=bytes(31) + b"\1"),
    ]
    contexts = [seat_of(work) for work in works]
    assert len({context.attempt.digest for context in contexts}) == 4
    assert {len(context.attempt.digest) for context in contexts} == {32}
    # Secrets hang on the job and the attempt alone; the context tells the rest apart.
    assert len({context.secrets.attempt.derive("mask key") for context in contexts}) == 3
    assert seat_of(work_of(store)).attempt.digest == contexts[0].attempt.digest


def test_contributors_are_counted_where_a_job_adds_up(store):
    assert work_of(store).signed.contributors == 3
    assert work_of(store, aggregator="sum").signed.contributors == 3
    assert work_of(store, protocol="align", aggregator=None).signed.contributors is None


# Jobs


def text_of(**more):
    return json.dumps(spec_of(**more).model_dump(mode="json")).encode()


@pytest.mark.parametrize("aggregator", ["bank", "telco", "sum"])
def test_a_horizontal_job_names_who_adds_up(aggregator):
    assert read_spec(text_of(aggregator=aggregator)).parties.aggregator == aggregator


def test_a_horizontal_job_without_an_aggregator_is_refused():
    with pytest.raises(ConfigError, match="needs an aggregator and parties names none") as refused:
        read_spec(text_of(aggregator=None))
    assert refused.value.where == {"key": "parties.aggregator"}
    assert "bank" in refused.value.todo


@pytest.mark.parametrize("protocol", ["align", "echo"])
def test_an_aggregator_of_a_job_that_adds_nothing_up_is_refused(protocol):
    with pytest.raises(ConfigError, match=f"{protocol} has no part for an aggregator") as refused:
        read_spec(text_of(protocol=protocol, aggregator="sum"))
    assert refused.value.where == {"key": "parties.aggregator"}


@pytest.mark.parametrize("dropout", ["wait", "continue"])
def test_two_parties_are_refused_when_the_job_is_proposed(dropout, tmp_path, monkeypatch):
    """By a policy that says nothing of it, and before anything has left anybody."""
    permissive = local.permissive_policy

    def default(*args, **kwargs):
        own = permissive(*args, **kwargs)
        keys = own.model_fields_set - {"aggregation_parties_min"}
        return Policy(**{key: getattr(own, key) for key in keys})

    monkeypatch.setattr(local, "permissive_policy", default)
    draw = np.random.default_rng(1)
    tables = {
        p: pa.table({"id": list(map(str, range(200))), "x": draw.normal(size=200),
                     "y": draw.integers(0, 2, 200)})
        for p in PARTIES[:2]
    }  # fmt: skip
    spec = spec_of(PARTIES[:2], dropout=dropout, colluders=0, max_bin=2, n_estimators=1)
    done = run_job(tmp_path, tables, spec)
    assert done.state == "failed"
    assert done.error.code == "policy"
    assert done.error.where["key"] == "policy.aggregation_parties_min"
    assert all(rows == [] for rows in done.ledgers.values())
    monkeypatch.undo()
    allowed = run_job(tmp_path / "allowed", tables, spec)
    assert allowed.state == "finished"
