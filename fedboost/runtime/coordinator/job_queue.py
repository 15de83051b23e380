"""The queue of jobs: it limits running jobs, and serves users in turn, oldest jobs first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable


class JobQueue:
    """Places for running jobs. All methods belong to the event loop's thread."""

    def __init__(self, places: int) -> None:
        """At most `places` jobs run at once."""
        self.places = places
        self._running: Counter[str] = Counter()  # by user
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []  # oldest first

    async def wait_for_place(
        self, user: str, note: Callable[[str], None], *, again: bool = False
    ) -> None:
        """Return when a job of `user` may run; `note` gets the reason if it has to wait.

        A job that had a place before (`again`) precedes jobs that had none.
        """
        before = 0 if again else len(self._waiting)
        if self._running.total() < self.places and not before:
            self._running[user] += 1
            return
        note(f"{self._running.total()} jobs run and {before} wait before it")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.insert(before, (user, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.free_place(user)  # its turn came at the same time
            else:
                self._waiting.remove((user, turn))
            raise

    def free_place(self, user: str) -> None:
        """Free the place of a running job of `user`."""
        self._running[user] -= 1
        while self._waiting and self._running.total() < self.places:
            place = min(
                range(len(self._waiting)), key=lambda i: (self._running[self._waiting[i][0]], i)
            )
            next_user, turn = self._waiting.pop(place)
            if not turn.done():
                self._running[next_user] += 1
                turn.set_result(None)
