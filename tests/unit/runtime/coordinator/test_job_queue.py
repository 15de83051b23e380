"""Few jobs run at once, users take turns, and whoever leaves makes room."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.ground.workers import Serial
from fedboost.messages import job_pb2
from fedboost.runtime.cluster import local
from fedboost.runtime.coordinator import party_gates, rooms
from fedboost.runtime.coordinator.job_queue import JobQueue
from fedboost.runtime.coordinator.party_gates import FULL, PartyGates, QueuedJob
from fedboost.runtime.transport.addresses import Timers
from tests.e2e import world


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


class Jobs:
    """Jobs named `user/number`, and in which order they began; all are of bank and telco."""

    def __init__(self, places):
        self.gates = PartyGates(self.link, Timers(retry_first_s=0.001, retry_max_s=0.001))
        self.queue = JobQueue(places, self.gates, "coord")
        self.began, self.waited, self.tasks, self.queued, self.absent = [], [], {}, {}, set()

    def link(self, party):
        return Greeting(self, party)

    async def submit(self, *names, **more):
        for name in names:
            user, created = name.split("/")[0], len(self.queued)
            parties = more.pop("parties", ("bank", "telco"))
            self.queued[name] = QueuedJob(name, user, parties, created, **more)
            await self.queue_again(name)

    async def queue_again(self, name):
        self.tasks[name] = asyncio.create_task(self._enter(name))
        await settled()

    async def _enter(self, name):
        await self.queue.wait_for_place(self.queued[name], lambda: self.waited.append(name))
        self.began.append(name)

    async def end(self, name):
        self.queue.free_place(name.split("/")[0])
        self.gates.note_left(self.queued[name])
        await settled()

    async def refuse(self, name, party):
        """A party has no place for the job, which queues again."""
        self.gates.note_full(party, self.queued[name])
        self.queue.free_place(name.split("/")[0])
        self.gates.note_left(self.queued[name], refused_by=party)
        await self.queue_again(name)

    def step(self, name):
        wait = self.queue.waits()[name]
        return f"{wait.party}, {wait.step}"


@dataclass
class Greeting:
    """A party that answers unless it is absent."""

    jobs: Jobs
    party: str

    async def hello(self, *, retries=True):
        if self.party in self.jobs.absent:
            raise UnreachableError("gone")


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
    assert jobs.waited == ["ann/3", "ann/4", "ben/1", "eve/1"]
    assert jobs.step("ann/3") == "coord, a place: 2 jobs run and 0 wait before it"
    assert jobs.step("eve/1") == "coord, a place: 2 jobs run and 3 wait before it"
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
    await jobs.end("ann/1")  # it waits for memory: ann/2 runs
    await jobs.submit("ann/3")
    jobs.queued["ann/1"].had_place = True
    await jobs.queue_again("ann/1")
    await jobs.end("ann/2")
    await jobs.end("ann/1")
    assert jobs.began == ["ann/1", "ann/2", "ann/1", "ann/3"]


@pytest.mark.parametrize("returns", [True, False])
async def test_jobs_that_had_no_place_wait_for_those_that_are_about_to_go_on(returns):
    jobs = Jobs(2)
    jobs.queue.hold_for("ann/3")
    await jobs.submit("ann/1")
    await jobs.submit("ann/2", had_place=True)
    assert jobs.began == ["ann/2"]
    if returns:
        await jobs.submit("ann/3", had_place=True)
        assert jobs.began == ["ann/2", "ann/3"]
        await jobs.end("ann/2")
    else:
        jobs.queue.release()
        await settled()
    assert jobs.began[-1] == "ann/1"


async def test_a_job_that_a_full_party_refuses_keeps_its_turn_and_lets_others_pass():
    """telco has one place: ann/2 waits for it, while a job of other parties runs."""
    jobs = Jobs(3)
    await jobs.submit("ann/1", "ann/2")
    jobs.gates.note_taken(jobs.queued["ann/1"])
    await jobs.refuse("ann/2", "telco")
    await jobs.submit("ann/3")
    await jobs.submit("ann/4", parties=("bank", "shop"))
    assert jobs.began == ["ann/1", "ann/2", "ann/4"]
    assert jobs.step("ann/2") == jobs.step("ann/3") == f"telco, {FULL}"
    await jobs.end("ann/1")
    assert jobs.began[3:] == ["ann/2"]  # ann/3 waits until telco has answered
    jobs.gates.note_taken(jobs.queued["ann/2"])
    await settled()
    assert jobs.began[4:] == ["ann/3"]


async def test_a_full_party_is_asked_again_though_no_job_of_it_ends(monkeypatch):
    monkeypatch.setattr(party_gates, "FULL_PAUSE_S", 0.001)
    jobs = Jobs(1)
    await jobs.submit("ann/1")
    jobs.queue.free_place("ann")
    jobs.gates.note_full("telco", jobs.queued["ann/1"])
    await jobs.queue_again("ann/1")
    assert jobs.began == ["ann/1"]
    await asyncio.wait_for(jobs.tasks["ann/1"], 5)
    assert jobs.began == ["ann/1", "ann/1"]


async def test_a_job_that_a_full_party_has_open_passes_its_gate():
    jobs = Jobs(2)
    await jobs.submit("ann/1")
    jobs.gates.note_full("telco", jobs.queued["ann/1"])
    await jobs.submit("ann/2")
    await jobs.submit("ann/3", is_open=True)
    assert jobs.began == ["ann/1", "ann/3"]


async def test_jobs_of_an_absent_party_wait_until_it_answers():
    jobs = Jobs(2)
    jobs.absent.add("telco")
    jobs.gates.note_absent("telco", "it is not there")
    await jobs.submit("ann/1")
    await jobs.submit("ann/2", parties=("bank", "shop"))
    await asyncio.sleep(0.01)
    assert jobs.began == ["ann/2"]
    assert jobs.step("ann/1") == "telco, which cannot be reached: it is not there"
    jobs.absent.clear()
    await asyncio.wait_for(jobs.tasks["ann/1"], 5)
    assert not jobs.queue.waits()


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
        while not (await jobs.status(ids[3])).waiting:
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
