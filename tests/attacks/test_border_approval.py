"""Jobs that nobody has approved, at a party whose owner wants to be asked, whatever states they
have been through."""

import asyncio
from contextlib import suppress

import pytest

from fedboost.ground.errors import PolicyError
from fedboost.ground.workers import Serial
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.party.node.parts import PartyParts
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.identity import Peer
from tests.e2e import world
from tests.support.federated import now

LEADER = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
OWNER = Peer("user", local.USER, fingerprint="", serial=0)
OWNED = "telco"  # whose owner wants to be asked
JOB = world.spec(world.job("bank", ("telco", "shop")))


def ruled(node, **keys):
    """Puts other keys into a party's policy."""
    policy = node.config.policy.model_copy(update=keys)
    node.config = node.judge.config = node.config.model_copy(update={"policy": policy})


def town(folder):
    """A cluster in which the owner of one party wants to be asked."""
    tables = {"bank": world.toy(label=True), "telco": world.toy(columns=3), "shop": world.toy()}
    sources = {n: world.write(folder / f"{n}.parquet", table) for n, table in tables.items()}
    return local.open_cluster(folder / "c", JOB, sources, Serial())


def left(node):
    """The rows of a party's ledger about what has left it."""
    return [row for row in node.ledger.rows() if row.direction == "out"]


async def until(true):
    """Waits for it."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


async def resumed_after_a_refusal(folder):
    """An honest coordinator: another party refuses the job once, and it is resumed.

    What has left the party whose owner was never asked.
    """
    async with town(folder) as cluster:
        telco, shop = cluster.parties[OWNED], cluster.parties["shop"]
        ruled(telco, approve="always")
        protocols = shop.config.policy.protocols
        ruled(shop, protocols=())
        journal = await cluster.run(JOB)
        job = journal.status.id
        assert telco.store.job(job).state is JobState.FAILED
        ruled(shop, protocols=protocols)
        await cluster.coordinator.resume(cluster.user, job_pb2.JobId(id=job))
        await until(lambda: _waits(cluster, job) or _rests(cluster, job))
        return left(telco), telco.store.job(job)


def _waits(cluster, job):
    walk = cluster.coordinator.attempts.walk(job)
    return walk is not None and any(w.step == "approval" for w in walk.waited_for)


def _rests(cluster, job):
    return cluster.coordinator.store.job(job).state is JobState.FINISHED


def test_a_job_that_another_party_refused_once_does_not_run_unapproved(tmp_path):
    released, job = now(resumed_after_a_refusal(tmp_path))
    assert not released
    assert job.state is JobState.WAITING


def test_a_job_that_another_party_refused_once_runs_unapproved_where_the_record_is_not_asked(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(PartyParts, "has_consent", lambda *_: True)
    released, _ = now(resumed_after_a_refusal(tmp_path))
    assert released


async def stopped_into_a_state(folder, state, then=lambda: None):
    """A lying coordinator: it stops a job that waits, proposes it again and begins it.

    What the party signs, and what it says of its beginning.
    """
    async with town(folder) as cluster:
        telco = cluster.parties[OWNED]
        ruled(telco, approve="always")
        waiting = asyncio.create_task(cluster.run(JOB))
        await until(lambda: telco.store.jobs(JobState.WAITING))
        waiting.cancel()
        await cluster.coordinator.close()
        then()
        [job] = telco.store.jobs()
        text, digest = job.manifest, job.manifest_sha256
        for attempt in (1, 2):
            stop = party_pb2.StopRequest(job=job.id, attempt=attempt, state=state)
            await telco.stop(LEADER, stop)
        proposal = party_pb2.Proposal(manifest=text)
        agreed = await telco.propose(LEADER, proposal)
        others = [cluster.parties[name] for name in ("bank", "shop")]
        signed = [(await one.propose(LEADER, proposal)).signature for one in others]
        own = telco.judge.signatures_of_jobs.sign(digest)  # as if it had been given
        given = zip(("bank", "shop", OWNED), (*signed, own), strict=True)
        begin = party_pb2.BeginRequest(job=job.id, manifest_sha256=digest, attempt=3)
        for party, signature in given:
            begin.signatures.add(party=party, signature=signature)
        with suppress(PolicyError):
            await telco.begin(LEADER, begin)
        return agreed.signature, telco.store.job(job.id)


@pytest.mark.parametrize("state", ["failed", "paused"])
def test_a_coordinator_that_stops_a_waiting_job_gets_no_signature_and_no_begin(tmp_path, state):
    signature, job = now(stopped_into_a_state(tmp_path, state))
    assert not signature
    assert (job.state, job.attempt) == (JobState.WAITING, 0)


def test_a_coordinator_that_stops_a_waiting_job_begins_it_where_the_record_is_not_asked(
    tmp_path, monkeypatch
):
    def off():
        monkeypatch.setattr(PartyParts, "has_consent", lambda *_: True)

    signature, job = now(stopped_into_a_state(tmp_path, "failed", off))
    assert signature
    assert (job.state, job.attempt) == (JobState.RUNNING, 3)


async def test_a_job_stopped_and_resumed_runs_once_its_owner_has_approved_it(tmp_path):
    async with town(tmp_path) as cluster:
        telco, shop = cluster.parties[OWNED], cluster.parties["shop"]
        ruled(telco, approve="always")
        protocols = shop.config.policy.protocols
        ruled(shop, protocols=())
        job = (await cluster.run(JOB)).status.id
        ruled(shop, protocols=protocols)
        await cluster.coordinator.resume(cluster.user, job_pb2.JobId(id=job))
        await until(lambda: _waits(cluster, job))
        assert not left(telco)
        await telco.approve(OWNER, job_pb2.JobId(id=job))
        await until(lambda: _rests(cluster, job))
        decision = telco.states.decision(telco.store.job(job))
        assert (decision.verdict, decision.user) == ("approved", local.USER)
        assert left(telco)


async def test_a_denied_job_is_neither_signed_nor_begun_whatever_the_store_says_of_its_state(
    tmp_path,
):
    async with town(tmp_path) as cluster:
        telco = cluster.parties[OWNED]
        ruled(telco, approve="always")
        waiting = asyncio.create_task(cluster.run(JOB))
        await until(lambda: telco.store.jobs(JobState.WAITING))
        [job] = telco.store.jobs()
        await telco.deny(OWNER, party_pb2.DenyRequest(id=job.id, reason="not this one"))
        assert (await waiting).status.state == "failed"
        with telco.store.transaction() as sql:  # a coordinator's dream
            sql.execute("UPDATE jobs SET state = 'running'")
        ruled(telco, approve="never")
        with pytest.raises(PolicyError, match="owner denied the job: not this one"):
            await telco.propose(LEADER, party_pb2.Proposal(manifest=job.manifest))
