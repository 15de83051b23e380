"""The queue of jobs: it limits running jobs, and serves users in turn, oldest jobs first."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fedboost.messages.job_pb2 import Waiting
from fedboost.runtime.coordinator.party_gates import PartyGates, QueuedJob


@dataclass
class _Entry:
    """A job that waits for its turn."""

    job: QueuedJob
    turn: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class JobQueue:
    """Places for running jobs. All methods belong to the event loop's thread."""

    def __init__(self, places: int, gates: PartyGates, name: str) -> None:
        """At most `places` jobs run at once at the coordinator `name`."""
        self.places, self._gates, self._name = places, gates, name
        self._running: Counter[str] = Counter()  # by user
        self._waiting: list[_Entry] = []  # in the order of their turns, but for users
        self._held_for: set[str] = set()  # jobs that come before those that had no place
        gates.opened = self._give_places

    async def wait_for_place(self, job: QueuedJob, note_wait: Callable[[], None]) -> None:
        """Return when a job has a place; call `note_wait` if it has to wait for it."""
        entry = _Entry(job)
        insort(self._waiting, entry, key=lambda entry: entry.job.order)
        self._held_for.discard(job.id)
        self._give_places()
        try:
            if not entry.turn.done():
                note_wait()
            await entry.turn
        except BaseException:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:
                self.free_place(job.user)  # its turn came at the same time
            raise

    def take_free_place(self, job: QueuedJob) -> bool:
        """Take a place for a job if one is free now; return whether it has one."""
        is_free = self._running.total() < self.places and not self._held_for
        self._running[job.user] += is_free
        return is_free

    def free_place(self, user: str) -> None:
        """Free the place of a running job of `user`."""
        self._running[user] -= 1
        self._give_places()

    def hold_for(self, job: str) -> None:
        """Give places only to jobs that had one before, until this job waits or `release`."""
        self._held_for.add(job)

    def release(self) -> None:
        """Give places to all jobs."""
        self._held_for.clear()
        self._give_places()

    def waits(self) -> dict[str, Waiting]:
        """Return by its id what each waiting job waits for."""
        found, running = dict[str, Waiting](), self._running.total()
        for before, entry in enumerate(self._waiting):
            job = entry.job
            found[job.id] = self._gates.barrier(job) or Waiting(
                party=self._name,
                step=f"a place: {running} jobs run and {before} wait before it",
                since=job.since,
            )
        return found

    def _give_places(self) -> None:
        """Give free places to jobs that no party holds up; users take turns."""
        while self._running.total() < self.places:
            ready = [
                (self._running[entry.job.user], at)
                for at, entry in enumerate(self._waiting)
                if not entry.turn.done()  # one is cancelled before its task hears of it
                and (entry.job.had_place or not self._held_for)
                and self._gates.barrier(entry.job) is None
            ]
            if not ready:
                return
            entry = self._waiting.pop(min(ready)[1])
            self._running[entry.job.user] += 1
            self._gates.pass_through(entry.job)
            entry.turn.set_result(None)
