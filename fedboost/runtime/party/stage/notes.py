"""When messages reach the ledger: one that has come together with what leaves next, or soon.

A message may be used at once. Its sender hears that it has arrived, and anything that depends on it
leaves, only when it is on the disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from fedboost.runtime.ledger.rows import Noted

# Turns of the event loop within which a step that a message has waited for may give its answer.
TURNS = 16
LATER_S = 0.005  # within which it may where it waits for others, too

# Writes messages that have come, and those that are about to leave, in one transaction.
Record = Callable[[Sequence[Noted], Sequence[Noted]], None]


class Notes:
    """The messages of one stage on their way to the ledger."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._lock = threading.Lock()  # what came first is written first
        self._coming: list[Noted] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writes = 0  # so far, also what was refused
        self._due = self._due_later = -1  # of how many writes the next is to come by itself

    def came(self, *messages: Noted, later: bool = False) -> asyncio.Future[None]:
        """Take messages in; return what is done once they, and all before, are on the disk: soon,
        or somewhat `later`, where nothing can leave on account of them alone.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._coming.extend(messages)
            if not self._coming:
                written.set_result(None)
                return written
            self._waiting.append(written)
            writes = self._writes
        if later and self._due_later != writes:
            self._due_later = writes
            loop.call_later(LATER_S, self._soon, 0, writes)
        elif not later and self._due != writes:
            self._due = writes
            loop.call_soon(self._soon, TURNS, writes)
        return written

    def leave(self, *messages: Noted) -> None:
        """Write these messages, behind those that have come; all on the disk when this returns.

        Nothing is written, and nothing may leave, where it raises. In any thread.
        """
        with self._lock:
            if not self._coming and not messages:
                return
            self._record(self._coming, messages)
            self._writes += 1
            self._coming, waiting, self._waiting = [], self._waiting, []
        _tell(waiting, None)

    def flush(self) -> None:
        """Write what has come; where that is refused, whoever waits for it hears why."""
        try:
            self.leave()
        except Exception as error:  # what is refused stays here, to be written with what leaves
            with self._lock:
                waiting, self._waiting = self._waiting, []
                self._writes += 1
            _tell(waiting, error)

    def _soon(self, turns: int, writes: int) -> None:
        """Write what has come in so many turns, if it has not been written meanwhile."""
        if self._writes != writes:
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._soon, turns - 1, writes)
        else:
            self.flush()


def _tell(waiting: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    """Ends waits, in their own loop; in any thread."""
    if not waiting:
        return

    def end() -> None:
        for written in waiting:
            if written.done():  # whoever waited is gone
                continue
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

    loop = waiting[0].get_loop()
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        end()
    else:
        loop.call_soon_threadsafe(end)
