"""Signals to a daemon: to stop, and to read its settings again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from fedboost.ground.errors import FedboostError

log = logging.getLogger(__name__)


async def wait_for_stop(until_stdin_closes: bool) -> None:
    """Wait for SIGTERM or SIGINT, or until the process that started us exits."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if until_stdin_closes:
        stdin = sys.stdin.fileno()
        loop.add_reader(stdin, lambda: None if os.read(stdin, 4096) else stopped.set())
    await stopped.wait()


@contextmanager
def reload_at_sighup(take_up: Callable[[], Awaitable[list[str]]]) -> Iterator[None]:
    """Make the daemon reload its settings file at SIGHUP."""
    under_way: set[asyncio.Task[None]] = set()

    async def reload_settings() -> None:
        try:
            changed = await take_up()
        except FedboostError as error:
            log.error("the settings stay as they were: %s", "; ".join(error.lines()))
        else:
            log.info("settings read again, changed: %s", ", ".join(changed) or "nothing")

    def start_reload() -> None:
        task = loop.create_task(reload_settings())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, start_reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
