"""Jobs without end: each is a row in a party's store, and a table in its memory once it has begun.

The defence is `Judge.room`.
"""

import asyncio

import pytest

from fedboost.errors import PolicyError
from fedboost.messages import party_pb2
from fedboost.runtime.jobs import manifest
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.store.store import JobState
from tests.attacks.test_border_approval import JOB, LEADER, OWNED, ruled, town
from tests.support.federated import now

MOST = 3


def signed(node, monkeypatch):
    """The submitter lies too, and signs each job: here nobody looks."""
    monkeypatch.setattr(node.judge, "_submission", lambda *_: None)


async def proposed(folder, monkeypatch, jobs, states=(), **rules):
    """A lying coordinator: it proposes one job under ever new names.

    The names that telco's store knows at the end, and the refusals.
    """
    async with town(folder) as cluster:
        telco = cluster.parties[OWNED]
        done = await cluster.run(JOB)
        ruled(telco, **rules)
        signed(telco, monkeypatch)
        first = telco.store.job(done.status.id)
        terms, refused = manifest.decode(first.manifest), []
        for number in range(jobs):
            text = terms.model_copy(update={"job": f"another-{number}"}).encode()
            try:
                await telco.propose(LEADER, party_pb2.Proposal(manifest=text))
                for state in states:
                    telco.store.move(f"another-{number}", state)
            except PolicyError as error:
                refused.append(error.where["key"])
        return [job.id for job in telco.store.jobs() if job.id != first.id], refused


OVER = (JobState.FAILED, JobState.CANCELLED)


def test_a_coordinator_has_so_many_jobs_open_as_the_owner_allows(tmp_path, monkeypatch):
    known, refused = now(
        proposed(tmp_path, monkeypatch, MOST + 2, approve="always", jobs_open_max=MOST)
    )
    assert len(known) == MOST
    assert refused == ["policy.jobs_open_max"] * 2


def test_a_coordinator_brings_so_many_jobs_a_day_as_the_owner_allows(tmp_path, monkeypatch):
    known, refused = now(
        proposed(tmp_path, monkeypatch, MOST + 2, OVER, jobs_per_day=MOST, jobs_open_max=1)
    )
    assert len(known) == MOST - 1  # and the one that has run
    assert refused == ["policy.jobs_per_day"] * 3


def test_a_coordinator_brings_as_many_jobs_as_it_likes_where_nobody_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "room", lambda *_: None)
    rules = {"approve": "always", "jobs_per_day": 1, "jobs_open_max": 1}
    known, refused = now(proposed(tmp_path, monkeypatch, MOST + 2, **rules))
    assert (len(known), refused) == (MOST + 2, [])


async def begun_again(folder, monkeypatch, call):
    """Jobs that are stopped, one after the other, and begun again beside each other."""
    async with town(folder) as cluster:
        telco = cluster.parties[OWNED]
        ruled(telco, approve="always", jobs_open_max=1)
        signed(telco, monkeypatch)
        waiting = asyncio.create_task(cluster.run(JOB))
        while not telco.store.jobs():
            await asyncio.sleep(0.01)
        [first] = telco.store.jobs()
        terms = manifest.decode(first.manifest)
        telco.store.move(first.id, JobState.FAILED)
        text = terms.model_copy(update={"job": "another"}).encode()
        await telco.propose(LEADER, party_pb2.Proposal(manifest=text))
        again = {
            "propose": party_pb2.Proposal(manifest=first.manifest),
            "begin": party_pb2.BeginRequest(
                job=first.id, attempt=2, manifest_sha256=manifest.sha256(first.manifest)
            ),
        }
        monkeypatch.setattr(telco.judge, "signatures", lambda *_: None)
        monkeypatch.setattr(telco.parts, "consents", lambda _: True)
        try:
            await getattr(telco, call)(LEADER, again[call])
        finally:
            waiting.cancel()


@pytest.mark.parametrize("call", ["propose", "begin"])
def test_a_job_that_has_failed_does_not_begin_beside_as_many_as_are_allowed(
    tmp_path, monkeypatch, call
):
    with pytest.raises(PolicyError, match="jobs of a coordinator at once"):
        now(begun_again(tmp_path, monkeypatch, call))
