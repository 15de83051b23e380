"""Has every party reserve the memory that a job needs before the job begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fedboost.messages import job_pb2
from fedboost.runtime.coordinator.walk import JobWalk

ROOM_POLL_S = 1.0  # between two checks whether another job has released memory


async def make_room(walk: JobWalk, note: Callable[[str], None]) -> None:
    """Return when every party holds memory for the job; `note` hears which party is short of it.

    Parties are asked in the order of their names. Among jobs that wait for each other's memory, the
    one that has come furthest in that order proceeds.
    """
    request, held = job_pb2.JobId(id=walk.id), list[str]()
    for party in sorted(walk.everybody):
        held.append(party)
        asked, noted = [party], ""
        while True:
            replies = await walk.ask_parties(
                asked, "memory", lambda name: walk.controls[name].make_room(request)
            )
            short = next((name for name, reply in replies.items() if not reply.held), "")
            if not short:
                break
            if short != noted:
                note(short)
                noted = short
            await asyncio.sleep(ROOM_POLL_S)
            asked = [name for name in held if name in walk.everybody]  # asking keeps it held
