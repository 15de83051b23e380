"""Who may say what: raw calls with real certificates that a daemon must refuse, and stay alive."""

import asyncio
import hashlib
import sqlite3
from typing import Any

import grpc
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import PeerError, PolicyError, UnreachableError
from fedboost.messages import (
    exchange_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    party_pb2,
    party_pb2_grpc,
)
from fedboost.messages.exchange_pb2 import Chunk, Envelope, Parcel
from fedboost.messages.protocol.echo_pb2 import Call
from fedboost.runtime.cluster.local import COORDINATOR, tls_of
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.submitted import sign_submission, submission_id
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.posting import OutgoingStream
from fedboost.runtime.transport.tls import load_identity
from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]


def say(town, who, whom, start):
    """The answer to the raw call that `start` makes on a channel, as `who`; raises the refusal."""

    async def work():
        dialer = Dialer(tls_of(town.folder / "certs", who), world.TIMERS)
        try:
            return await dialer.call((whom, town.addresses[whom]), start)
        finally:
            await dialer.close()

    return asyncio.run(work())


def ask(town, who, whom, method, request):
    stubs = {COORDINATOR: job_pb2_grpc.CoordinatorStub}
    stub = stubs.get(whom, party_pb2_grpc.PartyStub)
    return say(town, who, whom, lambda channel: getattr(stub(channel), method)(request, timeout=5))


def deliver(town, who, whom, envelope, *pieces):
    async def chunks():
        yield Chunk(envelope=envelope)
        for piece in pieces:
            yield Chunk(piece=piece)

    def start(channel):
        return exchange_pb2_grpc.ExchangeStub(channel).Deliver(chunks(), timeout=5)

    return say(town, who, whom, start)


def post(town, who, whom, envelope):
    def start(channel):
        stream = OutgoingStream(exchange_pb2_grpc.ExchangeStub(channel).Post(), iter([1]))
        [piece] = wire.cut_payload(wire.encode(Call()))
        return stream.post(Parcel(envelope=envelope, piece=piece), 5.0)

    return say(town, who, whom, start)


def alive(town, whom):
    return ask(town, "bank" if whom != "bank" else "telco", whom, "Hello", job_pb2.HelloRequest())


def manifest_of(town, id_):
    path = town.store(COORDINATOR) / "store.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        row = database.execute("SELECT text FROM manifests WHERE job = ?", (id_,)).fetchone()
    return bytes(row[0])


@pytest.fixture
def running(town):
    """An echo between bank, telco and shop that takes a while; it must survive every refusal."""
    id_ = world.submit(town, world.echo(rounds=400, parts=2, numbers=50))
    world.watch(town, id_, lambda event: event.WhichOneof("what") == "round")
    yield id_
    assert world.call(town, "status", id_).state == "running"
    world.call(town, "cancel", id_)


def envelope(town, id_, **more):
    """What telco could send the running job's host `shop` if it were the guest."""
    payload = wire.encode(Call())
    fields = {
        "job": id_,
        "manifest_sha256": manifest.manifest_sha256(manifest_of(town, id_)),
        "attempt": 1,
        "stage": "echo",
        "step": "call",
        "number": 10_000,
        "sender": "bank",
        "receiver": "shop",
        "kind": Call.DESCRIPTOR.full_name,
        "payload_bytes": len(payload),
        "payload_sha256": hashlib.sha256(payload).digest(),
        "salt": bytes(16),
    }
    return Envelope(**(fields | more))


CALLS_OF_THE_COORDINATOR = [
    ("Propose", party_pb2.Proposal()),
    ("Begin", party_pb2.BeginRequest(job="x")),
    ("OpenStage", party_pb2.StageRequest(job="x")),
    ("Commit", party_pb2.CommitRequest(job="x")),
    ("CloseStage", party_pb2.StageRequest(job="x")),
    ("Finish", party_pb2.FinishRequest(job="x")),
    ("Stop", party_pb2.StopRequest(job="x")),
]


@pytest.mark.parametrize("who", ["user", "telco", "stranger"])
def test_nobody_but_a_coordinator_leads(town, who):
    for method, request in CALLS_OF_THE_COORDINATOR:
        with pytest.raises(PolicyError):
            ask(town, who, "bank", method, request)

    async def step():
        dialer = Dialer(tls_of(town.folder / "certs", who), world.TIMERS)
        stub = party_pb2_grpc.PartyStub(dialer.short_call_channel("bank", town.addresses["bank"]))
        try:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in stub.RunStep(party_pb2.StepCall(job="x"), timeout=5):
                    pass
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        finally:
            await dialer.close()

    asyncio.run(step())
    assert alive(town, "bank").name == "bank"


@pytest.mark.parametrize("who", ["telco", "stranger", "rival"])
def test_only_users_speak_to_the_coordinator_of_jobs(town, who):
    spec = world.spec(world.echo()).model_dump_json().encode()
    id_ = job_pb2.JobId(id="x")
    for method, request in (
        ("Submit", job_pb2.SubmitRequest(spec=spec)),
        ("ListJobs", job_pb2.ListRequest()),
        ("Status", id_),
        ("Journal", id_),
        ("Cancel", id_),
        ("Resume", id_),
    ):
        with pytest.raises(PolicyError, match="is not a user"):
            ask(town, who, COORDINATOR, method, request)


