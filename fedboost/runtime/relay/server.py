"""A relay: members keep a control line each; a call joins two lines, one of either end.

It learns who calls whom, when and how much. What passes is encrypted between the two ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.runtime.relay.copying import CLOSE_S, MESSAGE_BYTES_MAX, Line, join_lines
from fedboost.runtime.relay.lines import ANSWER, CALL, MEMBER, TAKE
from fedboost.runtime.relay.members import Members
from fedboost.runtime.transport.addresses import Timers, split_address
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.web_tls import WebTls

log = logging.getLogger(__name__)

LINES_MAX = 256  # of one member at once, in either direction
CONTROL_BYTES_MAX = 1 << 10  # of a message on a control line, on which members say nothing
SHUTDOWN_S = 1.0  # that open lines may take when the relay ends
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
        self._lines = Counter[str]()  # open calls, by member, calling or called
        self._bytes = Counter[str]()  # passed on, by caller
        self._refused = 0  # who dialled in and was not let in

    def application(self) -> web.Application:
        """Return the relay as a web application."""
        app = web.Application(middlewares=[self._admit])
        app.add_routes(
            [
                web.get(ANSWER, self._keep_control_line),
                web.get(CALL, self._join_call),
                web.get(TAKE, self._take_call),
                web.get(MEMBER, self._describe_member),
            ]
        )
        return app

    def reading(self, family: str) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the labels and values of a metric."""
        by_member = {
            "fedboost_relay_connected": {name: 1 for name in self._controls},
            "fedboost_relay_lines": self._lines,
            "fedboost_relay_bytes_total": self._bytes,
        }
        if family == "fedboost_relay_refused_total":
            return [((), float(self._refused))]
        return [((name,), float(value)) for name, value in {**by_member[family]}.items()]

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
            self._refused += 1
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
            with suppress(ConnectionError):  # it was closed when we answered a ping
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
                # Sooner than the caller gives up, who then hears which end is silent.
                async with asyncio.timeout(self._timers.call_s / 2):
                    theirs = await announced.line
            except TimeoutError:
                raise web.HTTPGatewayTimeout from None
            finally:
                self._announced.pop(call, None)
            try:
                ours = await _open(request)
                await join_lines(ours, theirs, lambda n: self._bytes.update({caller[1]: n}))
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

    async def _describe_member(self, request: web.Request) -> web.Response:
        """Tell a member how the relay knows it, and whether it can be called."""
        role, name = request["member"]
        return web.json_response({"member": f"{role} {name}", "called": name in self._controls})

    @contextmanager
    def _counted(self, *names: str) -> Iterator[None]:
        """Count a call at both ends; refuse it where one of them has too many."""
        if any(self._lines[name] >= LINES_MAX for name in names):
            raise web.HTTPTooManyRequests
        self._lines.update(names)
        try:
            yield
        finally:
            self._lines.subtract(names)


@asynccontextmanager
async def run_relay(relay: Relay, listen: str, tls: WebTls) -> AsyncIterator[int]:
    """Serve a relay; yield its port. Raise ConfigError if the address is taken."""
    runner = web.AppRunner(relay.application(), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    host, port = split_address(listen)
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls.context).start()
        except OSError as error:
            raise ConfigError(
                f"the relay cannot listen on {listen}: {error.strerror}",
                todo="change `listen`; is another program there?",
            ) from None
        yield runner.addresses[0][1]
    finally:
        await relay.close()
        await runner.cleanup()


async def _open(request: web.Request) -> web.WebSocketResponse:
    line = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES_MAX, compress=False, timeout=CLOSE_S)
    await line.prepare(request)
    return line
