"""Jobs without end: each is a row in a party's store, and a table in its memory once it has begun.

The defences are `Judge.room`, `MANIFEST_BYTES_MAX` and `Store.keep_manifest`.
"""

import asyncio

import pytest

from fedboost.ground.errors import PeerError, PolicyError
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.jobs import manifest
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.store.store import JobState, Store
from tests.attacks.test_border_approval import JOB, LEADER, OWNED, ruled, town
from tests.support.federated import now
from tests.support.lies import OWNER

MOST = 3


def signed(node, monkeypatch):
    """The submitter lies too, and signs each job: here nobody looks."""
    monkeypatch.setattr(node.judge, "_judge_submission", lambda *_: None)


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
        terms, refused = manifest.decode_manifest(first.manifest), []
        for number in range(jobs):
            text = terms.model_copy(update={"job": f"another-{number}"}).encode()
            try:
                await telco.propose(LEADER, party_pb2.Proposal(manifest=text))
                for state in states:
                    telco.store.move_to_state(f"another-{number}", state)
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


async def withdrawn(folder, monkeypatch):
    """One place: a job is proposed, withdrawn and proposed again after another; the refusals."""
    async with town(folder) as cluster:
        telco = cluster.parties[OWNED]
        done = await cluster.run(JOB)
        ruled(telco, approve="always", jobs_open_max=1)
        signed(telco, monkeypatch)
        terms = manifest.decode_manifest(telco.store.job(done.status.id).manifest)
        texts = [terms.model_copy(update={"job": f"job-{n}"}).encode() for n in range(2)]
        states, refused = [], []

        async def propose(number):
            try:
                await telco.propose(LEADER, party_pb2.Proposal(manifest=texts[number]))
            except PolicyError as error:
                refused.append((number, error.where["key"]))
            states.append([job.state for job in telco.store.jobs() if job.id != terms.job])

        await propose(0)
        await propose(1)
        await telco.stop(LEADER, party_pb2.StopRequest(job="job-0", state=JobState.QUEUED))
        await propose(1)
        await propose(0)
        return states, refused


def test_a_withdrawn_job_counts_again_once_it_is_proposed_again(tmp_path, monkeypatch):
    states, refused = now(withdrawn(tmp_path, monkeypatch))
    assert refused == [(1, "policy.jobs_open_max"), (0, "policy.jobs_open_max")]
    waits, queued = JobState.WAITING, JobState.QUEUED
    assert states == [[waits], [waits], [queued, waits], [queued, waits]]


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
        terms = manifest.decode_manifest(first.manifest)
        telco.store.move_to_state(first.id, JobState.FAILED)
        text = terms.model_copy(update={"job": "another"}).encode()
        await telco.propose(LEADER, party_pb2.Proposal(manifest=text))
        again = {
            "propose": party_pb2.Proposal(manifest=first.manifest),
            "begin": party_pb2.BeginRequest(
                job=first.id, attempt=2, manifest_sha256=manifest.manifest_sha256(first.manifest)
            ),
        }
        monkeypatch.setattr(telco.judge, "signatures", lambda *_: None)
        monkeypatch.setattr(telco.parts, "has_consent", lambda _: True)
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


# Texts of jobs

NAMES, NAME = 3800, "x" * 1000  # of columns to leave out: 3.9 MB of text


def long_text(terms, number, names):
    ignored = [f"{number}-{place}-{NAME}" for place in range(names)]
    data = {**terms.spec.data}
    data[OWNED] = data[OWNED].model_copy(update={"ignore": ignored})
    spec = terms.spec.model_copy(update={"data": data})
    return terms.model_copy(update={"job": f"another-{number}", "spec": spec}).encode()


async def filled(folder, monkeypatch, *, names):
    """A coordinator that proposes long jobs and cancels each: bytes of texts that telco keeps, the
    most that one look at its jobs reads, and the refusals.
    """
    async with town(folder) as cluster:
        telco = cluster.parties[OWNED]
        done = await cluster.run(JOB)
        ruled(telco, approve="always")
        signed(telco, monkeypatch)
        terms, refused = manifest.decode_manifest(telco.store.job(done.status.id).manifest), 0
        for number in range(MOST):
            text = long_text(terms, number, names)
            try:
                await telco.propose(LEADER, party_pb2.Proposal(manifest=text))
            except PeerError:
                refused += 1
                continue
            stop = party_pb2.StopRequest(
                job=f"another-{number}", attempt=9, state=("failed", "cancelled")[number % 2]
            )
            await telco.stop(LEADER, stop)
        read = telco.store._select("SELECT * FROM jobs")
        looked = sum(len(cell) for row in read for cell in row if isinstance(cell, str | bytes))
        [[kept]] = telco.store._select("SELECT sum(length(text)) FROM manifests")
        listed = (await telco.jobs(OWNER, job_pb2.ListRequest())).jobs
        assert len(listed) == 1 + MOST - refused
        return kept, looked, refused


def test_a_coordinator_does_not_fill_a_store_with_texts(tmp_path, monkeypatch):
    kept, looked, refused = now(filled(tmp_path / "long", monkeypatch, names=NAMES))
    assert refused == MOST
    kept, looked, refused = now(filled(tmp_path / "allowed", monkeypatch, names=900))
    assert refused == 0
    assert kept < 1 << 15  # of the job that ran
    assert looked < 1 << 15


def test_a_coordinator_fills_a_store_with_texts_where_nobody_bounds_or_drops_them(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(manifest, "MANIFEST_BYTES_MAX", 4 << 20)
    monkeypatch.setattr(Store, "keep_manifest", lambda *_: None)
    kept, _, refused = now(filled(tmp_path, monkeypatch, names=NAMES))
    assert refused == 0
    assert kept > MOST * 3 << 20
