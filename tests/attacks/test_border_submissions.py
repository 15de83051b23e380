"""Submitters and jobs that a coordinator invents."""

from datetime import UTC, datetime

import pytest

from fedboost.errors import ConfigError, PeerError, PolicyError, UnreachableError
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.manifest import JobMember, Manifest
from fedboost.runtime.jobs.submitted import sign_submission, submission_id
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
    "a submitter, by another's signature": "names olga as its submitter, user eve has signed it",
    "a party that submits": "names bank as its submitter, party bank has signed it",
    "a job": "the signature of user user does not fit",
    "a job that was handed in elsewhere": "the signature of user user does not fit",
    "a job once more": "not called what its submission was called",
    "a submission": "nobody has signed the job's submission",
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
    monkeypatch.setattr(Judge, "_submission", lambda *_: None)
    assert now(proposed(tmp_path, what))


def test_a_revoked_user_submits_nothing(tmp_path):
    async def revoked():
        async with town(tmp_path) as cluster:
            certs = tmp_path / "c" / "certs"
            made = terms(certs)
            authority.revoke(certs, USER, datetime.now(UTC))
            await _propose(cluster.parties["telco"], made)

    with pytest.raises(UnreachableError, match="the certificate of user user has been revoked"):
        now(revoked())


@pytest.mark.parametrize("name", ["ann\x1b]0;owned\x07", "ann\n", "coordinator", "Ann", ""])
def test_a_submitter_is_a_name_or_the_manifest_is_none(tmp_path, name):
    world.issue(tmp_path, [("user", USER), *(("party", one) for one in JOB.parties.everybody)])
    text = terms(tmp_path).model_copy(update={"submitter": name}).encode()
    if name == "coordinator":
        assert manifest.decode(text).submitter == name
    else:
        with pytest.raises(PeerError, match="the manifest is none"):
            manifest.decode(text)


async def test_a_coordinator_refuses_what_its_caller_did_not_sign(tmp_path):
    async with town(tmp_path) as cluster:
        certs, node = tmp_path / "c" / "certs", cluster.coordinator
        spec, own = JOB.model_dump_json().encode(), signed(tmp_path / "c" / "certs")
        unsigned = job_pb2.SubmitRequest(spec=spec, key=KEY)
        with pytest.raises(ConfigError, match="the submission is not signed"):
            await node.submit(cluster.user, unsigned)
        forged = job_pb2.SubmitRequest(
            spec=OTHER.model_dump_json().encode(), key=KEY,
            certificate=own.certificate.encode(), signature=own.raw,
        )  # fmt: skip
        with pytest.raises(PeerError, match="does not fit"):
            await node.submit(cluster.user, forged)
        assert node.store.jobs() == []
        assert certs.exists()


def test_what_is_handed_in_on_a_coordinators_page_is_the_coordinators_own(tmp_path):
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

    assert now(on_the_page()) == f"coordinator {COORDINATOR}"
