"""A TCP proxy between real daemons that has bad weather; TLS stays between the daemons' ends.

Each link, from a caller to a daemon that listens, has a port of its own and weather of its own.
What a dead link does not carry waits in front of it, as TCP would send it again later.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.transport.addresses import split_address
from tests.e2e import world

CHUNK_BYTES = 1 << 16
SLICE_BYTES_MAX = 64
DO_S = 30.0  # for what takes no time at all
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER

Link = tuple[str, str]  # who calls, who listens
THERE, BACK = "there", "back"  # the directions of a link


@dataclass(frozen=True)
class Weather:
    """What a link does to what it carries."""

    latency_s: float = 0.0  # of each chunk
    bytes_per_s: float | None = None
    slices: bool = False  # of 1 to 64 bytes, each sent by itself
    dead: tuple[str, ...] = ()  # directions in which nothing arrives
    reset_after: int | None = None  # bytes, of the connections that carry anything then


FAIR = Weather()
SILENT = Weather(dead=(THERE, BACK))


@dataclass
class _Pass:
    """One link at work."""

    target: tuple[str, int]
    weather: Weather = FAIR
    carried: int = 0  # bytes since the weather changed
    server: asyncio.Server | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)


class Proxy:
    """All links of a cluster; made before its daemons start, closed after they have ended."""

    def __init__(self, cluster: ClusterProcesses, seed: int = 0) -> None:
        """Gives every link of the cluster a port, and writes the ports into the settings files."""
        self._draw = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        names = (COORDINATOR, *cluster.names)
        self.links: tuple[Link, ...] = tuple(
            (caller, called) for caller in names for called in names if caller != called
        )
        self._passes: dict[Link, _Pass] = {}
        for caller, called in self.links:
            address = self._do(self._open((caller, called), cluster.addresses[called]))
            _redirect(cluster, caller, called, address)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, weather: Weather, *links: Link) -> None:
        """From now on these links (or all) have this weather, for what they carry now as well."""
        self._do(self._set(weather, links or self.links))

    def carried(self, link: Link) -> int:
        """How many bytes a link has carried since its weather changed."""
        return self._passes[link].carried

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DO_S)

    async def _open(self, link: Link, address: str) -> str:
        own = self._passes[link] = _Pass(split_address(address))
        own.server = await asyncio.start_server(partial(self._serve, own), "127.0.0.1", 0)
        return f"127.0.0.1:{own.server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        for own in self._passes.values():
            assert own.server is not None
            own.server.close()
            for writer in own.writers:
                writer.transport.abort()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _set(self, weather: Weather, links: tuple[Link, ...]) -> None:
        for link in links:
            own = self._passes[link]
            own.weather, own.carried = weather, 0
            own.changed.set()
            own.changed = asyncio.Event()

    async def _serve(
        self, own: _Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection; both its directions end together, as their daemons would have it."""
        try:
            there, back = await asyncio.open_connection(*own.target)
        except OSError:
            writer.transport.abort()
            return
        own.writers |= {writer, back}
        pumps = [
            asyncio.create_task(self._pump(own, THERE, reader, back)),
            asyncio.create_task(self._pump(own, BACK, there, writer)),
        ]
        try:
            with suppress(asyncio.CancelledError):  # the proxy closes
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, back):
                own.writers.discard(end)
                end.transport.abort()

    async def _pump(
        self, own: _Pass, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                for piece in self._pieces(own, data):
                    await self._carry(own, way, piece, writer)

    def _pieces(self, own: _Pass, data: bytes) -> Iterator[bytes]:
        while data:
            size = self._draw.randint(1, SLICE_BYTES_MAX) if own.weather.slices else len(data)
            yield data[:size]
            data = data[size:]

    async def _carry(self, own: _Pass, way: str, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Brings some bytes to the other end, as the weather lets it."""
        while way in own.weather.dead:
            await own.changed.wait()
        now = own.weather
        if now.latency_s:
            await asyncio.sleep(now.latency_s)
        if now.bytes_per_s:
            await asyncio.sleep(len(data) / now.bytes_per_s)
        before, own.carried = own.carried, own.carried + len(data)
        if now.reset_after is not None and before <= now.reset_after < own.carried:
            writer.write(data[: now.reset_after - before])  # the rest of the message is lost
            await writer.drain()
            for end in own.writers:
                _reset(end)
            raise ConnectionResetError
        writer.write(data)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    taken = writer.get_extra_info("socket")
    with suppress(OSError):
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    writer.transport.abort()


def _redirect(cluster: ClusterProcesses, caller: str, called: str, address: str) -> None:
    """Has a daemon find another one at a link's own port."""

    def change(raw: dict[str, Any]) -> None:
        if caller == COORDINATOR:
            raw["parties"][called] = address
        elif called == COORDINATOR:
            raw["coordinator"]["address"] = address
        else:
            raw["peers"][called] = address

    world.edit(cluster, caller, change)
