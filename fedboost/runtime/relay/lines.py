"""Lines to a relay: WebSockets over TLS, through a proxy if one is set."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.printable import printable
from fedboost.runtime.relay.copying import CLOSE_S, LINE_BYTES_MAX
from fedboost.runtime.transport.addresses import (
    PROXY_PATTERN,
    RelayAddress,
    Timers,
    split_address,
)
from fedboost.runtime.transport.tls import Stamp, TlsFiles, file_stamp, read_pem

# Paths of a relay.
ANSWER = "/answer"  # a control line: calls are announced on it
CALL = "/call/{name}"  # a line to the daemon of that name
TAKE = "/take/{call}"  # a line for an announced call
MEMBER = "/member"  # no line: how the relay knows us

ANNOUNCED_BYTES_MAX = 1 << 10  # of a message on a control line: an announced call, and no more
ANSWER_BYTES_MAX = 1 << 10  # of the relay's answer about a member
# HTTP status of proxies: a login is wanted; this and all above: the relay was not reached.
PROXY_LOGIN, SERVER_ERROR, BAD_GATEWAY = 407, 500, 502

# Meaning of a relay's refusal, by its HTTP status: what, todo. "{name}" is the called daemon.
_REFUSALS = {
    401: (
        "the relay does not know us",
        "ask the relay's owner to add us to its `members`, or to check our certificate or token",
    ),
    404: (
        "{name} has no line to the relay",
        "start {name}'s daemon; its log says whether it reaches the relay",
    ),
    429: ("the relay allows us no more lines", "ask the relay's owner; see its log"),
    504: ("{name} did not answer the relay", "see the log of {name}"),
}


class RelayLink:
    """Opens lines to one relay."""

    def __init__(self, relay: RelayAddress, tls: TlsFiles, timers: Timers) -> None:
        """Prepare the link; the files of `tls` are read for each line, so a rotation counts."""
        self._relay, self._tls, self._timers = relay, tls, timers
        self._session: aiohttp.ClientSession | None = None
        self._context_of: tuple[tuple[Stamp | None, ...], ssl.SSLContext] | None = None

    @property
    def address(self) -> str:
        """The relay's address."""
        return self._relay.address

    @asynccontextmanager
    async def open_line(
        self, path: str, name: str = "", *, beats: bool = False
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse[bool]]:
        """Yield a line; raise UnreachableError if there is none. `name` is the called daemon.

        With `beats`, pings find out within seconds that the other end is gone.
        """
        most = ANNOUNCED_BYTES_MAX if beats else LINE_BYTES_MAX
        try:
            async with asyncio.timeout(self._timers.call_s):
                line = await self._open_session().ws_connect(
                    f"https://{self._relay.address}{path}",
                    heartbeat=self._timers.keepalive_s if beats else None,
                    max_msg_size=most,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                    **self._access(),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._closed_way(error, name) from None
        async with line:
            yield line

    async def membership(self) -> tuple[str, bool]:
        """Return how the relay knows us, and whether our daemon has a line to it; raise
        UnreachableError.
        """
        try:
            async with asyncio.timeout(self._timers.call_s):
                url = f"https://{self._relay.address}{MEMBER}"
                access = {"raise_for_status": True, "allow_redirects": False, **self._access()}
                async with self._open_session().get(url, **access) as reply:
                    known = json.loads(await reply.content.read(ANSWER_BYTES_MAX))
                    return printable(str(known["member"]))[:100], known["called"] is True
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._closed_way(error, "") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UnreachableError(
                f"{self._relay.address} is no relay", todo="correct relay.address"
            ) from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            refusing = aiohttp.TraceConfig()
            refusing.on_request_redirect.append(_refuse_redirect)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # every line is a connection
                cookie_jar=aiohttp.DummyCookieJar(),  # a relay could fill it
                auto_decompress=False,
                trace_configs=[refusing],
            )
        return self._session

    def _access(self) -> dict[str, Any]:
        """Return the common arguments of all requests: TLS, our token, the proxy."""
        proxy, login = self._proxy()
        token = self._relay.token
        return {
            "ssl": self._context(),
            "server_hostname": self._relay.name or split_address(self._relay.address)[0],
            "headers": {"Authorization": f"Bearer {token}"} if token else None,
            "proxy": proxy,
            "proxy_auth": login,
        }

    async def close(self) -> None:
        """Close the session of all lines."""
        if self._session is not None:
            await self._session.close()

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context of our files, made again when they change."""
        ca = self._relay.ca or self._tls.ca
        stamps = tuple(map(file_stamp, (ca, self._tls.cert, self._tls.key)))
        if self._context_of is None or self._context_of[0] != stamps:
            self._context_of = stamps, self._fresh_context(ca)
        return self._context_of[1]

    def _fresh_context(self, ca: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # of proxies that look inside
        try:
            roots = read_pem(ca)
        except ConfigError as error:  # the file may come later
            raise UnreachableError(error.what, todo=error.todo, **error.where) from None
        context.load_verify_locations(cadata=roots.decode())
        if self._relay.token is None:
            context.load_cert_chain(self._tls.cert, self._tls.key)
        return context

    def _proxy(self) -> tuple[URL | None, aiohttp.BasicAuth | None]:
        """Return the proxy's address without its login, and the login."""
        text = self._relay.proxy
        if text is None:
            host, _ = split_address(self._relay.address)
            text = None if proxy_bypass(host) else getproxies().get("https")
        if not text:
            return None, None
        text = text if "://" in text else f"http://{text}"
        if not PROXY_PATTERN.fullmatch(text):  # not shown: it may hold a password
            raise ConfigError(
                "HTTPS_PROXY is not http://[USER:WORD@]HOST:PORT",
                todo="correct it, or set relay.proxy; write %2F, %3F and %23 for /, ? and #",
            )
        proxy = URL(text)
        login = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
        return proxy.with_user(None), login

    def _closed_way(self, error: Exception, name: str) -> UnreachableError:
        """Return the reason for a failed line: the proxy, the network, TLS or the relay."""
        at, (proxy, login) = self._relay.address, self._proxy()
        way = f"the proxy {proxy.host}:{proxy.port}" if proxy is not None else ""
        if isinstance(error, aiohttp.ClientHttpProxyError):
            what, todo = _refusal_of_proxy(way, at, error.status, shows_login=login is not None)
        elif isinstance(error, aiohttp.ClientResponseError) and way and error.status == BAD_GATEWAY:
            what, todo = _refusal_of_proxy(way, at, error.status, shows_login=False)
        elif isinstance(error, aiohttp.ClientProxyConnectionError):
            what, todo = f"{way} cannot be reached", "check relay.proxy, or HTTPS_PROXY"
        elif isinstance(error, aiohttp.ClientResponseError):
            known = _REFUSALS.get(error.status)
            what, todo = known or (
                f"{at} is no relay: it answers with status {error.status}",
                "correct relay.address",
            )
        elif isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
            what = f"the certificate of the relay at {at} is not valid for us"
            todo = (
                "check relay.name and relay.ca; where a proxy replaces certificates, name its CA "
                "in relay.ca and give relay.token"
            )
        elif isinstance(error, aiohttp.ClientConnectionError) and not isinstance(
            error, aiohttp.ClientConnectorError | TimeoutError
        ):
            what = f"the relay at {at} closed the connection"
            todo = "see its log; it may not accept our certificate, which is of another CA"
        else:
            what = f"the relay at {at} cannot be reached" + (f" through {way}" if way else "")
            todo = "check relay.address and the firewall; is the relay running?"
        return UnreachableError(
            what.format(name=name),
            todo=todo.format(name=name),
            private=str(error),
            **({"party": name} if name else {}),
        )


async def _refuse_redirect(*_: object) -> None:
    """Refuse a redirection, which would lead us to an address of the relay's choice."""
    raise aiohttp.ClientConnectionError("the relay redirects us")


def _refusal_of_proxy(way: str, at: str, status: int, *, shows_login: bool) -> tuple[str, str]:
    """Return why a proxy does not lead to the relay, by its HTTP status: what, todo."""
    if status == PROXY_LOGIN and shows_login:
        what = f"{way} does not accept our login"
        return what, "correct the login in relay.proxy, or in HTTPS_PROXY"
    if status == PROXY_LOGIN:
        return f"{way} wants a login", "write it into relay.proxy: http://USER:WORD@HOST:PORT"
    if status >= SERVER_ERROR:
        todo = (
            "check relay.address; is the relay running? Where the proxy replaces certificates, the "
            "relay needs our token"
        )
        return f"{way} does not reach the relay at {at} ({status})", todo
    return f"{way} allows no such connection ({status})", f"ask its owner to allow CONNECT to {at}"
