"""Daemons of different builds do a job together if their wires meet, and refuse it if not."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import WIRE_VERSION, WIRE_VERSIONS_SPOKEN
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId
from fedboost.messages.party_pb2 import Proposal
from fedboost.runtime.cluster import local
from fedboost.runtime.jobs.manifest import decode_manifest
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.identity import Peer
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables, spec_of
from tests.support.secureboost_jobs import made
from tests.support.whole_jobs import written

JOB = made({"n_estimators": 2, "max_depth": 2}, (2, 2))
TIMERS = Timers(retry_first_s=0.01, retry_max_s=0.05, peer_lost_s=2.0)
NEXT = WIRE_VERSION + 1


@asynccontextmanager
async def world(folder):
    sources = written(folder, arrow_tables(JOB))
    cluster = local.open_cluster(folder / "c", spec_of(JOB), sources, Serial(), timers=TIMERS)
    async with cluster as opened:
        yield opened


def answer_as(node, monkeypatch, version, oldest, newest):
    """Has a party answer a Hello as another build does."""
    real = node.hello

    async def hello(*words):
        said = await real(*words)
        said.version, said.wire_oldest, said.wire_version = version, oldest, newest
        return said

    monkeypatch.setattr(node, "hello", hello)


async def submit(cluster):
    return await local.LocalClient(cluster).submit(spec_of(JOB).model_dump_json().encode())


async def until(cluster, job, *states):
    async with asyncio.timeout(30):
        while True:
            status = await cluster.coordinator.status(cluster.user, JobId(id=job))
            if status.state in states:
                return status
            await asyncio.sleep(0.01)


def signed_numbers(cluster, job):
    """The number of the wire in every daemon's copy of the job."""
    stores = [cluster.coordinator.store, *(node.store for node in cluster.parties.values())]
    return {decode_manifest(store.job(job).manifest).wire_version for store in stores}


async def test_builds_with_a_common_number_do_a_job_together(tmp_path, monkeypatch):
    async with world(tmp_path) as cluster:
        answer_as(cluster.parties["telco"], monkeypatch, "0.9.0", WIRE_VERSION, NEXT)
        job = await submit(cluster)
        status = await until(cluster, job, "finished", "failed", "paused")
        assert status.state == "finished", status.reason
        assert signed_numbers(cluster, job) == {WIRE_VERSION}


OTHERS = {
    "older": (
        ("0.1.0", 0, 1),
        f"telco runs fedboost 0.1.0 (wire 1), {local.COORDINATOR} needs wire "
        f"{WIRE_VERSIONS_SPOKEN[0]}",
        "upgrade telco",
    ),
    "newer": (
        ("0.9.0", NEXT, NEXT),
        f"{local.COORDINATOR} runs fedboost {build_version()} (wire {WIRE_VERSION}), bank runs "
        f"fedboost {build_version()} (wire {WIRE_VERSION}), telco needs wire {NEXT}",
        f"upgrade {local.COORDINATOR}, bank",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_without_a_common_number_no_job_begins_and_the_older_is_named(
    tmp_path, monkeypatch, other
):
    numbers, what, todo = OTHERS[other]
    async with world(tmp_path) as cluster:
        answer_as(cluster.parties["telco"], monkeypatch, *numbers)
        with pytest.raises(ConfigError) as refused:
            await submit(cluster)
        assert (refused.value.what, refused.value.todo) == (what, todo)
        assert not cluster.coordinator.store.jobs()


async def test_a_party_signs_no_job_of_a_number_that_it_does_not_speak(tmp_path):
    async with world(tmp_path) as cluster:
        job = await submit(cluster)
        await until(cluster, job, "finished")
        terms = decode_manifest(cluster.coordinator.store.job(job).manifest)
        leader = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
        newer = terms.model_copy(update={"wire_version": NEXT, "version": "0.9.0"})
        with pytest.raises(ConfigError, match=f"needs wire {NEXT}") as refused:
            await cluster.parties["telco"].propose(leader, Proposal(manifest=newer.encode()))
        assert refused.value.todo == "upgrade telco"


async def test_a_job_keeps_its_number_after_an_upgrade(tmp_path, monkeypatch):
    async with world(tmp_path) as cluster:
        job = await submit(cluster)
        await until(cluster, job, "running")
        await cluster.parties["telco"].pause_all()
        await until(cluster, job, "paused")
        for module in ("manifest", "wire_numbers"):
            name = f"fedboost.runtime.jobs.{module}"
            monkeypatch.setattr(f"{name}.WIRE_VERSION", NEXT)
            monkeypatch.setattr(f"{name}.WIRE_VERSIONS_SPOKEN", range(WIRE_VERSION, NEXT + 1))
        await cluster.coordinator.resume(cluster.user, JobId(id=job))
        await until(cluster, job, "finished")
        assert signed_numbers(cluster, job) == {WIRE_VERSION}
