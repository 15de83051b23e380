"""Takes a step's messages out of the inbox: one, one of each sender, or parts of a stream."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial

from fedboost.flow import Step
from fedboost.ground.errors import ProtocolError
from fedboost.runtime.party.stage.answers import StepRequest, await_request
from fedboost.runtime.party.stage.inbox import Inbox
from fedboost.runtime.party.stage.roles import Roles
from fedboost.runtime.process.bridge import Bridge


async def collect(
    step: Step, asked: Future[StepRequest], roles: Roles, inbox: Inbox, bridge: Bridge
) -> tuple[object, bool]:
    """Return a step's messages, and whether all of them have arrived.

    The messages are one message, one for each sender, or an iterator over parts. The thread that
    reads a stream waits for its missing parts.
    """
    if step.takes is None:
        return None, True
    kind = step.takes.DESCRIPTOR.full_name
    alone, streams = roles.has_one_giver(step), roles.takes_stream(step)
    wait = partial(bridge.run_in_loop, asyncio.get_running_loop())
    if streams and alone:
        sender = roles.senders(step, ())[0]
        first = await inbox.next(kind, sender)
        return inbox.parts(kind, sender, first, wait), first.last
    call = await await_request(asked)
    before = call.number
    expected = roles.senders(step, call.among)
    if streams and not step.tolerates:
        firsts = {sender: await inbox.next(kind, sender) for sender in expected}
        are_whole = all(first.last for first in firsts.values())
        return inbox.parts_by_sender(kind, firsts, wait), are_whole
    if call.awaits and not step.tolerates:
        await inbox.wait_for_messages(kind, expected, before)
    arrived = inbox.senders(kind, before)
    if step.tolerates:
        return {party: inbox.take(kind, party, before) for party in sorted(arrived)}, True
    if step.one_sender:
        if len(arrived) != 1:
            raise ProtocolError(f"{step.name} needs one {kind} and {len(arrived)} have arrived")
        return inbox.take(kind, arrived[0], before), True
    missing = [party for party in expected if party not in arrived]
    if missing:
        raise ProtocolError(f"{step.name} needs a {kind} and none has arrived from {missing[0]}")
    got = {party: inbox.take(kind, party, before) for party in expected}
    return got[expected[0]] if alone else got, True