def test_a_coordinator_of_another_name_cannot_lead(town, running):
    terms = manifest.decode_manifest(manifest_of(town, running))
    with pytest.raises(PolicyError, match="rival may not propose jobs of coordinator"):
        ask(town, "rival", "bank", "Propose", party_pb2.Proposal(manifest=terms.encode()))
    stolen = terms.model_copy(update={"coordinator": "rival"})
    with pytest.raises(PeerError, match="signature of user user does not fit"):
        ask(town, "rival", "bank", "Propose", party_pb2.Proposal(manifest=stolen.encode()))
    rival = load_identity(tls_of(town.folder / "certs", "rival"))
    changes = {
        "coordinator": "rival",
        "submitter": "ana via coordinator rival",
        "job": submission_id(terms.spec, "ana via coordinator rival", "k"),
        "submission": sign_submission(terms.spec, "k", "rival", rival),
    }
    own = terms.model_copy(update=changes)
    with pytest.raises(PolicyError, match="does not allow jobs of the coordinator rival"):
        ask(town, "rival", "bank", "Propose", party_pb2.Proposal(manifest=own.encode()))
    stop = party_pb2.StopRequest(job=running, attempt=1, state="cancelled")
    with pytest.raises(PolicyError, match="rival does not lead this job"):
        ask(town, "rival", "bank", "Stop", stop)
    with pytest.raises(PolicyError, match="rival is not known here"):
        ask(town, "rival", "bank", "Hello", job_pb2.HelloRequest())


def test_a_changed_manifest_is_refused_even_from_the_coordinator(town, running):
    terms = manifest.decode_manifest(manifest_of(town, running))
    invented = terms.model_copy(update={"submitter": "somebody"})
    with pytest.raises(PeerError, match="names somebody as its submitter"):
        ask(town, COORDINATOR, "bank", "Propose", party_pb2.Proposal(manifest=invented.encode()))
    changed = terms.model_copy(update={"members": terms.members[::-1]})
    with pytest.raises(PeerError, match="two different jobs under one name"):
        ask(town, COORDINATOR, "bank", "Propose", party_pb2.Proposal(manifest=changed.encode()))
    begin = party_pb2.BeginRequest(job=running, manifest_sha256=b"other", attempt=2)
    with pytest.raises(PeerError, match="the job to begin differs from the proposed one"):
        ask(town, COORDINATOR, "bank", "Begin", begin)
    digest = manifest.manifest_sha256(terms.encode())
    begin = party_pb2.BeginRequest(job=running, manifest_sha256=digest, attempt=2)
    with pytest.raises(PeerError, match="signature"):
        ask(town, COORDINATOR, "bank", "Begin", begin)


FORGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "sender": ("telco", {}, "telco sent a message in the name of 'bank'"),
    "user": ("user", {}, "in the name of 'bank'"),
    "coordinator": (COORDINATOR, {}, "in the name of 'bank'"),
    "stranger": ("stranger", {"sender": "stranger"}, "a job that is not running here"),
    "job": ("bank", {"job": "another"}, "a job that is not running here"),
    "attempt": ("bank", {"attempt": 2}, "another job, attempt or stage"),
    "manifest": ("bank", {"manifest_sha256": b"x" * 32}, "another job, attempt or stage"),
    "stage": ("bank", {"stage": "align"}, "another job, attempt or stage"),
    "receiver": ("bank", {"receiver": "telco"}, "meant for 'telco'"),
    "kind": ("bank", {"kind": "fedboost.protocol.echo.Answer"}, "takes no"),
    "step": ("bank", {"step": "compare"}, "may not send"),
    "role": ("telco", {"sender": "telco"}, "telco may not send"),
    "size": ("bank", {"payload_bytes": 1 << 40}, "announced a .* of 1099511627776 bytes"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_envelope_is_refused_before_its_payload_and_the_job_runs_on(
    town, running, forgery
):
    who, more, words = FORGED[forgery]
    forged = envelope(town, running, **more)
    with pytest.raises(PeerError, match=words):
        deliver(town, who, "shop", forged)
    if who not in ("bank", "telco"):  # shop's peers
        with pytest.raises(PolicyError, match=f"{who} is not known here"):
            post(town, who, "shop", forged)
    else:
        with pytest.raises(PeerError, match=words):
            post(town, who, "shop", forged)
    assert alive(town, "shop").name == "shop"


def test_a_message_must_begin_with_an_envelope(town):
    async def chunks():
        yield Chunk(piece=next(iter(wire.cut_payload(b"x"))))

    with pytest.raises(PeerError, match="without an envelope"):
        say(
            town,
            "bank",
            "shop",
            lambda channel: exchange_pb2_grpc.ExchangeStub(channel).Deliver(chunks(), timeout=5),
        )


def test_more_bytes_than_announced_are_refused(town, running):
    small = envelope(town, running, payload_bytes=1)
    with pytest.raises(PeerError, match="more than the envelope announced"):
        deliver(town, "bank", "shop", small, *wire.cut_payload(b"much more"))


def test_a_message_that_breaks_off_is_a_broken_link_and_costs_the_job_nothing(town, running):
    whole = envelope(town, running, payload_bytes=9)
    with pytest.raises(UnreachableError, match="broke off after 4 of 9 bytes"):
        deliver(town, "bank", "shop", whole, *wire.cut_payload(b"half"))


def test_a_payload_that_does_not_match_its_envelope_ends_the_job_by_name(town):
    """A damaged message from a party's own certificate is no accident: nothing goes on."""
    id_ = world.submit(town, world.echo(rounds=400, parts=2, numbers=50))
    world.watch(town, id_, lambda event: event.WhichOneof("what") == "round")
    with pytest.raises(PeerError, match="does not match its envelope"):
        deliver(
            town, "bank", "shop", envelope(town, id_, payload_bytes=3), *wire.cut_payload(b"abc")
        )
    world.watch(town, id_)
    status = world.call(town, "status", id_)
    assert status.state == "failed"
    assert status.reason.what == "bank sent a message that does not match its envelope"
    assert {p.key: p.value for p in status.reason.where}["party"] == "shop"
    assert alive(town, "shop").name == "shop"
