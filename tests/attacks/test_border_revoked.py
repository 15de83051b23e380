"""A party whose certificate is revoked waits to be called, with the next certificate in its hands.

All links are real TLS. Whoever has a party's old key also has its new certificate, which is public.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.messages import exchange_pb2, exchange_pb2_grpc, party_pb2, party_pb2_grpc
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.transport import authority, channel
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.health import Health
from fedboost.runtime.transport.identity import Identity
from fedboost.runtime.transport.peers import PartyControl, PeerLinks
from fedboost.runtime.transport.posting import POSTED_BYTES_MAX
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server
from fedboost.runtime.transport.tls import ServerCertificates, load_identity

TIMERS = Timers(call_s=5.0, peer_lost_s=0.5, retry_first_s=0.1)
SECRET = b"gradients"
SIZES = (len(SECRET), POSTED_BYTES_MAX + 1)  # in a stream of many messages, and in its own call


def now():
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def certs(tmp_path):
    """A CA's folder with three daemons."""
    leaves = [Leaf("party", "bank"), Leaf("party", "telco"), Leaf("coordinator", "coord")]
    authority.create_certificates(tmp_path / "certs", leaves, Term(now()))
    return tmp_path / "certs"


class Telco:
    """A party that keeps what it gets."""

    def __init__(self):
        self.got = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        async def get(*_):
            self.got.append(name)

        return get

    async def hello(self, *_):
        self.got.append("hello")
        return HelloReply(name="telco")

    def check_peer(self, _):
        """Lets everybody in."""

    @contextmanager
    def admit(self, *_):
        """Wants every message."""
        yield

    async def accept(self, _, __, payload):
        self.got.append(payload)
        return False


@asynccontextmanager
async def served(certs, telco, states=None, port=0):
    """Telco serves with its certificate, which it states, or another that it has."""
    files = tls_of(certs, "telco")
    ours = ServerCertificates(files)
    server, port = bind_server(ours, f"127.0.0.1:{port}", TIMERS)
    gate = CallerGate(Authorities(files))
    adds: tuple[tuple[Any, str, Any], ...] = (
        (party_pb2, "Party", party_pb2_grpc.add_PartyServicer_to_server),
        (exchange_pb2, "Exchange", exchange_pb2_grpc.add_ExchangeServicer_to_server),
    )
    servicers = [Servicer(telco, gate, one.DESCRIPTOR.services_by_name[name])
                 for one, name, _ in adds]  # fmt: skip
    for servicer, (_, _, add) in zip(servicers, adds, strict=True):
        add(servicer, server)
    health = Health([], (lambda: states) if states else ours.fresh)
    server.add_generic_rpc_handlers((health.handler(),))
    await server.start()
    try:
        yield port
    finally:
        for servicer in servicers:
            servicer.end_streams()
        await server.stop(0)


@asynccontextmanager
async def dialer_of(certs, name, *, checks=True):
    files = tls_of(certs, name)
    dialer = Dialer(files, TIMERS, checks_callees=checks)
    try:
        yield dialer
    finally:
        await dialer.close()


async def deliver(dialer, port, size=0):
    """A payload of bank's to telco."""
    payload = SECRET.ljust(size)
    envelope = Envelope(job="a", sender="bank", receiver="telco", payload_bytes=len(payload))
    links = PeerLinks(dialer, lambda: {"telco": f"127.0.0.1:{port}"})
    await links.deliver(envelope, payload)


async def say_hello(dialer, port):
    await PartyControl(dialer, "telco", lambda: {"telco": f"127.0.0.1:{port}"}).hello()


def outcome(telco, calls):
    """What telco has got after calls, and the error that their caller saw."""
    error = None
    try:
        asyncio.run(calls)
    except UnreachableError as found:
        error = found
    return telco.got, error


def what_telco_gets(certs, caller, call, *, checks=True, states=None):
    """What a caller sends to telco, and the error that the caller sees."""
    telco = Telco()

    async def run():
        dialing = dialer_of(certs, caller, checks=checks)
        async with served(certs, telco, states) as port, dialing as dialer:
            await call(dialer, port)

    return outcome(telco, run())


