"""A party or a coordinator as a process: serves its node over gRPC until it is told to stop.

Each loads its own node alone: a coordinator has no use for what a party needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedboost.errors import ConfigError, FedboostError
from fedboost.messages import (
    exchange_pb2,
    exchange_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    party_pb2,
    party_pb2_grpc,
)
from fedboost.runtime.config.daemons import (
    CoordinatorConfig,
    CoordinatorRetention,
    DaemonConfig,
    PartyConfig,
)
from fedboost.runtime.daemons import doctor
from fedboost.runtime.process.deadline import end_within
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport import authority, faults
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.identity import Identity, Peer, Role
from fedboost.runtime.transport.peers import PartyControl, PeerLinks
from fedboost.runtime.transport.posting import OutgoingStreams
from fedboost.runtime.transport.server import CallerGate, Health, Servicer, bind
from fedboost.runtime.transport.signing_tokens import identity_in
from fedboost.runtime.transport.tls import Revocations, ServerCertificates, TlsFiles

if TYPE_CHECKING:
    from fedboost.runtime.coordinator.node import CoordinatorNode
    from fedboost.runtime.daemons.metrics import Metrics
    from fedboost.runtime.daemons.party_metrics import PartyMetrics
    from fedboost.runtime.daemons.traces import Traces, WalkTraces
    from fedboost.runtime.party.halting import WriteReport
    from fedboost.runtime.party.job_memory import MemoryOf
    from fedboost.runtime.party.node import PartyNode
    from fedboost.runtime.party.parts import PeerCalls
    from fedboost.runtime.process.workers import ProcessWorkers

log = logging.getLogger(__name__)

HOUSE_S = 3600.0  # between two looks at what is too old


# What runs beside a node for as long as its daemon serves, such as its page.
Beside = Callable[[Any], AbstractAsyncContextManager[None]]


def _nothing(_: object) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class DaemonAccess:
    """Who a daemon is: its certificates, its gate, its way out."""

    def __init__(self, config: DaemonConfig, role: Role) -> None:
        self.tls = config.tls
        files = config.tls or _throwaway(config, role)
        self.certificates = ServerCertificates(files, role=role, name=config.name)
        self.revocations = Revocations(files)
        self.gate = CallerGate(self.revocations if config.tls else None)
        self.dialer = Dialer(config.tls, config.timers, claim=f"{role}:{config.name}")
        for warning in config.warnings():
            log.warning("%s", warning)
        try:
            files.check_key_mode()
        except ConfigError as error:
            log.warning("%s; %s", error, error.todo)

    def bind(self, config: DaemonConfig) -> tuple[Any, int]:
        """Return a server on the daemon's address, not started yet, and its port."""
        return bind(self.certificates if config.tls else None, config.listen, config.timers)

    @contextmanager
    def counted(
        self, config: DaemonConfig, metrics: Metrics | None, store: Store
    ) -> Iterator[None]:
        """Count refusals and failures, and show the figures to whoever asks."""
        if metrics is None or config.metrics is None:
            yield
            return
        from fedboost.runtime.daemons.metrics import served

        self.gate.refused, self.dialer.failed = metrics.refused, metrics.failed
        metrics.begin(store)
        with served(config.metrics.listen, metrics.registry) as port:
            log.info("metrics are on port %d", port)
            yield


def _throwaway(config: DaemonConfig, role: Role) -> TlsFiles:
    """Certificates that only sign: for `insecure_loopback`, where links have none."""
    folder = Path(config.store) / "insecure"
    authority.create(folder, [Leaf(role, config.name)], Term(datetime.now(UTC)))
    names = {"ca": "ca.pem", "cert": f"{config.name}.pem", "key": f"{config.name}.key"}
    return TlsFiles(**{key: folder / name for key, name in names.items()})


PARTY_SERVICES: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (party_pb2.DESCRIPTOR, "Party", party_pb2_grpc.add_PartyServicer_to_server),
    (party_pb2.DESCRIPTOR, "Owner", party_pb2_grpc.add_OwnerServicer_to_server),
    (exchange_pb2.DESCRIPTOR, "Exchange", exchange_pb2_grpc.add_ExchangeServicer_to_server),
)


