"""What strangers and members can do to a relay and to one another."""

import asyncio
import json
import logging
import shutil
import ssl
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

import pytest

from fedboost.ground.errors import PolicyError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.relay import copying, server
from fedboost.runtime.relay.lines import ANSWER, CALL, TAKE
from fedboost.runtime.relay.members import MemberProof, Members, members_of_coordinator
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.tls import ServerCertificates
from fedboost.runtime.transport.web_tls import WebTls
from tests.support.hostile_relays import linked
from tests.support.relays import MEMBERS, certificates, files, running_relay

BANK: CertificateOwner = ("party", "bank")
TELCO: CertificateOwner = ("party", "telco")
TOKEN = "t" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("ours"))


async def announced_call(control):
    return json.loads((await asyncio.wait_for(control.receive(), 5)).data)["call"]


def begin(stack, line):
    """Open a line in the background; it is closed with the stack."""
    return asyncio.create_task(stack.enter_async_context(line))


async def eventually(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


# Strangers.


@pytest.fixture
def stranger(folder, tmp_path):
    """A folder whose certificates of telco are a stranger's of the kind."""

    def made(kind):
        own, other, now = tmp_path / "own", tmp_path / "other", datetime.now(UTC)
        shutil.copytree(folder, own)
        if kind == "another CA":
            authority.create_certificates(other, [Leaf(*TELCO)], Term(now))
            for name in ("telco.pem", "telco.key"):
                shutil.copy(other / name, own / name)
        elif kind == "expired":
            authority.rotate_certificates(own, ["telco"], Term(now - timedelta(days=400), 30))
        return own

    return made


@pytest.mark.parametrize("kind", ["another CA", "expired", "no member"])
async def test_a_stranger_opens_no_line(folder, stranger, kind):
    members = {("party", "bank"): None} if kind == "no member" else MEMBERS
    async with (
        running_relay(folder, members) as (relay, port),
        linked(stranger(kind), "telco", port) as link,
    ):
        for path in (ANSWER, CALL.format(name="telco"), TAKE.format(call="x"), "/any"):
            with pytest.raises(UnreachableError):
                await link.open_line(path).__aenter__()
        assert relay._controls == {}


@pytest.mark.parametrize("token", ["x" * 32, TOKEN[:-1], TOKEN + "t", "", " ", "t\u00fc" * 16])
def test_a_token_that_is_nobodys_is_refused(folder, token):
    members = Members(lambda: {TELCO: TOKEN}, Authorities(files(folder, "relay")))
    with pytest.raises(PolicyError, match="nobody's"):
        members.identify(MemberProof(token, None))
    assert members.identify(MemberProof(TOKEN, None)) == TELCO


def test_a_caller_without_proof_is_refused_where_others_have_tokens(folder):
    members = Members(lambda: {TELCO: TOKEN}, Authorities(files(folder, "relay")))
    with pytest.raises(PolicyError, match="neither"):
        members.identify(MemberProof(None, None))


async def test_a_user_opens_no_control_line(folder):
    async with (
        running_relay(folder) as (relay, port),
        linked(folder, "ana", port) as link,
    ):
        with pytest.raises(UnreachableError, match="403"):
            async with link.open_line(ANSWER):
                pass
    assert relay._controls == {}


def test_a_users_token_is_not_that_of_the_party_of_its_name(tmp_path):
    said = {
        "name": "coord",
        "listen": "127.0.0.1:1",
        "tls": {"ca": "a", "cert": "a", "key": "a"},
        "parties": {"bank": "127.0.0.1:3"},
        "users": {"read": ["bank"]},
        "relay": {"listen": "127.0.0.1:2", "tokens": {"bank": TOKEN}},
        "store": str(tmp_path),
    }
    found = members_of_coordinator(parse_settings(CoordinatorConfig, said))
    assert found[BANK] == TOKEN
    assert found["user", "bank"] is None


async def test_a_silent_connection_is_closed(folder, monkeypatch):
    """Slow headers: who may stay without a certificate does not hold connections."""
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    async with running_relay(folder, {TELCO: TOKEN}) as (relay, port):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="relay"
        )
        writer.write(b"GET /answer HTTP/1.1\r\nHost: relay\r\nX: ")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 5)
        writer.close()
        assert relay._silent == {}


@pytest.mark.parametrize("word", [f"Bearer {TOKEN}", "Bearer " + "x" * 32])
async def test_a_connection_has_one_request(folder, word):
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    async with running_relay(folder, {TELCO: TOKEN}) as (_, port):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="relay"
        )
        request = f"GET /member HTTP/1.1\r\nHost: relay\r\nAuthorization: {word}\r\n\r\n"
        writer.write(2 * request.encode())
        answers = await asyncio.wait_for(reader.read(), 5)
        assert answers.count(b"HTTP/1.1 ") == 1
        writer.close()


def test_a_malformed_request_leaves_no_token_in_the_log(folder, caplog):
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    async def run():
        async with running_relay(folder, {TELCO: TOKEN}) as (_, port):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="relay"
            )
            word = f"Authorization: Bearer {TOKEN}\x1b[2J\r\n\r\n"
            writer.write(f"GET /answer HTTP/1.1\r\nHost: relay\r\n{word}".encode())
            assert b"400" in await asyncio.wait_for(reader.read(), 5)
            writer.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert TOKEN not in caplog.text
    assert "\x1b" not in caplog.text


# Members.


