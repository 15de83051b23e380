"""Surroundings of a daemon's node: certificates, gate, server, links out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedboost.ground.errors import ConfigError, FedboostError, PolicyError
from fedboost.messages import job_pb2
from fedboost.runtime.config.daemons import DaemonConfig
from fedboost.runtime.daemons import doctor
from fedboost.runtime.process.bridge import log_failure
from fedboost.runtime.process.deadline import end_within
from fedboost.runtime.relay.dialing import relay_link
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport import authority, faults
from fedboost.runtime.transport.addresses import own_host
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.expiry import expiry_warning
from fedboost.runtime.transport.health import Health
from fedboost.runtime.transport.identity import CertificateRole, Peer
from fedboost.runtime.transport.posting import OutgoingStreams
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server
from fedboost.runtime.transport.tls import ServerCertificates, TlsFiles

if TYPE_CHECKING:
    from fedboost.runtime.daemons.metrics import DaemonMetrics

log = logging.getLogger(__name__)

EXPIRY_LOOK_S = 86_400.0  # between two looks at the end of our certificate

# Descriptor file of services, name of one, function that adds it to a server.
Service = tuple[Any, str, Callable[..., None]]
# Function that tries one of our links for a caller.
AskedLinks = Callable[[Peer, str], Awaitable[object]]


class DaemonAccess:
    """Identity of a daemon: its certificates, its gate, its links out."""

    def __init__(self, config: DaemonConfig, role: CertificateRole) -> None:
        self.config, self.who = config, f"{role} {config.name}"
        files = config.tls or _create_signing_certificates(config, role)
        self.certificates = ServerCertificates(files, role=role, name=config.name)
        self.authorities = Authorities(files, lambda: self.certificates.current_pems.roots)
        self.gate = CallerGate(self.authorities if config.tls else None)
        self.dialer = doctor.open_links(config, role)
        roots = self.certificates.current_pems.roots
        shared = doctor.check_authorities(config, roots)
        for warning in (*config.warnings(), *(finding.warning for finding in shared)):
            log.warning("%s", warning)
        try:
            files.check_key_mode()
        except ConfigError as error:
            log.warning("%s; %s", error, error.todo)

    def links_of(self, config: Callable[[], DaemonConfig]) -> Callable[[str], Awaitable[object]]:
        """Return a function that says hello to a daemon named in the current settings."""
        return lambda name: doctor.say_hello(self.dialer, doctor.link_targets(config()), name)

    def asked(self, config: Callable[[], DaemonConfig]) -> AskedLinks:
        """Return a function that tries a link for a caller, without revealing its address."""
        try_link = self.links_of(config)

        async def try_for_caller(caller: Peer, name: str) -> None:
            doctor.check_asker(config(), caller, name)
            try:
                await try_link(name)
            except FedboostError as error:
                said = "; ".join(error.lines())
                log.warning("%s asked whether we reach %s: %s", caller, name[:64], said)
                raise doctor.without_address(error, self.config.name, name[:64]) from None

        return try_for_caller

    def answer_relay(self, port: int) -> list[asyncio.Task[Any]]:
        """Start to take calls from the relay, if there is one, to our own `port`."""
        config = self.config
        relay = config.dialed_relay
        if relay is None:
            return []
        from fedboost.runtime.relay.answering import AnsweredCalls

        link = relay_link(config.tls, config.timers, relay)
        calls = AnsweredCalls(link, (own_host(config.listen), port), config.timers)
        answering = asyncio.create_task(calls.answer_calls())
        answering.add_done_callback(log_failure)
        return [answering]

    async def warn_of_expiry_daily(self) -> None:
        """Warn now, and each day, of a certificate of ours that ends soon."""
        while self.config.tls is not None:
            not_after = self.certificates.fresh().not_after
            if warning := expiry_warning(not_after, datetime.now(UTC)):
                log.warning("our certificate %s", warning)
            await asyncio.sleep(EXPIRY_LOOK_S)

    @contextmanager
    def counted(self, metrics: DaemonMetrics | None, store: Store) -> Iterator[None]:
        """Count refusals and failures, and serve the figures."""
        if metrics is None or self.config.metrics is None:
            yield
            return
        from fedboost.runtime.daemons.metrics import serve_metrics

        self.gate.refused, self.dialer.failed = metrics.refused, metrics.failed
        metrics.begin(store)
        own = self.config.metrics
        with serve_metrics(own.listen, metrics.registry, (self.config.name, *own.names)) as port:
            log.info("metrics are on port %d", port)
            yield


def _create_signing_certificates(config: DaemonConfig, role: CertificateRole) -> TlsFiles:
    """Create certificates that only sign: for `insecure_loopback`, where links have none."""
    folder = Path(config.store) / "insecure"
    authority.create_certificates(folder, [Leaf(role, config.name)], Term(datetime.now(UTC)))
    names = {"ca": "ca.pem", "cert": f"{config.name}.pem", "key": f"{config.name}.key"}
    return TlsFiles(**{key: folder / name for key, name in names.items()})


class DaemonServer:
    """The gRPC server of a daemon: a node's services and the daemon's health."""

    def __init__(
        self,
        standing: DaemonAccess,
        node: object,
        services: Iterable[Service],
        links: AskedLinks,
        streams: OutgoingStreams | None = None,
    ) -> None:
        """Bind the address; `links` tries one of the daemon's links, `streams` are its own."""
        self._standing, config = standing, standing.config
        certificates = standing.certificates if config.tls else None
        self.grpc, self.port = bind_server(certificates, config.listen, config.timers)
        served, self._servicers, names = _Served(node, links), [], []
        for descriptor, name, add in services:
            service = descriptor.services_by_name[name]
            self._servicers.append(Servicer(served, standing.gate, service, streams))
            add(self._servicers[-1], self.grpc)
            names.append(service.full_name)
        self._health = Health(names, certificates and certificates.fresh)
        works = (self._health.watch_loop(), standing.warn_of_expiry_daily())
        self._watching = [asyncio.create_task(work) for work in works]
        self.grpc.add_generic_rpc_handlers((self._health.handler(),))

    async def stop(
        self, background: Iterable[asyncio.Task[Any]], stop_node: Callable[[], Awaitable[object]]
    ) -> None:
        """End background tasks, the node's jobs, the server and the links, in time."""
        timers = self._standing.config.timers
        end_within(timers.shutdown_s)
        self._health.stop()
        for task in (*background, *self._watching):
            task.cancel()
        await stop_node()
        for servicer in self._servicers:
            servicer.end_streams()
        await self.grpc.stop(timers.shutdown_s / 2)
        await self._standing.dialer.close()


class _Served:
    """A node with the daemon's own answers beside it."""

    def __init__(self, node: object, links: AskedLinks) -> None:
        self._node = node
        self._links = links

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def check_link(
        self, caller: Peer, request: job_pb2.CheckLinkRequest
    ) -> job_pb2.CheckLinkReply:
        """Try one of the daemon's own links, for `fedboost doctor` and its coordinator."""
        try:
            await self._links(caller, request.name)
        except PolicyError:
            raise
        except FedboostError as error:
            return job_pb2.CheckLinkReply(fault=faults.fault_of_error(error))
        return job_pb2.CheckLinkReply()
