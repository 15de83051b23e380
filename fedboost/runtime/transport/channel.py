"""Links out of this daemon: mutual TLS, a deadline on every call, retries while a link is down."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import grpc

from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.runtime.process.clock import growing_pauses, monotonic_s
from fedboost.runtime.transport import status
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.callees import Callees, DaemonTarget
from fedboost.runtime.transport.expiry import expired_error
from fedboost.runtime.transport.tls import Pems, ServerCertificates, TlsFiles, load_identity

CLAIM_KEY = "fedboost-claims"  # our claimed name on links without TLS

WINDOW_PIECES = 8  # of a stream, that gRPC may have taken and not sent yet
RECONNECT_S = 2.0  # the longest pause of gRPC's own between two tries to connect
LOOKED_AGAIN_S = 0.1  # between two looks at our own certificate, for any number of calls

Metadata: TypeAlias = tuple[tuple[str, str], ...]
Reply = TypeVar("Reply")
Stub = TypeVar("Stub")

_stubs = WeakKeyDictionary[grpc.aio.Channel, dict[Any, Any]]()


@dataclass
class Contact:
    """Time of the last sign of life from a call's other end."""

    at: float = field(default_factory=monotonic_s)

    def made(self) -> None:
        """Record a sign of life."""
        self.at = monotonic_s()


