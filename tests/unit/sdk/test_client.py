"""Jobs at a coordinator from Python, and a party's owner: over nodes in this process."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from fedboost.ground.errors import ConfigError, DataError, JobError, PolicyError, ProtocolError
from fedboost.messages.job_pb2 import ListRequest
from fedboost.messages.party_pb2 import ModelId
from fedboost.report.page import render_page
from fedboost.runtime.ledger import comparison
from fedboost.runtime.transport.identity import Peer
from fedboost.sdk import AsyncJob, load_model
from fedboost.sdk.background import BACKGROUND
from fedboost.sdk.client import encoded_job
from fedboost.sdk.jobs import RoundMetrics
from tests.support import answered, small_jobs

TOY = "federboost-horizontal"
SPEC = small_jobs.spec(TOY)


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A coordinator and three parties that agree to everything."""
    with answered.town(tmp_path_factory.mktemp("town"), SPEC, TOY) as made:
        yield made


@pytest.fixture(scope="module")
def client(town):
    with town.client() as made:
        yield made


@pytest.fixture(scope="module")
def finished(client):
    """A job that has finished."""
    job = client.submit(SPEC)
    job.wait(progress=False)
    return job


def test_a_job_that_has_finished_gives_its_result(client, finished):
    result = finished.result()
    assert (result["job"], result["state"], result["trees"]) == (finished.id, "finished", 3)
    assert client.job(finished.id).wait(progress=False) == result
    status = finished.status()
    assert (status.state, status.done, status.of, status.rests) == ("finished", 3, 3, True)
    assert str(status) == f"{finished.id} ({TOY}) is finished, tree 3 of 3"
    assert finished.id in [one.id for one in client.jobs()]


def test_a_job_is_a_file_what_one_says_or_a_spec(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(SPEC.model_dump_json())
    assert (
        encoded_job(file)
        == encoded_job(str(file))
        == encoded_job(SPEC)
        == encoded_job(small_jobs.raw(TOY))
    )


def test_a_wrong_job_is_refused_before_anybody_hears_of_it(client, tmp_path):
    before = len(client.jobs())
    raw = small_jobs.raw(TOY)
    with pytest.raises(ConfigError, match="unknown key 'protokol'") as refused:
        client.submit({**raw, "protokol": 1})
    assert refused.value.todo == "did you mean 'protocol'?"
    file = tmp_path / "job.yaml"
    file.write_text(small_jobs.spec(TOY).model_dump_json().replace("n_estimators", "n_estimator"))
    with pytest.raises(ConfigError, match="n_estimator") as refused:
        client.submit(file)
    assert refused.value.where["file"] == str(file)
    assert len(client.jobs()) == before


def test_events_come_in_their_order_whoever_loops(finished):
    events = list(finished.watch())
    assert [one.number for one in events] == sorted({one.number for one in events})
    rounds = [one.facts for one in events if one.what == "round"]
    assert [(one["round"], one["done"], one["of"]) for one in rounds] == [
        ("tree", done, 3) for done in (1, 2, 3)
    ]
    assert rounds[-1]["metrics"]["train"] == finished.result()["metrics"]["train"]
    assert [str(one) for one in events if one.what == "state"][-1] == "finished"
    last = next(one for one in events if one.what == "finished")
    assert last.facts["result"] == finished.result()

    async def awaited():
        return [one async for one in finished.watch(after=events[4].number)]

    assert asyncio.run(awaited()) == events[5:]


def test_whoever_stops_to_watch_leaves_nothing_behind(finished):
    for event in finished.watch():
        assert event.number == 1
        break
    gc.collect()
    assert finished.status().state == "finished"


def test_blocking_calls_work_where_a_loop_runs_already(client, finished):
    async def cell():  # as a notebook runs one
        return client.job(finished.id).result()

    assert asyncio.run(cell()) == finished.result()


def test_the_awaited_twin_says_the_same(finished):
    twin = AsyncJob(finished._job._link, finished.id)
    assert BACKGROUND.run(twin.wait(progress=False)) == finished.result()
    assert BACKGROUND.run(twin.status()) == finished.status()


def test_many_threads_may_use_one_client(client, finished):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: client.job(finished.id).status().state, range(40)))
    assert set(found) == {"finished"}


