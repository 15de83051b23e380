"""A relay between two daemons that does what it likes with the bytes, and members who lie to it.

The defences are the mutual TLS from daemon to daemon inside the lines, the limits of a called
daemon, and the relay's checks of its members. Without TLS inside, each attack on bytes succeeds.
"""

import asyncio
import json
import shutil
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.messages import job_pb2, party_pb2, party_pb2_grpc
from fedboost.runtime.relay import answering, server
from fedboost.runtime.relay.answering import AnsweredCalls
from fedboost.runtime.relay.copying import join_lines
from fedboost.runtime.relay.dialing import open_dialer
from fedboost.runtime.relay.lines import ANSWER, CALL, TAKE
from fedboost.runtime.relay.members import Members
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls
from tests.support.hostile_relays import hostile_relay, linked
from tests.support.relays import (
    MEMBERS,
    TIMERS,
    address,
    caller,
    certificates,
    files,
    running_relay,
    until,
)

TOLD, FALSE = b"epsilon-0.1", b"epsilon-9.9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


class Counting:
    """A daemon that notes its callers and their requests."""

    def __init__(self, name):
        self.name, self.heard = name, []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        async def answer(caller, request):
            self.heard.append((str(caller), request))
            return job_pb2.CheckLinkReply()

        return answer


@asynccontextmanager
async def answering_daemon(folder, name, port, *, inner):
    """A daemon behind the relay, with TLS inside its lines or without."""
    node, tls = Counting(name), files(folder, name)
    gate = CallerGate(Authorities(tls) if inner else None)
    grpc, own = bind_server(ServerCertificates(tls) if inner else None, "127.0.0.1:0", TIMERS)
    servicer = Servicer(node, gate, party_pb2.DESCRIPTOR.services_by_name["Party"])
    party_pb2_grpc.add_PartyServicer_to_server(servicer, grpc)
    await grpc.start()
    async with linked(folder, name, port) as link:
        calls = AnsweredCalls(link, ("127.0.0.1", own), TIMERS)
        task = asyncio.create_task(calls.answer_calls())
        try:
            await until(lambda: calls.is_connected)
            yield node
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await grpc.stop(0)


@asynccontextmanager
async def calling_daemon(folder, port, *, inner):
    """The links of bank through the relay, with TLS inside or without."""
    dialer = open_dialer(files(folder, "bank"), TIMERS, "party:bank", address(port), "outbound")
    if not inner:
        dialer = Dialer(None, TIMERS, "party:bank", routes=dialer.routes)
    try:
        yield dialer
    finally:
        await dialer.close()


async def ask(dialer, name="telco"):
    return await dialer.call(
        (name, "relay"),
        lambda channel: party_pb2_grpc.PartyStub(channel).CheckLink(
            job_pb2.CheckLinkRequest(name=TOLD.decode()),
            timeout=TIMERS.call_s,
            metadata=dialer.metadata,
        ),
    )


async def alter(ours, theirs, _):
    """A relay's `join_lines` that alters what the caller says, or any byte where it cannot."""

    async def copy(source, target, change):
        sent = 0
        while (message := await source.receive()).type is WSMsgType.BINARY:
            data = message.data
            if change:
                altered = data.replace(TOLD, FALSE)
                if altered == data and sent > 1:  # encrypted, behind the handshake
                    altered = data[:-1] + bytes([data[-1] ^ 1])
                data, sent = altered, sent + 1
            await target.send_bytes(data)

    copies = [asyncio.ensure_future(copy(*way)) for way in
              ((ours, theirs, True), (theirs, ours, False))]  # fmt: skip
    await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    for task in copies:
        task.cancel()
    for line in (ours, theirs):
        with suppress(Exception):
            await line.close()


async def altered_call(folder, monkeypatch, *, inner):
    """What telco heard from bank through a relay that alters bytes."""
    monkeypatch.setattr(server, "join_lines", alter)
    async with (
        running_relay(folder) as (_, port),
        answering_daemon(folder, "telco", port, inner=inner) as telco,
        calling_daemon(folder, port, inner=inner) as bank,
    ):
        with suppress(FedboostError):
            await ask(bank)
    return [request.name.encode() for _, request in telco.heard]


