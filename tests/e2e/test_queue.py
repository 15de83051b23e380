"""Many jobs, few places at the coordinator and at the parties: all finish, whatever stops."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobId
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.config.refusals import key_refusal
from fedboost.runtime.coordinator import driven_jobs, party_gates
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.coordinator.party_gates import FULL
from fedboost.runtime.transport.addresses import Timers
from tests.e2e import world

TIMERS = Timers(retry_first_s=0.01, retry_max_s=0.1)
OPEN_MAX = {"bank": 3, "telco": 2}
JOBS = 30


class Absent:
    """The coordinator's calls to a party that is not there."""

    def __init__(self, party):
        self.party = party

    def __getattr__(self, _):
        async def call(*_, **__):
            raise UnreachableError(f"{self.party} is not there")

        return call


class Places:
    """A cluster whose coordinator and parties have few places, and its coordinator of now."""

    def __init__(self, cluster):
        self.cluster, self.absent = cluster, set()
        self.link = cluster.coordinator._link
        self.store = cluster.coordinator.store
        for party, most in OPEN_MAX.items():
            self.rule(party, jobs_open_max=most)

    @property
    def client(self):
        return local.LocalClient(self.cluster)

    def rule(self, party, **rules):
        node = self.cluster.parties[party]
        policy = node.config.policy.model_copy(update=rules)
        node.config = node.config.model_copy(update={"policy": policy})

    def link_of_now(self, party):
        return Absent(party) if party in self.absent else self.link(party)

    async def start_coordinator(self):
        """A new coordinator goes on with the store of the last one."""
        old = self.cluster.coordinator
        new = CoordinatorNode(old.config, old._identity, self.store, self.link_of_now)
        self.cluster = replace(self.cluster, coordinator=new)
        await new.resume_unfinished()

    async def kill_coordinator(self):
        """It ends without a word to its store or its parties."""
        old = self.cluster.coordinator

        def unheard(*_):
            raise asyncio.CancelledError

        old.attempts._states.rests = unheard
        old.attempts._states.note_queued = unheard
        await old.close()

    def ended(self):
        return sum(job.state in world.ENDS for job in self.store.jobs())

    async def until(self, true, seconds=60):
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.01)

    async def wait_of(self, job):
        """The party and the words of the one wait of a job, once there is one."""
        async with asyncio.timeout(10):
            while not (waits := (await self.client.status(job)).waiting):
                await asyncio.sleep(0.01)
        [wait] = waits
        return wait.party, wait.step


@pytest.fixture(autouse=True)
def four_places(monkeypatch):
    """Jobs go on by themselves, four at once."""

    def config(**settings):
        return CoordinatorConfig(**{**settings, "auto_resume": True, "jobs_at_once": 4})

    monkeypatch.setattr(local, "CoordinatorConfig", config)


@asynccontextmanager
async def few_places(folder):
    sources = {
        name: world.write(folder / f"{name}.parquet", world.toy(label=name == "bank"))
        for name in OPEN_MAX
    }
    opened = local.open_cluster(folder / "c", world.spec(JOB), sources, Serial(), timers=TIMERS)
    async with opened as cluster:
        found = Places(cluster)
        await found.kill_coordinator()
        await found.start_coordinator()
        yield found
        await found.cluster.coordinator.close()


JOB = world.echo(hosts=("telco",), rounds=2)
TEXT = world.spec(JOB).model_dump_json().encode()


