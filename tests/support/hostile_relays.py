"""A relay that answers as a test likes, and plain lines to any relay."""

from contextlib import asynccontextmanager

from aiohttp import web

from fedboost.runtime.relay.lines import RelayLink
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls
from tests.support.relays import TIMERS, address, files


@asynccontextmanager
async def hostile_relay(folder, **answers):
    """A relay's port; `answers` are its handlers by the first word of the path."""
    tls = files(folder, "relay")
    app = web.Application()
    app.add_routes([web.get(f"/{word}{{rest:.*}}", handler) for word, handler in answers.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        context = WebTls(tls, ServerCertificates(tls)).context
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def linked(folder, name, port, **settings):
    """A link of `name` to the relay at `port`."""
    link = RelayLink(address(port, **settings), files(folder, name), TIMERS)
    try:
        yield link
    finally:
        await link.close()
