"""Whole jobs of horizontal FederBoost: what they leave and predict, breaks, cuts used again."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.core import objectives
from fedboost.data.sources import SourceSpec
from fedboost.flow import DISCLOSURE, Role
from fedboost.ground.errors import ConfigError, DataError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.model import shards, whole
from fedboost.model.xgboost_json import feature_names
from fedboost.protocols.federboost_horizontal import party as training
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.addresses import Timers
from tests.equivalence.test_federboost_horizontal import MODES
from tests.equivalence.test_federboost_whole_jobs import finished
from tests.equivalence.test_secureboost_whole_jobs import MARGIN_GAP_MAX
from tests.support.federated import GUEST, HOSTS, now, run_job, run_jobs
from tests.support.horizontal_jobs import (
    AGGREGATOR,
    again_of,
    arrow_tables,
    assert_pooled,
    assert_same_trees,
    made,
    pooled,
    spec_of,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES
from tests.support.whole_jobs import resumed, written

TELCO, SHOP = HOSTS[:2]
OWN = ("party", "role", "created", "sha256")  # of a shard's facts: what parties do not share


def assert_same_files(folder, job, parties):
    """The shards of all parties are the same bytes, but for who has them."""
    found = {}
    for party in parties:
        own = folder / "cluster" / "var" / party / "models" / job
        files = {file.name: file.read_bytes() for file in own.iterdir()}
        facts = json.loads(files.pop(shards.FACTS))
        assert facts["party"] == party
        found[party] = files, {k: v for k, v in facts.items() if k not in OWN}
    assert all(one == found[GUEST] for one in found.values())


def model_of(shard):
    """What a shard says of the model itself: all but whose and when."""
    ours = ("kind", "objective", "base_margin", "columns", "categories", "forest", "history")
    arrays = {name: array.tobytes() for name, array in shard.arrays.items()}
    return repr({name: shard.facts[name] for name in ours}), arrays


# What a job leaves


@pytest.mark.parametrize("aggregator", [AGGREGATOR, GUEST, TELCO])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_every_party_is_left_with_the_pooled_model(tmp_path, mode, aggregator):
    params = {**SAMPLES["both"], **mode, "n_estimators": 2}
    job = made(params, categories=4, steps=True, weighted=True)
    (done,) = finished([run_job(tmp_path / "job", arrow_tables(job), spec_of(job, aggregator))])
    expected = assert_pooled(job)
    assert set(done.shards) == set(job.parties)
    for party in job.parties:
        assert_same_trees(done.shards[party], expected.trained.rounds)
        assert done.shards[party].facts["role"] == ("guest" if party == GUEST else "host")
        assert done.shards[party].facts["history"] == expected.history
    assert_same_files(tmp_path / "job", done.result["model"], job.parties)
    assert done.result["rows"] == {"train": 180, "validation": 60}
    assert done.result["trees"] == 2
    assert done.result["metrics"] == expected.history[-1]


def test_the_result_is_that_of_the_best_round(tmp_path):
    stop = {"n_estimators": 20, "early_stopping_rounds": 2, "learning_rate": 1.0}
    job = made({**stop, **CLASSES}, held=0.4)
    (done,) = finished([run_job(tmp_path / "job", arrow_tables(job), spec_of(job))])
    expected = assert_pooled(job)
    assert done.result["rounds"] == expected.best + 1 < 17
    assert done.result["trees"] == 3 * (expected.best + 1)
    assert done.result["metrics"] == expected.history[expected.best]
    assert_same_files(tmp_path / "job", done.result["model"], job.parties)


def svmlight(job, party):
    """The party's rows as lines of a sparse file, whose columns are f1, f2, …"""
    span, lines = job.spans[party], []
    for label, row in zip(job.y[span].tolist(), job.values[span].tolist(), strict=True):
        cells = [f"{i}:{cell!r}" for i, cell in enumerate(row, 1) if cell != 0]
        lines.append(" ".join([f"{label:g}", *cells]))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_svmlight_files_come_to_the_model_of_one_sparse_table(tmp_path, mode):
    job = made({**mode, "n_estimators": 2}, missing=0.0, zero=0.7, sparse=True, held=None)
    spec, sources = spec_of(job), {}
    columns = [f"f{number}" for number in range(1, 5)]
    named = {p: data.model_copy(update={"columns": columns}) for p, data in spec.data.items()}
    for party in job.parties:
        file = tmp_path / f"{party}.svmlight"
        file.write_text(svmlight(job, party))
        sources[party] = SourceSpec(path=str(file))

    async def work():
        async with open_cluster(tmp_path / "cluster", spec, sources, Serial()) as made_of:
            return await made_of.run(spec.model_copy(update={"data": named}))

    journal = asyncio.run(work())
    assert journal.status.state == "finished", faults.error_of_fault(journal.status.reason).lines()
    assert_same_files(tmp_path, journal.status.id, job.parties)
    found = shards.load_shard(tmp_path / "cluster" / "var" / TELCO / "models" / journal.status.id)
    assert_same_trees(found, assert_pooled(job).trained.rounds)