def revoke_and_renew(certs) -> Identity:
    """Revoke telco's certificate; telco's owner has a new one, and somebody else the old key."""
    old = {path: path.read_bytes() for path in (certs / "telco.pem", certs / "telco.key")}
    authority.rotate_certificates(certs, ["telco"], Term(now()))
    authority.revoke_certificates(certs, "telco", now(), superseded=True)
    renewed = load_identity(tls_of(certs, "telco"))
    for path, content in old.items():
        path.write_bytes(content)
    return renewed


@pytest.mark.parametrize("size", SIZES)
def test_a_revoked_party_gets_no_payload(certs, size):
    authority.revoke_certificates(certs, "telco", now())
    got, error = what_telco_gets(certs, "bank", lambda dialer, port: deliver(dialer, port, size))
    assert got == []
    assert error.what == "the certificate of party telco has been revoked"
    assert error.where["party"] == "telco"


@pytest.mark.parametrize("size", SIZES)
def test_a_revoked_party_gets_payloads_where_only_callers_are_checked(certs, size):
    authority.revoke_certificates(certs, "telco", now())
    got, error = what_telco_gets(
        certs, "bank", lambda dialer, port: deliver(dialer, port, size), checks=False
    )
    assert (got, error) == ([SECRET.ljust(size)], None)


def test_a_revoked_party_is_not_called_by_its_coordinator(certs):
    authority.revoke_certificates(certs, "telco", now())
    got, error = what_telco_gets(certs, "coord", say_hello)
    assert got == []
    assert error.what == "the certificate of party telco has been revoked"


def test_a_revoked_party_is_called_by_its_coordinator_where_only_callers_are_checked(certs):
    authority.revoke_certificates(certs, "telco", now())
    assert what_telco_gets(certs, "coord", say_hello, checks=False) == (["hello"], None)


def test_an_old_key_gets_no_payload_by_stating_the_new_certificate(certs):
    renewed = revoke_and_renew(certs)
    got, error = what_telco_gets(certs, "bank", deliver, states=renewed)
    assert got == []
    assert error.where["party"] == "telco"


def test_an_old_key_gets_payloads_by_stating_the_new_certificate_where_tls_does_not_prove_it(
    certs, monkeypatch
):
    connect = channel._secure_channel
    monkeypatch.setattr(channel, "_secure_channel", lambda *how: connect(*how[:3]))
    renewed = revoke_and_renew(certs)
    assert what_telco_gets(certs, "bank", deliver, states=renewed) == ([SECRET], None)


def revoked_while_open(certs, *, checks=True):
    """What telco gets of two payloads on one connection, if its certificate is revoked between."""
    telco = Telco()

    async def run():
        async with served(certs, telco) as port, dialer_of(certs, "bank", checks=checks) as dialer:
            await deliver(dialer, port)
            assert telco.got == [SECRET]
            authority.revoke_certificates(certs, "telco", now())
            await deliver(dialer, port)

    return outcome(telco, run())


def test_a_party_that_is_revoked_gets_nothing_more_on_an_open_connection(certs):
    got, error = revoked_while_open(certs)
    assert got == [SECRET]
    assert error.what == "the certificate of party telco has been revoked"


def test_a_party_that_is_revoked_gets_on_where_only_callers_are_checked(certs):
    assert revoked_while_open(certs, checks=False) == ([SECRET] * 2, None)


def test_a_party_with_its_next_certificate_is_called_again(certs):
    """Revoked, renewed and restarted; renewed without a restart; restarted after a renewal."""
    telco = Telco()

    async def run():
        async with dialer_of(certs, "bank") as dialer:
            async with served(certs, telco) as port:
                await deliver(dialer, port)
            renewed = revoke_and_renew(certs)
            authority.rotate_certificates(certs, ["telco"], Term(now() + timedelta(seconds=1)))
            assert load_identity(tls_of(certs, "telco")).peer != renewed.peer
            async with served(certs, telco, port=port):
                await deliver(dialer, port)
                authority.rotate_certificates(certs, ["telco"], Term(now()))
                await deliver(dialer, port)
                authority.revoke_certificates(certs, "telco", now(), superseded=True)
                await deliver(dialer, port)
            authority.rotate_certificates(certs, ["telco"], Term(now()))
            async with served(certs, telco, port=port):
                await deliver(dialer, port)

    asyncio.run(run())
    assert telco.got == [SECRET] * 5
