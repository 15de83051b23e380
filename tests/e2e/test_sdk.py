"""The SDK against real daemons: jobs, events, errors, and models for their owner."""

import asyncio
import gc
import threading

import pytest

from fedboost.ground.errors import PolicyError, UnreachableError
from fedboost.model import shards
from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.sdk import AsyncClient, Client, PartyClient, load_model
from tests.e2e import world
from tests.e2e.conftest import MALLORY, OWNER

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("town")]
JOB = world.job()


def at(town, name):
    """Where a daemon of the town listens, by its name."""
    return f"{name}@{town.addresses[name]}"


@pytest.fixture(scope="module")
def client(town):
    with Client(at(town, COORDINATOR), tls=town.folder / "certs", user=USER) as made:
        yield made


@pytest.fixture(scope="module")
def finished(client):
    job = client.submit(JOB)
    assert job.wait(progress=False)["state"] == "finished"
    return job


def test_a_job_is_submitted_watched_and_read_from_python(client, finished, tmp_path):
    assert [one.facts["done"] for one in finished.watch() if one.what == "round"] == [1, 2]
    assert finished.status().state == "finished"
    assert len(finished.metrics()) == 2
    assert finished.report(tmp_path / "r.html").stat().st_size > 10_000
    assert finished.id in finished._repr_html_()


def test_the_same_with_await_in_a_loop_of_ones_own(town):
    async def work():
        certs = town.folder / "certs"
        files = {"ca": certs / "ca.pem", "cert": certs / "user.pem", "key": certs / "user.key"}
        async with AsyncClient(at(town, COORDINATOR), tls=files) as client:
            job = await client.submit(JOB)
            seen = [event.what async for event in job.watch()]
            return seen, await job.wait(progress=False), (await job.status()).state

    seen, result, state = asyncio.run(work())
    assert (result["state"], state) == ("finished", "finished")
    assert seen.count("round") == 2


def submitted_to_manual(client):
    """A job that waits for an owner's word, and for nothing else any more."""
    job = client.submit(world.job("bank", ("telco", "manual")))

    def waits():
        return [one.party for one in job.status().waiting] == ["manual"]

    world.wait_for(waits, 10, "the job waits for manual")
    return job


def test_an_owner_approves_from_python(town):
    certs = town.folder / "certs"
    with (
        Client(at(town, COORDINATOR), tls=certs, user=USER) as client,
        PartyClient(str(town.config("manual")), tls=certs, user=OWNER) as manual,
    ):
        job = submitted_to_manual(client)
        assert manual.approve(job.id).id == job.id
        assert job.wait(progress=False)["state"] == "finished"
        assert next(one for one in manual.jobs() if one.id == job.id).state == "finished"


def test_a_denied_job_raises_the_refusal(town, client):
    job = submitted_to_manual(client)
    with PartyClient(at(town, "manual"), tls=town.folder / "certs", user=OWNER) as manual:
        manual.deny(job.id)
    with pytest.raises(PolicyError, match="manual's owner denied the job"):
        job.wait(progress=False)


def test_a_model_is_fetched_by_its_owner_alone(town, finished, tmp_path):
    certs = town.folder / "certs"
    with PartyClient(at(town, "telco"), tls=certs, user=USER) as telco:
        assert finished.id in [one.id for one in telco.models()]
        made = telco.models()
        newest = max(made, key=lambda one: one.created)
        is_clear = [one.created for one in made].count(newest.created) == 1  # else it is refused
        folder = telco.fetch_model(finished.id, tmp_path / "python")
    kept = town.store("telco") / "models" / finished.id
    assert shards.read_files(folder) == shards.read_files(kept)
    assert not load_model(folder).is_whole
    fetch = ("model", "fetch", finished.id, "--config", town.config("telco"), "--tls", certs)
    said = world.fedboost(*fetch, "--out", tmp_path / "cli", env={"FEDBOOST_USER": USER})
    assert (said.code, said.out) == (0, f"{tmp_path / 'cli' / finished.id}\n"), said.err
    assert shards.read_files(tmp_path / "cli" / finished.id) == shards.read_files(kept)
    named = ["latest" if word == finished.id else word for word in fetch]
    said = world.fedboost(*named, "--out", tmp_path / "named", env={"FEDBOOST_USER": USER})
    assert said.out == (f"{tmp_path / 'named' / newest.id}\n" if is_clear else ""), said.err
    wrong = ["nosuch" if word == finished.id else word for word in fetch]
    said = world.fedboost(*wrong, "--out", tmp_path / "wrong", env={"FEDBOOST_USER": USER})
    assert said.code == 2
    assert "there is no model nosuch here" in said.err
    refused = world.fedboost(*fetch, "--out", tmp_path, env={"FEDBOOST_USER": MALLORY})
    assert refused.code == 4
    assert "approvals by the user mallory" in refused.err
    with (
        PartyClient(at(town, "telco"), tls=certs, user=MALLORY) as party,
        pytest.raises(PolicyError),
    ):
        party.models()
    shown = world.fedboost("ledger", "show", "--config", town.config("telco"), "--json")
    taken = [row for row in shown.last["rows"] if row["step"] == "fetch_model"]
    assert [row["peer"] for row in taken] == ["user user"] * (2 + is_clear)
    whole = world.fedboost("ledger", "verify", "--config", town.config("telco"))
    assert whole.code == 0, whole.err


def test_a_coordinator_that_is_not_there_is_named(town):
    absent = Client("coordinator@127.0.0.1:9", tls=town.folder / "certs", user=USER)
    with absent as client, pytest.raises(UnreachableError, match="coordinator is not there"):
        client.jobs()


def test_closed_clients_leave_no_thread_behind(town):
    def ours():
        gc.collect()
        return [one for one in threading.enumerate() if one.name == "fedboost-client"]

    held = len(ours())
    with Client(at(town, COORDINATOR), tls=town.folder / "certs", user=USER) as client:
        client.jobs()
        assert len(ours()) == 1
    assert len(ours()) == held
