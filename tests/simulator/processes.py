"""What stands for an operating system's process: code that runs in its name, until it is killed.

A killed process stops between two instructions: nothing of it runs any more, no `finally`, no
`close`. What the system frees is freed: its locks, its connections to databases.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fedboost.runtime.store.lock import StoreLock


class KilledError(BaseException):
    """Ends the instruction in which a process was killed; nobody catches it."""


@dataclass(eq=False)
class Process:
    """One life of a daemon, or of the user's command."""

    name: str
    life: int = 1  # how often it has been started
    certificate: bytes = b""
    is_dead: bool = False
    server: Any = None  # once it listens
    signals: dict[int, Callable[[], None]] = field(default_factory=dict)
    tasks: list[Any] = field(default_factory=list)
    strands: list[Any] = field(default_factory=list)
    locks: list[StoreLock] = field(default_factory=list)
    connections: list[sqlite3.Connection] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)  # tasks of others that do what it asked for
    watchers: list[Any] = field(default_factory=list)  # futures that are done when it is dead
    drawn: int = 0  # blocks of its randomness
    main: Any = None  # the task that is the daemon

    @property
    def is_up(self) -> bool:
        """Whether it answers calls."""
        return not self.is_dead and self.server is not None and self.server.is_up

    def check(self) -> None:
        """Ends whoever runs on in the name of a dead process."""
        if self.is_dead:
            raise KilledError

    def watch(self) -> asyncio.Future[None]:
        """Done as soon as it is dead."""
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watchers = [w for w in self.watchers if not w.done()] + [gone]
        return gone

    def free(self) -> None:
        """Does what the system does for a process that is gone."""
        self.is_dead = True
        for strand in self.strands:
            strand.end()
        for connection in self.connections:
            connection.close()  # rolls back what was not committed
        for lock in self.locks:
            lock.release()
        for gone in self.watchers:
            if not gone.done():
                gone.set_result(None)
        for task in self.asked:
            task.cancel()


# In whose name the code runs; None: in the test's.
PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
# The thread that is one of our strands knows which.
HERE = threading.local()
