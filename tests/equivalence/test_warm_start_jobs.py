"""Whole jobs that continue a model: what they leave, what they cost a policy, what is refused."""

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from fedboost import protocols
from fedboost.core import objectives
from fedboost.ground.errors import (
    ConfigError,
    DataError,
    PolicyError,
    ProtocolError,
)
from fedboost.ground.workers import Serial
from fedboost.model import shards, vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols.predict import guest as predicting
from fedboost.protocols.secureboost import guest as training
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.coordinator import walker
from fedboost.runtime.transport import faults
from tests.equivalence.test_secureboost_whole_jobs import MARGIN_GAP_MAX, arrow_tables, spec_of
from tests.support.accounts import predict
from tests.support.federated import GUEST, HOSTS, job_spec, now, run_jobs
from tests.support.secureboost_jobs import CLASSES, SAMPLES, made
from tests.support.whole_jobs import breaking, resumed, written

PARTIES = (GUEST, *HOSTS[:2])
FIRST, MORE, ROWS = 2, 3, 90


def job_of(**params):
    return made({"max_depth": 2, **params}, (2, 2, 2), ROWS, weighted=True)


def spec(job, **params):
    """The job's spec under further settings."""
    return spec_of(replace(job, params={**job.params, **params}))


def behind(job, **params):
    """A function from a finished job to the spec of one that continues its model."""
    more = {"n_estimators": MORE, **params}
    return lambda done: spec(job, **more, warm_start=done.result["model"])


def scoring(done):
    return job_spec("predict", PARTIES, params={"model": done.result["model"]})


def scores(done):
    """The ids of a finished prediction, and its float64 (n, outputs)."""
    names = [name for name in done.predictions.column_names if name != "id"]
    columns = [done.predictions[name].to_numpy() for name in names]
    return done.predictions["id"].to_numpy(), np.column_stack(columns)


def assert_same_model(found, expected):
    for party, shard in expected.items():
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes(), (party, name)


@pytest.mark.parametrize("params", [SAMPLES["both"], CLASSES], ids=["samples", "classes"])
def test_a_continued_model_is_whole_and_predicts_and_exports_as_one(tmp_path, params):
    job = job_of(**params)
    specs = [spec(job, n_estimators=FIRST), behind(job), scoring]
    first, second, scored = now(run_jobs(tmp_path / "two", arrow_tables(job), specs))
    one = [spec(job, n_estimators=FIRST + MORE), scoring]
    whole, at_once = now(run_jobs(tmp_path / "one", arrow_tables(job), one))
    for done in (first, second, scored, whole, at_once):
        assert done.state == "finished", done.error.lines()
    assert_same_model(second.shards, whole.shards)
    assert second.predictions is None  # its scores were its first margins, and stay inside
    assert all(map(np.array_equal, scores(scored), scores(at_once)))
    assert first.result["model"] != second.result["model"] == second.result["job"]

    xgb = pytest.importorskip("xgboost")
    model = vertical.join_shards(second.shards[GUEST], {h: second.shards[h] for h in PARTIES[1:]})
    booster = xgb.Booster(model_file=bytearray(xgboost_json(model).encode()))
    assert booster.num_boosted_rounds() == FIRST + MORE
    ids, ours = scores(scored)
    cells = [job.columns[party][ids, int(name[1:])] for party, name in model.columns]
    rows = xgb.DMatrix(np.column_stack(cells), feature_names=feature_names(model))
    np.testing.assert_allclose(
        booster.predict(rows).reshape(ours.shape), ours, rtol=0, atol=MARGIN_GAP_MAX
    )


def test_a_result_counts_the_whole_model_and_tells_the_stages(tmp_path):
    job = job_of(**CLASSES)
    specs = [spec(job, n_estimators=FIRST), behind(job)]
    first, second = now(run_jobs(tmp_path / "job", arrow_tables(job), specs))
    assert "earlier_rounds" not in first.result
    assert second.result["trees"] == 3 * (FIRST + MORE)
    assert (second.result["rounds"], second.result["earlier_rounds"]) == (FIRST + MORE, FIRST)
    assert second.result["rows"]["predicted"] == second.result["rows"]["aligned"] == ROWS
    assert list(second.result["seconds"])[1:4] == ["align", "predict", "train"]
    stages = [e.stage.stage for e in second.journal.events if e.WhichOneof("what") == "stage"]
    assert stages == ["align", "predict", "secureboost"]
    rounds = [e.round for e in second.journal.events if e.WhichOneof("what") == "round"]
    trained = [r.progress for r in rounds if r.stage == "secureboost"]
    assert [(p.done, p.of) for p in trained] == [(n, MORE) for n in range(1, MORE + 1)]


