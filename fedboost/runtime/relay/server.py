"""A relay: members keep a control line each; a call joins two lines, one of either end.

It learns the two names, the time and the size of each call. The bytes are encrypted between the
two ends.
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
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler

from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.runtime.process.rare_warnings import RareWarnings
from fedboost.runtime.relay.copying import (
    CLOSE_S,
    LINE_BYTES_MAX,
    RelayLine,
    close_line,
    join_lines,
)
from fedboost.runtime.relay.lines import ANNOUNCED_BYTES_MAX, ANSWER, CALL, MEMBER, TAKE
from fedboost.runtime.relay.members import MemberProof, Members
from fedboost.runtime.transport.addresses import Timers, split_address
from fedboost.runtime.transport.identity import CALLED_ROLES
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.web_tls import WebTls

log = logging.getLogger(__name__)

LINES_MAX = 256  # calls that a member makes at once, and as many that it takes
PAIR_LINES_MAX = 32  # of them between one caller and one called: no caller takes all lines
REQUEST_S = 10.0  # from connecting until the handshake and the request are complete
MEMBERS_AGAIN_S = 2.0  # between two checks whether those with open lines are still members
SHUTDOWN_S = 1.0  # that open lines may take when the relay ends
MEMBER_KEY = web.RequestKey("member", tuple)  # role and name of the caller


class _NoBadRequests(logging.Filter):
    """Leaves out requests that are no HTTP: anybody sends them, and they may hold a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_NoBadRequests())


@dataclass(eq=False)
class Admitted:
    """A request of a member, which may be a line that stays open."""

    proof: MemberProof
    transport: asyncio.Transport | None


