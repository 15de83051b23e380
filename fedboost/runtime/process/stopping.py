"""The wait of a daemon for the signal to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys


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