async def test_a_relay_does_not_alter_a_byte(folder, monkeypatch):
    assert await altered_call(folder, monkeypatch, inner=True) == []


async def test_a_relay_alters_bytes_where_nothing_is_encrypted_inside(folder, monkeypatch):
    assert await altered_call(folder, monkeypatch, inner=False) == [FALSE]


async def misled_call(folder, *, inner):
    """Whom bank's call for telco reached, where the relay joins it with shop."""
    async with (
        running_relay(folder) as (relay, port),
        answering_daemon(folder, "telco", port, inner=inner) as telco,
        answering_daemon(folder, "shop", port, inner=inner) as shop,
        calling_daemon(folder, port, inner=inner) as bank,
    ):
        relay._controls["telco"] = relay._controls["shop"]
        with suppress(UnreachableError):
            await ask(bank)
    return [node.name for node in (telco, shop) if node.heard]


async def test_a_call_does_not_reach_another_daemon_than_the_named_one(folder):
    assert await misled_call(folder, inner=True) == []


async def test_a_call_reaches_another_daemon_where_nothing_is_encrypted_inside(folder):
    assert await misled_call(folder, inner=False) == ["shop"]


async def replayed_call(folder, monkeypatch, *, inner):
    """What telco heard after bank's call, and after the relay has said all of it again."""
    said = []

    class Recording:
        """A line whose messages are recorded."""

        def __init__(self, line):
            self._line = line

        def __getattr__(self, name):
            return getattr(self._line, name)

        async def receive(self):
            message = await self._line.receive()
            if message.type is WSMsgType.BINARY:
                said.append(message.data)
            return message

    async def join(ours, theirs, count):
        recorded: Any = Recording(ours)
        await join_lines(recorded, theirs, count)

    monkeypatch.setattr(server, "join_lines", join)
    async with (
        running_relay(folder) as (relay, port),
        answering_daemon(folder, "telco", port, inner=inner) as telco,
    ):
        async with calling_daemon(folder, port, inner=inner) as bank:
            await ask(bank)
        once = len(telco.heard)
        called, control = relay._controls["telco"]
        relay._announced["again"] = again = server.Announced(called)
        await control.send_str(json.dumps({"call": "again", "from": "party bank"}))
        line = await asyncio.wait_for(again.line, 5)
        for data in said:
            await line.send_bytes(data)
        await asyncio.sleep(0.5)
        again.ended.set()
    return once, len(telco.heard)


async def test_a_recorded_call_is_not_heard_again(folder, monkeypatch):
    assert await replayed_call(folder, monkeypatch, inner=True) == (1, 1)


async def test_a_recorded_call_is_heard_again_where_nothing_is_encrypted_inside(
    folder, monkeypatch
):
    assert await replayed_call(folder, monkeypatch, inner=False) == (1, 2)


FLOOD = 300


async def flooded_daemon(folder):
    """Lines that a daemon opens for a relay that announces calls without end."""
    opened, announced = 0, asyncio.Event()

    async def answer(request):
        control = web.WebSocketResponse()
        await control.prepare(request)
        for number in range(FLOOD):
            await control.send_str(json.dumps({"call": f"c{number}", "from": "party bank"}))
        announced.set()
        await control.receive()
        return control

    async def take(_):
        nonlocal opened
        opened += 1
        await asyncio.sleep(60)

    async with (
        hostile_relay(folder, answer=answer, take=take) as port,
        linked(folder, "telco", port) as link,
    ):
        calls = AnsweredCalls(link, ("127.0.0.1", 1), TIMERS)
        task = asyncio.create_task(calls.answer_calls())
        await announced.wait()
        await asyncio.sleep(0.5)
        found = len(calls._calls)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert opened <= found
    return found


async def test_a_relay_that_announces_calls_without_end_is_given_few_lines(folder):
    assert await flooded_daemon(folder) == answering.CALLS_MAX


async def test_a_relay_is_given_lines_without_end_where_calls_are_not_counted(folder, monkeypatch):
    few = answering.CALLS_MAX
    monkeypatch.setattr(answering, "CALLS_MAX", 10**9)
    assert await flooded_daemon(folder) > 2 * few


