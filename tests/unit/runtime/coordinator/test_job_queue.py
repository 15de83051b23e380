"""Few jobs run at once, users take turns, and whoever leaves makes room."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from fedboost.ground.workers import Serial
from fedboost.messages import job_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.coordinator import rooms
from fedboost.runtime.coordinator.job_queue import JobQueue
from tests.e2e import world


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


class Jobs:
    """Jobs named `user/number`, and in which order they began."""

    def __init__(self, places):
        self.queue, self.began, self.notes, self.tasks = JobQueue(places), [], {}, {}

    async def submit(self, *names):
        for name in names:
            self.tasks[name] = asyncio.create_task(self._enter(name))
            await settled()

    async def _enter(self, name):
        await self.queue.wait_for_place(
            name.split("/")[0], lambda why: self.notes.update({name: why})
        )
        self.began.append(name)

    async def end(self, name):
        self.queue.free_place(name.split("/")[0])
        await settled()


@asynccontextmanager
async def cluster_of(folder, places):
    """Real nodes in one process with so many places, and a job for them."""
    spec = world.spec(world.echo(hosts=("telco",), rounds=3))
    sources = {
        name: world.write(folder / f"{name}.parquet", world.toy(label=name == "bank"))
        for name in ("bank", "telco")
    }
    async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
        cluster.coordinator.attempts._queue.places = places
        yield cluster, spec.model_dump_json().encode()


async def test_users_take_turns_and_each_user_s_oldest_job_is_first():
    jobs = Jobs(2)
    await jobs.submit("ann/1", "ann/2", "ann/3", "ann/4", "ben/1", "eve/1")
    assert jobs.began == ["ann/1", "ann/2"]
    assert jobs.notes["ann/3"] == "2 jobs run and 0 wait before it"
    assert jobs.notes["eve/1"] == "2 jobs run and 3 wait before it"
    for ended in ("ann/1", "ann/2", "ben/1", "eve/1"):
        await jobs.end(ended)
    assert jobs.began[2:] == ["ben/1", "ann/3", "eve/1", "ann/4"]


@pytest.mark.parametrize("in_the_same_moment", [False, True])
async def test_a_cancelled_job_takes_no_place(in_the_same_moment):
    jobs = Jobs(1)
    await jobs.submit("ann/1", "ann/2", "ann/3")
    if in_the_same_moment:
        jobs.queue.free_place("ann")  # ann/2 has its turn, and is cancelled before it hears
        jobs.tasks["ann/2"].cancel()
        await settled()
    else:
        jobs.tasks["ann/2"].cancel()
        await settled()
        await jobs.end("ann/1")
    assert jobs.began == ["ann/1", "ann/3"]
    assert jobs.queue._running.total() == 1


async def test_a_job_that_had_a_place_comes_first():
    jobs = Jobs(1)
    await jobs.submit("ann/1", "ann/2")
    jobs.queue.free_place("ann")  # ann/1 waits for memory: ann/2 runs
    await settled()
    jobs.began.remove("ann/1")
    back = asyncio.create_task(jobs.queue.wait_for_place("ann", print, again=True))
    await jobs.submit("ann/3")
    await jobs.end("ann/2")
    assert back.done()
    assert jobs.began == ["ann/2"]
    await jobs.end("ann/1")
    assert jobs.began == ["ann/2", "ann/3"]


def test_a_job_that_waits_for_memory_leaves_its_place_to_others(tmp_path, monkeypatch):
    """One place; the first job has no memory at telco until the second has ended."""

    async def run():
        async with cluster_of(tmp_path, places=1) as (cluster, text):
            jobs, memory = local.LocalClient(cluster), cluster.parties["telco"].parts.memory
            take = memory.take
            asked: list[str] = []
            ended: list[str] = []

            async def taken(job):
                asked.append(job.id)
                return (ended or job.id != asked[0]) and await take(job)

            monkeypatch.setattr(memory, "take", taken)
            monkeypatch.setattr(rooms, "ROOM_POLL_S", 0.01)
            first = await jobs.submit(text)
            while (await jobs.status(first)).state != "queued":
                await asyncio.sleep(0.001)
            for id_ in (await jobs.submit(text), first):
                async for _ in jobs.watch(id_):
                    pass
                ended.append((await jobs.status(id_)).state)
            return ended, cluster.coordinator.attempts._queue._running.total()

    assert asyncio.run(run()) == (["finished", "finished"], 0)


async def test_never_more_run_than_there_are_places():
    jobs = Jobs(3)
    await jobs.submit(*(f"{user}/{n}" for n in range(5) for user in ("ann", "ben")))
    ended = 0
    while ended < 10:
        assert jobs.queue._running.total() <= 3
        await jobs.end(jobs.began[ended])
        ended += 1
    assert len(jobs.began) == 10
    assert jobs.queue._running.total() == 0


async def test_of_four_jobs_two_run_and_the_others_are_queued(tmp_path):
    """Real nodes in one process; one queued job is cancelled, the other runs when there is room."""
    async with cluster_of(tmp_path, places=2) as (cluster, text):
        jobs = local.LocalClient(cluster)
        ids = [await jobs.submit(text) for _ in range(4)]
        while (await jobs.status(ids[3])).state != "queued":
            await asyncio.sleep(0.001)
        last = await jobs.status(ids[3])
        [waits] = last.waiting
        assert waits.party == local.COORDINATOR
        assert waits.step == "a place: 2 jobs run and 1 wait before it"
        await cluster.coordinator.cancel(cluster.user, job_pb2.JobId(id=ids[2]))
        states = []
        for id_ in (ids[0], ids[1], ids[3]):
            async for event in jobs.watch(id_):
                states += [event.state.state] if event.HasField("state") else []
        ended = [(await jobs.status(id_)).state for id_ in ids]
    assert ended == ["finished", "finished", "cancelled", "finished"]
    assert states == ["running", "finished"] * 2 + ["queued", "running", "finished"]


async def test_whoever_stops_to_watch_as_the_journal_grows_is_let_go(tmp_path):
    """No job runs; the cancellation comes so many turns of the loop after the ring."""
    async with cluster_of(tmp_path, places=0) as (cluster, text):
        jobs, journals = local.LocalClient(cluster), cluster.coordinator._journals
        job = await jobs.submit(text)
        while (await jobs.status(job)).state != "queued":
            await asyncio.sleep(0.001)

        async def watch():
            async for _ in jobs.watch(job):
                pass

        for turns in range(5):
            watching = asyncio.create_task(watch())
            while not journals.bell_of(job).rung._waiters:
                await asyncio.sleep(0.001)
            journals.bell_of(job).ring()
            for _ in range(turns):
                await asyncio.sleep(0)
            watching.cancel()
            await asyncio.wait((watching,), timeout=5)
            assert watching.cancelled(), turns
