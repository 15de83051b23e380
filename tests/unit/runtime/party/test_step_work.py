"""Short steps are done by the event loop, others in threads; either way the same leaves."""

import asyncio

import numpy as np
import pytest

from fedboost.flow import Out
from fedboost.ground.errors import PeerError
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.party.stage.step_work import LATELY, SHORT_S, Paces, StepWork, UnsentMessages
from fedboost.runtime.process.bridge import Bridge
from tests.support.federated import GUEST, HOSTS, frame_of, now, room_for

HOST = HOSTS[0]


def room(rounds=2 * LATELY):
    table = frame_of([b"a"], np.zeros((1, 1), np.float32))
    params = {"rounds": rounds, "parts": 1, "numbers": 4}
    return room_for("echo", {GUEST: table, HOST: table}, params)


def test_a_step_is_short_once_all_of_its_last_calls_were():
    paces = Paces()
    for _ in range(LATELY):
        assert not paces.is_short("step")
        paces.note("step", SHORT_S / 2)
    assert paces.is_short("step")
    assert not paces.is_short("other")
    paces.note("step", 2 * SHORT_S)
    for _ in range(LATELY):
        assert not paces.is_short("step")
        paces.note("step", SHORT_S / 2)
    assert paces.is_short("step")


@pytest.mark.parametrize("is_here", [False, True])
def test_parts_leave_in_their_order_and_words_add_up(is_here):
    left = []

    async def deliver(part, is_last):
        left.append((part, is_last))

    async def stop(error):
        raise error

    def step(state, got):
        assert (state, got) == ("state", "got")
        for number in range(3):
            told = StatusReport(answers=f"{number}")
            yield Out(send={} if number != 1 else None, told=told)

    def send(out, part, is_last):
        assert out.send is not None
        return {HOST: deliver(part, is_last)}

    async def run():
        bridge = Bridge()
        work = StepWork(step, ("state", "got"), lambda: None, send, bridge)
        if is_here:
            lagging = UnsentMessages(bridge, stop)
            lagging.start_sending({HOST: deliver("before", False)})
            await work.run_in_loop(lagging)
            await lagging.arrive()
            assert left.pop(0) == ("before", False)
        else:
            await asyncio.to_thread(work.run_in_thread, asyncio.get_running_loop())
        assert left == [(0, False), (2, True)]
        assert work.told.answers == "2"
        assert work.seconds > 0

    now(run())


async def test_parts_of_a_short_step_leave_while_the_next_ones_are_computed():
    happened, bridge = list[str](), Bridge()

    async def deliver(part):
        happened.append(f"{part} leaves")

    def step():
        for number in range(4):
            happened.append(f"{number} is made")
            yield Out(send={})

    def send(out, part, is_last):
        return {HOST: deliver(part)}

    lagging = UnsentMessages(bridge, deliver)
    await StepWork(step, (), lambda: None, send, bridge).run_in_loop(lagging)
    await lagging.arrive()
    assert happened.index("0 leaves") < happened.index("2 is made")
    assert [each for each in happened if "leaves" in each] == [f"{n} leaves" for n in range(4)]


async def test_only_what_goes_to_the_same_peer_waits_for_what_is_on_its_way():
    bridge, arrives, failures = Bridge(), asyncio.Event(), []

    async def stop(error):
        failures.append(error)

    lagging = UnsentMessages(bridge, stop)

    def work(*peers):
        def send(out, part, is_last):
            return {peer: arrives.wait() for peer in peers}

        given = Out(send={}) if peers else Out()
        return StepWork(lambda: given, (), lambda: None, send, bridge)

    await work(HOST).run_in_loop(lagging)
    await work().run_in_loop(lagging)
    await work(GUEST).run_in_loop(lagging)
    waits = asyncio.create_task(work(HOST).run_in_loop(lagging))
    await asyncio.sleep(0)
    assert not waits.done()
    assert list(lagging.under_way.values()) == [GUEST]
    arrives.set()
    await waits
    await lagging.arrive()
    assert not failures


def test_quick_steps_move_to_the_loop_and_the_walk_is_the_same(monkeypatch):
    here = []
    real = Session._work_in_loop

    async def watched(self, step, call, got):
        here.append((self.context.party, step.name))
        return await real(self, step, call, got)

    monkeypatch.setattr(Session, "_work_in_loop", watched)

    async def run():
        own = await room().open()
        await own.walk()
        return own.lines()

    lines = now(run())
    # The host reads a call before the coordinator asks for it, in a thread that can wait for that
    assert set(here) == {(GUEST, "call"), (GUEST, "compare")}
    monkeypatch.setattr(Paces, "is_short", lambda *_: False)
    assert now(run()) == lines


async def test_a_message_that_is_refused_while_the_next_step_waits_ends_the_stage(monkeypatch):
    """The guest's call is on its way while it waits for an answer that will not come."""
    monkeypatch.setattr(Paces, "is_short", lambda *_: True)
    own = await room().open()

    async def refused(envelope, payload):
        await asyncio.sleep(0.01)
        raise PeerError(f"{envelope.receiver} takes nothing")

    own.deliver = refused
    turns = [Turn(step="call", number=1), Turn(step="compare", number=3)]
    asked = StepCall(turns=turns, awaits=True)
    with pytest.raises(PeerError, match=f"{HOST} takes nothing"):
        await own.sessions[GUEST].run_step(asked)
