"""Jobs that pause because somebody is gone go on by themselves when everybody is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from fedboost.ground.errors import FedboostError, JobError, UnreachableError
from fedboost.messages import job_pb2
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.process.clock import now, pauses
from fedboost.runtime.transport.addresses import Timers

log = logging.getLogger(__name__)

LOOK_S = 2.0  # the longest pause between two looks: work goes on within 10 s of a return
VAIN_MAX = 50  # attempts in a row that keep no round, before a person has to look


class Answering(Protocol):
    """A party that can be asked whether it is there."""

    async def hello(self, *, retries: bool = True) -> job_pb2.HelloReply:
        """Return who answers; an UnreachableError where nobody does."""

    async def reaches(self, peer: str) -> bool:
        """Return whether the party's own link to a peer works."""


class AutoResume:
    """Whose return jobs wait for. All methods belong to the event loop's thread."""

    def __init__(
        self,
        link: Callable[[str], Answering],
        timers: Timers,
        go_on: Callable[[str], Awaitable[None]],
    ) -> None:
        """`go_on` gets the id of a job whose parties are all there."""
        self._link, self._timers, self._go_on = link, timers, go_on
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._vain: dict[str, int] = {}

    def expect(self, job: str, parties: Collection[str], *, gained: bool) -> bool:
        """Has the job go on once all of them are there.

        Attempts that have `gained` nothing follow each other ever more slowly; False where there
        were so many of them that a person has to look.
        """
        self._cancel(job)
        self._vain[job] = 0 if gained else self._vain.get(job, 0) + 1
        if self._vain[job] > VAIN_MAX:
            log.error("%s: %d attempts have kept nothing, a person has to look", job, VAIN_MAX)
            self.drop(job)
            return False
        self._waits[job] = asyncio.create_task(self._until_back(job, tuple(parties)))
        return True

    def drop(self, job: str) -> None:
        """Leaves the job alone: somebody has decided, or it is over."""
        self._cancel(job)
        self._vain.pop(job, None)

    def close(self) -> None:
        """Leaves all jobs alone."""
        for job in list(self._waits):
            self._cancel(job)

    def _cancel(self, job: str) -> None:
        wait = self._waits.pop(job, None)
        if wait is not None:
            wait.cancel()

    async def _until_back(self, job: str, parties: tuple[str, ...]) -> None:
        first_s, most_s = self._timers.retry_first_s, self._timers.retry_max_s
        await asyncio.sleep(next(pauses(first_s * 2 ** self._vain[job], most_s)))
        looks_s = pauses(first_s, LOOK_S)
        while not await self._are_there(parties):
            await asyncio.sleep(next(looks_s))
        del self._waits[job]
        log.info("%s goes on: everybody is there", job)
        await self._go_on(job)

    async def _are_there(self, parties: tuple[str, ...]) -> bool:
        """Return whether all of them answer, and reach one another."""
        links = [self._link(party) for party in parties]
        said = await asyncio.gather(
            *(link.hello(retries=False) for link in links), return_exceptions=True
        )
        for error in said:  # one that is there and refuses us is told so by the next attempt
            if isinstance(error, UnreachableError):
                return False
            if isinstance(error, BaseException) and not isinstance(error, FedboostError):
                log.error("a look at the parties failed unexpectedly", exc_info=error)
                return False
        pairs = [
            link.reaches(peer)
            for party, link in zip(parties, links, strict=True)
            for peer in parties
            if peer != party
        ]
        reached = await asyncio.gather(*pairs, return_exceptions=True)
        return all(is_there is True for is_there in reached)


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


TELL_S = 7 * 24 * 3600.0  # a party that is gone for longer hears it when it asks


class Ending(Protocol):
    """An attempt that is over; see `walker.JobWalk`."""

    id: str
    lost: list[str]  # hosts that the job has gone on without

    async def stop(
        self, state: str, reason: FedboostError, parties: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Tells parties (none named: all); gives those that could not be reached."""


class Notifications:
    """Ends of jobs that not all parties know. All methods belong to the event loop's thread."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def tell(self, walk: Ending, state: str, reason: FedboostError | None) -> None:
        """Tells all parties of a job how it ended; those that are gone, when they are back.

        Without a reason it has finished, which all know but the hosts that it has lost.
        """
        if reason is None:
            self.part(walk)
            return
        late = await walk.stop(state, reason)
        if late and state != "paused":  # whoever missed a pause finds it out alone
            self.tell_later(walk, state, reason, late)

    def part(self, walk: Ending) -> None:
        """Has the hosts that a finished job has lost forget it, as soon as they are there."""
        if walk.lost:
            reason = JobError(
                "the job has finished without this party, which was lost on the way",
                todo="nothing is left to do here",
            )
            self.tell_later(walk, "cancelled", reason, tuple(walk.lost))

    def tell_later(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        """Tells these parties as soon as they are there."""
        self.drop(walk.id)
        self._under_way[walk.id] = asyncio.create_task(self._tell(walk, state, reason, late))

    def drop(self, job: str) -> None:
        """Says no more of a job: it goes on."""
        errand = self._under_way.pop(job, None)
        if errand is not None:
            errand.cancel()

    def is_on(self, job: str) -> bool:
        """Return whether somebody has to hear yet how the job ended."""
        return job in self._under_way

    def close(self) -> None:
        """Leaves the rest to whoever starts next."""
        for job in list(self._under_way):
            self.drop(job)

    async def _tell(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        until = now() + TELL_S
        pauses_s = pauses(self._timers.retry_first_s, self._timers.retry_max_s)
        while late and now() < until:
            await asyncio.sleep(next(pauses_s))
            late = await walk.stop(state, reason, late)
        del self._under_way[walk.id]