@pytest.fixture(scope="module")
def forged(folder, tmp_path_factory):
    """Certificates in which shop's own CA has signed telco's name, and that CA's folder."""
    theirs, own = tmp_path_factory.mktemp("shop"), tmp_path_factory.mktemp("forged")
    authority.create_certificates(theirs, [Leaf("party", "telco")], Term(datetime.now(UTC)))
    shutil.copytree(folder, own, dirs_exist_ok=True)
    for name in ("telco.pem", "telco.key"):
        shutil.copy(theirs / name, own / name)
    return own, theirs / "ca.pem"


async def stranger_as_telco(folder, forged, tmp_path, *, pinned):
    """Who can be called at a relay that trusts shop's CA, after shop has dialled in as telco."""
    own, ca = forged
    tls = files(folder, "relay")
    if pinned:
        tls = tls.with_pins({("party", "shop"): ca})
    else:
        (tmp_path / "ca.pem").write_bytes(tls.ca.read_bytes() + ca.read_bytes())
        tls = tls.model_copy(update={"ca": tmp_path / "ca.pem"})
    known = Members(lambda: MEMBERS, Authorities(tls))
    relay = server.Relay(known, TIMERS)
    web_tls = WebTls(tls, ServerCertificates(tls), lambda: known.clients)
    async with (
        server.run_relay(relay, "127.0.0.1:0", web_tls) as port,
        linked(own, "telco", port) as link,
    ):
        with suppress(UnreachableError):
            async with link.open_line(ANSWER):
                return list(relay._controls)
        return list(relay._controls)


async def test_a_ca_of_one_member_lets_nobody_in_as_another(folder, forged, tmp_path):
    assert await stranger_as_telco(folder, forged, tmp_path, pinned=True) == []


async def test_a_ca_of_one_member_lets_it_in_as_another_where_all_cas_stand_in_one_file(
    folder, forged, tmp_path
):
    assert await stranger_as_telco(folder, forged, tmp_path, pinned=False) == ["telco"]


async def stolen_call(folder):
    """What shop hears on telco's announced call, whose name it knows; None if it gets no line."""
    async with (
        running_relay(folder) as (_, port),
        linked(folder, "telco", port) as telco,
        linked(folder, "shop", port) as shop,
        linked(folder, "bank", port) as bank,
        telco.open_line(ANSWER) as control,
    ):

        async def say():
            async with bank.open_line(CALL.format(name="telco")) as line:
                await line.send_bytes(b"for telco")
                await line.receive()

        calling = asyncio.create_task(say())
        call = json.loads((await control.receive()).data)["call"]
        try:
            async with shop.open_line(TAKE.format(call=call)) as line:
                return (await asyncio.wait_for(line.receive(), 5)).data
        except UnreachableError:
            return None
        finally:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)


async def test_a_member_does_not_take_a_call_for_another(folder):
    assert await stolen_call(folder) is None


async def test_a_member_takes_a_call_for_another_where_nobody_asks_whose_it_is(folder, monkeypatch):
    class Anybody(tuple[str, str]):
        def __ne__(self, _):
            return False

    announced: Any = server.Announced
    monkeypatch.setattr(server, "Announced", lambda _: announced(Anybody()))
    assert await stolen_call(folder) == b"for telco"


async def starved_callers(folder, monkeypatch):
    """Whether telco can be called by ana while bank makes as many calls as it is allowed."""
    monkeypatch.setattr(server, "LINES_MAX", 8)
    async with (
        running_relay(folder) as (_, port),
        answering_daemon(folder, "telco", port, inner=True),
        linked(folder, "bank", port) as bank,
    ):
        lines: list[Any] = []
        with suppress(UnreachableError):
            while len(lines) < 9:
                lines.append(bank.open_line(CALL.format(name="telco")))
                await lines[-1].__aenter__()
        async with caller(folder, "ana", address(port), role="user") as ana:
            try:
                await ask(ana)
            except UnreachableError:
                return True
    return False


async def test_a_member_does_not_take_all_lines_of_another(folder, monkeypatch):
    monkeypatch.setattr(server, "PAIR_LINES_MAX", 4)
    assert not await starved_callers(folder, monkeypatch)


async def test_a_member_takes_all_lines_of_another_where_they_are_not_counted_by_caller(
    folder, monkeypatch
):
    monkeypatch.setattr(server, "PAIR_LINES_MAX", 10**9)
    assert await starved_callers(folder, monkeypatch)