async def test_a_member_does_not_take_the_call_of_another(folder):
    members = {**MEMBERS, ("party", "shop"): None}
    async with running_relay(folder, members) as (_, port), AsyncExitStack() as stack:
        bank, telco, mill = [
            await stack.enter_async_context(linked(folder, name, port))
            for name in ("bank", "telco", "shop")
        ]
        control = await stack.enter_async_context(telco.open_line(ANSWER))
        calling = begin(stack, bank.open_line(CALL.format(name="telco")))
        taken = TAKE.format(call=await announced_call(control))
        for other in (mill, bank):
            with pytest.raises(UnreachableError):
                async with other.open_line(taken):
                    pass
        line = await stack.enter_async_context(telco.open_line(taken))
        theirs = await calling
        await theirs.send_bytes(b"hello")
        assert (await line.receive()).data == b"hello"
        with pytest.raises(UnreachableError):  # a call is taken once
            async with telco.open_line(taken):
                pass
        await theirs.close()


async def test_a_caller_does_not_take_all_lines_of_a_daemon(folder, monkeypatch):
    monkeypatch.setattr(server, "PAIR_LINES_MAX", 2)

    async with running_relay(folder) as (relay, port), AsyncExitStack() as stack:
        bank, telco, ana = [
            await stack.enter_async_context(linked(folder, name, port))
            for name in ("bank", "telco", "ana")
        ]
        control = await stack.enter_async_context(telco.open_line(ANSWER))
        path = CALL.format(name="telco")
        for caller in (bank, bank, ana):
            calling = begin(stack, caller.open_line(path))
            taken = TAKE.format(call=await announced_call(control))
            await stack.enter_async_context(telco.open_line(taken))
            await calling
        with pytest.raises(UnreachableError, match="no more lines"):
            async with bank.open_line(path):
                pass
        assert dict(relay.reading("fedboost_relay_lines")) == {
            ("bank",): 2, ("telco",): 3, ("ana",): 1,
        }  # fmt: skip


async def test_a_caller_that_reads_nothing_frees_the_line_of_a_daemon_that_has_gone(
    folder, monkeypatch
):
    monkeypatch.setattr(copying, "STALLED_S", 0.2)
    monkeypatch.setattr(copying, "GIVE_UP_S", 0.2)

    async with running_relay(folder) as (relay, port), AsyncExitStack() as stack:
        bank, telco = [
            await stack.enter_async_context(linked(folder, name, port))
            for name in ("bank", "telco")
        ]
        control = await stack.enter_async_context(telco.open_line(ANSWER))
        calling = begin(stack, bank.open_line(CALL.format(name="telco")))
        taken = TAKE.format(call=await announced_call(control))
        async with telco.open_line(taken) as line:
            (await calling)._conn.transport.pause_reading()
            with suppress(ConnectionError):  # the relay closes it
                while not line.closed:
                    await asyncio.wait_for(line.send_bytes(b"0" * 2**18), 5)
        await eventually(lambda: not any(relay._calls.values()))


async def test_the_last_control_line_of_a_daemon_counts(folder):
    async with (
        running_relay(folder) as (relay, port),
        linked(folder, "telco", port) as link,
        link.open_line(ANSWER) as first,
        link.open_line(ANSWER) as second,
    ):
        await asyncio.wait_for(first.receive(), 5)  # closed
        await relay._controls["telco"][1].send_str("here")
        assert (await asyncio.wait_for(second.receive(), 5)).data == "here"


async def test_the_lines_of_a_former_member_are_closed(folder, monkeypatch):
    monkeypatch.setattr(server, "MEMBERS_AGAIN_S", 0.05)
    members = dict(MEMBERS)

    async with (
        running_relay(folder, lambda: members) as (relay, port),
        linked(folder, "telco", port) as telco,
        linked(folder, "bank", port) as bank,
        telco.open_line(ANSWER) as theirs,
        bank.open_line(ANSWER) as ours,
    ):
        await eventually(lambda: len(relay._controls) == 2)
        del members[TELCO]
        await asyncio.wait_for(theirs.receive(), 5)
        await eventually(lambda: list(relay._controls) == ["bank"])
        assert not ours.closed


async def test_the_lines_of_a_revoked_certificate_are_closed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "MEMBERS_AGAIN_S", 0.05)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    async with (
        running_relay(tmp_path) as (relay, port),
        linked(tmp_path, "telco", port) as link,
        link.open_line(ANSWER) as line,
    ):
        await eventually(lambda: relay._controls)
        authority.revoke_certificates(tmp_path, "telco", datetime.now(UTC))
        await asyncio.wait_for(line.receive(), 5)
        await eventually(lambda: not relay._controls)


async def test_the_first_token_counts_without_a_restart(folder):
    members = dict(MEMBERS)

    async with running_relay(folder, lambda: members) as (_, port):
        members[TELCO] = TOKEN
        async with linked(folder, "telco", port, token=TOKEN) as link:
            for _ in range(2):
                try:
                    assert await link.membership() == ("party telco", False)
                    return
                except UnreachableError:  # the connection that meets the change
                    continue
            raise AssertionError("the token is not known")


def test_a_web_server_shows_a_certificate_that_others_have_reloaded(tmp_path):
    """The relay in a coordinator shares its certificates with the server for gRPC."""
    ours = files(certificates(tmp_path), "relay")
    shared = ServerCertificates(ours, role="relay", name="relay")

    async def shown(tls):
        listening = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context
        )
        context = ssl.create_default_context(cafile=str(ours.ca))
        _, writer = await asyncio.open_connection(
            *listening.sockets[0].getsockname(), ssl=context, server_hostname="relay"
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        listening.close()
        return ssl.DER_cert_to_PEM_cert(der)

    tls = WebTls(ours, shared)
    before = asyncio.run(shown(tls))
    authority.rotate_certificates(tmp_path, ["relay"], Term(datetime.now(UTC)))
    assert shared.reload()  # as gRPC does for each connection
    after = asyncio.run(shown(tls))
    assert before != after
    assert after.split() == ours.cert.read_text().split()
