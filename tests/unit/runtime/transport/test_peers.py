"""The coordinator's call of a step: it waits for signs of life, and ends when it is cancelled."""

import asyncio
from typing import Any

from fedboost.messages.party_pb2 import StepCall, StepReply, Turn
from fedboost.runtime.transport import peers
from fedboost.runtime.transport.addresses import Timers


class Replies:
    """A call whose replies come when the test says so; also the stub that starts it."""

    def __init__(self):
        self.next: asyncio.Future[Any] | None = None

    def RunStep(self, *_, **__):  # noqa: N802  as gRPC names it
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.next = asyncio.get_running_loop().create_future()
        return await self.next

    def cancel(self):
        pass


class Dialer:
    """Calls at once, over no network."""

    timers, metadata = Timers(), ()

    async def call(self, _, start, **__):
        return await start(None)


async def test_a_step_that_is_cancelled_as_a_sign_of_life_arrives_is_let_go(monkeypatch):
    for turns in range(5):
        replies = Replies()
        monkeypatch.setattr(peers, "service_stub", lambda *_, known=replies: known)
        dialer: Any = Dialer()
        control = peers.PartyControl(dialer, "telco", lambda: {"telco": "127.0.0.1:1"})
        running = asyncio.create_task(control.run_step(StepCall(turns=[Turn()])))
        while replies.next is None:
            await asyncio.sleep(0)
        replies.next.set_result(StepReply(working=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,), timeout=5)
        assert running.cancelled(), turns