@dataclass
class Announced:
    """A call that waits for the line of the called daemon."""

    called: CertificateOwner
    line: asyncio.Future[RelayLine] = field(default_factory=asyncio.Future)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """The relay's state: control lines, announced calls, counters."""

    def __init__(self, members: Members, timers: Timers) -> None:
        self._members, self._timers = members, timers
        self._controls: dict[str, tuple[CertificateOwner, web.WebSocketResponse]] = {}
        self._announced: dict[str, Announced] = {}
        self._calls = Counter[tuple[str, str]]()  # open calls, by caller and called
        self._admitted: set[Admitted] = set()
        self._silent: dict[int, asyncio.TimerHandle] = {}  # connections without a request yet
        self._warnings = RareWarnings(log)
        self._bytes = Counter[str]()  # passed on, by caller
        self._refused = 0  # requests of strangers

    def application(self) -> web.Application:
        """Return the relay as a web application."""
        app = web.Application(middlewares=[self._admit])
        app.on_response_prepare.append(_close_after)
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
        lines = Counter[str]()
        for pair, calls in [*self._calls.items()]:  # the loop may change it meanwhile
            for name in pair:
                lines[name] += calls
        by_member: dict[str, dict[str, int]] = {
            "fedboost_relay_connected": {name: 1 for name in self._controls},
            "fedboost_relay_lines": lines,
            "fedboost_relay_bytes_total": self._bytes,
        }
        if family == "fedboost_relay_refused_total":
            return [((), float(self._refused))]
        return [((name,), float(value)) for name, value in {**by_member[family]}.items()]

    async def close(self) -> None:
        """Close all control lines, so that members dial again soon."""
        await asyncio.gather(*(close_line(control) for _, control in self._controls.values()))

    def expect_request(self, protocol: web.RequestHandler) -> None:
        """Close a new connection unless a member's request arrives on it in time."""

        def drop() -> None:
            del self._silent[id(protocol)]
            if protocol.transport is not None:
                protocol.transport.abort()

        loop = asyncio.get_running_loop()
        self._silent[id(protocol)] = loop.call_later(REQUEST_S, drop)

    async def drop_former_members(self) -> None:
        """Close the lines of everybody who is no longer a member, until cancelled."""
        while True:
            await asyncio.sleep(MEMBERS_AGAIN_S)
            refused: dict[MemberProof, FedboostError | None] = {}
            for admitted in [*self._admitted]:
                if admitted.proof not in refused:
                    refused[admitted.proof] = self._refusal(admitted.proof)
                error = refused[admitted.proof]
                if error is not None and admitted.transport is not None:
                    self._warnings.warn("a line is closed: %s", error.what)
                    admitted.transport.abort()

    def _refusal(self, proof: MemberProof) -> FedboostError | None:
        try:
            self._members.identify(proof)
        except FedboostError as error:
            return error
        return None

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        proof = MemberProof.of_request(request)
        try:
            request[MEMBER_KEY] = self._members.identify(proof)
        except FedboostError as error:
            self._refused += 1
            self._warnings.warn("refused %s: %s", request.remote, error.what)
            raise web.HTTPUnauthorized from None
        if (timer := self._silent.pop(id(request.protocol), None)) is not None:
            timer.cancel()
        admitted = Admitted(proof, request.transport)
        self._admitted.add(admitted)
        try:
            return await handler(request)
        finally:
            self._admitted.discard(admitted)

    async def _keep_control_line(self, request: web.Request) -> web.StreamResponse:
        owner: CertificateOwner = request[MEMBER_KEY]
        role, name = owner
        if role not in CALLED_ROLES:
            raise web.HTTPForbidden
        control = web.WebSocketResponse(
            heartbeat=self._timers.keepalive_s, max_msg_size=ANNOUNCED_BYTES_MAX, timeout=CLOSE_S
        )
        await control.prepare(request)
        earlier = self._controls.get(name)
        self._controls[name] = owner, control
        log.info("%s %s can be called", role, name)
        try:
            if earlier is not None:
                self._warnings.warn("%s %s has dialled in again", role, name)
                await close_line(earlier[1])
            with suppress(ConnectionError):  # it was closed when we answered a ping
                while (await control.receive()).type is WSMsgType.TEXT:
                    pass
        finally:
            if self._controls.get(name) == (owner, control):
                del self._controls[name]
                log.info("%s %s can no longer be called", role, name)
        return control

    async def _join_call(self, request: web.Request) -> web.StreamResponse:
        caller: CertificateOwner = request[MEMBER_KEY]
        called, control = self._controls.get(request.match_info["name"], (None, None))
        if called is None or control is None:
            raise web.HTTPNotFound
        with self._counted(caller[1], called[1]):
            call, announced = secrets.token_urlsafe(16), Announced(called)
            self._announced[call] = announced
            try:
                # Sooner than the caller gives up, who then hears which end is silent.
                async with asyncio.timeout(self._timers.call_s / 2):
                    with suppress(ConnectionError):
                        await control.send_str(json.dumps({"call": call, "from": " ".join(caller)}))
                    theirs = await announced.line
                ours = await _open(request)
                await join_lines(ours, theirs, lambda n: self._bytes.update({caller[1]: n}))
            except TimeoutError:
                raise web.HTTPGatewayTimeout from None
            finally:
                self._announced.pop(call, None)
                announced.ended.set()
        return ours

    async def _take_call(self, request: web.Request) -> web.StreamResponse:
        announced = self._announced.get(request.match_info["call"])
        if announced is None or announced.line.done() or announced.called != request[MEMBER_KEY]:
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
        role, name = request[MEMBER_KEY]
        return web.json_response({"member": f"{role} {name}", "called": name in self._controls})

    @contextmanager
    def _counted(self, caller: str, called: str) -> Iterator[None]:
        """Count a call at both ends; refuse it if one of them has too many."""
        made = sum(calls for (by, _), calls in self._calls.items() if by == caller)
        taken = sum(calls for (_, by), calls in self._calls.items() if by == called)
        if max(made, taken) >= LINES_MAX or self._calls[caller, called] >= PAIR_LINES_MAX:
            raise web.HTTPTooManyRequests
        self._calls[caller, called] += 1
        try:
            yield
        finally:
            self._calls[caller, called] -= 1


@asynccontextmanager
async def run_relay(relay: Relay, listen: str, tls: WebTls) -> AsyncIterator[int]:
    """Serve a relay; yield its port. Raise ConfigError if the address is taken."""
    runner = web.AppRunner(
        relay.application(), access_log=None, shutdown_timeout=SHUTDOWN_S, logger=_http_log
    )
    await runner.setup()
    assert runner.server is not None
    accept, (host, port) = runner.server, split_address(listen)

    def connected() -> asyncio.Protocol:
        protocol = accept()
        relay.expect_request(protocol)
        return protocol

    judging = asyncio.create_task(relay.drop_former_members())
    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                connected, host, port, ssl=tls.context, ssl_handshake_timeout=REQUEST_S
            )
        except OSError as error:
            raise ConfigError(
                f"the relay cannot listen on {listen}: {error.strerror}",
                todo="change `listen`; is another program there?",
            ) from None
        yield server.sockets[0].getsockname()[1]
        server.close()
    finally:
        judging.cancel()
        await relay.close()
        await runner.cleanup()


async def _close_after(_: web.Request, response: web.StreamResponse) -> None:
    """Let a connection have one request, so that none stays open without a line."""
    response.force_close()


async def _open(request: web.Request) -> web.WebSocketResponse:
    line = web.WebSocketResponse(max_msg_size=LINE_BYTES_MAX, compress=False, timeout=CLOSE_S)
    await line.prepare(request)
    return line
