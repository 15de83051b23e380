"""A disk is full or out of order: the job pauses and says whose, loses nothing, and goes on."""

import asyncio
import re
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import numpy as np
import pytest

from fedboost import __version__
from fedboost.ground.errors import ConfigError, StoreError, UnreachableError
from fedboost.ground.formats import WIRE_VERSION
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.coordinator import node as coordinators
from fedboost.runtime.transport.addresses import Timers
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables, spec_of
from tests.support.federated import now
from tests.support.secureboost_jobs import made
from tests.support.whole_jobs import written

JOB = made({"n_estimators": 3, "max_depth": 2}, (2, 2))
TIMERS = Timers(retry_first_s=0.01, retry_max_s=0.05, peer_lost_s=2.0)
BUSY_S = 3.0  # in which a job comes to its first event, also on a busy machine
QUIET_S = 0.5  # many times the pauses between two looks


@asynccontextmanager
async def world(folder, monkeypatch):
    """A cluster whose jobs go on by themselves."""

    def config(**settings):
        return CoordinatorConfig(**{**settings, "auto_resume": True})

    monkeypatch.setattr(local, "CoordinatorConfig", config)
    sources = written(folder, arrow_tables(JOB))
    made_of = local.open_cluster(folder / "c", spec_of(JOB), sources, Serial(), timers=TIMERS)
    async with made_of as cluster:
        yield cluster


def status_of(cluster, job):
    return cluster.coordinator.status(cluster.user, JobId(id=job))


async def until(cluster, job, *states):
    """The job's status, as soon as it is in one of the states."""
    async with asyncio.timeout(30):
        while (status := await status_of(cluster, job)).state not in states:
            await asyncio.sleep(0.01)
    return status


async def begun(cluster):
    """A job that has been handed in."""
    text = spec_of(JOB).model_dump_json().encode()
    return await local.LocalClient(cluster).submit(text)


def left(cluster, job):
    """Every party's arrays."""
    folders = {p: node.store.folder / "models" / job for p, node in cluster.parties.items()}
    return {party: shards.load_shard(folder).arrays for party, folder in folders.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    async def run():
        with pytest.MonkeyPatch.context() as patch:
            async with world(tmp_path_factory.mktemp("whole"), patch) as cluster:
                job = await begun(cluster)
                await until(cluster, job, "finished")
                return left(cluster, job)

    return now(run())


def assert_same(found, other):
    for party, arrays in other.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[party][name], array, strict=True)


@contextmanager
def full(*connections):
    """Databases for which the disk has no page left, really."""
    for connection in connections:
        [[pages]] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    yield
    for connection in connections:
        connection.execute("PRAGMA max_page_count = 1000000").fetchall()


@contextmanager
def growing(connection):
    """A database whose jobs take a page more with every change: none fits into a page's rest."""
    connection.execute("CREATE TABLE grown (bytes BLOB)")
    connection.execute(
        "CREATE TRIGGER grows BEFORE UPDATE ON jobs"
        " BEGIN INSERT INTO grown VALUES (zeroblob(5000)); END"
    )
    yield
    connection.execute("DROP TRIGGER grows")
    connection.execute("DROP TABLE grown")


async def resumed(cluster, job):
    """A person has made space and says so."""
    await cluster.coordinator.resume(cluster.user, JobId(id=job))
    await until(cluster, job, "finished")
    return left(cluster, job)


@pytest.mark.parametrize("party", ["bank", "telco"])
async def test_a_ledger_that_takes_no_row_pauses_the_job_until_there_is_space(
    tmp_path, monkeypatch, undisturbed, party
):
    async with world(tmp_path, monkeypatch) as cluster:
        node = cluster.parties[party]
        with full(node.ledger._connection, node.store._connection):
            job = await begun(cluster)
            status = await until(cluster, job, "paused", "failed", "finished")
            assert status.state == "paused"
            assert status.reason.code == "store"
            assert "full" in status.reason.what
            where = {place.key: place.value for place in status.reason.where}
            assert where["party"] == party
            assert status.reason.todo.startswith("free some space")
            assert status.reason.todo.endswith(f"fedboost job resume {job}")
            await asyncio.sleep(QUIET_S)
            assert (await status_of(cluster, job)).state == "paused", "nobody made space"
        assert_same(await resumed(cluster, job), undisturbed)
        assert [node.ledger.verify() for node in cluster.parties.values()]