def channel_options(timers: Timers) -> list[tuple[str, Any]]:
    """Return the common options of channels and servers: small messages, pings that detect a dead
    link.
    """
    return [
        ("grpc.max_receive_message_length", wire.CONTROL_BYTES_MAX + (1 << 16)),
        ("grpc.max_send_message_length", wire.CONTROL_BYTES_MAX + (1 << 16)),
        ("grpc.keepalive_time_ms", int(timers.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(timers.keepalive_timeout_s * 1000)),
        # Without this option gRPC waits a minute for a ping, in spite of keepalive.
        ("grpc.http2.ping_timeout_ms", int(timers.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(timers.keepalive_s * 500)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(timers.keepalive_s * 500)),
        ("grpc.http2.max_ping_strikes", 0),
        # This also limits the opening of a connection; the default is 20 s.
        ("grpc.min_reconnect_backoff_ms", int(timers.keepalive_timeout_s * 1000)),
        ("grpc.initial_reconnect_backoff_ms", int(timers.retry_first_s * 1000)),
        # Not the pauses between our own tries: a link that is back must be found within seconds.
        ("grpc.max_reconnect_backoff_ms", int(min(timers.retry_max_s, RECONNECT_S) * 1000)),
        ("grpc.min_reconnect_backoff_ms", int(timers.keepalive_timeout_s * 1000)),  # to connect
        ("grpc.enable_http_proxy", 0),
    ]


def service_stub(kind: Callable[[grpc.aio.Channel], Stub], channel: grpc.aio.Channel) -> Stub:
    """Return a channel's stub of a service, made once: it makes something for every method."""
    stubs = _stubs.setdefault(channel, {})
    if kind not in stubs:
        stubs[kind] = kind(channel)
    made: Stub = stubs[kind]
    return made


class Routes:
    """Ways to daemons: each is dialled at its address."""

    def target(self, _: str, address: str) -> str:
        """Return gRPC's target of the daemon of that name and address."""
        return address

    def change_route(self, _: str) -> bool:
        """Choose another way to a daemon that was not reached; return whether there is one."""
        return False

    def is_relayed(self, _: str) -> bool:
        """Return whether a daemon is called through a relay."""
        return False

    def failure(self, _: str) -> FedboostError | None:
        """Return the reason why the way to a daemon is closed; None if only gRPC knows."""
        return None

    async def close(self) -> None:
        """Close what the ways need."""


def _secure_channel(
    target: DaemonTarget, pems: Pems, timers: Timers, certificate: bytes | None = None
) -> grpc.aio.Channel:
    """Return a channel that accepts any certificate of our CAs for the daemon, or only one."""
    name, address = target
    roots = certificate or pems.roots.pem_for_daemon(name)
    credentials = grpc.ssl_channel_credentials(roots, pems.key, pems.cert)
    options = [*channel_options(timers), ("grpc.ssl_target_name_override", name)]
    return grpc.aio.secure_channel(address, credentials, options=options)


@dataclass
class SharedChannel:
    """A channel, with the number of calls that use it."""

    channel: grpc.aio.Channel
    users: int = 0
    is_old: bool = False  # shows a replaced certificate; closed after its last call


class Dialer:
    """Opens channels to daemons by name and address, and calls through them.

    When our certificate or the CA's changes on disk, later calls open new channels; calls under way
    end on the old ones.
    """

    def __init__(
        self,
        tls: TlsFiles | None,
        timers: Timers,
        claim: str = "",
        *,
        routes: Routes | None = None,
        checks_callees: bool = False,
    ) -> None:
        """Prepare the dialer; without `tls` (loopback development only) `claim`, e.g. "party:bank",
        is our name. `routes` are other ways than addresses. With `checks_callees` revoked daemons
        are not called; see `callees`.
        """
        self._tls = tls
        self.routes = routes or Routes()
        self._claim = claim
        self.timers = timers
        self.failed: Callable[[str], None] = lambda _: None  # receives unreachable names
        self.carried: Callable[[], Metadata] = tuple  # further metadata of a call
        self._certificates: ServerCertificates | None = None
        self._callees: Callees | None = None
        if tls is not None and checks_callees:
            self._certificates = ours = ServerCertificates(tls)
            trusted = Authorities(tls, lambda: ours.current_pems.roots)
            self._callees = Callees(trusted, timers.call_s)
        self._looked_at = -math.inf  # whether its files have changed
        self._links: dict[tuple[str, str], SharedChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def open_channel(self, name: str, address: str) -> Iterator[grpc.aio.Channel]:
        """Yield the channel to the daemon `name`, which must show a certificate with that name.

        Inside it stays open, even if our certificate changes.
        """
        link = self._shared_channel(name, address)
        link.users += 1
        try:
            yield link.channel
        finally:
            link.users -= 1
            if link.is_old:
                self._release_channel(link)

    def short_call_channel(self, name: str, address: str) -> grpc.aio.Channel:
        """Return the channel for short calls: it may be closed while it is held."""
        return self._shared_channel(name, address).channel

    def _shared_channel(self, name: str, address: str) -> SharedChannel:
        if self._callees is None:  # otherwise each call has done so
            self._retire_outdated()
        key = self._routed(name, address)
        if key not in self._links:
            self._links[key] = SharedChannel(self._open(*key))
        return self._links[key]

    def _routed(self, name: str, address: str) -> DaemonTarget:
        """Return a daemon's name and the target of gRPC on the present way to it."""
        return name, self.routes.target(name, address)

    def _retire_outdated(self) -> None:
        """Set channels with an outdated certificate of ours aside."""
        if self._certificates is None or monotonic_s() - self._looked_at < LOOKED_AGAIN_S:
            return
        self._looked_at = monotonic_s()
        if not self._certificates.reload():
            return
        if self._callees is not None:
            self._callees.forget_all()
        for target in list(self._links):
            self._set_aside(target)

    def _set_aside(self, target: DaemonTarget) -> None:
        """Have later calls to a daemon open a new channel."""
        link = self._links.pop(target, None)
        if link is not None:
            link.is_old = True
            self._release_channel(link)

    async def _check_callee(self, target: DaemonTarget) -> None:
        """Raise UnreachableError unless our certificate and the daemon's count, see `callees`."""
        while self._callees is not None and self._certificates is not None:
            self._retire_outdated()
            ours = self._certificates.identity
            if ours.not_after < datetime.now(UTC):
                raise expired_error(ours.peer, ours.not_after)  # others would refuse us
            key = self._routed(*target)
            await self._callees.check(
                key, partial(self._open_to_ask, *key), partial(self._set_aside, key)
            )
            if self._callees.certificate_of(key) is not None:  # not forgotten meanwhile
                return

    def _shows_another(self, target: DaemonTarget, error: grpc.aio.AioRpcError) -> bool:
        """Return whether the daemon showed another certificate than it has stated."""
        if self._callees is None or not status.is_unknown_certificate(error):
            return False
        self._callees.forget(self._routed(*target))
        return True

    def _release_channel(self, link: SharedChannel) -> None:
        if not link.users:
            closing = asyncio.create_task(link.channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _open(self, name: str, address: str) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=channel_options(self.timers))
        if self._certificates is None:
            self._certificates = ServerCertificates(self._tls)
        if self._certificates.identity.not_after <= datetime.now(UTC):
            load_identity(self._tls)  # raises: to others we would look as if we were gone
        if self._callees is None:
            return _secure_channel((name, address), self._certificates.current_pems, self.timers)
        stated = self._callees.certificate_of((name, address))
        if stated is None:
            raise UnreachableError(f"{name} has not stated its certificate", party=name)
        pems = self._certificates.current_pems
        return _secure_channel((name, address), pems, self.timers, stated)

    def _open_to_ask(self, name: str, address: str) -> grpc.aio.Channel:
        """Return a channel over which a daemon states its certificate, and nothing else goes."""
        assert self._certificates is not None
        return _secure_channel((name, address), self._certificates.current_pems, self.timers)

    @property
    def metadata(self) -> Metadata:
        """Return the metadata of every call; includes our name if no certificate shows it."""
        claim = ((CLAIM_KEY, self._claim),) if self._tls is None else ()
        return (*claim, *self.carried())

    async def call(
        self,
        target: tuple[str, str],
        start: Callable[[grpc.aio.Channel], Any],
        *,
        retry_s: float = 0.0,
        contact: Contact | None = None,
    ) -> Any:
        """Await the call that `start` makes on the channel to `target` (name, address).

        While the link is down, retry until there has been no contact for `retry_s`, and at least
        once (never if `retry_s` is 0). Raise every other failure as its typed error.
        """
        last = contact or Contact()
        first_s, most_s = self.timers.retry_first_s, self.timers.retry_max_s
        seen, pauses_s, tried, is_renewed = last.at, growing_pauses(first_s, most_s), False, False
        rerouted = False
        while True:
            channel = None
            try:
                await self._check_callee(target)
                with self.open_channel(*target) as channel:
                    return await start(channel)
            except grpc.aio.AioRpcError as error:
                if not is_renewed and self._shows_another(target, error):
                    is_renewed = True
                    continue
                if status.is_link_down(error):
                    self.failed(target[0])
                if not rerouted and self._change_route(target[0], channel, error):
                    rerouted = True
                    continue
                # In whole microseconds: no last pause is shorter, or ends behind the window.
                left_s = math.floor((last.at + retry_s - monotonic_s()) * 1e6) / 1e6
                if not status.is_link_down(error) or retry_s <= 0 or (left_s <= 0 and tried):
                    raise self.error_of_call(error, *target) from None
            tried = True
            if last.at > seen:  # it broke after it had worked
                seen, pauses_s = last.at, growing_pauses(first_s, most_s)
            # The last try is at the window's end; a link that broke late deserves one as well.
            await asyncio.sleep(min(next(pauses_s), left_s if left_s > 0 else first_s))

    def _change_route(
        self, name: str, channel: grpc.aio.Channel | None, error: grpc.aio.AioRpcError
    ) -> bool:
        """Choose another way for a call that was not sent; return whether there is one."""
        is_unsent = status.is_link_down(error) or (
            # A firewall that drops packets uses up a call's time before there is a connection.
            status.is_late(error)
            and (channel is None or channel.get_state() is not grpc.ChannelConnectivity.READY)
        )
        return is_unsent and self.routes.change_route(name)

    def error_of_call(self, error: grpc.aio.AioRpcError, name: str, address: str) -> FedboostError:
        """Return the error that ended a call: the daemon's own, or the reason why it is not
        reached.
        """
        closed = self.routes.failure(name) if status.is_link_down(error) else None
        return closed or status.error_of_call(error, name, address)

    async def close(self) -> None:
        """Close every channel."""
        for link in self._links.values():
            await link.channel.close()
        self._links.clear()
        await asyncio.gather(*self._closing)
        await self.routes.close()
