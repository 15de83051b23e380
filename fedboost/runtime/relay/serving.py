"""A relay as a process of its own, or inside the coordinator's daemon."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from fedboost.ground.errors import ConfigError
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.process.stopping import wait_for_stop
from fedboost.runtime.relay.members import Members, members_of_relay
from fedboost.runtime.relay.server import Relay
from fedboost.runtime.transport.addresses import split_address
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls

log = logging.getLogger(__name__)

SHUTDOWN_S = 1.0  # that open lines may take when the relay ends


@asynccontextmanager
async def run_relay(relay: Relay, listen: str, tls: WebTls) -> AsyncIterator[int]:
    """Serve a relay; yield its port. Raise ConfigError if the address is taken."""
    runner = web.AppRunner(relay.application(), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    host, port = split_address(listen)
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls.context).start()
        except OSError as error:
            raise ConfigError(
                f"the relay cannot listen on {listen}: {error.strerror}",
                todo="change `listen`; is another program there?",
            ) from None
        yield runner.addresses[0][1]
    finally:
        await relay.close()
        await runner.cleanup()


async def serve_relay(config: RelayConfig, *, until_stdin_closes: bool = False) -> None:
    """Run a relay's process until SIGTERM or SIGINT."""
    certificates = ServerCertificates(config.tls, role="relay", name=config.name)
    authorities = Authorities(config.tls, lambda: certificates.current_pems.roots)
    members = Members(lambda: members_of_relay(config), authorities)
    relay = Relay(members, config.timers)
    async with run_relay(
        relay, config.listen, WebTls(config.tls, certificates, members.clients)
    ) as port:
        log.info("relay %s listens on port %d", config.name, port)
        await wait_for_stop(until_stdin_closes)
        log.info("relay %s stops", config.name)