def test_margins_may_be_wanted_instead_of_predictions(tmp_path):
    job = job_of()
    trained: list[str] = []

    def wanting(**params):
        return job_spec("predict", PARTIES, params={"model": trained[0], **params})

    def noted(done):
        trained.append(done.result["model"])
        return wanting(output_margin=True)

    specs = [spec(job), noted, lambda _: wanting()]
    _, raw, scored = now(run_jobs(tmp_path / "job", arrow_tables(job), specs))
    margin = scores(raw)[1]
    expected = objectives.transform("binary:logistic", margin)
    assert np.array_equal(scores(scored)[1], expected)
    assert not np.array_equal(margin, expected)


# What it costs a host's policy, and breaks


class Place:
    """A folder with the stores of a finished training; more jobs may run on them."""

    def __init__(self, folder, job):
        self.folder, self.job, self.tables = folder, job, arrow_tables(job)
        (done,) = now(run_jobs(folder, self.tables, [spec(job, n_estimators=FIRST)]))
        self.model = done.result["model"]

    def continued(self, **params):
        """The spec of a job that continues the model."""
        said = {"n_estimators": MORE, "warm_start": self.model, **params}
        return spec(self.job, **said)

    def cluster(self, wanted, tables=None):
        """A cluster on the stores, for the spec, with the training's tables or others."""
        sources = written(self.folder / "now", {**self.tables, **(tables or {})})
        return open_cluster(self.folder / "cluster", wanted, sources, Serial())

    def run(self, wanted, tables=None, change=lambda parties: None):
        """The job's journal, and the rows that telco counted for it; raises what ended it."""

        async def work():
            async with self.cluster(wanted, tables) as made_of:
                change(made_of.parties)
                used = counted(made_of)
                journal = await made_of.run(wanted)
                return journal, counted(made_of) - used

        journal, rows = asyncio.run(work())
        if journal.status.state != "finished":
            raise faults.error_of_fault(journal.status.reason)
        return journal, rows


