"""Notices a party that dies while a running job asks nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fedboost.errors import FedboostError, UnreachableError
from fedboost.runtime.coordinator.auto_resume import Answering
from fedboost.runtime.coordinator.walker import JobWalk
from fedboost.runtime.process.clock import now
from fedboost.runtime.transport.addresses import Timers


async def first_gone(
    walk: JobWalk, link: Callable[[str], Answering], timers: Timers
) -> UnreachableError:
    """Return who is gone, once an idle party has not answered for `peer_lost_s`, looks included.

    Parties that are at work show it themselves, and hosts that a job goes on without are nobody's
    concern until they are asked for something.
    """
    look_s = timers.peer_lost_s / 5
    silence_s = timers.peer_lost_s - look_s
    heard: dict[str, float] = {}
    while True:
        since = now()
        await asyncio.sleep(look_s)
        idle = [p for p in walk.everybody if not (p in walk.waiting or walk.is_spared(p))]
        if not walk.has_begun:
            continue
        heard = {party: heard.get(party, since) for party in idle}
        said = await asyncio.gather(
            *(_look(link(party), silence_s) for party in idle), return_exceptions=True
        )
        for party, error in zip(idle, said, strict=True):
            if not isinstance(error, UnreachableError):
                heard[party] = now()
            elif now() - heard[party] >= silence_s:
                error.at(party=party)
                return error


async def _look(party: Answering, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await party.hello(retries=False)
    except TimeoutError:
        raise UnreachableError(
            "it did not answer in time", todo="look at its daemon: fedboost doctor"
        ) from None
    except UnreachableError:
        raise
    except FedboostError:
        return  # it is there
