"""What anybody hears of a table before its owner has agreed to a job: the same, whatever it holds.

The guest's owner wants to be asked. Everything that others can call is called about the job that
waits, at a party with a small table and at one with a large one. The defences are
`PartyParts.refuse_unapproved` and what `scheme_offer` counts.
"""

import asyncio
import inspect
import re

import pytest

from fedboost.data.row_count import row_count_bound
from fedboost.ground.errors import FedboostError
from fedboost.ground.workers import Serial
from fedboost.messages import exchange_pb2, job_pb2, party_pb2
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.cluster import local
from fedboost.runtime.daemons.access import _Served
from fedboost.runtime.daemons.daemon import PARTY_SERVICES
from fedboost.runtime.jobs import manifest
from fedboost.runtime.party.job.memory import DAEMON_BYTES, GB, WORKER_BYTES, JobMemory, Space
from fedboost.runtime.party.node.parts import PartyParts
from fedboost.runtime.policy import scheme_offers
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.identity import Peer
from tests.attacks.test_border_approval import LEADER, ruled, until
from tests.e2e import world
from tests.support.federated import now

OWNED, HOST = "bank", "telco"
JOB = world.spec(world.job(OWNED, (HOST,)))
OPEN = JOB.model_copy(update={"params": {k: v for k, v in JOB.params.items() if k != "encryption"}})
PEER = Peer("party", HOST, fingerprint="", serial=0)
STRANGER = Peer("user", "nobody", fingerprint="", serial=0)
SMALL, LARGE = 60, 600
ROW_BYTES = 1_000_000  # that a job is estimated to take
# So that no scheme's sums hold the large table, and all of them the small one.
ROWS_EACH = 1 << 15


def requests(job, digest, text):
    """What is asked of every method that others can call; ending the job comes last."""
    at = {"job": job, "attempt": 0}
    stage = party_pb2.StageRequest(**at, stage="secureboost")
    envelope = Envelope(**at, manifest_sha256=digest, sender=HOST, receiver=OWNED)
    return {
        "Hello": [job_pb2.HelloRequest()],
        "CheckLink": [job_pb2.CheckLinkRequest(name=HOST)],
        "OfferSchemes": [party_pb2.SchemesRequest(spec=OPEN.model_dump_json().encode())],
        "Propose": [party_pb2.Proposal(manifest=text)],
        "MakeRoom": [job_pb2.JobId(id=job)],
        "Begin": [party_pb2.BeginRequest(**at, manifest_sha256=digest)],
        "OpenStage": [stage],
        "RunStep": [party_pb2.StepCall(**at, stage="secureboost", turns=[{"step": "share_key"}])],
        "EndLoop": [party_pb2.EndLoopRequest(**at, stage="secureboost")],
        "Commit": [party_pb2.CommitRequest(**at, stage="secureboost")],
        "CloseStage": [stage],
        "Finish": [party_pb2.FinishRequest(**at), party_pb2.FinishRequest(**at, result=b"{}")],
        "Deliver": [envelope],
        "Post": [envelope],
        "Recall": [exchange_pb2.RecallRequest()],
        "Jobs": [job_pb2.ListRequest()],
        "Approve": [job_pb2.JobId(id=job)],
        "Deny": [party_pb2.DenyRequest(id=job)],
        "Forget": [party_pb2.ForgetRequest(id=job)],
        "Models": [job_pb2.ListRequest()],
        "FetchModel": [party_pb2.ModelId(id=job)],
        "Reload": [party_pb2.ReloadRequest()],
        "Stop": [party_pb2.StopRequest(**at, state="failed")],
    }


async def said(node, method, caller, request):
    """The words of an answer, or of a refusal."""
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", method).lower()
    try:
        if isinstance(request, Envelope):
            with node.admit(caller, request):
                return str(await node.accept(caller, request, b""))
        answer = getattr(node, name)(caller, request)
        if inspect.isasyncgen(answer):
            return str([piece async for piece in answer])
        answer = await answer
    except FedboostError as error:
        return " | ".join(error.lines())
    if method == "Hello":  # certificates and clocks are others in every town
        return f"{answer.role} {answer.name} {answer.version}"
    return str(answer)


async def _no_links(_, __):
    """Whatever link is tried is there."""


