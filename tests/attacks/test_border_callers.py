"""Callers who are told something before they are judged, or after they no longer may hear it."""

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fedboost.ground import settings, strict_yaml, wire
from fedboost.ground.errors import ConfigError, PolicyError, UnreachableError
from fedboost.messages import exchange_pb2, job_pb2, party_pb2
from fedboost.messages.exchange_pb2 import Envelope, Parcel
from fedboost.pages.sessions import WRONG_MAX, Sessions, SignInRefusedError
from fedboost.runtime.cluster.local import COORDINATOR, USER, tls_of
from fedboost.runtime.party.node import node as party
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.transport import authority, server
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.identity import CertificateRole, Peer
from fedboost.runtime.transport.server import CallerGate, Servicer
from tests.attacks.test_border_approval import JOB, town, until
from tests.e2e import world
from tests.support.federated import now


class Context:
    """A call's other end, as gRPC shows it; `certs` and a name say whose certificate it is."""

    def __init__(self, certs, name):
        self._pem = (certs / f"{name}.pem").read_bytes()

    def auth_context(self):
        """What TLS has found."""
        return {"x509_pem_cert": [self._pem]}

    async def send_initial_metadata(self, _):
        """Says that the call is let in."""

    async def write(self, _):
        """Gives an answer."""

    async def abort(self, code, text, trailing_metadata):
        """Ends the call."""
        raise ConnectionAbortedError(text)


def certificates(folder):
    """The folder of a CA with everybody's certificates."""
    leaves: list[tuple[CertificateRole, str]] = [
        ("coordinator", COORDINATOR),
        ("user", USER),
        ("party", "telco"),
        ("party", "shop"),
    ]
    world.issue(folder / "certs", leaves)
    return folder / "certs"


async def heard(replies):
    """What a stream says until it ends or is refused."""
    found = []
    try:
        async for reply in replies:
            found.append(reply)
    except ConnectionAbortedError:
        pass
    return found


# The sign of life of a step


async def signs_of_life(folder):
    """What another party hears of a step that a host does, by asking for that step itself."""
    async with town(folder) as cluster:
        telco = cluster.parties["telco"]
        running = asyncio.create_task(cluster.run(JOB))
        await until(lambda: telco.under_way and next(iter(telco.under_way.values())).session)
        certs = folder / "c" / "certs"
        gate = CallerGate(Authorities(tls_of(certs, "telco")))
        [work] = telco.under_way.values()
        call = party_pb2.StepCall(job=work.id, attempt=work.attempt, stage="align")
        served = party_pb2.DESCRIPTOR.services_by_name["Party"]
        services: Any = Servicer(telco, gate, served)
        found = await heard(services.RunStep(call, Context(certs, "shop")))
        await running
        return found


class _Linked(PartyNode):
    """A party that can also try its links, as a daemon does."""

    async def check_link(self, *_):
        """Nobody asks."""


def test_another_party_hears_nothing_of_a_step(tmp_path, monkeypatch):
    monkeypatch.setattr(party, "PartyNode", _Linked)
    assert now(signs_of_life(tmp_path)) == []


