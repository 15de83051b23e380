"""A party or a coordinator as a process: serves its node over gRPC until a stop signal.

Each loads only its own node, without the modules of the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any

from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError, FedboostError, install_advice
from fedboost.messages import (
    exchange_pb2,
    exchange_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    party_pb2,
    party_pb2_grpc,
)
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.config.relay import RelayService
from fedboost.runtime.daemons.access import DaemonAccess, DaemonServer, Service
from fedboost.runtime.process.stopping import reload_at_sighup, wait_for_stop
from fedboost.runtime.store.store import Store
from fedboost.runtime.transport.identity import CertificateRole, Identity
from fedboost.runtime.transport.peers import PartyControl, PeerLinks
from fedboost.runtime.transport.signing_tokens import identity_in
from fedboost.runtime.transport.tls import ServerCertificates

if TYPE_CHECKING:
    from fedboost.runtime.coordinator.node import CoordinatorNode
    from fedboost.runtime.daemons.metrics import DaemonMetrics
    from fedboost.runtime.daemons.party_metrics import PartyMetrics
    from fedboost.runtime.daemons.traces import Traces, WalkTraces
    from fedboost.runtime.party.job.memory import MemoryOf
    from fedboost.runtime.party.node.halting import WriteReport
    from fedboost.runtime.party.node.node import PartyNode
    from fedboost.runtime.party.node.parts import PeerCalls
    from fedboost.runtime.process.workers import ProcessWorkers

log = logging.getLogger(__name__)

HOUSE_S = 3600.0  # between two searches for expired data

# Companion of a node while its daemon serves, such as its page.
Beside = Callable[[Any], AbstractAsyncContextManager[None]]


def _no_companion(_: object) -> AbstractAsyncContextManager[None]:
    return nullcontext()


PARTY_SERVICES: tuple[Service, ...] = (
    (party_pb2.DESCRIPTOR, "Party", party_pb2_grpc.add_PartyServicer_to_server),
    (party_pb2.DESCRIPTOR, "Owner", party_pb2_grpc.add_OwnerServicer_to_server),
    (exchange_pb2.DESCRIPTOR, "Exchange", exchange_pb2_grpc.add_ExchangeServicer_to_server),
)
COORDINATOR_SERVICES: tuple[Service, ...] = (
    (job_pb2.DESCRIPTOR, "Coordinator", job_pb2_grpc.add_CoordinatorServicer_to_server),
)


async def serve_party(
    config: PartyConfig,
    *,
    write_report: WriteReport | None = None,
    memory_of: MemoryOf | None = None,
    until_stdin_closes: bool = False,
    beside: Beside = _no_companion,
    reread: Callable[[], PartyConfig] | None = None,
) -> None:
    """Run a party's daemon until SIGTERM or SIGINT, with the companions `beside` its node.

    At SIGHUP it reloads its settings from `reread`.
    """
    from fedboost.runtime.party.node.node import PartyNode
    from fedboost.runtime.party.workers.dask_part_workers import part_workers_of
    from fedboost.runtime.policy.judgement import Trust
    from fedboost.runtime.process.workers import ProcessWorkers

    standing = DaemonAccess(config, "party")
    certificates = standing.certificates
    trust = Trust(_signing_identity(config, certificates), standing.authorities)
    with Store(config.store, standing.who) as store:
        workers, part_workers = ProcessWorkers(config.processes), part_workers_of(config)
        links: PeerCalls = (peers := PeerLinks(standing.dialer, lambda: node.config.addresses()))  # noqa: PLW0108  # a reload replaces it
        metrics = _party_metrics(config, standing, workers)
        if metrics is not None:
            links = metrics.count_payloads_of(links)
        node = PartyNode(config, trust, store, links, workers)
        node.finishing.write_report, node.reread = write_report, reread
        node.parts.memory.of, node.parts.part_workers = memory_of, part_workers
        shown: Any = node if metrics is None else metrics.count_calls_of(node)
        traces = _open_traces(config, "party")
        if traces is not None:
            shown = _with_spans(node, shown, traces, standing)
        links_of = standing.links_of(lambda: node.config)
        asked = standing.asked(lambda: node.config)
        server = DaemonServer(standing, shown, PARTY_SERVICES, asked, peers.streams)
        watch = node.watch_coordinator(lambda: links_of(config.coordinator.name))
        background = [asyncio.create_task(watch), _start_cleaning(node)]
        background += standing.answer_relay(server.port)
        try:
            with standing.counted(metrics, store), reload_at_sighup(node.reload_settings):
                async with beside(node):
                    await _serve_until_stopped(server, standing.who, until_stdin_closes)
        finally:
            await server.stop(background, node.pause_all)
            await asyncio.to_thread(workers.close)
            await asyncio.to_thread(part_workers.close)
            node.close()
            if traces is not None:
                await asyncio.to_thread(traces.close)


async def serve_coordinator(
    config: CoordinatorConfig,
    *,
    until_stdin_closes: bool = False,
    beside: Beside = _no_companion,
    reread: Callable[[], CoordinatorConfig] | None = None,
) -> None:
    """Run the coordinator's daemon until SIGTERM or SIGINT, with the companions `beside` its node.

    At SIGHUP it reloads its settings from `reread`.
    """
    from fedboost.runtime.coordinator.node import CoordinatorNode

    standing = DaemonAccess(config, "coordinator")
    walks = _walk_traces(config, standing)
    with Store(config.store, standing.who) as store:

        def control_of(name: str) -> Any:
            link = PartyControl(standing.dialer, name, lambda: node.config.addresses())  # noqa: PLW0108
            return link if walks is None else walks.trace_calls_of(link)

        node = CoordinatorNode(config, standing.certificates.fresh, store, control_of)
        node.reread = reread
        metrics = _coordinator_metrics(config, standing, node)
        asked = standing.asked(lambda: node.config)
        server = DaemonServer(standing, node, COORDINATOR_SERVICES, asked)
        async with _relay_inside(node, standing, metrics):  # jobs that pause at the end need it
            background = [asyncio.create_task(node.resume_unfinished()), _start_cleaning(node)]
            background += standing.answer_relay(server.port)
            try:
                with standing.counted(metrics, store), reload_at_sighup(node.reload_settings):
                    async with beside(node):
                        await _serve_until_stopped(server, standing.who, until_stdin_closes)
            finally:
                await server.stop(background, node.close)
                if walks is not None:
                    await asyncio.to_thread(walks.close)


def _relay_inside(
    node: CoordinatorNode, standing: DaemonAccess, metrics: DaemonMetrics | None
) -> AbstractAsyncContextManager[None]:
    """Return the relay in the coordinator's daemon; nothing if its settings have none."""
    if not isinstance(node.config.relay, RelayService):
        return nullcontext()
    from fedboost.runtime.daemons.relay import relay_inside

    registry = None if metrics is None else metrics.registry
    return relay_inside(lambda: node.config, standing, registry)


