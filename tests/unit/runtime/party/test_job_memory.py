"""Jobs wait at a party until its memory is free, by its own estimate and its own settings."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from fedboost.ground.errors import ConfigError, PolicyError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.runtime.cluster.local import LocalClient
from fedboost.runtime.estimate.footprint import estimated, footprint
from fedboost.runtime.party.job import memory as job_memory
from fedboost.runtime.party.job.memory import DAEMON_BYTES, GB, WORKER_BYTES, JobMemory, Space
from fedboost.runtime.process.memory_limit import allowed_bytes
from fedboost.runtime.transport.addresses import Timers
from tests.attacks.test_border_approval import JOB, OWNED, town, until
from tests.e2e import world
from tests.support.federated import now


def limited(node, need, free, monkeypatch, *, stated=True, disk_gb=None):
    """Has a party estimate every job alike, with so many bytes for all of them."""
    memory_gb = (free + DAEMON_BYTES + node.config.processes * WORKER_BYTES) / GB
    monkeypatch.setattr(job_memory, "allowed_bytes", lambda: memory_gb * GB)
    config = node.config.model_copy(
        update={"memory_gb": memory_gb if stated else None, "disk_gb": disk_gb}
    )
    node.parts.memory = JobMemory(config, lambda: node.config.datasets, node.under_way)
    node.parts.memory.of = need if callable(need) else lambda *_: Space(need, need)
    return node.parts.memory


async def two_jobs(folder, monkeypatch, free, **how):
    """Two jobs of which the first is held up where it begins; how both stood, and stand."""
    async with town(folder) as cluster:
        node, jobs = cluster.parties[OWNED], LocalClient(cluster)
        node.config = node.config.model_copy(
            update={"policy": node.config.policy.model_copy(update={"approve": "never"})}
        )
        limited(node, 100_000_000, free, monkeypatch, stated=False, **how)
        go, begin = asyncio.Event(), node._starting.begin

        async def held_up(job, request):
            await go.wait()
            return await begin(job, request)

        monkeypatch.setattr(node._starting, "begin", held_up)
        spec = JOB.model_dump_json().encode()
        first, second = await jobs.submit(spec, "1" * 32), await jobs.submit(spec, "2" * 32)

        async def state(job):
            return await jobs.status(job)

        await until(lambda: node.parts.memory._held and len(node.under_way) > 1)
        async with asyncio.timeout(20):
            while (await state(second)).state not in ("queued", "running"):
                await asyncio.sleep(0.01)
        stood = await state(second)
        go.set()
        for job in (first, second):
            async for _ in jobs.watch(job):
                pass
        return stood, [(await state(job)).state for job in (first, second)], node.parts.memory


def test_a_second_job_is_queued_until_the_first_gives_its_memory_back(tmp_path, monkeypatch):
    stood, ended, memory = now(two_jobs(tmp_path, monkeypatch, 150_000_000))
    assert stood.state == "queued"
    [wait] = [wait.step for wait in stood.waiting if "memory" in wait.step]
    assert wait == f"a place: other jobs have the memory of {OWNED}"
    assert ended == ["finished", "finished"]
    assert not memory._held


def test_a_second_job_is_queued_until_the_first_gives_its_disk_back(tmp_path, monkeypatch):
    stood, ended, memory = now(two_jobs(tmp_path, monkeypatch, 250_000_000, disk_gb=0.15))
    assert (stood.state, ended) == ("queued", ["finished", "finished"])
    assert not memory._held


def test_two_jobs_run_beside_each_other_where_there_is_memory_for_both(tmp_path, monkeypatch):
    stood, ended, _ = now(two_jobs(tmp_path, monkeypatch, 250_000_000))
    assert (stood.state, ended) == ("running", ["finished", "finished"])


async def refused(folder, monkeypatch, **how):
    async with town(folder) as cluster:
        node = cluster.parties[OWNED]
        node.config = node.config.model_copy(
            update={"policy": node.config.policy.model_copy(update={"approve": "never"})}
        )
        limited(node, 200_000_000, 100_000_000, monkeypatch, **how)
        return (await cluster.run(JOB)).status


def test_a_job_larger_than_the_owner_s_limit_is_refused_and_the_log_says_why(
    tmp_path, monkeypatch, caplog
):
    with caplog.at_level(logging.WARNING):
        status = now(refused(tmp_path, monkeypatch))
    assert (status.state, status.reason.code) == ("failed", PolicyError.code)
    assert "GB" not in status.reason.what
    assert "it needs 0.20 GB of the 0.10 GB for jobs" in caplog.text


def test_a_job_that_needs_more_of_the_disk_than_its_owner_allows_is_refused(
    tmp_path, monkeypatch, caplog
):
    with caplog.at_level(logging.WARNING):
        status = now(refused(tmp_path, monkeypatch, stated=False, disk_gb=0.05))
    assert (status.state, status.reason.code) == ("failed", PolicyError.code)
    assert status.reason.what == f"the job needs more of the disk than {OWNED} may use"
    assert (
        "it needs 0.20 GB of the 0.10 GB for jobs, and 0.20 GB of 0.05 GB of the disk"
        in caplog.text
    )


def test_without_a_limit_a_job_larger_than_the_machine_runs_alone(tmp_path, monkeypatch):
    assert now(refused(tmp_path, monkeypatch, stated=False)).state == "finished"


async def begun_without_asking(folder, monkeypatch):
    async with town(folder) as cluster:
        node = cluster.parties[OWNED]
        node.config = node.config.model_copy(
            update={"policy": node.config.policy.model_copy(update={"approve": "never"})}
        )
        memory = limited(node, 100_000_000, 150_000_000, monkeypatch)
        job = await LocalClient(cluster).submit(JOB.model_dump_json().encode())
        await until(lambda: memory._held)
        held = memory._held[job].job
        memory._held["another"] = memory._held.pop(job)
        with pytest.raises(UnreachableError, match="other jobs have the memory"):
            await memory.begin(held)
        memory._held["another"].begun, memory._held["another"].asked = False, -1e9
        assert await memory.take(held)  # whose coordinator has fallen silent is forgotten
        await cluster.coordinator.cancel(cluster.user, job_pb2.JobId(id=job))


def test_a_party_does_not_rely_on_being_asked_for_room(tmp_path, monkeypatch):
    now(begun_without_asking(tmp_path, monkeypatch))


def test_a_job_whose_memory_nobody_can_tell_begins_and_is_refused_there(
    tmp_path, monkeypatch, caplog
):
    def unknown(*_):
        raise ConfigError("no such file")

    async def run():
        async with town(tmp_path) as cluster:
            node = cluster.parties[OWNED]
            node.config = node.config.model_copy(
                update={"policy": node.config.policy.model_copy(update={"approve": "never"})}
            )
            limited(node, unknown, 100_000_000, monkeypatch)
            return (await cluster.run(JOB)).status.state

    assert now(run()) == "finished"
    assert "its memory is not known: no such file" in caplog.text


TREES = JobSpec.model_validate(
    {
        "name": "trees",
        "protocol": "secureboost",
        "parties": {"guest": "bank", "hosts": ["telco"]},
        "data": {"bank": {"dataset": "d", "label": "y"}, "telco": {"dataset": "d"}},
        "params": {"n_estimators": 1, "max_depth": 2, "encryption": {"scheme": "lattice"}},
    },
    strict=False,
)


def test_a_footprint_is_the_table_and_what_the_training_takes_here(tmp_path):
    source = world.write(tmp_path / "telco.parquet", world.toy(columns=3))
    alone = estimated(JOB.model_dump_json(), "telco", source)
    here = estimated(TREES.model_dump_json(), "telco", source)
    assert alone.memory < 1_000_000 < here.memory < 1_000_000_000
    assert alone.disk == here.disk == 0.0  # no large table
    # In a process of its own.
    assert footprint(JOB, "telco", source).memory == pytest.approx(alone.memory, rel=0.3)


def test_memory_is_the_least_of_the_machine_s_and_the_control_groups(tmp_path):
    ours = tmp_path / "ours"
    ours.write_text("0::/docker/job\n")
    (tmp_path / "docker" / "job").mkdir(parents=True)
    machine = allowed_bytes(tmp_path, tmp_path / "absent")
    assert machine > 0
    (tmp_path / "docker" / "job" / "memory.max").write_text("max\n")
    assert allowed_bytes(tmp_path, ours) == machine
    (tmp_path / "docker" / "memory.max").write_text("1000000\n")
    assert allowed_bytes(tmp_path, ours) == 1_000_000


@pytest.mark.parametrize("leaves", ["held", "asks"])
def test_a_job_may_leave_while_jobs_are_estimated(leaves, monkeypatch):
    """A job that was cancelled meanwhile gets no memory, and does not keep others waiting."""
    monkeypatch.setattr(job_memory, "allowed_bytes", lambda: DAEMON_BYTES + 250_000_000)
    timers, terms = Timers(peer_lost_s=100), SimpleNamespace(spec=TREES, params={})
    config: Any = SimpleNamespace(
        name=OWNED, memory_gb=None, disk_gb=None, processes=0, timers=timers
    )
    jobs: dict[str, Any] = {}
    for name in ("held", "asks"):
        signed = SimpleNamespace(dataset=name, party=OWNED, manifest=terms)
        jobs[name] = SimpleNamespace(id=name, signed=signed, halted=None)
    tables: Any = {name: name for name in jobs}
    memory = JobMemory(config, lambda: tables, {})

    async def left():
        memory.release_memory(leaves)

    async def both():
        loop = asyncio.get_running_loop()

        def need(spec, party, table):  # called in a thread while the loop does other things
            if table == "held":
                asyncio.run_coroutine_threadsafe(left(), loop).result()
            return Space(100_000_000)

        memory.of = need
        return await memory.take(jobs["held"]), await memory.take(jobs["asks"])

    assert now(both()) == (True, leaves == "held")
    assert [*memory._held] == (["asks"] if leaves == "held" else ["held"])


async def test_a_stopped_job_that_is_still_beginning_gets_its_turn(monkeypatch):
    config: Any = SimpleNamespace(
        name="telco", memory_gb=1.0, disk_gb=None, processes=1, timers=Timers()
    )
    stopped: Any = SimpleNamespace(id="stopped", halted=PolicyError("cancelled"))
    fresh: Any = SimpleNamespace(id="fresh", halted=None)
    memory = JobMemory(config, dict, {"stopped": stopped, "fresh": fresh})
    memory.of = lambda *_: Space(1, 1)

    async def estimated_space(_):
        return Space(1, 1)

    monkeypatch.setattr(memory, "_estimated_space", estimated_space)
    monkeypatch.setattr(job_memory, "_estimate_key", lambda job: (job.id, ""))

    async def begin():
        await asyncio.sleep(0.01)  # the other asks meanwhile
        return await memory.take(stopped)

    beginning = asyncio.create_task(begin())
    stopped.forget = lambda: asyncio.wait((beginning,))
    async with asyncio.timeout(5):
        assert await memory.take(fresh)
    assert beginning.result() is not None