def test_another_party_hears_of_a_step_where_nobody_is_judged_before_the_first_sign(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(party, "PartyNode", _Linked)
    monkeypatch.setattr(PartyNode, "check_leads", lambda *_: None)
    monkeypatch.setattr(server, "FIRST_SIGN_S", 0.01)
    run_step = PartyNode.run_step

    async def slow(node, caller, request):
        await asyncio.sleep(0.1 * (caller.role == "party"))
        return await run_step(node, caller, request)

    monkeypatch.setattr(PartyNode, "run_step", slow)
    [sign] = now(signs_of_life(tmp_path))
    assert sign.working


# Streams that are open


class Journal:
    """A coordinator's node that tells two events, between which something happens."""

    def __init__(self, between):
        self._between = between

    def __getattr__(self, _):
        return None

    async def watch(self, _, __):
        """What `fedboost job watch` reads."""
        yield job_pb2.Event(number=1)
        self._between()
        yield job_pb2.Event(number=2)


def watched(certs, between, clock=None):
    """The numbers of the events that a user hears."""
    gate = CallerGate(Authorities(tls_of(certs, COORDINATOR)), clock)
    service = job_pb2.DESCRIPTOR.services_by_name["Coordinator"]
    services: Any = Servicer(Journal(between), gate, service)
    return [
        one.number
        for one in now(heard(services.Watch(job_pb2.WatchRequest(), Context(certs, USER))))
    ]


def revoke(certs, name=USER):
    """Takes a certificate back, the user's for instance."""
    authority.revoke_certificates(certs, name, datetime.now(UTC))


def test_a_revoked_user_hears_no_more_of_a_job_that_is_watched(tmp_path):
    certs = certificates(tmp_path)
    assert watched(certs, lambda: None) == [1, 2]
    assert watched(certs, lambda: revoke(certs)) == [1]


def test_a_revoked_user_hears_on_where_only_the_call_is_judged(tmp_path, monkeypatch):
    certs = certificates(tmp_path)
    judge = CallerGate.identify_caller
    judged: list[Peer] = []

    def once(gate, context):
        if not judged:
            judged.append(judge(gate, context))
        return judged[0]

    monkeypatch.setattr(CallerGate, "identify_caller", once)
    assert watched(certs, lambda: revoke(certs)) == [1, 2]


class Idle:
    """A coordinator's node of which a watched job tells one event, and then nothing."""

    def __init__(self, afterwards):
        self._afterwards = afterwards
        self.is_closed = False

    def __getattr__(self, _):
        return None

    async def watch(self, _, __):
        """What `fedboost job watch` reads."""
        try:
            yield job_pb2.Event(number=1)
            self._afterwards()
            await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def heard_of_nothing(certs, change, clock=None):
    """Whether a stream in which nothing happens has ended, and its node has let go of it."""
    gate = CallerGate(Authorities(tls_of(certs, COORDINATOR)), clock)
    node = Idle(change)
    services: Any = Servicer(node, gate, job_pb2.DESCRIPTOR.services_by_name["Coordinator"])
    listening = heard(services.Watch(job_pb2.WatchRequest(), Context(certs, USER)))
    try:
        told = await asyncio.wait_for(listening, 50 * server.JUDGED_AGAIN_S)
    except TimeoutError:
        return False
    assert [one.number for one in told] == [1]
    return node.is_closed


def test_an_idle_stream_ends_soon_after_its_caller_is_revoked_or_expires(tmp_path, monkeypatch):
    assert server.JUDGED_AGAIN_S <= 1.0
    monkeypatch.setattr(server, "JUDGED_AGAIN_S", 0.01)
    certs, clock = certificates(tmp_path), Later()
    assert now(heard_of_nothing(certs, clock.forward, clock))
    assert now(heard_of_nothing(certs, lambda: revoke(certs)))


def test_an_idle_stream_stays_open_where_its_caller_is_judged_at_its_messages(
    tmp_path, monkeypatch
):
    async def at_messages(replies, gate, context):
        reply = await anext(replies, None)
        gate.identify_caller(context)
        return reply

    monkeypatch.setattr(server, "JUDGED_AGAIN_S", 0.01)
    monkeypatch.setattr(server, "_next_while_let_in", at_messages)
    certs = certificates(tmp_path)
    assert not now(heard_of_nothing(certs, lambda: revoke(certs)))


class Desk:
    """A party's node that takes in whatever is posted."""

    def __init__(self):
        self.taken: list[int] = []

    async def recall(self, _, __):
        """Nobody asks."""

    def check_peer(self, _):
        """Everybody is known."""

    @contextmanager
    def admit(self, _, __):
        """There is room."""
        yield

    async def accept(self, _, envelope, __):
        """Takes it in."""
        self.taken.append(envelope.number)
        return False


async def posted(certs, change, *, more=True):
    """The numbers of the messages that a party takes in of a peer's stream, within which `change`
    happens behind the first, and how the stream ends: by itself, or by whom.
    """
    desk = Desk()
    gate = CallerGate(Authorities(tls_of(certs, "telco")))
    services: Any = Servicer(desk, gate, exchange_pb2.DESCRIPTOR.services_by_name["Exchange"])

    async def parcels():
        yield Parcel(envelope=Envelope(number=1), piece=next(wire.cut_payload(b"")))
        await until(lambda: desk.taken)
        change()
        if not more:
            await asyncio.Event().wait()
        yield Parcel(envelope=Envelope(number=2), piece=next(wire.cut_payload(b"")))

    try:
        posting = services.Post(parcels(), Context(certs, "shop"))
        await asyncio.wait_for(posting, 50 * server.JUDGED_AGAIN_S)
    except (TimeoutError, ConnectionAbortedError) as ended:
        return desk.taken, type(ended)
    return desk.taken, None


def test_a_revoked_peer_loses_its_stream_at_its_next_message(tmp_path):
    certs = certificates(tmp_path)
    assert now(posted(certs, lambda: None)) == ([1, 2], None)
    assert now(posted(certs, lambda: revoke(certs, "shop"))) == ([1], ConnectionAbortedError)
    assert now(posted(certs, lambda: None)) == ([], ConnectionAbortedError)


def test_a_revoked_peer_loses_its_stream_soon_where_nothing_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "JUDGED_AGAIN_S", 0.02)
    certs = certificates(tmp_path)
    assert now(posted(certs, lambda: None, more=False)) == ([1], TimeoutError)
    ended = posted(certs, lambda: revoke(certs, "shop"), more=False)
    assert now(ended) == ([1], ConnectionAbortedError)