# What the model is good for


KINDS: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "forest": {"forest": {"n_trees": 3, "subsample": 0.6}},
    "amounts": {"objective": "reg:tweedie"},
}


def command(*words):
    """What `fedboost model` returns; what it raises is raised."""
    found = CliRunner().invoke(
        model_group, [str(word) for word in words], catch_exceptions=False, standalone_mode=False
    )
    assert not found.return_value, found.output


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_hosts_store_is_enough_to_predict_and_to_export(tmp_path, kind):
    job = made({"n_estimators": 3, **kind}, weighted=True)
    (done,) = finished([run_job(tmp_path / "job", arrow_tables(job), spec_of(job))])
    pq.write_table(pa.concat_tables(arrow_tables(job).values()), tmp_path / "all.parquet")
    model, folder = done.result["model"], tmp_path / "job" / "cluster"
    for party in (GUEST, TELCO):
        for other in job.parties:
            lost = folder / "var" / other / "models" / model
            if other != party and lost.exists():
                lost.rename(tmp_path / f"{party} without {other}")
        out, text = tmp_path / f"{party}.parquet", tmp_path / f"{party}.json"
        rows = f"{party}={tmp_path / 'all.parquet'}"
        command("predict", model, "--cluster", folder, "--data", rows, "--out", out)
        command("export", model, "--cluster", folder, "--out", text)
        for other in job.parties:
            if (lost := tmp_path / f"{party} without {other}").exists():
                lost.rename(folder / "var" / other / "models" / model)
    trained = pooled(job, room_state(job))
    scored = pq.read_table(tmp_path / f"{TELCO}.parquet")
    ours = np.column_stack([c.to_numpy() for c in scored.columns[1:]])
    margins = trained.margins(job.dealt(np.ones(len(job.y), np.bool_)))
    assert scored["id"].to_pylist() == list(range(len(job.y)))
    assert ours.tobytes() == objectives.transform(job.own.objective, margins).tobytes()
    assert scored == pq.read_table(tmp_path / f"{GUEST}.parquet")
    assert (tmp_path / f"{TELCO}.json").read_text() == (tmp_path / f"{GUEST}.json").read_text()

    xgb = pytest.importorskip("xgboost")
    booster = xgb.Booster(model_file=tmp_path / f"{TELCO}.json")
    names = feature_names(whole.as_joined(done.shards[TELCO]))
    theirs = booster.predict(xgb.DMatrix(job.values, feature_names=names), output_margin=True)
    np.testing.assert_allclose(theirs.reshape(margins.shape), margins, rtol=0, atol=MARGIN_GAP_MAX)


def room_state(job):
    """What a party knows at the end of the job."""
    room = job.room()
    now(room.walk())
    return room.state(GUEST)


