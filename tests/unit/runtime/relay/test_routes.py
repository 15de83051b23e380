"""The sockets that lead calls to a relay."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.runtime.relay.lines import RelayLink
from fedboost.runtime.relay.routes import RelaySocket
from tests.support.relays import TIMERS, address, certificates, files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


@pytest.mark.parametrize("turns", [0, 1, 3, 4, 5])
async def test_a_connection_that_comes_while_a_socket_closes_is_closed(folder, tmp_path, turns):
    """The loop takes it, and hands it on some turns later (at 2, asyncio itself forgets it)."""
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, seen: failures.append(seen))
    link = RelayLink(address(9), files(folder, "bank"), TIMERS)
    ours = RelaySocket(link, "telco", tmp_path / "0")
    with pytest.raises(UnreachableError):  # the link has been used, and the socket listens by now
        await link.membership()
    with socket.socket(socket.AF_UNIX) as calling:
        calling.connect(ours.target.removeprefix("unix:"))
        calling.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await ours.close()
        await link.close()
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(calling, 1) == b""
    gc.collect()
    assert failures == []