@pytest.mark.some(4)
@pytest.mark.parametrize("times", range(0, 96, 8))  # of a job's 100
async def test_a_file_that_cannot_be_written_pauses_the_job(
    tmp_path, monkeypatch, undisturbed, times
):
    """Whichever file it is: rows in common, checkpoints, the model. A checkpoint costs one tree."""
    async with world(tmp_path, monkeypatch) as cluster:
        with monkeypatch.context() as patch:
            patch.setattr("fedboost.ground.disk.os.fsync", refusing(28, times))
            job = await begun(cluster)
            status = await until(cluster, job, "paused", "failed", "finished")
        assert (status.state, status.reason.code) == ("paused", "store")
        for node in cluster.parties.values():
            assert not list(node.store.folder.rglob("*.new")), "half a file is left"
        assert_same(await resumed(cluster, job), undisturbed)


def refusing(number, times):
    """An `fsync` that works so many times and then says that the disk does not."""
    import os

    real, done = os.fsync, [0]

    def fsync(handle):
        done[0] += 1
        if done[0] > times:
            raise OSError(number, os.strerror(number))
        real(handle)

    return fsync


@pytest.mark.parametrize("is_asked_at_once", [False, True])
async def test_a_coordinator_whose_disk_is_full_says_that_nothing_runs(
    tmp_path, monkeypatch, undisturbed, caplog, is_asked_at_once
):
    async with world(tmp_path, monkeypatch) as cluster:
        store = cluster.coordinator.store
        job = await begun(cluster)
        await until(cluster, job, "running")
        with growing(store._connection), full(store._connection):
            await asyncio.sleep(BUSY_S)  # until it has met the full disk
            status = await status_of(cluster, job)
            assert (status.state, status.reason.code) == ("paused", "store")
            assert status.reason.todo.startswith("free some space; then the coordinator notes")
            assert [waiting.party for waiting in status.waiting] == [local.COORDINATOR]
            [listed] = await cluster.coordinator.attempts.statuses.of_all()
            assert (listed.state, listed.reason) == (status.state, status.reason)
            for party in cluster.parties.values():
                assert party.store.job(job).state == "paused", "nobody works for nothing"
            with pytest.raises(StoreError):
                await cluster.coordinator.cancel(cluster.user, JobId(id=job))
            said = [r for r in caplog.records if "has ended, and" in r.getMessage()]
            assert len(said) == 1, "once, however often it is tried"
        if is_asked_at_once:  # before the store knows that there is anything to resume
            assert (await status_of(cluster, job)).reason.todo.endswith("how the attempt ended")
        else:
            while not (await status_of(cluster, job)).reason.todo.endswith(f"resume {job}"):
                await asyncio.sleep(0.01)
        assert_same(await resumed(cluster, job), undisturbed)


async def test_a_party_whose_disk_is_full_says_so_once(tmp_path, monkeypatch, undisturbed, caplog):
    async with world(tmp_path, monkeypatch) as cluster:
        node = cluster.parties["telco"]
        job = await begun(cluster)
        await until(cluster, job, "running")
        while node.store.job(job).state != "running":
            await asyncio.sleep(0.01)
        with growing(node.store._connection), full(node.store._connection):
            await node.pause_all()
            for _ in range(5):  # a second each in a daemon
                node.states.again()
            said = [r for r in caplog.records if "the store cannot record" in r.getMessage()]
            assert len(said) == 1
            assert "free some space" in said[0].getMessage()
        assert_same(await resumed(cluster, job), undisturbed)


async def test_a_coordinator_that_stood_still_blames_itself(tmp_path, monkeypatch, undisturbed):
    async with world(tmp_path, monkeypatch) as cluster:
        node, real = cluster.parties["bank"], cluster.parties["bank"].commit
        frozen_s = 0.75 * TIMERS.peer_lost_s

        async def late(*_):
            monkeypatch.setattr(node, "commit", real)
            time.sleep(frozen_s)  # the whole process
            raise UnreachableError("bank has shown no sign of life", party="bank")

        monkeypatch.setattr(node, "commit", late)
        job = await begun(cluster)
        await until(cluster, job, "finished")
        events = cluster.coordinator.store.events_of(job, "state")
        [why] = [e.event["state"]["reason"] for e in events if "reason" in e.event["state"]]
        assert re.fullmatch(r"the coordinator stood still for \d\.\d s .*", why["what"])
        assert why["where"] == [{"key": "party", "value": local.COORDINATOR}]
        assert_same(left(cluster, job), undisturbed)