# Breaks


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("step", ["narrow", "split_nodes", "read_metrics", "close_model"])
def test_a_break_loses_nothing(tmp_path, monkeypatch, step, mode):
    params = {**SAMPLES["both"], **mode, "n_estimators": 4}
    job = made(params, categories=4, weighted=True)
    expected = assert_pooled(job)
    done, left = getattr(training, step), [{"split_nodes": 8, "read_metrics": 3}.get(step, 1)]

    def failing(state, *got):
        if state.is_guest:
            left[0] -= 1
            if left[0] == 0:
                raise UnreachableError("the guest's memory is gone", party=GUEST)
        return done(state, *got)

    monkeypatch.setattr(training, step, failing)
    spec = spec_of(job, AGGREGATOR)
    sources = written(tmp_path, arrow_tables(job))

    async def work():
        async with open_cluster(
            tmp_path / "cluster", spec, sources, Serial(), timers=Timers(keep_s=0)
        ) as made_of:
            journal = await resumed(made_of, spec)
            rows = made_of.parties[TELCO].ledger.rows(journal.status.id)
            return journal, rows

    journal, rows = asyncio.run(work())
    assert journal.status.state == "finished", faults.error_of_fault(journal.status.reason).lines()
    assert_same_files(tmp_path, journal.status.id, job.parties)
    found = shards.load_shard(tmp_path / "cluster" / "var" / TELCO / "models" / journal.status.id)
    assert_same_trees(found, expected.trained.rounds)
    assert found.facts["history"] == expected.history
    counted = [row for row in rows if row.step == "count_rows" and row.direction == "out"]
    assert len(counted) == (2 if step == "narrow" else 1)  # behind a tree nobody counts again


# Cut points used again


class Place:
    """A folder with the stores of a finished training; more jobs may run on them."""

    def __init__(self, folder):
        self.folder = folder
        self.how: dict[str, Any] = {"categories": 4, "steps": True, "weighted": True}
        self.job = made({"n_estimators": 2}, **self.how)
        self.twin = now(self.job.room().walk())
        spec = spec_of(self.job, AGGREGATOR)
        (self.done,) = finished(now(run_jobs(folder, arrow_tables(self.job), [spec])))
        self.told = self.done.result["job"]

    def run(self, wanted, tables=None):
        """The models of a job, by party; raises what ended it. `rows` are its ledgers'."""
        sources, given = {}, {**arrow_tables(self.job), **(tables or {})}
        for party in wanted.parties.table().of((Role.GUEST, Role.HOST)):
            path = self.folder / f"now-{party}.parquet"
            pq.write_table(given[party], path)
            sources[party] = SourceSpec(path=str(path))

        async def work():
            async with open_cluster(self.folder / "cluster", wanted, sources, Serial()) as made_of:
                journal = await made_of.run(wanted)
                own = {p: n.ledger.rows(journal.status.id) for p, n in made_of.parties.items()}
                return journal, own

        self.journal, ledgers = asyncio.run(work())
        self.rows = [row for own in ledgers.values() for row in own]
        if self.journal.status.state != "finished":
            raise faults.error_of_fault(self.journal.status.reason)
        models = self.folder / "cluster" / "var"
        own = self.journal.status.id
        return {p: shards.load_shard(models / p / "models" / own) for p in self.job.parties}

    def again(self, aggregator=AGGREGATOR, **params):
        """The spec of a job on the cut points."""
        return again_of(self.job, self.told, aggregator, **params)

    @property
    def sent(self):
        """What left anybody."""
        return [row for row in self.rows if row.direction == "out"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place") / "first")


MORE: dict[str, Any] = {"n_estimators": 4, "max_depth": 4, "learning_rate": 0.5, "seed": 9}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    "params",
    [MORE, {"objective": "reg:squarederror", **SAMPLES["both"]}, {"eval_metric": "ks"}],
    ids=["deeper", "numbers", "ks"],
)
def test_another_job_on_the_cut_points_searches_for_none(place, params, mode):
    found = place.run(place.again(**params, **mode))
    steps = {row.step for row in place.rows}
    assert "sum_histograms" in steps
    assert steps.isdisjoint({"count_below", "narrow"})
    fresh = replace(place.job, params={**place.job.params, **params})
    expected = assert_pooled(fresh)
    for shard in found.values():
        assert model_of(shard) == model_of(expected.shards[GUEST])