async def test_no_job_is_lost_for_want_of_a_place(tmp_path, caplog):
    """The coordinator is killed, and later stopped, while most jobs are queued."""
    async with few_places(tmp_path) as places:
        ids = [await places.client.submit(TEXT) for _ in range(JOBS)]
        for share in (1, 2):
            await places.until(lambda n=share: places.ended() >= n * JOBS // 3)
            if share == 1:
                await places.kill_coordinator()
            else:
                await places.cluster.coordinator.close()
            states = {job.state for job in places.store.jobs()}
            assert states <= {"queued", "waiting for approval", "running", "paused", "finished"}
            caplog.clear()
            await places.start_coordinator()
            paused = [r for r in caplog.records if "the coordinator was restarted" in r.message]
            assert len(paused) <= OPEN_MAX["telco"]
        await places.until(lambda: places.ended() == JOBS)
        jobs = [places.store.job(id_) for id_ in ids]
        assert [job.state for job in jobs] == ["finished"] * JOBS
        assert max(job.attempt for job in jobs) <= 3  # an attempt is one that has begun


async def test_a_job_that_a_party_has_no_place_for_waits_until_another_ends(tmp_path):
    """A person at bank has yet to approve the first job, which leaves its place to others."""
    async with few_places(tmp_path) as places:
        places.rule("telco", jobs_open_max=1)
        places.rule("bank", approve="always")
        first, second = [await places.client.submit(TEXT) for _ in range(2)]
        assert await places.wait_of(second) == ("telco", FULL)
        assert places.cluster.coordinator.attempts._queue._running.total() == 0
        assert places.cluster.parties["bank"].store.job(second).state == "queued"
        places.rule("bank", approve="never")
        await places.until(lambda: places.ended() == 2)
        assert [places.store.job(id_).state for id_ in (first, second)] == ["finished"] * 2


async def test_jobs_that_wait_for_people_are_approved_in_any_order_and_run(tmp_path):
    async with few_places(tmp_path) as places:
        places.rule("telco", approve="always", jobs_open_max=9)
        places.rule("bank", jobs_open_max=9)
        ids = [await places.client.submit(TEXT) for _ in range(6)]  # more than there are places
        waits = {id_: await places.wait_of(id_) for id_ in ids}
        assert set(waits.values()) == {("telco", "approval")}
        for id_ in reversed(ids):
            places.cluster.parties["telco"].states.approve(id_, local.USER)
        await places.until(lambda: places.ended() == len(ids))
        assert {job.state for job in places.store.jobs()} == {"finished"}


async def test_a_job_of_an_absent_party_is_queued_and_begins_on_its_return(tmp_path):
    async with few_places(tmp_path) as places:
        places.absent.add("telco")
        draft = await places.client.submit(TEXT)
        assert (await places.wait_of(draft))[1].startswith("which cannot be reached: ")
        assert places.store.job(draft).state == "queued"
        await places.cluster.coordinator.close()
        await places.start_coordinator()  # it is a draft still
        assert (await places.wait_of(draft))[1].startswith("which cannot be reached: ")
        places.absent.clear()
        await places.until(lambda: places.ended() == 1)
        assert places.store.job(draft).state == "finished"


async def test_a_queued_job_whose_party_leaves_before_it_begins_stays_queued(tmp_path):
    async with few_places(tmp_path) as places:
        places.rule("telco", approve="always")
        job = await places.client.submit(TEXT)
        assert await places.wait_of(job) == ("telco", "approval")
        places.cluster.parties["telco"].states.approve(job, local.USER)
        places.link, link = Absent, places.link
        coordinator = places.cluster.coordinator
        walk = coordinator.attempts.walk(job)
        walk.controls["telco"] = Absent("telco")
        places.absent.add("telco")
        await places.until(lambda: places.store.job(job).state == "queued")
        assert (await places.wait_of(job))[1].startswith("which cannot be reached: ")
        assert places.cluster.parties["bank"].store.job(job).state == "queued"
        places.link = link
        places.absent.clear()
        await places.until(lambda: places.ended() == 1)
        assert places.store.job(job).state == "finished"


async def test_a_job_that_is_refused_for_want_of_a_place_as_it_begins_is_queued_again(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(party_gates, "FULL_PAUSE_S", 0.05)
    async with few_places(tmp_path) as places:
        bank, telco = (places.cluster.parties[name] for name in OPEN_MAX)
        room, asked, at_bank = telco.judge.room, [], []
        full = key_refusal("jobs_open_max", "allows 0 jobs of a coordinator at once")

        def refuse_begin(job):
            asked.append(job.id)
            at_bank.append(bank.store.job(job.id).state)
            if len(asked) == 2:  # the first time it was proposed
                raise full.at(party="telco")
            room(job)

        monkeypatch.setattr(telco.judge, "room", refuse_begin)
        job = await places.client.submit(TEXT)
        await places.until(lambda: places.ended() == 1)
        assert (places.store.job(job).state, places.store.job(job).attempt) == ("finished", 2)
        assert at_bank[2] in ("agreed", "queued")  # withdrawn, and perhaps proposed again already


async def test_a_queued_job_is_cancelled_everywhere(tmp_path, monkeypatch):
    async with few_places(tmp_path) as places:
        monkeypatch.setattr(party_gates, "FULL_PAUSE_S", 0.05)
        places.rule("telco", jobs_open_max=1)
        places.rule("bank", approve="always")
        _, second = [await places.client.submit(TEXT) for _ in range(2)]
        assert await places.wait_of(second) == ("telco", FULL)
        user = places.cluster.user
        status = await places.cluster.coordinator.cancel(user, JobId(id=second))
        assert status.state == "cancelled"
        assert places.cluster.parties["bank"].store.job(second).state == "cancelled"
        assert places.cluster.parties["telco"].store.find(second) is None


async def test_a_job_that_is_queued_for_long_is_made_known_to_its_parties(tmp_path, monkeypatch):
    monkeypatch.setattr(driven_jobs, "FIRST_CONTACT_S", 0.2)
    async with few_places(tmp_path) as places:
        queue = places.cluster.coordinator.attempts._queue
        queue.places = 0
        job = await places.client.submit(TEXT)
        assert [node.store.find(job) for node in places.cluster.parties.values()] == [None] * 2

        def known():
            return [node.store.find(job) for node in places.cluster.parties.values()]

        await places.until(lambda: all(known()) and {at.state for at in known()} == {"queued"})
        await places.until(lambda: places.store.job(job).state == "queued")
        queue.places = 1
        queue.release()
        await places.until(lambda: places.ended() == 1)
        assert places.store.job(job).state == "finished"
