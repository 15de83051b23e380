"""A daemon is called only with a certificate that it has stated and that counts."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from fedboost.ground.errors import UnreachableError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.transport import authority, callees
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.health import CHECK_METHOD, Health
from fedboost.runtime.transport.server import bind_server
from fedboost.runtime.transport.tls import ServerCertificates, load_identity

NOW = datetime.now(UTC).replace(microsecond=0)
TIMERS = Timers(call_s=5.0, peer_lost_s=0.5, retry_first_s=0.1)


@pytest.fixture
def certs(tmp_path):
    leaves = [Leaf("party", "bank"), Leaf("party", "telco"), Leaf("user", "ana")]
    authority.create_certificates(tmp_path, leaves, Term(NOW))
    return tmp_path


async def check(channel):
    """A call like any other."""
    return await channel.unary_unary(CHECK_METHOD)(b"", timeout=5.0)


async def called(certs, states, calls=1):
    """The replies of telco's daemon, which states the certificate of an identity, or none."""
    server, port = bind_server(ServerCertificates(tls_of(certs, "telco")), "127.0.0.1:0", TIMERS)
    health = Health([], (lambda: states) if states else None)
    server.add_generic_rpc_handlers((health.handler(),))
    await server.start()
    files = tls_of(certs, "bank")
    dialer = Dialer(files, TIMERS, checks_callees=True)
    try:
        work = [dialer.call(("telco", f"127.0.0.1:{port}"), check) for _ in range(calls)]
        return await asyncio.gather(*work)
    finally:
        await dialer.close()
        await server.stop(0)


def test_calls_at_once_ask_for_a_certificate_once(certs, monkeypatch):
    asked = []
    ask = callees.Callees._ask

    async def noting(*how):
        asked.append(how[1])
        return await ask(*how)

    monkeypatch.setattr(callees.Callees, "_ask", noting)
    replies = asyncio.run(called(certs, load_identity(tls_of(certs, "telco")), calls=5))
    assert replies == [b"\x08\x01"] * 5
    assert asked == ["telco"]


def test_calls_at_once_share_one_refusal_and_none_waits_for_another(certs, monkeypatch):
    asked = []

    async def ask(*how):
        asked.append(how[1])
        await asyncio.sleep(0.01)
        raise UnreachableError("hangs")

    async def run():
        files = tls_of(certs, "bank")
        dialer = Dialer(files, TIMERS, checks_callees=True)
        work = [dialer.call(("telco", "127.0.0.1:1"), check) for _ in range(5)]
        found = await asyncio.gather(*work, return_exceptions=True)
        await dialer.close()
        return [str(one) for one in found]

    monkeypatch.setattr(callees.Callees, "_ask", ask)
    assert asyncio.run(run()) == ["hangs"] * 5
    assert asked == ["telco"]


def test_a_channel_to_a_daemon_without_a_checked_certificate_does_not_open(certs):
    dialer = Dialer(tls_of(certs, "bank"), TIMERS, checks_callees=True)
    with pytest.raises(UnreachableError, match="telco has not stated its certificate"):
        dialer.short_call_channel("telco", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("name", "said"),
    [("bank", "states the certificate of party bank, not of telco"), ("ana", "of user ana, not")],
)
def test_a_daemon_that_states_somebody_elses_certificate_is_not_called(certs, name, said):
    with pytest.raises(UnreachableError, match=said) as refused:
        asyncio.run(called(certs, load_identity(tls_of(certs, name))))
    assert refused.value.where["party"] == "telco"


def test_a_daemon_that_states_none_is_not_called(certs):
    with pytest.raises(UnreachableError, match="telco does not state its certificate"):
        asyncio.run(called(certs, None))


def test_a_daemon_that_states_a_certificate_of_another_ca_is_not_called(certs, tmp_path):
    authority.create_certificates(tmp_path / "other", [Leaf("party", "telco")], Term(NOW))
    other = load_identity(tls_of(tmp_path / "other", "telco"))
    with pytest.raises(UnreachableError, match="is not signed by our CA"):
        asyncio.run(called(certs, other))


def test_what_is_no_certificate_is_not_called(certs, monkeypatch):
    async def ask(*_):
        return b"no certificate"

    monkeypatch.setattr(callees.Callees, "_ask", ask)
    with pytest.raises(UnreachableError, match="is not a PEM certificate"):
        asyncio.run(called(certs, None))


class Clock(datetime):
    """A clock that a test sets."""

    at = NOW

    @classmethod
    def now(cls, tz=None):
        """The time that the test says."""
        return cls.at.astimezone(tz)


def test_a_certificate_that_has_ended_since_is_asked_for_again(certs, monkeypatch):
    monkeypatch.setattr(callees, "datetime", Clock)
    files, asked = tls_of(certs, "bank"), []
    pem = (certs / "telco.pem").read_bytes()

    async def ask(*_):
        asked.append(Clock.at)
        return pem

    monkeypatch.setattr(callees.Callees, "_ask", ask)
    known = callees.Callees(Authorities(files), 1.0)

    renewed = []

    async def check_it():
        how = lambda: grpc.aio.Channel, lambda: renewed.append(Clock.at)
        await known.check(("telco", "127.0.0.1:1"), *how)

    for _ in range(2):
        asyncio.run(check_it())
    assert len(asked) == 1
    Clock.at = NOW + timedelta(days=Term.days, seconds=1)
    asyncio.run(check_it())
    assert asked == renewed == [NOW, Clock.at]
    Clock.at = NOW