def limited(node):
    """Has a party estimate jobs by its table's rows; the large one does not fit, the small does."""
    most = (SMALL + LARGE) // 2 * ROW_BYTES
    memory_gb = (most + DAEMON_BYTES + node.config.processes * WORKER_BYTES) / GB
    config = node.config.model_copy(update={"memory_gb": memory_gb})
    node.parts.memory = JobMemory(config, lambda: node.config.datasets, node.under_way)
    node.parts.memory.of = lambda _, __, table: Space(row_count_bound(table) * ROW_BYTES)


async def answers(folder, rows, approve="always"):
    """All that others hear of a waiting job, by method, caller and number of the request."""
    tables = {OWNED: world.toy(rows=rows, label=True), HOST: world.toy(columns=3, rows=SMALL)}
    sources = {n: world.write(folder / f"{n}.parquet", table) for n, table in tables.items()}
    async with local.open_cluster(folder / "c", JOB, sources, Serial()) as cluster:
        node = cluster.parties[OWNED]
        ruled(node, approve="always")
        limited(node)
        waiting = asyncio.create_task(cluster.run(JOB))
        await until(lambda: node.store.jobs(JobState.WAITING))
        waiting.cancel()
        await cluster.coordinator.close()
        ruled(node, approve=approve)
        [job] = node.store.jobs()
        asked = requests(job.id, manifest.manifest_sha256(job.manifest), job.manifest)
        served, heard = _Served(node, _no_links), {}
        for method, given in asked.items():
            for caller in (PEER, STRANGER, LEADER):
                for number, request in enumerate(given):
                    words = await said(served, method, caller, request)
                    heard[method, caller.role, number] = words.replace(job.id, "JOB")
        return heard


def different(folder):
    """The methods that answer otherwise where the table is larger."""
    small, large = (now(answers(folder / str(rows), rows)) for rows in (SMALL, LARGE))
    assert small.keys() == large.keys()
    return {method for method, *rest in small if small[method, *rest] != large[method, *rest]}


@pytest.fixture(autouse=True)
def _many_rows(monkeypatch):
    """A table counts as many times its rows where a scheme is chosen."""
    monkeypatch.setattr(
        scheme_offers, "row_count_bound", lambda table: row_count_bound(table) * ROWS_EACH
    )


def test_every_method_that_others_can_call_is_called():
    served = {
        method.name
        for descriptor, name, _ in PARTY_SERVICES
        for method in descriptor.services_by_name[name].methods
    }
    assert set(requests("", b"", b"")) == served


def test_no_answer_depends_on_a_table_before_its_owner_agreed(tmp_path):
    assert different(tmp_path) == set()


def test_a_coordinator_measures_a_table_of_jobs_that_nobody_approved_where_room_is_made_for_them(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(PartyParts, "refuse_unapproved", lambda *_: None)
    assert "MakeRoom" in different(tmp_path)


def test_a_coordinator_measures_a_table_by_schemes_where_rows_count_before_a_person_agrees(
    tmp_path, monkeypatch
):
    offer = scheme_offers.scheme_offer

    def counting(judge, coordinator, spec):
        policy = judge.config.policy.model_copy(update={"approve": "never"})
        own = judge.config
        judge.config = own.model_copy(update={"policy": policy})
        try:
            return offer(judge, coordinator, spec)
        finally:
            judge.config = own

    monkeypatch.setattr(scheme_offers, "scheme_offer", counting)
    assert different(tmp_path) == {"OfferSchemes"}


def test_an_owner_who_pads_a_set_is_offered_schemes_for_the_padded_size(tmp_path):
    async def offered(rows, padded):
        tables = {OWNED: world.toy(rows=rows, label=True), HOST: world.toy(columns=3)}
        folder = tmp_path / f"{rows}-{padded}"
        sources = {n: world.write(folder / f"{n}.parquet", t) for n, t in tables.items()}
        async with local.open_cluster(folder / "c", JOB, sources, Serial()) as cluster:
            node = cluster.parties[OWNED]
            ruled(node, approve="always", ids_padded_to=padded)
            asked = requests("", b"", b"")["OfferSchemes"][0]
            return list((await node.offer_schemes(LEADER, asked)).too_small)

    assert now(offered(SMALL, None)) == []
    assert now(offered(SMALL, 1 << 23)) == ["lattice", "lattice-4096"]