async def serve_party(
    config: PartyConfig,
    *,
    write_report: WriteReport | None = None,
    memory_of: MemoryOf | None = None,
    until_stdin_closes: bool = False,
    beside: Beside = _nothing,
    reread: Callable[[], PartyConfig] | None = None,
) -> None:
    """A party's daemon, until SIGTERM or SIGINT, and what runs `beside` its node.

    At SIGHUP it takes up what `reread` gives of its settings file.
    """
    from fedboost.runtime.party.dask_shards import shards_of
    from fedboost.runtime.party.node import PartyNode
    from fedboost.runtime.policy.judgement import Trust
    from fedboost.runtime.process.workers import ProcessWorkers

    standing = DaemonAccess(config, "party")
    certificates = standing.certificates
    trust = Trust(
        _signs_as(config, certificates), lambda: certificates.pems.ca, standing.revocations.check
    )
    with Store(config.store, f"party {config.name}") as store:
        workers, shards = ProcessWorkers(config.processes), shards_of(config)
        links: PeerCalls = (peers := PeerLinks(standing.dialer, lambda: node.config.peers))
        metrics = _party_metrics(config, standing, workers)
        if metrics is not None:
            links = metrics.on(links)
        node = PartyNode(config, trust, store, links, workers)
        node.finishing.write_report, node.reread = write_report, reread
        node.parts.memory.of, node.parts.shards = memory_of, shards
        server, port = standing.bind(config)
        links_of = _links_of(lambda: node.config, standing)
        shown: Any = node if metrics is None else metrics.around(node)
        traces = _traces(config, "party")
        if traces is not None:
            shown = _traced(node, shown, traces, standing)
        served = Served(shown, links_of)
        servicers = _add_services(server, served, standing.gate, peers.streams)
        health = _health(server, *(f"{d.package}.{name}" for d, name, _ in PARTY_SERVICES))
        watch = asyncio.create_task(
            node.watch_coordinator(lambda: links_of(config.coordinator.name))
        )
        house = _kept(node.forget_old, lambda: node.config.retention)
        try:
            with standing.counted(config, metrics, store), _hung_up(node.take_up):
                async with beside(node):
                    await _serve(server, f"party {config.name}", port, until_stdin_closes)
        finally:
            end_within(config.timers.shutdown_s)
            health.stop()
            watch.cancel()
            house.cancel()
            await node.pause_all()
            for servicer in servicers:
                servicer.end_streams()
            await server.stop(config.timers.shutdown_s / 2)
            await standing.dialer.close()
            await asyncio.to_thread(workers.close)
            await asyncio.to_thread(shards.close)
            node.close()
            if traces is not None:
                await asyncio.to_thread(traces.close)


async def serve_coordinator(
    config: CoordinatorConfig,
    *,
    until_stdin_closes: bool = False,
    beside: Beside = _nothing,
    reread: Callable[[], CoordinatorConfig] | None = None,
) -> None:
    """The coordinator's daemon, until SIGTERM or SIGINT, and what runs `beside` its node.

    At SIGHUP it takes up what `reread` gives of its settings file.
    """
    from fedboost.runtime.coordinator.node import CoordinatorNode

    standing = DaemonAccess(config, "coordinator")
    walks = _walk_traces(config, standing)
    with Store(config.store, f"coordinator {config.name}") as store:

        def control(name: str) -> Any:
            link = PartyControl(standing.dialer, name, lambda: node.config.parties)
            return link if walks is None else walks.around(link)

        node = CoordinatorNode(config, standing.certificates.fresh, store, control)
        node.reread = reread
        metrics = _coordinator_metrics(config, standing, node)
        server, port = standing.bind(config)
        served = Served(node, _links_of(lambda: node.config, standing))
        service = job_pb2.DESCRIPTOR.services_by_name["Coordinator"]
        job_pb2_grpc.add_CoordinatorServicer_to_server(
            Servicer(served, standing.gate, service), server
        )
        health = _health(server, service.full_name)
        woken = asyncio.create_task(node.wake())
        house = _kept(node.forget_old, lambda: node.config.retention)
        try:
            with standing.counted(config, metrics, store), _hung_up(node.take_up):
                async with beside(node):
                    await _serve(server, f"coordinator {config.name}", port, until_stdin_closes)
        finally:
            end_within(config.timers.shutdown_s)
            health.stop()
            woken.cancel()
            house.cancel()
            await node.close()
            await server.stop(config.timers.shutdown_s / 2)
            await standing.dialer.close()
            if walks is not None:
                await asyncio.to_thread(walks.close)


def _add_services(
    server: Any, served: Served, gate: CallerGate, streams: OutgoingStreams
) -> list[Servicer]:
    """Have a server serve a party's services."""
    servicers = []
    for descriptor, name, add in PARTY_SERVICES:
        servicers.append(Servicer(served, gate, descriptor.services_by_name[name], streams))
        add(servicers[-1], server)
    return servicers


