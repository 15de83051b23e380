"""A job left alone with a dead peer: it says for whom it waits, does nothing, and goes on."""

import time
from typing import Any

import pytest

from fedboost.runtime.cluster.local import COORDINATOR
from tests.faults.grounds import ground
from tests.simulator.fates import Once, Past
from tests.support.invariants import check
from tests.support.toys import PARTIES, to_its_end

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

HOUR_S = 3600.0
SHOWN_S = 20.0  # within which a dead peer is shown
BACK_S = 10.0  # within which work goes on once it is back
CALLS_PER_S_MAX = 1.0  # of each daemon while a job is paused
CPU_MAX = 0.02  # of a core, by all daemons together
STEPS = {  # at which the peer dies, and at the how manieth call
    "vertical": ("RunStep.send_buckets", 1),
    "secureboost": ("RunStep.sum_candidates", 3),
    "horizontal": ("RunStep.sum_histograms", 3),
    "gbun": ("RunStep.sum_outputs", 3),
}


class Killing:
    """A schedule under which a daemon dies as the n-th step of a kind is asked for."""

    def __init__(self, what, times, party):
        self.once = Once(what, "lost", Past([]), times=times)
        self.party = party
        self.cluster: Any = None
        self.at = 0.0  # when it happened

    def fate(self, trip):
        """See `network.Schedule`."""
        if not self.at and self.once.fate(trip) is not None:
            self.at = self.cluster.loop.time()
            self.cluster.kill(self.party)


@pytest.mark.some(1)
@pytest.mark.parametrize("party", [COORDINATOR, PARTIES[0], PARTIES[2]])
@pytest.mark.parametrize("toy", list(STEPS))
def test_a_job_left_alone_with_a_dead_peer_goes_on_after_an_hour(toy, party, record_property):
    own, noted = ground(toy), {}
    schedule = Killing(*STEPS[toy], party)

    async def work(cluster, job):
        schedule.cluster = cluster
        loop = cluster.loop
        state = await cluster.rest(job, SHOWN_S + 10.0)
        noted["shown"] = loop.time() - schedule.at
        if party == COORDINATOR:
            assert state == "running"  # nobody is left to ask
        else:
            assert state == "paused"
            assert [w.party for w in (await cluster.status(job)).waiting] == [party]
        before, busy = len(cluster.network.trips), time.process_time()
        await asleep(loop, HOUR_S)
        noted["calls"] = (len(cluster.network.trips) - before) / HOUR_S
        noted["cpu"] = (time.process_time() - busy) / HOUR_S
        await cluster.start(party)
        back = loop.time()
        while (await cluster.status(job)).state == "paused" and loop.time() < back + BACK_S:
            await asleep(loop, 0.5)
        noted["resumed"] = loop.time() - back
        await to_its_end(cluster, job)

    left = own.run(work, schedule=schedule)
    for name, value in noted.items():
        record_property(name, round(value, 4))
    check(own.toy, left, own.whole, seconds_max=HOUR_S + 60.0)
    if party != COORDINATOR:
        assert noted["shown"] <= SHOWN_S
    assert noted["calls"] <= CALLS_PER_S_MAX * len(own.place(own.folder).names)
    assert noted["cpu"] <= CPU_MAX
    assert noted["resumed"] <= BACK_S


async def asleep(loop, seconds):
    """So much mock time passes."""
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future
