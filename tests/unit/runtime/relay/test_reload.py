"""Members of a relay that are added and removed while it runs."""

import asyncio
import logging
import os
import signal

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.daemons.relay import serve_relay
from fedboost.runtime.relay import server
from fedboost.runtime.relay.lines import ANSWER
from tests.support.hostile_relays import linked
from tests.support.relays import certificates, files, until
from tests.support.servers import free_port


def settings(folder, port, *names, **more):
    tls = {key: str(path) for key, path in files(folder, "relay").model_dump().items()}
    members = {name: more.get(name, {}) for name in names}
    said = {"name": "relay", "listen": f"127.0.0.1:{port}", "tls": tls, "members": members}
    return parse_settings(RelayConfig, said)


async def test_a_reload_lets_members_in_and_closes_the_lines_of_others(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(server, "MEMBERS_AGAIN_S", 0.05)
    folder, port = certificates(tmp_path), free_port()
    file = [settings(folder, port, "telco")]
    with caplog.at_level(logging.INFO):
        serving = asyncio.create_task(serve_relay(file[0], reread=lambda: file[0]))
        await until(lambda: "listens on port" in caplog.text)
        async with linked(folder, "telco", port) as telco, linked(folder, "bank", port) as bank:
            async with telco.open_line(ANSWER) as line:
                with pytest.raises(UnreachableError):
                    await bank.membership()
                file[0] = settings(folder, port, "bank")
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.wait_for(line.receive(), 5)  # closed
            assert await bank.membership() == ("party bank", False)
            caplog.clear()
            file[0] = settings(folder, port + 1, "bank", "telco")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "only members may change" in caplog.text)
            caplog.clear()
            ca = {"telco": {"ca": str(folder / "ca.pem")}}
            file[0] = settings(folder, port, "bank", "telco", **ca)
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "only members may change" in caplog.text)
            with pytest.raises(UnreachableError):
                await telco.membership()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, 5)
