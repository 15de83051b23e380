"""A page beside a daemon: starts with its node, stops with it, and never harms it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from aiohttp import web

from fedboost.ground.errors import FedboostError
from fedboost.pages import token
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.transport.addresses import split_address
from fedboost.runtime.transport.identity import CertificateRole
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls

log = logging.getLogger(__name__)

SHUTDOWN_S = 1.0  # that open connections may take when the daemon ends
IDLE_S = 30.0  # a connection that asks for nothing is closed


def coordinator_companion(
    config: CoordinatorConfig,
) -> Callable[[CoordinatorNode], AbstractAsyncContextManager[None]]:
    """Return what `daemon.serve_coordinator` runs beside its node: the page of the settings."""
    from fedboost.pages.coordinator import coordinator_site

    return lambda node: _serve_page(config, "coordinator", lambda: coordinator_site(node))


def party_companion(
    config: PartyConfig, file: Path | None = None
) -> Callable[[PartyNode], AbstractAsyncContextManager[None]]:
    """Return the page to run beside a party's node; `file` holds its settings, for audits."""
    from fedboost.pages.party import party_site  # reads tables, which a coordinator cannot

    return lambda node: _serve_page(config, "party", lambda: party_site(node, file))


@asynccontextmanager
async def _serve_page(
    config: DaemonConfig, role: CertificateRole, application: Callable[[], web.Application]
) -> AsyncIterator[None]:
    runner = await _start_page(config, role, application)
    try:
        yield
    finally:
        if runner is not None:
            await runner.cleanup()


async def _start_page(
    config: DaemonConfig, role: CertificateRole, application: Callable[[], web.Application]
) -> web.AppRunner | None:
    """Return the running page; None if it cannot start: the log names the error, the daemon serves
    on.
    """
    page = token.page_settings(config)
    runner: web.AppRunner | None = None
    try:
        token.read_token(config.store)
        runner = web.AppRunner(
            application(), access_log=None, shutdown_timeout=SHUTDOWN_S, keepalive_timeout=IDLE_S
        )
        await runner.setup()
        host, port = split_address(page.listen)
        secured = _tls_context(config, role) if page.allow_remote else None
        await web.TCPSite(runner, host, port, ssl_context=secured).start()
    except (FedboostError, OSError) as error:
        lines = error.lines() if isinstance(error, FedboostError) else [str(error)]
        log.error("%s %s serves no page: %s", role, config.name, "; ".join(lines))
        if runner is not None:
            await runner.cleanup()
        return None
    who, at = f"{role} {config.name}", token.page_address(config)
    log.info("the page of %s is at %s; sign in by: fedboost %s page --config FILE", who, at, role)
    return runner


def _tls_context(config: DaemonConfig, role: CertificateRole) -> ssl.SSLContext:
    assert config.tls is not None
    return WebTls(config.tls, ServerCertificates(config.tls, role=role, name=config.name)).context
