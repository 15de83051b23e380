"""Answers and receipts are lost on their way, and asked for again: nothing is done twice."""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.workers import Serial
from fedboost.messages.party_pb2 import BeginRequest, StageRequest
from fedboost.runtime.cluster import local
from fedboost.runtime.config.daemons import Users
from fedboost.runtime.coordinator import node as coordinator
from fedboost.runtime.jobs import submitted
from fedboost.runtime.transport.identity import Peer
from fedboost.runtime.transport.tls import load_identity
from tests.e2e import world
from tests.equivalence.test_secureboost_whole_jobs import arrow_tables, spec_of
from tests.support.federated import now, run_job
from tests.support.secureboost_jobs import made
from tests.support.whole_jobs import written

CALLS = ("propose", "begin", "open_stage", "run_step", "commit", "close_stage", "finish")
JOB = {"n_estimators": 3, "max_depth": 2}
LEADER = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)


def twice(call, at_once):
    """The same call two times, one after the other or side by side; the second answer counts."""

    async def asked(*args):
        if at_once:
            return (await asyncio.gather(call(*args), call(*args)))[1]
        await call(*args)
        return await call(*args)

    return asked


def repeat(monkeypatch, names, at_once):
    """Has the coordinator's calls of these names come twice."""
    ask, run_step = local.LocalControl.__getattr__, local.LocalControl.run_step

    def asks(self, name):
        call = ask(self, name)
        return twice(call, at_once) if name in names else call

    monkeypatch.setattr(local.LocalControl, "__getattr__", asks)
    if "run_step" in names:

        async def steps(self, request, hear=None):
            return await twice(lambda: run_step(self, request, hear), at_once)()

        monkeypatch.setattr(local.LocalControl, "run_step", steps)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    job = made(JOB, (2, 2))
    return run_job(tmp_path_factory.mktemp("one"), arrow_tables(job), spec_of(job))


def carried(finished):
    """How many messages of each kind lie in each party's ledger, by direction and peer."""
    rows = ((party, row) for party, found in finished.ledgers.items() for row in found)
    return Counter((party, row.direction, row.kind, row.peer) for party, row in rows)


def assert_as_if_nothing_had_happened(done, undisturbed):
    assert done.state == "finished", done.error.lines()
    assert carried(done) == carried(undisturbed)
    for party, shard in undisturbed.shards.items():
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(done.shards[party].arrays[name], array, strict=True)


@pytest.mark.some(3)
@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_answer_was_lost_is_answered_again(
    tmp_path, monkeypatch, undisturbed, name, at_once
):
    job = made(JOB, (2, 2))
    repeat(monkeypatch, [name], at_once)
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert_as_if_nothing_had_happened(done, undisturbed)


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
def test_a_message_whose_receipt_was_lost_is_in_both_ledgers_once(
    tmp_path, monkeypatch, undisturbed, at_once
):
    job = made(JOB, (2, 2))
    deliver = local.LocalLinks.deliver

    async def delivered(self, envelope, payload):
        await twice(lambda: deliver(self, envelope, payload), at_once)()

    monkeypatch.setattr(local.LocalLinks, "deliver", delivered)
    done = run_job(tmp_path / "job", arrow_tables(job), spec_of(job))
    assert_as_if_nothing_had_happened(done, undisturbed)


async def test_one_key_of_a_user_names_one_job(tmp_path):
    spec = world.spec(world.echo())
    other = spec.model_copy(update={"name": "other"})
    tables = {party: world.toy() for party in spec.parties.everybody}
    sources = {p: world.write(tmp_path / f"{p}.parquet", table) for p, table in tables.items()}
    async with local.open_cluster(tmp_path / "c", spec, sources, Serial()) as cluster:
        node, certs = cluster.coordinator, tmp_path / "c" / "certs"
        users = Users(submit=(cluster.user.name, "eve"))
        node.config = node.config.model_copy(update={"users": users})
        world.issue(certs, [("user", "eve")])
        identity = load_identity(local.tls_of(certs, "eve"))
        eve = local.LocalClient(replace(cluster, user=identity.peer, identity=identity))
        jobs = local.LocalClient(cluster)
        text, another = spec.model_dump_json().encode(), other.model_dump_json().encode()
        same = await asyncio.gather(*(jobs.submit(text, "k") for _ in range(3)))
        same.append(await jobs.submit(text, "k"))
        others = [
            await jobs.submit(text, "l"),
            await jobs.submit(another, "k"),
            await eve.submit(text, "k"),
            *[await jobs.submit(text) for _ in range(2)],
        ]
        stored = node.store.jobs()
    assert len(set(same)) == 1
    assert len({same[0], *others}) == 6
    assert {job.id for job in stored} == {same[0], *others}


def test_a_job_of_another_with_the_same_id_is_not_taken_for_ours(tmp_path, monkeypatch):
    for module in (coordinator, submitted):
        monkeypatch.setattr(module, "submission_id", lambda *_: "the-same")
    spec = world.spec(world.echo())
    other = spec.model_copy(update={"name": "other"})
    sources = {
        p: world.write(tmp_path / f"{p}.parquet", world.toy()) for p in spec.parties.everybody
    }

    async def run():
        async with local.open_cluster(tmp_path / "c", spec, sources, Serial()) as cluster:
            for one in (spec, other):
                await local.LocalClient(cluster).submit(one.model_dump_json().encode())

    with pytest.raises(ProtocolError, match="a job of that id"):
        now(run())


def halted_in(folder, monkeypatch, step, look):
    """Runs a job up to a party's step and has `look` see the cluster and the job's id there."""

    async def work():
        job = made(JOB, (2, 2))
        spec = spec_of(job)
        sources = written(folder, arrow_tables(job))
        async with local.open_cluster(folder / "c", spec, sources, Serial()) as cluster:
            reached, go_on = asyncio.Event(), asyncio.Event()
            guest = cluster.parties["bank"]
            run_step = guest.run_step

            async def held(caller, request):
                if step in {turn.step for turn in request.turns}:
                    reached.set()
                    await go_on.wait()
                return await run_step(caller, request)

            monkeypatch.setattr(guest, "run_step", held)
            running = asyncio.create_task(cluster.run(spec))
            await reached.wait()
            [stored] = cluster.coordinator.store.jobs()
            await look(cluster, stored.id)
            go_on.set()
            journal = await running
            assert journal.status.state == "finished", journal.status

    now(work())


def test_no_coordinator_can_have_secrets_drawn_again_within_an_attempt(tmp_path, monkeypatch):
    """Neither by opening a stage anew, at another round or not, nor by beginning again."""

    async def look(cluster, job):
        node = cluster.parties["telco"]
        work = node.under_way[job]
        session = work.session
        opened = StageRequest(job=job, attempt=1, stage="secureboost", round=0)
        await node.open_stage(LEADER, opened)
        assert work.session is session, "the same question again opened the stage again"
        opened.round = 1
        with pytest.raises(ProtocolError, match="in other words"):
            await node.open_stage(LEADER, opened)
        opened.stage = "align"  # it is over
        opened.round = 0
        await node.open_stage(LEADER, opened)
        assert work.session is session
        begun = BeginRequest(job=job, attempt=1, manifest_sha256=work.signed.manifest_sha256)
        with pytest.raises(ProtocolError, match="in other words"):
            await node.begin(LEADER, begun)
        begun.attempt = 0
        with pytest.raises(PeerError, match="signature"):
            await node.begin(LEADER, begun)

    halted_in(tmp_path, monkeypatch, "choose_splits", look)
