"""Layers that the coordinator asks for at once: how long they wait, and where they end."""

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedboost.runtime.cluster.local import COORDINATOR
from tests.simulator.fates import FAULTS, Once, Past
from tests.simulator.network import Replies
from tests.support.invariants import check
from tests.support.toys import PARTIES, Ground, Toy, to_its_end

KEEP_S = 60.0  # no layer takes so long
ONE_WAY_S = 0.05
PARAMS = {
    "n_estimators": 3,
    "max_bin": 16,
    "objective": "reg:squarederror",
    "encryption": {"scheme": "plain"},
}
# Trees whose last layers no node is left for: of 150 rows two children of 40 need 80.
SHORT = Toy("short", "secureboost", {**PARAMS, "max_depth": 5, "min_child_weight": 40.0},
            keep_s=KEEP_S)  # fmt: skip


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The ground of jobs whose trees end early."""
    return Ground.laid(SHORT, tmp_path_factory.mktemp("short"))


class Far:
    """A schedule: every call takes its time there and back, but between daemons on one machine."""

    def __init__(self, *together):
        self.together = together

    def fate(self, trip):
        """See `network.Schedule`."""
        return None if {trip.sender, trip.receiver} <= {*self.together} else self

    async def befall(self, wire):
        """See `network.Fate`."""
        await asyncio.sleep(ONE_WAY_S)
        answer = await wire.arrive()
        if isinstance(answer, Replies):
            return Slow(answer)
        await asyncio.sleep(ONE_WAY_S)
        return answer


class Slow:
    """A stream of answers, each of which is late."""

    def __init__(self, replies):
        self.replies = replies

    async def read(self):
        """See `network.Replies`."""
        reply = await self.replies.read()
        await asyncio.sleep(ONE_WAY_S)
        return reply


def seconds_of_last_tree(depth, together):
    """Mock seconds, and the steps' exchanges in all trees."""
    toy = Toy("far", "secureboost", {**PARAMS, "max_depth": depth}, keep_s=KEEP_S)
    found = {}

    async def work(made, job):
        await to_its_end(made, job)
        events = (await made.client().journal(job)).events
        found["seconds"] = [e.round.seconds for e in events if e.HasField("round")][-1]
        found["exchanges"] = sum(e.step.exchanges for e in events if e.HasField("step"))

    with tempfile.TemporaryDirectory() as folder:
        ground = Ground.laid(toy, Path(folder))
        assert ground.run(work, schedule=Far(*together)).state == "finished"
    return found["seconds"], found["exchanges"]


@pytest.mark.parametrize("together", [(), (COORDINATOR, PARTIES[0])], ids=["apart", "guest's"])
def test_a_layer_takes_two_round_trips_wherever_the_coordinator_is(together):
    shallow, deep = (seconds_of_last_tree(depth, together) for depth in (2, 4))
    assert (deep[0] - shallow[0]) / 2 / (2 * ONE_WAY_S) == pytest.approx(2, abs=0.1)
    assert deep[1] - shallow[1] == 2 * 3 * 4  # messages: four a layer, one behind the other


def test_a_tree_that_ends_early_is_the_same_however_many_layers_are_asked_for(short):
    assert "EndLoop" in {trip.what for trip in short.whole.trips}
    one_by_one = Ground.laid(
        Toy("short", "secureboost", SHORT.params), short.folder / "one-by-one"
    ).whole
    assert "EndLoop" not in {trip.what for trip in one_by_one.trips}
    assert short.whole.layers == one_by_one.layers < 3 * SHORT.params["max_depth"]
    for party, shard in one_by_one.shards.items():
        for name, values in shard.arrays.items():
            np.testing.assert_array_equal(short.whole.shards[party].arrays[name], values)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_end_of_a_loop_is_heard_whatever_befalls_it(short, fault):
    schedule = Once("EndLoop", fault, Past(short.earlier.trips))
    left = short.run(schedule=schedule)
    assert schedule.has_happened
    check(SHORT, left, short.whole)
