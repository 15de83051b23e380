"""A relay as a separate process or inside the coordinator's daemon, with its metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedboost.ground.errors import ConfigError
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.config.relay import RelayConfig, RelayService
from fedboost.runtime.daemons.access import DaemonAccess
from fedboost.runtime.daemons.metrics import families_of, serve_metrics
from fedboost.runtime.process.stopping import reload_at_sighup, wait_for_stop
from fedboost.runtime.relay.members import Members, members_of_coordinator, members_of_relay
from fedboost.runtime.relay.server import Relay, run_relay
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls

log = logging.getLogger(__name__)


class RelayMetrics(Collector):
    """Metrics of a relay, read from its state on request."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of a relay."""
        for family in families_of("relay"):
            kind = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
            shown = kind(family.name, family.says, labels=family.labels)
            for labels, value in self._relay.reading(family.name):
                shown.add_metric(labels, value)
            yield shown


async def serve_relay(
    config: RelayConfig,
    *,
    until_stdin_closes: bool = False,
    reread: Callable[[], RelayConfig] | None = None,
) -> None:
    """Run a relay's process until SIGTERM or SIGINT; at SIGHUP it takes up the members of
    `reread`.
    """
    current = config

    async def reload_members() -> list[str]:
        """Take up the members of the settings file; a ConfigError if other keys differ."""
        nonlocal current
        if reread is None:
            raise ConfigError("this relay has no settings file", todo="restart it")
        fresh = await asyncio.to_thread(reread)
        differ = [
            key for key in RelayConfig.model_fields if getattr(config, key) != getattr(fresh, key)
        ]
        if differ not in ([], ["members"]):  # a member's `ca` counts as a change of `tls`
            raise ConfigError("only members may change, and no `ca`", todo="restart the relay")
        changed, current = current != fresh, fresh
        return ["members"] if changed else []

    certificates = ServerCertificates(config.tls, role="relay", name=config.name)
    try:
        config.tls.check_key_mode()
    except ConfigError as error:
        log.warning("%s; %s", error, error.todo)
    authorities = Authorities(config.tls, lambda: certificates.current_pems.roots)
    members = Members(lambda: members_of_relay(current), authorities)
    relay = Relay(members, config.timers)
    tls = WebTls(config.tls, certificates, lambda: members.clients)
    shown: AbstractContextManager[object] = nullcontext()
    if config.metrics is not None:
        registry = CollectorRegistry(auto_describe=True)
        registry.register(RelayMetrics(relay))
        names = (config.name, *config.metrics.names)
        shown = serve_metrics(config.metrics.listen, registry, names)
    async with run_relay(relay, config.listen, tls) as port:
        with shown, reload_at_sighup(reload_members):
            log.info("relay %s listens on port %d", config.name, port)
            await wait_for_stop(until_stdin_closes)
            log.info("relay %s stops", config.name)


@asynccontextmanager
async def relay_inside(
    settings: Callable[[], CoordinatorConfig],
    standing: DaemonAccess,
    registry: CollectorRegistry | None,
) -> AsyncIterator[None]:
    """Serve the relay inside a coordinator's daemon; `settings` returns the current ones,
    `registry` receives its metrics.
    """
    config = settings()
    assert isinstance(config.relay, RelayService)
    assert config.tls is not None
    members = Members(lambda: members_of_coordinator(settings()), standing.authorities)
    relay = Relay(members, config.timers)
    if registry is not None:
        registry.register(RelayMetrics(relay))
    tls = WebTls(config.tls, standing.certificates, lambda: members.clients)
    async with run_relay(relay, config.relay.listen, tls) as port:
        log.info("the relay of %s is on port %d", standing.who, port)
        yield
