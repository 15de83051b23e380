"""What a hostile relay can do to a daemon that dials it: drop calls, and nothing else."""

import asyncio
import gzip
import json
import logging
import shutil
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.runtime.process import rare_warnings
from fedboost.runtime.relay import answering, copying
from fedboost.runtime.relay.answering import AnsweredCalls
from fedboost.runtime.relay.copying import join_connection
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Leaf, Term
from tests.support.hostile_relays import hostile_relay, linked
from tests.support.relays import TIMERS, certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


NONSENSE = [
    "[" * 1000,
    "{}",
    "[]",
    "9" * 900,
    '{"call": "a"}',
    '{"call": "../member", "from": "party bank"}',
    '{"call": "\\ud800", "from": "party bank"}',
    '{"call": "", "from": "party bank"}',
    json.dumps({"call": "a" * 65, "from": "party bank"}),
    json.dumps({"call": "a", "from": "b" * 2000}),  # too long for a control line
]


def announcing(*texts, ended=None):
    """A handler that sends texts on a control line and keeps it open."""

    async def handle(request):
        line = web.WebSocketResponse()
        await line.prepare(request)
        for text in texts:
            await line.send_str(text)
        await line.receive()
        if ended is not None:
            ended.set()
        return line

    return handle


@asynccontextmanager
async def linked_daemon(folder, **answers):
    """The link of a daemon to a hostile relay."""
    async with hostile_relay(folder, **answers) as port, linked(folder, "bank", port) as link:
        yield link


@asynccontextmanager
async def called_daemon(folder, **answers):
    """The calls that a hostile relay brings to a daemon, and the task that takes them."""
    async with linked_daemon(folder, **answers) as link:
        calls = AnsweredCalls(link, ("127.0.0.1", 1), TIMERS)
        task = asyncio.create_task(calls.answer_calls())
        try:
            yield calls, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
async def test_a_daemon_hears_a_good_announcement_after_a_malformed_one(folder, text):
    taken = asyncio.Event()

    async def take(_):
        taken.set()
        raise web.HTTPNotFound

    good = json.dumps({"call": "good", "from": "party telco"})
    texts = iter([[text, good]])

    async def answer(request):
        return await announcing(*next(texts, [good]))(request)

    async with called_daemon(folder, answer=answer, take=take) as (_, task):
        await asyncio.wait_for(taken.wait(), 5)
        assert not task.done()


async def test_a_call_with_a_path_for_a_name_is_not_taken(folder):
    asked = []

    async def note(request):
        asked.append(request.path)
        raise web.HTTPNotFound

    text = [json.dumps({"call": call, "from": "x"}) for call in ("../call/telco", "a/b", "a?b")]
    good = json.dumps({"call": "good", "from": "x"})
    answer = announcing(*text, good)
    async with called_daemon(folder, answer=answer, take=note, call=note):
        while "/take/good" not in asked:
            await asyncio.sleep(0.01)
    assert asked == ["/take/good"]


def test_a_flood_of_announcements_is_bounded_and_logged_rarely(folder, caplog):
    """Thousands of calls: as many lines as allowed, few lines in the log."""
    seen, most = 3000, 0

    async def run():
        nonlocal most
        opened = 0
        full = asyncio.Event()

        async def take(request):
            nonlocal opened
            opened += 1
            if opened == answering.CALLS_MAX:
                full.set()
            await asyncio.sleep(60)

        texts = [json.dumps({"call": f"c{i}", "from": "party \x1b[2Jtelco"}) for i in range(seen)]
        async with called_daemon(folder, answer=announcing(*texts), take=take) as (calls, _):
            await asyncio.wait_for(full.wait(), 20)
            await asyncio.sleep(0.2)
            most = len(calls._calls)
            assert opened == answering.CALLS_MAX

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    ours = [record.getMessage() for record in caplog.records if "relay" in record.name]
    assert most == answering.CALLS_MAX
    assert len(ours) < rare_warnings.RARE_WARNINGS_MAX + 5
    assert not any("\x1b" in line for line in ours)


async def test_calls_that_end_at_once_make_no_room_for_a_flood(folder):
    taken, full = 0, asyncio.Event()

    async def take(_):
        nonlocal taken
        taken += 1
        if taken >= answering.CALLS_MAX:
            full.set()
        raise web.HTTPNotFound

    async def answer(request):
        line = web.WebSocketResponse()
        await line.prepare(request)
        for number in range(20 * answering.CALLS_MAX):
            await line.send_str(json.dumps({"call": f"c{number}", "from": "party telco"}))
            await asyncio.sleep(0)
        await line.receive()
        return line

    began = time.monotonic()
    async with called_daemon(folder, answer=answer, take=take):
        await asyncio.wait_for(full.wait(), 20)
        await asyncio.sleep(0.5)
    periods = 1 + (time.monotonic() - began) / answering.CALL_HELD_S
    assert taken <= periods * answering.CALLS_MAX