def _open_traces(config: DaemonConfig, role: CertificateRole) -> Traces | None:
    """Return a daemon's traces if configured; raise ConfigError if the extra is not installed."""
    if config.traces is None:
        return None
    try:
        from fedboost.runtime.daemons.traces import Traces
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("opentelemetry"):
            raise
        raise ConfigError(
            "traces needs OpenTelemetry, which is not installed",
            todo=f"{install_advice('otel')}; or leave `traces` out",
        ) from None
    return Traces(config.traces, role, config.name)


def _with_spans(node: PartyNode, shown: Any, traces: Traces, standing: DaemonAccess) -> Any:
    """Return `shown`, a node or its wrapper, with spans for its calls."""
    from fedboost.runtime.daemons.traces import TracedParty, continue_trace

    standing.gate.arrived = continue_trace
    return TracedParty(node, shown, traces)


def _walk_traces(config: CoordinatorConfig, standing: DaemonAccess) -> WalkTraces | None:
    """Return spans of a coordinator's attempts, which its calls to parties carry along."""
    traces = _open_traces(config, "coordinator")
    if traces is None:
        return None
    from fedboost.runtime.daemons.traces import WalkTraces, trace_metadata

    standing.dialer.carried = trace_metadata
    return WalkTraces(traces)


def _signing_identity(
    config: PartyConfig, certificates: ServerCertificates
) -> Callable[[], Identity]:
    """Return a function for a party's signing identity: its TLS key, or a key in a token."""
    if config.signing is None:
        return certificates.fresh
    ours = identity_in(config.signing, certificates.current_pems.ca, config.name)
    return lambda: ours


def _party_metrics(
    config: PartyConfig, standing: DaemonAccess, workers: ProcessWorkers
) -> PartyMetrics | None:
    """Return a party's metrics if configured; import their code only then."""
    if config.metrics is None:
        return None
    from fedboost.runtime.daemons.party_metrics import PartyMetrics

    return PartyMetrics(config, standing.certificates.fresh, workers.peak_rss_bytes)


def _coordinator_metrics(
    config: CoordinatorConfig, standing: DaemonAccess, node: CoordinatorNode
) -> DaemonMetrics | None:
    """Return a coordinator's figures, if its owner wants any."""
    if config.metrics is None:
        return None
    from fedboost.runtime.daemons.metrics import CoordinatorMetrics

    metrics = CoordinatorMetrics(config, standing.certificates.fresh, node.current_waits)
    node.listen_to_events(metrics.hear)
    return metrics


def _start_cleaning(node: PartyNode | CoordinatorNode) -> asyncio.Task[None]:
    """Start a task that regularly deletes expired data; idle without retention limits."""

    async def clean_regularly() -> None:
        while True:
            try:
                if (keeps := node.config.retention) != type(keeps)():
                    await node.delete_expired()
            except FedboostError as error:
                log.error("expired data could not be deleted: %s", "; ".join(error.lines()))
            await asyncio.sleep(HOUSE_S)

    return asyncio.create_task(clean_regularly())


async def _serve_until_stopped(server: DaemonServer, who: str, until_stdin_closes: bool) -> None:
    """Run the server until a stop signal, or until the starting process exits."""
    await server.grpc.start()
    log.info("%s listens on port %d, fedboost %s", who, server.port, build_version())
    await wait_for_stop(until_stdin_closes)
    log.info("%s stops", who)
