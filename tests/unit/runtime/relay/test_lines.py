"""What is said of a line that ends before it is one."""

import asyncio
import socket
import ssl
import struct

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.runtime.relay.lines import RelayLink
from tests.support.relays import TIMERS, address, certificates, files

AT_ONCE = struct.pack("ii", 1, 0)  # to close a connection by a reset


@pytest.mark.parametrize("by_reset", [False, True])
async def test_a_connection_that_ends_after_tls_was_closed_by_the_relay(tmp_path, by_reset):
    """As where it refuses our certificate; the end may come as a reset."""
    folder = certificates(tmp_path / "certs")
    own = files(folder, "relay")

    async def refuse(reader, writer):
        await reader.read(1)
        if by_reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        writer.transport.abort()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    serving = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=context)
    port = serving.sockets[0].getsockname()[1]
    link = RelayLink(address(port), files(folder, "bank"), TIMERS)
    try:
        with pytest.raises(UnreachableError, match=r"the relay at .* closed the connection"):
            await link.membership()
    finally:
        await link.close()
        serving.close()