def counted(made_of):
    """The rows that telco has let the guest score today."""
    return predict(made_of.parties[HOSTS[0]].store, GUEST, 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place") / "first", job_of())


def allowing(**rules):
    """Gives telco other rules on predictions."""

    def change(parties):
        node = parties[HOSTS[0]]
        policy = node.config.policy.model_copy(update={"predict": PredictPolicy(**rules)})
        node.config = node.config.model_copy(update={"policy": policy})
        node.judge.config = node.config

    return change


def test_a_host_that_does_not_predict_for_the_guest_lets_it_continue_nothing(place):
    with pytest.raises(PolicyError) as refused:
        place.run(place.continued(), change=allowing(rows_per_day=1 << 30))
    assert refused.value.where == {"key": "policy.predict.peers", "party": HOSTS[0]}


def test_the_rows_of_a_continued_training_count_as_predicted(place):
    _, rows = place.run(place.continued())
    assert rows == ROWS
    with pytest.raises(PolicyError) as refused:
        place.run(place.continued(), change=allowing(peers=(GUEST,), rows_per_day=ROWS - 1))
    assert refused.value.where["key"] == "policy.predict.rows_per_day"


BREAKS = {
    "before the rows are scored": (predicting, "ask_hosts", 1),
    "once they are": (training, "share_key", 1),
    "amid the new rounds": (training, "close_trees", 2),
}


@pytest.mark.parametrize(("module", "step", "times"), BREAKS.values(), ids=BREAKS)
def test_a_break_loses_nothing_and_counts_the_rows_once(place, monkeypatch, module, step, times):
    wanted = place.continued()
    expected, _ = place.run(wanted)
    breaking(monkeypatch, module, step, times)

    async def work():
        async with place.cluster(wanted) as made_of:
            used = counted(made_of)
            return await resumed(made_of, wanted), counted(made_of) - used

    journal, rows = asyncio.run(work())
    assert journal.status.state == "finished"
    assert rows == ROWS
    for party in PARTIES:
        models = place.folder / "cluster" / "var" / party / "models"
        found, other = (shards.load_shard(models / j.status.id) for j in (journal, expected))
        for name, array in other.arrays.items():
            assert found.arrays[name].tobytes() == array.tobytes()


# What is refused, before anything leaves


def refused(place, kind, wanted, **how):
    """The refusal of a job of which no party has sent a message."""
    sent: list[int] = []

    def noting(parties):
        sent.extend(len(node.ledger.rows()) for node in parties.values())

    with pytest.raises(kind) as ended:
        place.run(wanted, change=noting, **how)

    async def after():
        async with place.cluster(place.continued()) as made_of:
            return [len(node.ledger.rows()) for node in made_of.parties.values()]

    assert asyncio.run(after()) == sent
    return ended.value


def test_a_model_that_is_not_there_is_refused(place):
    error = refused(place, ConfigError, place.continued(warm_start="none-1"))
    assert "there is no model none-1 here" in error.what
    assert error.todo


def test_hosts_in_another_order_are_refused(place):
    wanted = place.continued()
    parties = wanted.parties.model_copy(update={"hosts": [HOSTS[1], HOSTS[0]]})
    error = refused(place, ConfigError, wanted.model_copy(update={"parties": parties}))
    assert f"hosts {HOSTS[0]}, {HOSTS[1]}" in error.what
    assert error.todo


def test_another_objective_is_refused_by_the_guest(place):
    error = refused(place, ConfigError, place.continued(objective="reg:squarederror"))
    assert "objective is reg:squarederror" in error.what
    assert error.where["party"] == GUEST
    assert error.where["model"] == place.model


@pytest.mark.parametrize("party", [GUEST, HOSTS[1]])
def test_a_table_that_lacks_a_column_of_the_model_is_refused(place, party):
    lacking = place.tables[party].drop_columns(["c1"])
    error = refused(place, DataError, place.continued(), tables={party: lacking})
    assert error.where["party"] == party
    assert error.where["column"] == "c1"
    assert error.todo


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("secureboost", "the stage secureboost needs align first"),
        ("predict", "the job has no stage 'predict'"),
        ("echo", "the job has no stage 'echo'"),
    ],
)
def test_a_coordinator_that_opens_a_stage_out_of_turn_is_refused(place, monkeypatch, stage, says):
    opened = walker._walk_stage

    async def straying(walk, _, first_round):
        await opened(walk, protocols.load_protocol(stage), first_round)

    monkeypatch.setattr(walker, "_walk_stage", straying)
    with pytest.raises(ProtocolError, match=says):
        place.run(spec(place.job))


def test_a_training_behind_a_model_waits_for_the_scores(place, monkeypatch):
    opened = walker._walk_stage

    async def skipping(walk, protocol, first_round):
        if protocol.name != "predict":
            await opened(walk, protocol, first_round)

    monkeypatch.setattr(walker, "_walk_stage", skipping)
    with pytest.raises(ProtocolError, match="the stage secureboost needs predict first"):
        place.run(place.continued())


def test_a_table_with_new_rows_and_columns_is_fine(place):
    draw = np.random.default_rng(9)
    tables = {}
    for party, table in place.tables.items():
        more = table.slice(0, 30).set_column(0, "id", pa.array(np.arange(30) + 1000))
        whole = pa.concat_tables([more, table])
        tables[party] = whole.add_column(1, "extra", pa.array(draw.normal(size=len(whole))))
    journal, rows = place.run(place.continued(), tables)
    assert rows == ROWS + 30
    found = shards.load_shard(
        place.folder / "cluster" / "var" / GUEST / "models" / journal.status.id
    )
    assert found.facts["columns"] == ["extra", "c0", "c1"]
    assert found.facts["trees"] == FIRST + MORE
