"""Calls from a relay: each is connected to the daemon's own port."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import suppress

from aiohttp import WSMsgType

from fedboost.ground.errors import FedboostError
from fedboost.ground.printable import printable
from fedboost.runtime.process.clock import growing_pauses, monotonic_s
from fedboost.runtime.process.rare_warnings import RareWarnings
from fedboost.runtime.relay.copying import LINE_PIECE_BYTES, join_connection
from fedboost.runtime.relay.lines import ANSWER, TAKE, RelayLink
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.channel import RECONNECT_S

log = logging.getLogger(__name__)

CALLS_MAX = 128  # from the relay at once; more are ignored
CALL_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # of a call's name, which we put into a path
CALL_HELD_S = 1.0  # an ended call counts so long: a relay cannot bring new ones faster
STEADY_S = 10.0  # a control line that ended sooner is not opened again at once


class AnsweredCalls:
    """A daemon's control line to a relay, and the calls that the relay brings."""

    def __init__(self, link: RelayLink, own: tuple[str, int], timers: Timers) -> None:
        """Prepare to lead calls to the daemon's `own` host and port."""
        self._link, self._own, self._timers = link, own, timers
        self._calls: set[asyncio.Task[None]] = set()
        self._warnings = RareWarnings(log)
        self.is_connected = False

    async def answer_calls(self) -> None:
        """Keep the control line open and take calls until cancelled."""
        most_s = min(self._timers.retry_max_s, RECONNECT_S)
        pauses_s, said = growing_pauses(self._timers.retry_first_s, most_s), ""
        try:
            while True:
                try:
                    began = monotonic_s()
                    await self._take_announced()
                    if monotonic_s() - began >= STEADY_S:
                        pauses_s = growing_pauses(self._timers.retry_first_s, most_s)
                    said = ""
                except FedboostError as error:
                    if error.what != said:
                        log.warning("no line to the relay: %s", "; ".join(error.lines()))
                    said = error.what
                await asyncio.sleep(next(pauses_s))
        finally:
            for task in self._calls:
                task.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            await self._link.close()

    async def _take_announced(self) -> None:
        async with self._link.open_line(ANSWER, beats=True) as control:
            log.info("the relay at %s brings calls here", self._link.address)
            self.is_connected = True
            try:
                with suppress(ConnectionError):  # it was closed when we answered a ping
                    while (message := await control.receive()).type is WSMsgType.TEXT:
                        self._begin_call(message.data)
            finally:
                self.is_connected = False
        self._warnings.warn("the relay at %s has closed our line", self._link.address)

    def _begin_call(self, text: str) -> None:
        try:
            announced = json.loads(text)
            call, caller = str(announced["call"]), printable(str(announced["from"]))[:100]
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # nonsense of a relay is ignored
        if not CALL_PATTERN.fullmatch(call):
            return
        if len(self._calls) >= CALLS_MAX:
            self._warnings.warn("a call of %s is not taken: there are %d", caller, CALLS_MAX)
            return
        task = asyncio.create_task(self._take_call(call, caller))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _take_call(self, call: str, caller: str) -> None:
        log.debug("the relay brings a call of %s", caller)
        try:
            async with self._link.open_line(TAKE.format(call=call)) as line:
                reader, writer = await asyncio.open_connection(*self._own, limit=LINE_PIECE_BYTES)
                await join_connection(reader, writer, line)
        except FedboostError as error:
            self._warnings.warn("a call of %s was not taken: %s", caller, error.what)
        except OSError as error:
            self._warnings.warn("our own port does not answer the relay's calls: %s", error)
        await asyncio.sleep(CALL_HELD_S)
