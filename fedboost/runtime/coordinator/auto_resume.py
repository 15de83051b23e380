"""Paused jobs go on by themselves when all lost parties are back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from fedboost.ground.errors import FedboostError, JobError, UnreachableError
from fedboost.messages import job_pb2
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.process.clock import growing_pauses, monotonic_s
from fedboost.runtime.transport.addresses import Timers

log = logging.getLogger(__name__)

CHECK_PAUSE_MAX_S = (
    2.0  # the longest pause between two checks: work goes on within 10 s of a return
)
VAIN_MAX = 50  # attempts in a row that save no round, before an operator has to step in


class Answering(Protocol):
    """A party that can say whether it is running."""

    async def hello(self, *, retries: bool = True) -> job_pb2.HelloReply:
        """Return the party's greeting; an UnreachableError if it does not answer."""

    async def reaches(self, peer: str) -> bool:
        """Return whether the party's own link to a peer works."""


class AutoResume:
    """The paused jobs that wait for lost parties to return.

    All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        link: Callable[[str], Answering],
        timers: Timers,
        go_on: Callable[[str], Awaitable[None]],
    ) -> None:
        """`go_on` gets the id of a job once all its parties are there."""
        self._link, self._timers, self._go_on = link, timers, go_on
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._vain: dict[str, int] = {}

    def expect(self, job: str, parties: Collection[str], *, gained: bool) -> bool:
        """Have the job go on once all its parties are there.

        Each attempt in a row that has `gained` nothing doubles the pause before the next one.
        Return False after too many of them: an operator has to step in.
        """
        self._cancel_wait(job)
        self._vain[job] = 0 if gained else self._vain.get(job, 0) + 1
        if self._vain[job] > VAIN_MAX:
            log.error("%s: %d attempts saved no round, look into the cause", job, VAIN_MAX)
            self.drop(job)
            return False
        self._waits[job] = asyncio.create_task(self._resume_when_back(job, tuple(parties)))
        return True

    def drop(self, job: str) -> None:
        """Stop waiting for a job's parties: a user has decided, or the job is finished."""
        self._cancel_wait(job)
        self._vain.pop(job, None)

    def close(self) -> None:
        """Stop waiting for all parties."""
        for job in list(self._waits):
            self._cancel_wait(job)

    def _cancel_wait(self, job: str) -> None:
        wait = self._waits.pop(job, None)
        if wait is not None:
            wait.cancel()

    async def _resume_when_back(self, job: str, parties: tuple[str, ...]) -> None:
        first_s, most_s = self._timers.retry_first_s, self._timers.retry_max_s
        await asyncio.sleep(next(growing_pauses(first_s * 2 ** self._vain[job], most_s)))
        looks_s = growing_pauses(first_s, CHECK_PAUSE_MAX_S)
        while not await self._are_there(parties):
            await asyncio.sleep(next(looks_s))
        del self._waits[job]
        log.info("%s goes on: everybody is there", job)
        await self._go_on(job)

    async def _are_there(self, parties: tuple[str, ...]) -> bool:
        """Return whether all parties answer and reach one another."""
        links = [self._link(party) for party in parties]
        said = await asyncio.gather(
            *(link.hello(retries=False) for link in links), return_exceptions=True
        )
        for error in said:  # an error of another kind is an answer: the next attempt meets it
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
    """Return the error of an idle party that was silent for `peer_lost_s`, time of checks included.

    Working parties send signs of life themselves. Hosts that the job can do without are not
    checked.
    """
    look_s = timers.peer_lost_s / 5
    silence_s = timers.peer_lost_s - look_s
    heard: dict[str, float] = {}
    while True:
        since = monotonic_s()
        await asyncio.sleep(look_s)
        idle = [p for p in walk.everybody if not (p in walk.waiting or walk.is_spared(p))]
        if not walk.has_begun:
            continue
        heard = {party: heard.get(party, since) for party in idle}
        said = await asyncio.gather(
            *(_check_party(link(party), silence_s) for party in idle), return_exceptions=True
        )
        for party, error in zip(idle, said, strict=True):
            if not isinstance(error, UnreachableError):
                heard[party] = monotonic_s()
            elif monotonic_s() - heard[party] >= silence_s:
                error.at(party=party)
                return error


async def _check_party(party: Answering, within_s: float) -> None:
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
        return  # it has answered


TELL_S = 7 * 24 * 3600.0  # a party that is away for longer asks for the state itself


class Ending(Protocol):
    """An attempt that has ended; see `walk.JobWalk`."""

    id: str
    lost: list[str]  # hosts that the job has gone on without

    async def stop(
        self, state: str, reason: FedboostError, parties: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Notify parties (default: all) of the end; return the parties it did not reach."""


class Notifications:
    """Ends of jobs that some parties have not heard of.

    All methods belong to the event loop's thread.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def notify_parties(self, walk: Ending, state: str, reason: FedboostError | None) -> None:
        """Notify all parties of the end of a job, lost ones when they are back.

        Without a reason the job has finished, and only hosts that it has lost do not know that yet.
        """
        if reason is None:
            self.part(walk)
            return
        late = await walk.stop(state, reason)
        if late and state != "paused":  # a party that missed a pause finds it out itself
            self.notify_later(walk, state, reason, late)

    def part(self, walk: Ending) -> None:
        """Have the lost hosts of a finished job forget it as soon as they are there."""
        if walk.lost:
            reason = JobError(
                "the job has finished without this party, which was lost during the job",
                todo="nothing is left to do here",
            )
            self.notify_later(walk, "cancelled", reason, tuple(walk.lost))

    def notify_later(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        """Notify these parties as soon as they are there."""
        self.drop(walk.id)
        self._under_way[walk.id] = asyncio.create_task(
            self._retry_notifying(walk, state, reason, late)
        )

    def drop(self, job: str) -> None:
        """Cancel the notifications of a job, which goes on."""
        errand = self._under_way.pop(job, None)
        if errand is not None:
            errand.cancel()

    def is_pending(self, job: str) -> bool:
        """Return whether some party has yet to hear of the job's end."""
        return job in self._under_way

    def close(self) -> None:
        """Cancel all notifications; the next process sends them."""
        for job in list(self._under_way):
            self.drop(job)

    async def _retry_notifying(
        self, walk: Ending, state: str, reason: FedboostError, late: tuple[str, ...]
    ) -> None:
        until = monotonic_s() + TELL_S
        pauses_s = growing_pauses(self._timers.retry_first_s, self._timers.retry_max_s)
        while late and monotonic_s() < until:
            await asyncio.sleep(next(pauses_s))
            late = await walk.stop(state, reason, late)
        del self._under_way[walk.id]
