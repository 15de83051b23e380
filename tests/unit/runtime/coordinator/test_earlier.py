"""What a job's result says of time and work: all attempts, and waiting for a person apart."""

import asyncio
import json

from fedboost.messages import party_pb2
from fedboost.messages.job_pb2 import Event, StateChanged, StepCost, StepDone
from fedboost.runtime.coordinator import walk, walker
from fedboost.runtime.coordinator.earlier import EarlierAttempts
from fedboost.runtime.coordinator.walker import walk_job
from tests.support.federated import now
from tests.support.walks import BANK, COUNT, STAGE, walk_of


def state(at, name):
    return Event(at=at, state=StateChanged(state=name))


def step(at, stage=STAGE, cpu=1.0):
    """A step that costs the bank so much, and in which two of three calls send something."""
    costs = [StepCost(party=BANK, cpu_seconds=cpu)]
    return Event(at=at, step=StepDone(stage=stage, step="s", costs=costs, calls=3, exchanges=2))


def test_a_journal_says_what_earlier_attempts_have_spent():
    journal = [
        state(100.0, "waiting for approval"),
        state(127.0, "running"),
        step(130.0, "align"),
        step(135.0),
        state(150.0, "paused"),  # after nobody had answered for a while
        state(190.0, "running"),
        step(191.0),
        state(400.0, "paused"),  # by the process that came after
        state(500.0, "waiting for approval"),
        state(510.0, "paused"),
    ]
    found = EarlierAttempts.of(journal)
    assert (found.waited, found.seconds, found.exchanges) == (37.0, 9.0, 6)
    assert found.stages == {"align": 3.0, STAGE: 6.0}
    assert found.cpu_seconds == {BANK: 3.0}


class Clock:
    """A clock that moves ten seconds where the coordinator pauses before it asks for approval."""

    def __init__(self, monkeypatch):
        self.now = 50.0
        for module in (walk, walker):
            monkeypatch.setattr(module, "monotonic_s", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, _):
        self.now += 10.0


def test_a_result_adds_attempts_up_and_shows_apart_how_long_people_were_waited_for(monkeypatch):
    clock, asked, told = Clock(monkeypatch), [], []

    async def walk(run):
        await run(COUNT)
        clock.now += 3.0

    async def propose(_):
        asked.append(clock.now)
        return party_pb2.Agreement(signature=b"signed" if len(asked) > 2 else b"")

    async def finish(request):
        told.append(request.result)
        return party_pb2.FinishReply(cpu_seconds=4.0)

    job, _, _ = walk_of(walk=walk)
    job.earlier = EarlierAttempts.of([state(0.0, "running"), step(7.0), state(9.0, "paused")])
    job.controls[BANK].propose, job.controls[BANK].finish = propose, finish
    now(walk_job(job))
    result = json.loads(told[-1])
    assert result["seconds"] == {"total": 10.0, "train": 10.0, "waited": 20.0}
    assert result["cpu_seconds"][BANK] == 5.0
    assert result["exchanges"] == 2 + 1
