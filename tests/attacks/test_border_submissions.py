"""Submitters and jobs that a coordinator invents."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fedboost.ground.errors import ConfigError, PeerError, PolicyError, UnreachableError
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from fedboost.runtime.coordinator import intake
from fedboost.runtime.jobs import manifest, submitted
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.jobs.submitted import asks_at, sign_submission, submission_id
from fedboost.runtime.policy import judgement
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.identity import Peer
from fedboost.runtime.transport.tls import load_identity
from tests.attacks.test_border_approval import JOB, LEADER, ruled, town
from tests.e2e import world
from tests.support.federated import now

KEY = "0f" * 16
OTHER = JOB.model_copy(update={"name": "other"})


def signed(certs, who=USER, spec=JOB, at=COORDINATOR):
    """What somebody signed."""
    return sign_submission(spec, KEY, at, load_identity(tls_of(certs, who)))


def terms(certs, submitter=USER, spec=JOB, **changes):
    """A manifest as a coordinator writes it, but for `changes`."""
    members = [
        JobMember(name=party, certificate=(certs / f"{party}.pem").read_text())
        for party in spec.parties.everybody
    ]
    made = Manifest(
        job=submission_id(spec, submitter, KEY),
        coordinator=COORDINATOR,
        submitter=submitter,
        spec=spec,
        members=members,
        submission=signed(certs, spec=spec),
    )
    return made.model_copy(update=changes)


def invented(certs):
    """Manifests that only a lying coordinator writes, by what it invents."""
    world.issue(certs, [("user", "eve")])
    renamed = submission_id(JOB, USER, "another key")
    return {
        "a submitter": terms(certs, "olga"),
        "a submitter, by its own signature": terms(
            certs, "olga", submission=signed(certs, COORDINATOR)
        ),
        "a person on another's page": terms(
            certs, f"olga via coordinator {USER}", submission=signed(certs, USER)
        ),
        "a submitter, by another's signature": terms(
            certs, "olga", submission=signed(certs, "eve")
        ),
        "a party that submits": terms(certs, "bank", submission=signed(certs, "bank")),
        "a job": terms(certs, spec=OTHER, submission=signed(certs)),
        "a job that was handed in elsewhere": terms(certs, submission=signed(certs, at="rival")),
        "a job once more": terms(certs, job=renamed),
        "a submission": terms(certs, submission=None),
    }


WORDS = {
    "a submitter": "names olga as its submitter, user user has signed it",
    "a submitter, by its own signature": "names olga as its submitter, coordinator coordinator",
    "a person on another's page": "names olga via coordinator user as its submitter, user user has",
    "a submitter, by another's signature": "names olga as its submitter, user eve has signed it",
    "a party that submits": "names bank as its submitter, party bank has signed it",
    "a job": "the signature of user user does not fit",
    "a job that was handed in elsewhere": "the signature of user user does not fit",
    "a job once more": "id does not fit its submission",
    "a submission": "the job's submission has no signature",
}


async def proposed(folder, what):
    """What a host signs of a manifest."""
    async with town(folder) as cluster:
        certs = folder / "c" / "certs"
        made = terms(certs) if what is None else invented(certs)[what]
        return await _propose(cluster.parties["telco"], made)


async def _propose(node, made):
    agreed = await node.propose(LEADER, party_pb2.Proposal(manifest=made.encode()))
    return agreed.signature


def test_what_a_user_signed_is_agreed_to(tmp_path):
    assert now(proposed(tmp_path, None))


@pytest.mark.parametrize("what", WORDS)
def test_what_no_user_signed_is_agreed_to_by_nobody(tmp_path, what):
    with pytest.raises(PeerError, match=WORDS[what]):
        now(proposed(tmp_path, what))


@pytest.mark.parametrize("what", WORDS)
def test_what_no_user_signed_is_agreed_to_where_parties_do_not_look(tmp_path, monkeypatch, what):
    monkeypatch.setattr(Judge, "_judge_submission", lambda *_: None)
    assert now(proposed(tmp_path, what))


def test_a_revoked_user_submits_nothing(tmp_path):
    async def revoked():
        async with town(tmp_path) as cluster:
            certs = tmp_path / "c" / "certs"
            made = terms(certs)
            authority.revoke_certificates(certs, USER, datetime.now(UTC))
            await _propose(cluster.parties["telco"], made)

    with pytest.raises(UnreachableError, match="the certificate of user user has been revoked"):
        now(revoked())


@pytest.mark.parametrize(
    "name", ["ann\x1b]0;owned\x07", "ann\n", "coordinator", "Ann", "", "ann via eve"]
)
def test_a_submitter_is_a_name_or_the_manifest_is_none(tmp_path, name):
    world.issue(tmp_path, [("user", USER), *(("party", one) for one in JOB.parties.everybody)])
    text = terms(tmp_path).model_copy(update={"submitter": name}).encode()
    if name == "coordinator":
        assert manifest.decode_manifest(text).submitter == name
    else:
        with pytest.raises(PeerError, match="the manifest is invalid"):
            manifest.decode_manifest(text)


async def test_a_coordinator_refuses_what_its_caller_did_not_sign(tmp_path):
    async with town(tmp_path) as cluster:
        certs, node = tmp_path / "c" / "certs", cluster.coordinator
        spec, own = JOB.model_dump_json().encode(), signed(tmp_path / "c" / "certs")
        unsigned = job_pb2.SubmitRequest(spec=spec, key=KEY)
        with pytest.raises(ConfigError, match="the submission is not signed"):
            await node.submit(cluster.user, unsigned)
        forged = job_pb2.SubmitRequest(
            spec=OTHER.model_dump_json().encode(), key=KEY,
            certificate=own.certificate.encode(), signature=own.raw, signed_at=own.signed_at,
        )  # fmt: skip
        with pytest.raises(PeerError, match="does not fit"):
            await node.submit(cluster.user, forged)
        assert node.store.jobs() == []
        assert certs.exists()


def test_a_job_from_a_coordinators_page_names_the_person_and_the_coordinator_signs(tmp_path):
    async def on_the_page():
        async with town(tmp_path) as cluster:
            telco = cluster.parties["telco"]
            ruled(telco, approve="always")
            with pytest.raises(PolicyError):
                await cluster.coordinator.submit_here(Peer("user", "eve", "", 0), JOB, "")
            job = (await cluster.coordinator.submit_here(cluster.user, JOB, "")).id
            async for event in local.LocalClient(cluster).watch(job):
                if event.state.state == "waiting for approval":
                    break
            [seen] = (await telco.jobs(cluster.user, job_pb2.ListRequest())).jobs
            return seen.submitter

    assert now(on_the_page()) == f"{USER} via coordinator {COORDINATOR}"


def test_who_asks_is_said_with_the_page_or_the_coordinator():
    assert asks_at("ana", "hq") == "ana at hq"
    assert asks_at("ana via coordinator hq", "hq") == "ana on the page of hq"


# Old submissions

DAY_S, HOUR_S = 86_400, 3_600


def later(monkeypatch, by_s):
    """The clock of all that is read from now on is `by_s` later."""
    began = time.time
    monkeypatch.setattr(submitted, "time", SimpleNamespace(time=lambda: began() + by_s))


async def brought_later(folder, monkeypatch, by_s, *, whom):
    """A coordinator that lies about, or a caller, brings a submission so many seconds later."""
    async with town(folder) as cluster:
        certs, node = folder / "c" / "certs", cluster.coordinator
        made, own = terms(certs), signed(certs)
        later(monkeypatch, by_s)
        if whom == "party":
            return await _propose(cluster.parties["telco"], made)
        request = job_pb2.SubmitRequest(
            spec=JOB.model_dump_json().encode(), key=KEY, signed_at=own.signed_at,
            certificate=own.certificate.encode(), signature=own.raw,
        )  # fmt: skip
        first = await node.submit(cluster.user, request)
        assert (await node.submit(cluster.user, request)).id == first.id  # once more: the same run
        return first.id


OLD = {"old": DAY_S + HOUR_S, "of tomorrow": -HOUR_S}


@pytest.mark.parametrize("by_s", OLD.values(), ids=OLD)
@pytest.mark.parametrize("whom", ["party", "coordinator"])
def test_an_old_submission_begins_nothing(tmp_path, monkeypatch, by_s, whom):
    with pytest.raises(PeerError, match="it counts for 24 hours"):
        now(brought_later(tmp_path, monkeypatch, by_s, whom=whom))


@pytest.mark.parametrize("by_s", [0, DAY_S - HOUR_S, -60])
@pytest.mark.parametrize("whom", ["party", "coordinator"])
def test_a_submission_of_the_day_begins_a_job(tmp_path, monkeypatch, by_s, whom):
    assert now(brought_later(tmp_path, monkeypatch, by_s, whom=whom))


def test_an_old_submission_is_not_made_new_by_writing_another_time(tmp_path):
    async def altered():
        async with town(tmp_path) as cluster:
            made = terms(tmp_path / "c" / "certs")
            own = made.submission.model_copy(update={"signed_at": made.submission.signed_at + 9})
            newer = made.model_copy(update={"submission": own})
            await _propose(cluster.parties["telco"], newer)

    with pytest.raises(PeerError, match="the signature of user user does not fit"):
        now(altered())


@pytest.mark.parametrize("whom", ["party", "coordinator"])
def test_an_old_submission_begins_a_job_where_nobody_asks_when(tmp_path, monkeypatch, whom):
    for module in (judgement, intake):
        monkeypatch.setattr(module, "check_age", lambda _: None)
    assert now(brought_later(tmp_path, monkeypatch, 400 * DAY_S, whom=whom))
