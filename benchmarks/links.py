"""Lines of a wide area between the daemons of a cluster: so many bits a second, so late.

A benchmark has the option `--link 20mbit,50ms` by ``type=Link.parse`` and enters `shaped`.

A proxy for each pair stands between whoever dials and whoever listens. Every daemon sends through
one line and receives through another, whoever is at the other end, as behind one connection to the
internet; daemons that are on one machine share its lines, and nothing lies between them.
What TCP itself does on a long line (its slow start, lost packets) is not imitated.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import threading
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR

READ_BYTES = 16 << 10  # that travel together: 7 ms at 20 Mbit/s
# What a socket here takes in ahead of its line, and a packet: with loopback's, megabytes would wait
# on the way and hold a connection's pings back until either end gives it up.
BUFFER_BYTES, SEGMENT_BYTES = 64 << 10, 1448
T = TypeVar("T")


@dataclass(frozen=True)
class Link:
    """What a daemon's connection is worth; that of FederBoost's paper (section 6.2) by itself."""

    bits_per_s: float = 20e6  # each way
    latency_s: float = 0.1  # from any daemon to any other, one way

    @classmethod
    def parse(cls, text: str) -> Link:
        """What ``20mbit,50ms`` says; a ValueError for anything else."""
        found = re.fullmatch(r"([0-9.]+)mbit,([0-9.]+)ms", text)
        if found is None:
            raise ValueError(f"a link is {text!r}, expected for example 20mbit,50ms")
        return cls(1e6 * float(found[1]), 1e-3 * float(found[2]))

    @classmethod
    def parse_round_trip(cls, text: str) -> Link:
        """The same, where the milliseconds are those there and back."""
        one_way = cls.parse(text)
        return replace(one_way, latency_s=one_way.latency_s / 2)

    @property
    def words(self) -> str:
        """Return what it is worth, for people."""
        rate, there_and_back = self.bits_per_s / 1e6, 2e3 * self.latency_s
        return f"{rate:g} Mbit/s each way, {there_and_back:g} ms there and back"

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.bits_per_s / 1e6:g}mbit,{1e3 * self.latency_s:g}ms"


@dataclass
class Line:
    """One way of one daemon's connection: what enters leaves in turn, at the line's rate."""

    bits_per_s: float
    free_at: float = 0.0

    def leaves(self, data: int, now: float) -> float:
        """When the last of so many bytes that enter now has left."""
        self.free_at = max(now, self.free_at) + 8 * data / self.bits_per_s
        return self.free_at


@dataclass
class Lines:
    """Everybody's lines, both ways."""

    link: Link
    together: Collection[str] = ()  # daemons on one machine
    hub: str = ""  # halfway between all others, with lines of any rate
    up: dict[str, Line] = field(default_factory=dict)
    down: dict[str, Line] = field(default_factory=dict)

    def of(self, sender: str, receiver: str) -> tuple[Line, Line]:
        """The two that a byte from one to the other goes through."""
        up = self.up.setdefault(self._machine(sender), Line(self._rate(sender)))
        return up, self.down.setdefault(self._machine(receiver), Line(self._rate(receiver)))

    def _rate(self, daemon: str) -> float:
        return math.inf if daemon == self.hub else self.link.bits_per_s

    def latency_s(self, sender: str, receiver: str) -> float:
        """Seconds from one to the other."""
        return self.link.latency_s / (2 if self.hub in (sender, receiver) else 1)

    def are_between(self, one: str, other: str) -> bool:
        """Return whether two daemons are on machines of their own."""
        return self._machine(one) != self._machine(other)

    def _machine(self, daemon: str) -> str:
        return min(self.together) if daemon in self.together else daemon


@contextmanager
def shaped(
    cluster: ClusterProcesses,
    link: Link | None = None,
    together: Collection[str] = (),
    relay: str = "",
) -> Iterator[None]:
    """Puts the lines between the daemons of a cluster that is not running yet; those named
    `together` are on one machine. With the name of a `relay`, only the lines to it.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="wan", daemon=True)
    thread.start()

    def there(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    proxies = _Proxies(Lines(link or Link(), together, relay))
    try:
        for name in (COORDINATOR, *cluster.names):
            put = proxies.to_relay if relay else proxies.between
            there(put(name, cluster.config(name)))
        yield
    finally:
        there(proxies.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class _Proxies:
    """A listening port for each pair of daemons."""

    lines: Lines
    servers: list[asyncio.Server] = field(default_factory=list)
    under_way: set[asyncio.Task[None]] = field(default_factory=set)

    async def between(self, caller: str, config: Path) -> None:
        """Gives the settings of a daemon the ports that lead to its peers' lines."""
        raw = yaml.safe_load(config.read_text())
        if caller != COORDINATOR and self.lines.are_between(caller, COORDINATOR):
            remote = raw["coordinator"]
            remote["address"] = await self.listen(caller, COORDINATOR, remote["address"])
        book = raw["parties"] if caller == COORDINATOR else raw["peers"]
        for peer, address in book.items():
            if self.lines.are_between(caller, peer):
                book[peer] = await self.listen(caller, peer, address)
        write_file(config, yaml.safe_dump(raw, sort_keys=False).encode(), PUBLIC_MODE)

    async def listen(self, caller: str, called: str, address: str) -> str:
        """The address of a new port whose connections go to `address`, through both's lines."""
        host, port = address.rsplit(":", 1)

        async def connected(near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
            try:
                far, onward = await _connected(host, int(port))
            except OSError:  # nobody listens there: the caller shall see it closed
                answer.close()
                return
            self._start(self._carry(near, onward, caller, called))
            self._start(self._carry(far, answer, called, caller))

        own = _socket()
        own.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(connected, sock=own)
        self.servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Ends every connection."""
        for server in self.servers:
            server.close()
        for task in self.under_way:
            task.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)

    async def to_relay(self, caller: str, config: Path) -> None:
        """Gives the settings of a daemon a port that leads to the relay's line."""
        raw = yaml.safe_load(config.read_text())
        raw["relay"]["address"] = await self.listen(caller, self.lines.hub, raw["relay"]["address"])
        write_file(config, yaml.safe_dump(raw, sort_keys=False).encode(), PUBLIC_MODE)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _carry(
        self, near: asyncio.StreamReader, far: asyncio.StreamWriter, sender: str, receiver: str
    ) -> None:
        """Bytes one way: through the sender's line, late, through the receiver's."""
        up, down = self.lines.of(sender, receiver)
        latency_s = self.lines.latency_s(sender, receiver)
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arrive = asyncio.create_task(_arrive(under_way, far, down))
        try:
            while data := await near.read(READ_BYTES):
                left = up.leaves(len(data), _now())
                under_way.put_nowait((left + latency_s, data))
                await _until(left)
            under_way.put_nowait((_now() + latency_s, b""))
            await arrive
        except OSError:  # either side has gone: so does the connection
            far.close()
        finally:
            arrive.cancel()


def _socket() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    # asyncio sets it only where a socket was made for TCP by name; without, 40 ms come and go.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    made = _socket()
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except OSError:
        made.close()
        raise
    return await asyncio.open_connection(sock=made)


async def _arrive(
    under_way: asyncio.Queue[tuple[float, bytes]], far: asyncio.StreamWriter, down: Line
) -> None:
    """Hands over what comes out of the receiver's line; ends with the connection."""
    while True:
        arrives, data = await under_way.get()
        await _until(arrives)
        if not data:
            far.close()
            return
        await _until(down.leaves(len(data), _now()))
        far.write(data)
        await far.drain()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - _now()))
