"""What is over and too old goes by itself, at parties and at the coordinator, and nothing else."""

import asyncio
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from fedboost.ground.errors import JobError, PolicyError, StoreError
from fedboost.ground.workers import Serial
from fedboost.messages import job_pb2, party_pb2
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import CoordinatorRetention, Retention
from fedboost.runtime.daemons import daemon
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.identity import Peer
from tests.e2e import world
from tests.support.hurry import hurried

DAY_S = 86_400.0
OWNER = Peer("user", local.USER, fingerprint="", serial=0)


@asynccontextmanager
async def finished_job(folder):
    """A cluster that has finished one small job, and the job's id."""
    tables = {"bank": world.toy(label=True), "telco": world.toy(columns=3)}
    sources = {n: world.write(folder / f"{n}.parquet", table) for n, table in tables.items()}
    spec = world.spec(world.job(hosts=("telco",)))
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        journal = await cluster.run(spec)
        assert journal.status.state == "finished", journal.status
        yield cluster, journal.status.id


def keep(node, **days):
    """Another retention, and a clock that is a hundred days ahead."""
    kind = Retention if "party" in type(node).__name__.lower() else CoordinatorRetention
    node.config = node.config.model_copy(update={"retention": kind(**days)})
    node.store._clock = lambda: time.time() + 100 * DAY_S


async def test_a_party_keeps_jobs_and_models_as_long_as_its_owner_says(tmp_path):
    async with finished_job(tmp_path) as (cluster, job):
        telco = cluster.parties["telco"]
        models = telco.store.folder / "models"
        rows = telco.ledger.head().n
        keep(telco)
        await telco.delete_expired()
        assert [one.id for one in telco.store.jobs()] == [job]
        keep(telco, jobs_days=99.0)
        await telco.delete_expired()
        assert telco.store.jobs() == []
        assert shards.model_ids(models) == [job], "a model has an age of its own"
        keep(telco, jobs_days=99.0, models_days=101.0)
        await telco.delete_expired()
        assert shards.model_ids(models) == [job]
        keep(telco, models_days=99.0)
        await telco.delete_expired()
        assert shards.model_ids(models) == []
        assert telco.ledger.verify().n == rows > 0
        assert telco.spending.account.entry(job).counted > 0


async def test_a_coordinator_forgets_jobs_that_are_over_and_nobody_has_to_hear_of(tmp_path):
    async with finished_job(tmp_path) as (cluster, job):
        node = cluster.coordinator
        keep(node, jobs_days=99.0)
        with_errand = node.attempts._errands._under_way
        with_errand[job] = asyncio.create_task(asyncio.sleep(0))
        await node.delete_expired()
        with pytest.raises(JobError, match="not every party has heard yet"):
            await node.delete(OWNER, job_pb2.JobId(id=job))
        del with_errand[job]
        await node.delete_expired()
        assert node.store.jobs() == []
        with pytest.raises(JobError, match="no such job"):
            await node.journal(OWNER, job_pb2.JobId(id=job))


async def test_only_who_may_cancel_deletes_at_the_coordinator_and_only_owners_at_a_party(tmp_path):
    async with finished_job(tmp_path) as (cluster, job):
        mallory = Peer("user", "mallory", fingerprint="", serial=0)
        with pytest.raises(PolicyError, match="may not cancel"):
            await cluster.coordinator.delete(mallory, job_pb2.JobId(id=job))
        asked = party_pb2.ForgetRequest(id=job)
        leader = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
        for caller in (mallory, leader):
            with pytest.raises(PolicyError):
                await cluster.parties["telco"].forget(caller, asked)
        said = await cluster.parties["telco"].forget(OWNER, asked)
        assert (said.id, said.state) == (job, "finished")
        assert cluster.parties["bank"].store.job(job).state is JobState.FINISHED
        assert (await cluster.coordinator.delete(OWNER, job_pb2.JobId(id=job))).id == job


async def test_a_forgotten_job_that_is_proposed_again_is_refused(tmp_path):
    async with finished_job(tmp_path) as (cluster, job):
        telco = cluster.parties["telco"]
        text = telco.store.job(job).manifest
        await telco.forget(OWNER, party_pb2.ForgetRequest(id=job))
        leader = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
        with pytest.raises(PolicyError, match="telco's owner has deleted the job"):
            await telco.propose(leader, party_pb2.Proposal(manifest=text))
        assert telco.store.jobs() == []


def node_with(retention, delete_expired):
    return SimpleNamespace(
        config=SimpleNamespace(retention=retention), delete_expired=delete_expired
    )


@pytest.mark.parametrize("keeps", [Retention(), CoordinatorRetention()])
def test_who_keeps_everything_is_never_asked(keeps):
    async def never():
        raise AssertionError("asked")

    async def inside():
        house = daemon._start_cleaning(node_with(keeps, never))
        await asyncio.sleep(2.5 * daemon.HOUSE_S)
        assert not house.done(), "settings may change"
        house.cancel()

    hurried(inside())


def test_a_disk_that_refuses_is_asked_again_an_hour_later():
    asked = []

    async def delete_expired():
        asked.append(asyncio.get_running_loop().time())
        if len(asked) < 3:
            raise StoreError("cannot write")

    async def inside():
        house = daemon._start_cleaning(node_with(Retention(jobs_days=1.0), delete_expired))
        await asyncio.sleep(2.5 * daemon.HOUSE_S)
        house.cancel()

    hurried(inside())
    assert [round(at - asked[0]) for at in asked] == [0, 3600, 7200]