def test_rows_may_be_others_where_cut_points_are_used_again(place):
    other = made({**MORE, "quantile_tolerance": 0}, (50, 90, 40), 4, 5, **place.how)
    found = place.run(place.again(**MORE), arrow_tables(other))
    kept = {party: {DISCLOSURE: shard.disclosure} for party, shard in place.twin.items()}
    again = replace(other, params={**MORE, "reuse": "job-1"})
    expected = assert_pooled(again, again.room(artefacts=kept))
    for shard in found.values():
        assert model_of(shard) == model_of(expected.shards[GUEST])


def test_the_guests_columns_may_stand_in_another_order_by_then(place):
    table = arrow_tables(place.job)[GUEST]
    moved = table.select(["c3", "w", "c2", "id", "c0", "y", "c1"])
    found = place.run(place.again(**MORE), {GUEST: moved})
    expected = place.run(place.again(**MORE))
    assert {repr(model_of(shard)) for shard in found.values()} == {repr(model_of(expected[GUEST]))}


def test_a_job_that_used_cut_points_again_leaves_none_itself(place):
    model = place.run(place.again())
    with pytest.raises(ConfigError, match="no disclosure of"):
        place.run(again_of(place.job, model[GUEST].facts["job"], AGGREGATOR))
    assert place.sent == []


@pytest.mark.parametrize("hosts", [(SHOP, TELCO), (TELCO, "mill")], ids=str)
def test_other_parties_cannot_use_them_again(place, hosts):
    spec = place.again()
    data = {party: spec.data[GUEST] for party in (GUEST, *hosts)}
    table = spec.parties.model_copy(update={"hosts": list(hosts)})
    wanted = spec.model_copy(update={"parties": table, "data": data})
    with pytest.raises(ConfigError, match=r"was federboost-horizontal of|is kept here"):
        place.run(wanted, {"mill": arrow_tables(place.job)[SHOP]})
    assert place.sent == []


@pytest.mark.parametrize("party", [GUEST, TELCO])
@pytest.mark.parametrize("change", ["more", "less"])
def test_other_columns_are_refused_where_cut_points_are_used_again(place, party, change):
    table = arrow_tables(place.job)[party]
    given = table.append_column("c9", table["c1"]) if change == "more" else table.drop(["c1"])
    with pytest.raises(ConfigError, match="columns differ from the columns of") as refused:
        place.run(place.again(), {party: given})
    assert refused.value.where["column"] == ("c9" if change == "more" else "c1")
    assert refused.value.where["party"] == party
    assert place.sent == []


def test_a_column_of_another_kind_is_refused_where_cut_points_are_used_again(place):
    spec = place.again()
    plain = {
        party: data.model_copy(update={"categorical": []}) for party, data in spec.data.items()
    }
    table = arrow_tables(place.job)[GUEST]
    numbers = table.set_column(table.column_names.index("c3"), "c3", table["c1"])
    with pytest.raises(ConfigError, match="categories in one of both jobs only"):
        place.run(
            spec.model_copy(update={"data": plain}), dict.fromkeys(place.job.parties, numbers)
        )
    assert place.sent == []


@pytest.mark.parametrize(
    "said", [{"max_bin": 8}, {"quantile_tolerance": 0}, {"domains": {"c0": [1.0]}}], ids=str
)
def test_what_the_earlier_job_settled_cannot_be_said_again(said):
    parse_settings(FederBoostHorizontalParams, {"reuse": "job-1"})
    with pytest.raises(ConfigError, match=f"{next(iter(said))} was settled by the job in reuse"):
        parse_settings(FederBoostHorizontalParams, {"reuse": "job-1", **said})


# Refused by a whole job before anything has left


def test_a_table_that_cannot_be_learned_from_stops_the_job_before_anything_has_left(place):
    table = arrow_tables(place.job)[TELCO]
    strange = table.set_column(table.column_names.index("c0"), "c0", table["c1"])
    with pytest.raises(DataError, match="values are not in the column's domain") as refused:
        place.run(spec_of(place.job, AGGREGATOR), {TELCO: strange})
    assert refused.value.where["party"] == TELCO
    assert refused.value.where["column"] == "c0"
    assert place.rows == []