async def test_a_redirection_leads_nowhere(folder):
    asked = []

    async def inside(request):
        asked.append(request.path)
        return web.Response()

    async with hostile_relay(folder, inside=inside) as port:

        async def redirect(_):
            raise web.HTTPFound(f"https://127.0.0.1:{port}/inside")

        async with linked_daemon(folder, call=redirect, member=redirect) as link:
            with pytest.raises(UnreachableError):
                async with link.open_line("/call/telco", "telco"):
                    pass
            with pytest.raises(UnreachableError):
                await link.membership()
    assert asked == []


LONG = b'{"member": "party bank", "called": true, "x": "' + b"0" * 10**7 + b'"}'
ANSWERS = {
    "compressed": (gzip.compress(LONG), {"Content-Encoding": "gzip"}),
    "long": (LONG, {}),
    "nested": (b"[" * 1000, {}),
    "encoded": (b"{}", {"Content-Type": "application/json; charset=hex"}),
    "no object": (b"[]", {}),
}


@pytest.mark.parametrize(("body", "headers"), ANSWERS.values(), ids=ANSWERS)
async def test_a_false_answer_about_membership_is_refused(folder, body, headers):
    async def member(_):
        return web.Response(body=body, headers={"Content-Type": "application/json", **headers})

    async with linked_daemon(folder, member=member) as link:
        with pytest.raises(UnreachableError, match="is no relay"):
            await link.membership()


async def test_cookies_of_a_relay_are_not_kept(folder):
    shown = []

    async def member(request):
        shown.append(request.headers.get("Cookie"))
        answer = web.json_response({"member": "party bank", "called": True})
        answer.set_cookie("a", "b" * 3000)
        return answer

    async with linked_daemon(folder, member=member) as link:
        by_name = link.address.replace("127.0.0.1", "localhost")  # numbers have no cookies
        link._relay = link._relay.model_copy(update={"address": by_name})
        for _ in range(2):
            assert await link.membership() == ("party bank", True)
    assert shown == [None, None]


async def test_a_daemon_dials_again_after_its_ca_was_away(folder, tmp_path):
    """A file that is replaced is missing for a moment."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    async with called_daemon(tmp_path, answer=announcing()) as (calls, task):
        (tmp_path / "ca.pem").rename(tmp_path / "away")
        await asyncio.sleep(0.1)
        assert not task.done()
        (tmp_path / "away").rename(tmp_path / "ca.pem")
        while not calls.is_connected:
            await asyncio.sleep(0.01)


async def test_a_relay_that_reads_nothing_holds_no_connection_for_ever(folder, monkeypatch):
    monkeypatch.setattr(copying, "STALLED_S", 0.2)
    monkeypatch.setattr(copying, "GIVE_UP_S", 0.2)

    async def silent(request):
        line = web.WebSocketResponse()
        await line.prepare(request)
        request.transport.pause_reading()
        await asyncio.sleep(60)

    async def flood(_, writer):
        try:
            while True:
                writer.write(b"0" * 2**18)
                await writer.drain()
        except ConnectionError:
            pass

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with (
        linked_daemon(folder, call=silent) as link,
        link.open_line("/call/telco") as line,
    ):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(join_connection(reader, writer, line), 5)
        assert writer.is_closing()
    server.close()


@pytest.mark.parametrize("text", ["socks5://user:secret@proxy:1", "http://user:se/cret@proxy:1"])
async def test_a_proxy_of_the_environment_that_is_none_is_refused_without_its_login(
    folder, monkeypatch, text
):
    monkeypatch.setenv("HTTPS_PROXY", text)
    monkeypatch.setenv("https_proxy", text)

    async with linked(folder, "bank", 1) as link:
        link._relay = link._relay.model_copy(update={"address": "relay.example.org:1"})
        with pytest.raises(ConfigError, match="HTTPS_PROXY") as refused:
            async with link.open_line("/answer"):
                pass
    assert "cret" not in str(refused.value) + refused.value.private


async def test_a_line_shows_a_certificate_that_was_rotated(tmp_path):
    authority.create_certificates(tmp_path, [Leaf("party", "bank")], Term(datetime.now(UTC)))
    async with linked(tmp_path, "bank", 1) as link:
        before = link._context()
        assert link._context() is before
        authority.rotate_certificates(tmp_path, ["bank"], Term(datetime.now(UTC)))
        assert link._context() is not before