def test_metrics_are_a_table_for_every_library(finished):
    metrics = finished.metrics()
    assert isinstance(metrics, RoundMetrics)
    assert metrics.columns[:2] == ("tree", "seconds")
    assert [row["tree"] for row in metrics] == [1, 2, 3]
    last = finished.result()["metrics"]["train"]
    for name, value in last.items():
        assert metrics[-1][f"train {name}"] == value
    assert pa.table(metrics).num_rows == 3
    pandas = pytest.importorskip("pandas")
    assert list(pandas.DataFrame(metrics).columns) == list(metrics.columns)
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(metrics).columns == list(metrics.columns)
    assert repr(metrics).splitlines()[0].split()[0] == "tree"
    assert metrics._repr_html_().count("<tr>") == 4
    assert [row["tree"] for row in metrics[1:]] == [2, 3]


def test_a_report_is_one_file(finished, tmp_path):
    path = finished.report(tmp_path / "r.html")
    assert finished.id in path.read_text(encoding="utf-8")


def test_a_job_shows_itself_in_a_notebook_without_anything_from_outside(finished):
    html = finished._repr_html_()
    assert "finished" in html
    assert "tree 3 of 3" in html
    assert finished.id in html
    for outside in ("http:", "https:", "src=", "href=", "<script", "@import", "url("):
        assert outside not in html


def test_waiting_for_a_cancelled_job_raises_who_cancelled_it(client):
    job = client.submit(small_jobs.spec(TOY, n_estimators=1000))
    assert job.cancel().state == "cancelled"
    with pytest.raises(JobError, match="cancelled by user") as ended:
        job.wait(progress=False)
    assert ended.value.where["job"] == job.id
    assert "cancelled by user" in job._repr_html_()


def test_a_job_that_goes_on_has_no_result_and_waiting_has_an_end(client):
    job = client.submit(small_jobs.spec(TOY, n_estimators=10_000))
    with pytest.raises(JobError, match=r"the job is (queued|running|waiting)") as none_yet:
        job.result()
    assert none_yet.value.todo == "wait for it: job.wait()"
    with pytest.raises(TimeoutError):
        job.wait(progress=False, timeout_s=0.01)
    assert job.cancel().state == "cancelled"


def test_a_job_that_cannot_be_trained_raises_its_own_error(client):
    raw = small_jobs.raw(TOY)
    raw["data"]["bank"]["label"] = "no such column"
    job = client.submit(raw)
    with pytest.raises(PolicyError, match="the label 'no such column'") as ended:
        job.wait(progress=False)
    assert ended.value.where["party"] == "bank"
    assert job.status().reason is not None


def test_a_job_that_nobody_knows_is_refused(client):
    with pytest.raises(JobError, match="no such job"):
        client.job("nobody")


def test_a_closed_client_refuses_and_the_last_one_ends_the_thread(town, finished):
    before = BACKGROUND._holders
    client = town.client()
    assert BACKGROUND._holders == before + 1
    job = client.job(client.jobs()[0].id)
    client.close()
    client.close()
    for call in (client.jobs, job.status, lambda: list(job.watch())):
        with pytest.raises(ProtocolError, match="is closed"):
            call()
    assert "cannot be shown" in job._repr_html_()
    assert BACKGROUND._holders == before


def test_a_client_that_is_forgotten_is_closed(town):
    before = BACKGROUND._holders
    town.client()
    gc.collect()
    assert BACKGROUND._holders == before


def test_a_connection_that_is_collected_while_another_begins_holds_nobody_up(monkeypatch):
    from fedboost.sdk import background

    own = background.Background()
    monkeypatch.setattr(background, "BACKGROUND", own)
    closed: list[str] = []

    class Link:
        async def close(self):
            closed.append("closed")

    async def answered():
        return "answered"

    begin = asyncio.run_coroutine_threadsafe

    def collecting(work, loop):
        gc.collect()
        return begin(work, loop)

    kept, forgotten = background.Connected(Link()), background.Connected(Link())
    forgotten.itself = forgotten  # type: ignore[attr-defined] # only the collector ends a circle
    del forgotten
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", collecting)
    said: list[str] = []
    caller = threading.Thread(target=lambda: said.append(kept.run(answered())), daemon=True)
    caller.start()
    caller.join(5.0)
    assert (said, closed) == (["answered"], ["closed"])
    kept.close()


def test_no_thread_is_left_when_nobody_holds_the_loop():
    from fedboost.sdk.background import Background

    own = Background()
    own.hold_loop()
    own.hold_loop()

    async def named():
        return threading.current_thread()

    thread = own.run(named())
    own.let_go()
    assert thread.is_alive()
    own.let_go()
    assert not thread.is_alive()
    with pytest.raises(ProtocolError, match="is closed"):
        own.run(named())


# The owner


