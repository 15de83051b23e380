"""Calls through a relay: gRPC connects to a local socket for each called daemon."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import tempfile
from pathlib import Path

from fedboost.ground.errors import FedboostError
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.relay.copying import LINE_PIECE_BYTES, join_connection
from fedboost.runtime.relay.lines import CALL, RelayLink
from fedboost.runtime.transport.addresses import VIA_RELAY, Reach, split_address
from fedboost.runtime.transport.channel import Routes

log = logging.getLogger(__name__)

DIRECT_AGAIN_S = 300.0  # between two tries of an address that did not answer
DIRECT_TRY_S = 5.0  # that such a try may take


class RelayRoutes(Routes):
    """Ways to daemons through a relay: to all, or to those whose address does not answer."""

    def __init__(self, link: RelayLink, reach: Reach, own: str) -> None:
        """Prepare the ways; our `own` daemon is called at its address."""
        self._link, self._reach, self._own = link, reach, own
        self._folder: Path | None = None  # of the sockets; only we may enter it
        self._sockets: dict[str, RelaySocket] = {}
        self._unanswered: dict[str, float] = {}  # by daemon: when its address did not answer
        self._addresses: dict[str, str] = {}
        self._trying: dict[str, asyncio.Task[None]] = {}

    def target(self, name: str, address: str) -> str:
        """Return gRPC's target of a daemon: its address, or our socket that leads to it."""
        self._addresses[name] = address
        if not self.is_relayed(name):
            return address
        self._try_address(name)
        if name not in self._sockets:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="fedboost-"))
            path = self._folder / str(len(self._sockets))  # short: a socket's path is limited
            self._sockets[name] = RelaySocket(self._link, name, path)
        return self._sockets[name].target

    def is_relayed(self, name: str) -> bool:
        """Return whether a daemon is called through the relay."""
        return name != self._own and (
            self._reach == "outbound"
            or self._addresses.get(name) == VIA_RELAY
            or name in self._unanswered
        )

    def change_route(self, name: str) -> bool:
        """Change between a daemon's address and the relay, where `reach` is ``auto``."""
        address = self._addresses[name]
        if self._reach != "auto" or address == VIA_RELAY:
            return False
        if self._unanswered.pop(name, None) is None:
            self._unanswered[name] = monotonic_s()
            log.info("%s does not answer at %s: it is called through the relay", name, address)
        else:
            log.info("%s does not answer through the relay: it is called at %s", name, address)
        return True

    def _try_address(self, name: str) -> None:
        """Try an address again in the background that did not answer some minutes ago."""
        since = self._unanswered.get(name)
        if since is None or monotonic_s() - since < DIRECT_AGAIN_S or name in self._trying:
            return

        async def try_address() -> None:
            """Call the daemon at its address again if that takes connections."""
            address = self._addresses[name]
            try:
                async with asyncio.timeout(DIRECT_TRY_S):
                    _, writer = await asyncio.open_connection(*split_address(address))
            except OSError:
                self._unanswered[name] = monotonic_s()
            else:
                writer.close()
                self._unanswered.pop(name, None)
                log.info("%s answers at %s again: it is called there", name, address)

        task = self._trying[name] = asyncio.create_task(try_address())
        task.add_done_callback(lambda _: self._trying.pop(name, None))

    def failure(self, name: str) -> FedboostError | None:
        """Return the reason why the last line to a daemon failed; None if it was opened."""
        ours = self._sockets.get(name)
        return ours.failure if ours is not None and self.is_relayed(name) else None

    async def close(self) -> None:
        """Close the sockets and the link."""
        for task in self._trying.values():
            task.cancel()
        for ours in self._sockets.values():
            await ours.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        await self._link.close()


class RelaySocket:
    """A Unix socket whose connections lead to one daemon through the relay."""

    def __init__(self, link: RelayLink, name: str, path: Path) -> None:
        """Listen at once; connections wait until the event loop serves them."""
        self._link, self._name = link, name
        self.target = f"unix:{path}"
        self.failure: FedboostError | None = None  # of the last connection
        self._is_closed = False
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen()
        self._joined: set[asyncio.Task[None]] = set()
        self._serving = asyncio.create_task(
            asyncio.start_unix_server(self._begin, sock=listening, limit=LINE_PIECE_BYTES)
        )

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:  # it was accepted before and is handed on only now
            writer.close()
            return
        task = asyncio.create_task(self._join(reader, writer))
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._link.open_line(CALL.format(name=self._name), self._name) as line:
                self.failure = None
                await join_connection(reader, writer, line)
        except FedboostError as error:
            self.failure = error

    async def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        (await self._serving).close()
        for task in (*self._joined,):
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)
