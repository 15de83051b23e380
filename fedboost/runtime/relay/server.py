"""A relay: members keep a control line each; a call joins two lines, one of either end.

It learns who calls whom, when and how much. What passes is encrypted between the two ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from fedboost.ground.errors import FedboostError
from fedboost.runtime.relay.copying import CLOSE_S, MESSAGE_BYTES_MAX, Line, join_lines
from fedboost.runtime.relay.lines import ANSWER, CALL, TAKE
from fedboost.runtime.relay.members import Members
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.roots import CertificateOwner

log = logging.getLogger(__name__)

LINES_MAX = 256  # of one member at once, in either direction
TAKEN_S = 10.0  # from announcing a call until its line is there
CONTROL_BYTES_MAX = 1 << 10  # of a message on a control line, on which members say nothing
CALLED_ROLES = ("party", "coordinator")


@dataclass
class Announced:
    """A call that waits for the line of the called daemon."""

    called: CertificateOwner
    line: asyncio.Future[Line] = field(default_factory=asyncio.Future)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """The relay's state: control lines, announced calls, counters."""

    def __init__(self, members: Members, timers: Timers) -> None:
        self._members, self._timers = members, timers
        self._controls: dict[str, tuple[CertificateOwner, web.WebSocketResponse]] = {}
        self._announced: dict[str, Announced] = {}
        self.lines = Counter[str]()  # open calls, by member, calling or called
        self.bytes = Counter[str]()  # passed on, by caller
        self.refused = 0  # who dialled in and was not let in

    def application(self) -> web.Application:
        """Return the relay as a web application."""
        app = web.Application(middlewares=[self._admit])
        app.add_routes(
            [
                web.get(ANSWER, self._keep_control_line),
                web.get(CALL, self._join_call),
                web.get(TAKE, self._take_call),
            ]
        )
        return app

    @property
    def connected(self) -> tuple[str, ...]:
        """The members who can be called."""
        return tuple(self._controls)

    async def close(self) -> None:
        """Close all control lines, so that members dial again soon."""
        for _, control in [*self._controls.values()]:
            with suppress(ConnectionError):
                await control.close()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            request["member"] = self._members.identify(request)
        except FedboostError as error:
            self.refused += 1
            log.warning("refused %s: %s", request.remote, error.what)
            raise web.HTTPUnauthorized from None
        return await handler(request)

    async def _keep_control_line(self, request: web.Request) -> web.StreamResponse:
        owner: CertificateOwner = request["member"]
        role, name = owner
        if role not in CALLED_ROLES:
            raise web.HTTPForbidden
        control = web.WebSocketResponse(
            heartbeat=self._timers.keepalive_s, max_msg_size=CONTROL_BYTES_MAX, timeout=CLOSE_S
        )
        await control.prepare(request)
        if name in self._controls:
            log.warning("%s %s has dialled in again: its earlier line is closed", role, name)
            await self._controls.pop(name)[1].close()
        self._controls[name] = owner, control
        log.info("%s %s can be called", role, name)
        try:
            while (await control.receive()).type is WSMsgType.TEXT:
                pass
        finally:
            if self._controls.get(name) == (owner, control):
                del self._controls[name]
                log.info("%s %s can no longer be called", role, name)
        return control

    async def _join_call(self, request: web.Request) -> web.StreamResponse:
        caller: CertificateOwner = request["member"]
        called, control = self._controls.get(request.match_info["name"], (None, None))
        if called is None or control is None:
            raise web.HTTPNotFound
        with self._counted(caller[1], called[1]):
            call, announced = secrets.token_urlsafe(16), Announced(called)
            self._announced[call] = announced
            try:
                with suppress(ConnectionError):
                    await control.send_str(json.dumps({"call": call, "from": " ".join(caller)}))
                async with asyncio.timeout(TAKEN_S):
                    theirs = await announced.line
            except TimeoutError:
                raise web.HTTPGatewayTimeout from None
            finally:
                self._announced.pop(call, None)
            try:
                ours = await _open(request)
                await join_lines(ours, theirs, lambda n: self.bytes.update({caller[1]: n}))
            finally:
                announced.ended.set()
        return ours

    async def _take_call(self, request: web.Request) -> web.StreamResponse:
        announced = self._announced.get(request.match_info["call"])
        if announced is None or announced.line.done() or announced.called != request["member"]:
            raise web.HTTPNotFound
        del self._announced[request.match_info["call"]]
        line = await _open(request)
        if announced.line.done():  # its caller has gone meanwhile
            await line.close()
        else:
            announced.line.set_result(line)
            await announced.ended.wait()
        return line

    @contextmanager
    def _counted(self, *names: str) -> Iterator[None]:
        """Count a call at both ends; refuse it where one of them has too many."""
        if any(self.lines[name] >= LINES_MAX for name in names):
            raise web.HTTPTooManyRequests
        self.lines.update(names)
        try:
            yield
        finally:
            self.lines.subtract(names)


async def _open(request: web.Request) -> web.WebSocketResponse:
    line = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES_MAX, compress=False, timeout=CLOSE_S)
    await line.prepare(request)
    return line