def test_a_revoked_peer_posts_on_where_only_the_beginning_of_a_stream_is_judged(
    tmp_path, monkeypatch
):
    judge, judged = CallerGate.identify_caller, list[Peer]()

    def once(gate, context):
        judged[:] = judged or [judge(gate, context)]
        return judged[0]

    monkeypatch.setattr(CallerGate, "identify_caller", once)
    certs = certificates(tmp_path)
    assert now(posted(certs, lambda: revoke(certs, "shop"))) == ([1, 2], None)


class Later:
    """A clock that is put forward."""

    def __init__(self):
        self.days = 0

    def __call__(self):
        return datetime.now(UTC) + timedelta(days=self.days)

    def forward(self):
        """A year and more passes."""
        self.days = 400


def test_a_certificate_that_expires_on_an_open_connection_counts_no_more(tmp_path):
    certs, clock = certificates(tmp_path), Later()
    assert watched(certs, clock.forward, clock) == [1]
    gate = CallerGate(Authorities(tls_of(certs, COORDINATOR)), clock)
    with pytest.raises(UnreachableError, match="the certificate of party telco expired on"):
        gate.identify_caller(Context(certs, "telco"))
    with pytest.raises(PolicyError, match="the certificate of user user expired on"):
        gate.identify_caller(Context(certs, USER))


def test_a_certificate_that_expires_on_an_open_connection_counts_on_where_only_tls_looks_at_dates(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(server, "refuse_expired", lambda *_: None)
    certs, clock = certificates(tmp_path), Later()
    assert watched(certs, clock.forward, clock) == [1, 2]


# Signing in to a page


def test_wrong_tokens_of_a_local_process_do_not_lock_the_owner_out():
    sessions = Sessions(lambda: "the token", "ana", 60.0)
    for _ in range(WRONG_MAX + 1):
        with pytest.raises(SignInRefusedError):
            sessions.sign_in("a guess", "127.0.0.1")
    assert sessions.find(sessions.sign_in("the token", "127.0.0.1"))


def test_wrong_tokens_of_a_local_process_lock_the_owner_out_where_the_right_one_waits_for_them(
    monkeypatch,
):
    sign_in = Sessions.sign_in

    def counted(sessions, given, source):
        if len(sessions._wrong.get(source, ())) == WRONG_MAX:
            raise SignInRefusedError("too many wrong tokens")
        return sign_in(sessions, given, source)

    monkeypatch.setattr(Sessions, "sign_in", counted)
    with pytest.raises(SignInRefusedError, match="too many wrong tokens"):
        test_wrong_tokens_of_a_local_process_do_not_lock_the_owner_out()


# A job of aliases


def bomb(levels=9):
    """YAML of a few hundred bytes that stands for ten to the power of `levels` values."""
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    for n in range(1, levels):
        lines.append(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]")
    return "\n".join(lines).encode()


def test_a_job_of_aliases_is_refused_before_it_is_built():
    assert len(bomb()) < 600
    with pytest.raises(ConfigError, match="aliases stand for more than"):
        settings.parse_yaml(bomb())
    with pytest.raises(ConfigError, match="an alias of a value that contains it"):
        settings.parse_yaml(b"a: &a [*a]")
    merged = bomb(6).replace(b"l5: &l5 [", b"l5:\n  <<: [")
    with pytest.raises(ConfigError, match="aliases stand for more than"):
        settings.parse_yaml(merged)
    assert settings.parse_yaml(b"a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


def test_a_job_of_aliases_becomes_a_million_values_where_nobody_counts(monkeypatch):
    monkeypatch.setattr(strict_yaml, "YAML_NODES_MAX", float("inf"))

    def leaves(value):
        return sum(map(leaves, value)) if isinstance(value, list) else 1

    built: Any = settings.parse_yaml(bomb(6))
    assert leaves(built["l5"]) == 1_000_000
