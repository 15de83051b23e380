"""Lines between daemons: how long bytes take, who shares a line, and that they arrive."""

import asyncio
import json

import pytest
import yaml

from benchmarks import alignment, links
from benchmarks.links import Line, Lines, Link

LINK = Link.parse_round_trip("20mbit,50ms")


def test_a_line_sends_one_thing_after_the_other():
    line = Line(bits_per_s=8000.0)
    assert line.leaves(1000, now=5.0) == 6.0
    assert line.leaves(500, now=5.0) == 6.5
    assert line.leaves(500, now=9.0) == 9.5


def test_a_daemon_has_one_line_up_and_one_down_whoever_is_at_the_other_end():
    lines = Lines(Link())
    up, down = lines.of("guest", "host1")
    assert lines.of("guest", "host2")[0] is up
    assert lines.of("host2", "host1")[1] is down
    assert lines.of("host1", "guest")[0] is not down


def test_daemons_on_one_machine_share_its_lines_and_have_none_between_them():
    lines = Lines(LINK, together=("coordinator", "guest"))
    assert lines.of("coordinator", "host") == lines.of("guest", "host")
    assert not lines.are_between("guest", "coordinator")
    assert lines.are_between("guest", "host")


def test_a_line_is_said_by_what_goes_there_and_back():
    assert Link(20e6, 0.025) == LINK
    assert LINK.words == "20 Mbit/s each way, 50 ms there and back"
    assert str(Link.parse("0.5mbit,0ms")) == "0.5mbit,0ms"
    with pytest.raises(ValueError, match="for example"):
        Link.parse_round_trip("fast")


def test_the_busiest_line_counts_both_links_of_a_party():
    sent = {"guest->host1": 1000, "guest->host2": 2000, "host1->guest": 500, "host2->guest": 600}
    assert alignment.line_seconds(sent, Link(8000.0, 0.0)) == 3.0


def test_settings_lead_through_the_lines_and_bytes_come_out_as_they_went_in(tmp_path):
    asyncio.run(_through_a_line(tmp_path))


async def _through_a_line(folder):
    """An echo behind the lines, over loopback: 40 kB there and back, faster than any clock."""

    async def echo(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    raw = {"name": "guest", "coordinator": {"address": address}, "peers": {"host": address}}
    config = folder / "guest.yaml"
    config.write_text(json.dumps(raw))
    proxies = links._Proxies(Lines(Link(bits_per_s=1e12, latency_s=0.0)))
    await proxies.between("guest", config)
    led = yaml.safe_load(config.read_text())
    new = led["peers"]["host"]
    assert address not in (new, led["coordinator"]["address"])
    reader, writer = await asyncio.open_connection("127.0.0.1", int(new.split(":")[1]))
    sent = bytes(range(256)) * 160
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    writer.close()
    assert proxies.lines.up["guest"].free_at > 0.0
    assert proxies.lines.up["host"].free_at > 0.0
    await proxies.close()
    server.close()