def test_an_owner_sees_the_jobs_and_models_of_the_own_party(town, finished):
    with town.party("telco") as telco:
        job = next(one for one in telco.jobs() if one.id == finished.id)
        assert (job.state, job.submitter, job.dataset) == ("finished", "user", "data")
        model = next(one for one in telco.models() if one.id == finished.id)
    assert (model.protocol, model.trees, model.whole, model.role) == (TOY, 3, True, "host")
    assert model.metrics == finished.result()["metrics"]


def test_a_fetched_model_predicts_as_its_training_did(town, finished, tmp_path):
    with town.party("bank") as bank:
        path = bank.fetch_model(finished.id, tmp_path)
        again = bank.fetch_model(finished.id, tmp_path)
    assert path == again == tmp_path / finished.id
    model = load_model(path)
    assert model.is_whole
    rows = small_jobs.tables(TOY)["bank"]
    pandas = pytest.importorskip("pandas")
    named = model.predict(rows)
    assert named.shape == (rows.num_rows,)
    assert named.dtype == np.float64
    np.testing.assert_array_equal(model.predict(rows.to_pandas()), named)
    numbers = rows.select(list(model.columns)).to_pandas()
    assert isinstance(numbers, pandas.DataFrame)
    np.testing.assert_array_equal(model.predict(numbers.to_numpy()), named)
    y = np.array(rows["y"].to_pylist())
    assert named[y == 1].mean() > named[y == 0].mean()
    assert model.importance()[0].column in model.columns
    assert model.tree_lines()[0] == "tree 0"


def test_rows_that_do_not_fit_a_model_are_refused(town, finished, tmp_path):
    with town.party("bank") as bank:
        model = load_model(bank.fetch_model(finished.id, tmp_path))
    with pytest.raises(DataError, match="the rows have 2 columns, the model 4"):
        model.predict(np.zeros((3, 2)))
    rows = small_jobs.tables(TOY)["bank"].drop_columns(["x1"])
    with pytest.raises(DataError, match="x1"):
        model.predict(rows)


def test_a_folder_that_is_no_model_is_not_written_over(town, finished, tmp_path):
    kept = tmp_path / finished.id / "thesis.tex"
    kept.parent.mkdir()
    kept.write_text("years of work")
    with town.party("bank") as bank, pytest.raises(ConfigError, match="no model in it"):
        bank.fetch_model(finished.id, tmp_path)
    assert kept.read_text() == "years of work"


def test_where_there_is_no_model_it_says_so(town, tmp_path):
    with town.party("bank") as bank:
        with pytest.raises(ConfigError, match="no model credit-0 here"):
            bank.fetch_model("credit-0", tmp_path)
        with pytest.raises(ConfigError, match="not a model's id"):
            bank.fetch_model("../../etc", tmp_path)
    with pytest.raises(ConfigError, match="no model"):
        load_model(tmp_path)


def test_an_address_says_which_party_it_is(town, tmp_path):
    from fedboost.sdk import PartyClient

    with pytest.raises(ConfigError, match="which party listens") as asked:
        PartyClient("127.0.0.1:7101", tls=town.certs)
    assert asked.value.todo == "write NAME@127.0.0.1:7101, or the party's settings file"


def test_the_ledger_says_who_took_a_model_along_and_stays_whole(town, finished, tmp_path):
    bank = town.cluster.parties["bank"]
    with town.party("bank") as own:
        before = bank.ledger.head().n
        own.fetch_model(finished.id, tmp_path)
    (row,) = bank.ledger.rows(finished.id, first=before + 1)
    assert row.sentence.startswith("Sent to user user (")
    assert bank.ledger.verify() == bank.ledger.head()


def test_who_is_no_approver_gets_no_model(town, finished):
    bank = town.cluster.parties["bank"]
    before = bank.ledger.head()
    mallory = Peer("user", "mallory", fingerprint="", serial=0)

    async def taken():
        return [part async for part in bank.fetch_model(mallory, ModelId(id=finished.id))]

    with pytest.raises(PolicyError, match="approvals by the user mallory"):
        BACKGROUND.run(taken())
    with pytest.raises(PolicyError, match="approvals by the user mallory"):
        BACKGROUND.run(bank.models(mallory, ListRequest()))
    assert bank.ledger.head() == before


def test_a_model_taken_along_is_no_matter_between_the_parties(town, finished, tmp_path):
    bank = town.cluster.parties["bank"]
    with town.party("bank") as own:
        own.fetch_model(finished.id, tmp_path)
    assert comparison.contradicted_rows(bank.ledger, "bank", finished.id) == []
    journal = BACKGROUND.run(AsyncJob(finished._job._link, finished.id).journal())
    assert "user user" in render_page(journal, bank.ledger.rows(finished.id))