def _traces(config: DaemonConfig, role: Role) -> Traces | None:
    """A daemon's spans, if its owner wants any; a ConfigError where the extra is not installed."""
    if config.traces is None:
        return None
    try:
        from fedboost.runtime.daemons.traces import Traces
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("opentelemetry"):
            raise
        raise ConfigError(
            "traces needs OpenTelemetry, which is not installed",
            todo="pip install 'fedboost[otel]', or leave `traces` out",
        ) from None
    return Traces(config.traces, role, config.name)


def _traced(node: PartyNode, shown: Any, traces: Traces, standing: DaemonAccess) -> Any:
    """Return `shown`, a node or what is around it, making spans of what it is asked for."""
    from fedboost.runtime.daemons.traces import TracedParty, arrived

    standing.gate.arrived = arrived
    return TracedParty(node, shown, traces)


def _walk_traces(config: CoordinatorConfig, standing: DaemonAccess) -> WalkTraces | None:
    """Return spans of a coordinator's attempts, which its calls to parties carry along."""
    traces = _traces(config, "coordinator")
    if traces is None:
        return None
    from fedboost.runtime.daemons.traces import WalkTraces, carried

    standing.dialer.carried = carried
    return WalkTraces(traces)


def _signs_as(config: PartyConfig, certificates: ServerCertificates) -> Callable[[], Identity]:
    """Return who signs for a party: its key of TLS, or the one in a token."""
    if config.signing is None:
        return certificates.fresh
    ours = identity_in(config.signing, certificates.pems.ca, config.name)
    return lambda: ours


def _party_metrics(
    config: PartyConfig, standing: DaemonAccess, workers: ProcessWorkers
) -> PartyMetrics | None:
    """A party's figures, if its owner wants any; nothing of them is even imported otherwise."""
    if config.metrics is None:
        return None
    from fedboost.runtime.daemons.party_metrics import PartyMetrics

    return PartyMetrics(config, standing.certificates.fresh, workers.peak_rss_bytes)


def _coordinator_metrics(
    config: CoordinatorConfig, standing: DaemonAccess, node: CoordinatorNode
) -> Metrics | None:
    """Return a coordinator's figures, if its owner wants any."""
    if config.metrics is None:
        return None
    from fedboost.runtime.daemons.metrics import CoordinatorMetrics

    metrics = CoordinatorMetrics(config, standing.certificates.fresh, node.waits)
    node.listen(metrics.hear)
    return metrics


def _kept(
    forget_old: Callable[[], Awaitable[None]], keeps: Callable[[], CoordinatorRetention]
) -> asyncio.Task[None]:
    """Forgets what is too old, now and then; nothing while everything is kept for ever."""

    async def house() -> None:
        while True:
            try:
                if keeps() != type(keeps())():
                    await forget_old()
            except FedboostError as error:
                log.error("what is too old is not deleted: %s", "; ".join(error.lines()))
            await asyncio.sleep(HOUSE_S)

    return asyncio.create_task(house())


class Served:
    """A node with the daemon's own answers beside it."""

    def __init__(self, node: object, links: Callable[[str], Awaitable[object]]) -> None:
        self._node = node
        self._links = links

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def check_link(
        self, _: Peer, request: job_pb2.CheckLinkRequest
    ) -> job_pb2.CheckLinkReply:
        """Tries one of the daemon's own links, for `fedboost doctor`."""
        try:
            await self._links(request.name)
        except FedboostError as error:
            return job_pb2.CheckLinkReply(fault=faults.to_message(error))
        return job_pb2.CheckLinkReply()


def _health(server: Any, *services: str) -> Health:
    """The daemon's health service, added to what it serves."""
    health = Health(services)
    server.add_generic_rpc_handlers((health.handler(),))
    return health


def _links_of(
    config: Callable[[], DaemonConfig], standing: DaemonAccess
) -> Callable[[str], Awaitable[object]]:
    return lambda name: doctor.say_hello(standing.dialer, doctor.targets(config()), name)


@contextmanager
def _hung_up(take_up: Callable[[], Awaitable[list[str]]]) -> Iterator[None]:
    """Have the daemon take up what has changed in its settings file at SIGHUP."""
    under_way: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            changed = await take_up()
        except FedboostError as error:
            log.error("the settings stay as they were: %s", "; ".join(error.lines()))
        else:
            log.info("settings read again, changed: %s", ", ".join(changed) or "nothing")

    def begin() -> None:
        task = loop.create_task(reload())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, begin)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


async def _serve(server: Any, who: str, port: int, until_stdin_closes: bool) -> None:
    """Runs the server until a signal comes, or whoever started us is gone."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if until_stdin_closes:
        stdin = sys.stdin.fileno()
        loop.add_reader(stdin, lambda: None if os.read(stdin, 4096) else stopped.set())
    await server.start()
    log.info("%s listens on port %d", who, port)
    await stopped.wait()
    log.info("%s stops", who)
