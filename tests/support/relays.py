"""A relay on a free port, daemons that answer through it, and callers: real TLS and sockets."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from fedboost.messages import job_pb2, party_pb2, party_pb2_grpc
from fedboost.runtime.relay.answering import AnsweredCalls
from fedboost.runtime.relay.dialing import open_dialer, relay_link
from fedboost.runtime.relay.members import Members
from fedboost.runtime.relay.server import Relay, run_relay
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import RelayAddress, Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server
from fedboost.runtime.transport.tls import ServerCertificates, TlsFiles
from fedboost.runtime.transport.web_tls import WebTls
from tests.support.listener import Listener

TIMERS = Timers(
    keepalive_s=1.0, keepalive_timeout_s=1.0, call_s=5.0, retry_first_s=0.05, retry_max_s=0.2
)
LEAVES = (
    Leaf("party", "bank"),
    Leaf("party", "telco"),
    Leaf("party", "shop"),
    Leaf("party", "stranger"),
    Leaf("coordinator", "coord"),
    Leaf("user", "ana"),
    Leaf("relay", "relay"),
)
STRANGERS = ("stranger", "relay")
MEMBERS: dict[CertificateOwner, str | None] = {
    (leaf.role, leaf.name): None for leaf in LEAVES if leaf.name not in STRANGERS
}


def certificates(folder):
    """A folder with everybody's certificate."""
    authority.create_certificates(folder, LEAVES, Term(datetime.now(UTC)))
    return folder


def files(folder, name):
    return TlsFiles(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")


def address(port, **more):
    return RelayAddress(address=f"127.0.0.1:{port}", **{"name": "relay", **more})


@asynccontextmanager
async def running_relay(folder, members=MEMBERS, port=0, timers=TIMERS):
    """A relay and its port; `members` may be a function."""
    tls = files(folder, "relay")
    admitted = Members(members if callable(members) else lambda: members, Authorities(tls))
    relay = Relay(admitted, timers)
    web = WebTls(tls, ServerCertificates(tls), lambda: admitted.clients)
    async with run_relay(relay, f"127.0.0.1:{port}", web) as bound:
        yield relay, bound


@asynccontextmanager
async def daemon(folder, name, relay, timers=TIMERS):
    """A daemon that answers through the relay: who called it, its port, its line to the relay."""
    node, tls = Listener(), files(folder, name)
    server, port = bind_server(ServerCertificates(tls), "127.0.0.1:0", timers)
    service = party_pb2.DESCRIPTOR.services_by_name["Party"]
    servicer = Servicer(node, CallerGate(Authorities(tls)), service)
    party_pb2_grpc.add_PartyServicer_to_server(servicer, server)
    await server.start()
    calls = AnsweredCalls(relay_link(tls, timers, relay), ("127.0.0.1", port), timers)
    answering = asyncio.create_task(calls.answer_calls())
    try:
        yield node, port, calls
    finally:
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
        await server.stop(0)


async def until(true, seconds=10.0):
    """Waits until something is true; fails if it does not become so."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def caller(folder, name, relay, reach="outbound", role="party"):
    """The links out of a daemon or user."""
    dialer = open_dialer(files(folder, name), TIMERS, f"{role}:{name}", relay, reach)
    try:
        yield dialer
    finally:
        await dialer.close()


async def hello(dialer, name, at="relay", retry_s=0.0):
    """One small call."""
    return await dialer.call(
        (name, at),
        lambda channel: party_pb2_grpc.PartyStub(channel).Hello(
            job_pb2.HelloRequest(), timeout=TIMERS.call_s
        ),
        retry_s=retry_s,
    )
