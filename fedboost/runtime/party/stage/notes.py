"""Times the writing of messages to the ledger: arrived ones with the next that leave, or soon.

A step may use a message at once. Only when the message is on the disk does its sender hear that it
has arrived, and may messages that depend on it leave.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from fedboost.runtime.ledger.rows import Noted

# Turns of the event loop for a step to give its answer to a message it has waited for.
ANSWER_TURNS = 16
LATER_S = 0.005  # the same for a step that waits for other messages as well

# Writes arrived messages, and messages about to leave, in one transaction.
RecordMessages = Callable[[Sequence[Noted], Sequence[Noted]], None]


class Notes:
    """The messages of one stage that are to be written to the ledger."""

    def __init__(self, record: RecordMessages) -> None:
        self._record = record
        self._lock = threading.Lock()  # messages are written in the order of arrival
        self._coming: list[Noted] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writes = 0  # so far, refused ones included
        self._due = self._due_later = -1  # number of writes at which the next one was scheduled

    def came(self, *messages: Noted, later: bool = False) -> asyncio.Future[None]:
        """Take messages in; return a future that is done once they and all before are on the disk.

        They are written soon, or somewhat `later` if nothing can leave because of them alone.
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
            loop.call_later(LATER_S, self._write_after_turns, 0, writes)
        elif not later and self._due != writes:
            self._due = writes
            loop.call_soon(self._write_after_turns, ANSWER_TURNS, writes)
        return written

    def write_now(self, *messages: Noted) -> None:
        """Write these messages after those that have come; all are on the disk on return.

        If this raises, nothing is written and nothing may leave. Can be called in any thread.
        """
        with self._lock:
            if not self._coming and not messages:
                return
            self._record(self._coming, messages)
            self._writes += 1
            self._coming, waiting, self._waiting = [], self._waiting, []
        _end_waits(waiting, None)

    def flush(self) -> None:
        """Write the messages that have come; if that is refused, their futures get the error."""
        try:
            self.write_now()
        except Exception as error:  # refused messages stay, to be written with the next ones
            with self._lock:
                waiting, self._waiting = self._waiting, []
                self._writes += 1
            _end_waits(waiting, error)

    def _write_after_turns(self, turns: int, writes: int) -> None:
        """Write the messages that have come after so many turns, unless they have been written."""
        if self._writes != writes:
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._write_after_turns, turns - 1, writes)
        else:
            self.flush()


def _end_waits(waiting: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    """End waits in their own loop. Can be called in any thread."""
    if not waiting:
        return

    def end_all() -> None:
        for written in waiting:
            if written.done():  # the waiting task is gone
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
        end_all()
    else:
        loop.call_soon_threadsafe(end_all)