# What does not go on by itself


async def test_a_refusal_ends_a_job_that_was_about_to_go_on(tmp_path, monkeypatch):
    """The policy of a party that comes back may be another one."""
    async with world(tmp_path, monkeypatch) as cluster:
        node = cluster.parties["telco"]
        job = await begun(cluster)
        await until(cluster, job, "running")
        while not node.store.job(job).attempt:  # what has not begun here cannot be paused
            await asyncio.sleep(0.01)
        policy = node.config.policy.model_copy(update={"coordinators": ()})
        config = node.config.model_copy(update={"policy": policy})
        node.config = node.judge.config = config
        await node.pause_all()
        status = await until(cluster, job, "failed", "finished")
        assert (status.state, status.reason.code) == ("failed", "policy")
        await asyncio.sleep(QUIET_S)
        assert (await status_of(cluster, job)).state == "failed"


async def gone(cluster, job, monkeypatch):
    """Has telco pause a job and be away; gives what brings it back."""
    node = cluster.parties["telco"]
    real = node.hello

    async def away(*_):
        raise UnreachableError("telco is not there", party="telco")

    monkeypatch.setattr(node, "hello", away)
    await node.pause_all()
    await until(cluster, job, "paused")
    return partial(monkeypatch.setattr, node, "hello", real)


async def test_a_job_that_was_cancelled_while_it_was_paused_leaves_nothing(tmp_path, monkeypatch):
    async with world(tmp_path, monkeypatch) as cluster:
        job = await begun(cluster)
        await until(cluster, job, "running")
        back = await gone(cluster, job, monkeypatch)
        await cluster.coordinator.cancel(cluster.user, JobId(id=job))
        back()
        await asyncio.sleep(QUIET_S)
        assert (await status_of(cluster, job)).state == "cancelled"
        for party in cluster.parties.values():
            assert party.store.job(job).state == "cancelled"
            assert not list(party.store.folder.rglob(f"*{job}*"))


async def test_a_job_of_another_wire_is_refused_and_kept(tmp_path, monkeypatch):
    """Its list is shown all the same, and the old version can carry it on."""
    async with world(tmp_path, monkeypatch) as cluster:
        job = await begun(cluster)
        await until(cluster, job, "running")
        back = await gone(cluster, job, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr("fedboost.runtime.jobs.manifest.WIRE_VERSIONS_SPOKEN", range(99, 100))
            with pytest.raises(ConfigError) as refused:
                await cluster.coordinator.resume(cluster.user, JobId(id=job))
            said = "\n".join(refused.value.lines())
            assert f"the job began under fedboost {__version__} (wire {WIRE_VERSION})" in said
            assert f"run fedboost {__version__} everywhere until it is over" in said
            assert (await status_of(cluster, job)).state == "paused"
            back()
            status = await until(cluster, job, "failed", "finished")
            assert (status.state, status.reason.code) == ("failed", "config")
        await cluster.coordinator.resume(cluster.user, JobId(id=job))
        await until(cluster, job, "finished")


async def asked(coordinator, job):
    """A coordinator has asked for approval of a job, and waits for it."""
    async with asyncio.timeout(10):
        while not ((walk := coordinator.attempts.walk(job)) and walk.waiting):
            await asyncio.sleep(0.01)


async def test_a_job_nobody_approved_waits_for_a_person_and_goes_on_waiting_after_a_restart(
    tmp_path, monkeypatch
):
    async with world(tmp_path, monkeypatch) as cluster:
        node = cluster.parties["telco"]
        policy = node.config.policy.model_copy(update={"approve": "always"})
        node.config = node.judge.config = node.config.model_copy(update={"policy": policy})
        old = cluster.coordinator
        job = await begun(cluster)
        await asked(old, job)
        await old.close()
        assert old.store.job(job).state == "waiting for approval"
        new = coordinators.CoordinatorNode(old.config, old._identity, old.store, old._link)
        await new.resume_unfinished()
        await asked(new, job)
        node.states.approve(job, "olga")
        async with asyncio.timeout(30):
            while new.store.job(job).state != "finished":
                await asyncio.sleep(0.01)
