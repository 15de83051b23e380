"""Do predictions come out as the training had them, and as XGBoost has them from an export?"""

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fedboost.core import objectives
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground import mapped
from fedboost.ground.errors import ConfigError, DataError, PolicyError
from fedboost.ground.workers import Serial
from fedboost.model import vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from fedboost.protocols.predict import guest as predicting
from fedboost.protocols.secureboost import guest as training
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.transport import faults
from tests.support.accounts import predict
from tests.support.federated import PLAIN, job_spec, run_job
from tests.support.models import leaves, margins
from tests.support.whole_jobs import breaking, resumed

NAMES = ("bank", "telco", "shop")
VALIDATION = {"fraction": 0.3, "seed": 7}
PREDICTION_GAP_MAX = 1e-6  # XGBoost's leaves and sums are 32-bit floats


def dealt(table, names=NAMES):
    """The pooled table's columns in turn to the parties; the label to the first."""
    columns = [name for name in table.column_names if name not in ("id", "y")]
    groups = {name: columns[k :: len(names)] for k, name in enumerate(names)}
    label = {names[0]: ["y"]}
    return {name: table.select(["id", *label.get(name, []), *groups[name]]) for name in names}


def with_holes(table, seed, share=0.1):
    """The table in random order, a share of its features missing."""
    rng = np.random.default_rng(seed)
    table = table.take(rng.permutation(table.num_rows))
    for place, name in enumerate(table.column_names):
        if name not in ("id", "y"):
            hole = pa.array(rng.random(table.num_rows) < share)
            column = pc.if_else(hole, None, pc.cast(table[name], pa.float64()))
            table = table.set_column(place, name, column)
    return table


def pooled(tables, ids, model):
    """The rows of `ids` over all parties' columns in the model's order; float32 (n, columns)."""
    columns = []
    for party, name in model.columns:
        place = {i: k for k, i in enumerate(tables[party]["id"].to_pylist())}
        cells = pc.cast(tables[party][name], pa.float64()).to_numpy(zero_copy_only=False)
        columns.append(cells[[place[i] for i in ids]].astype(np.float32))
    return np.column_stack(columns)


def score(folder, tables, model, *, names=NAMES, node=None, **params):
    """Runs a prediction on the stores of a training in `folder`; `node` may change the parties."""
    spec = job_spec("predict", names, params={"model": model, **params})
    sources = {}
    for party, table in tables.items():
        path = table if isinstance(table, Path) else folder / f"new-{party}.parquet"
        if path is not table:
            pq.write_table(table, path)
        sources[party] = SourceSpec(path=str(path))

    async def work():
        async with open_cluster(folder / "cluster", spec, sources, Serial()) as made:
            if node is not None:
                node(made.parties)
            return await made.run(spec)

    journal = asyncio.run(work())
    written = folder / "cluster" / "var" / names[0] / "predictions"
    file = written / f"{journal.status.id}.parquet"
    if journal.status.state != "finished":
        assert not file.exists()
        raise faults.error_of_fault(journal.status.reason)
    return pq.read_table(file)


class Trained:
    """A training of which the guest's margins were noted when it ended; `data` is the job's."""

    def __init__(self, folder, table, names=NAMES, data=None, **params):
        self.folder, self.tables = folder, dealt(table, names)
        params = {"max_depth": 3, **PLAIN, **params}
        spec = job_spec("secureboost", names, data=data, validation=VALIDATION, params=params)
        with pytest.MonkeyPatch.context() as patch:
            finish = training.finish

            def noting(state):
                self.ids, self.margin = list(state.context.frame.ids), state.margin.copy()
                return finish(state)

            patch.setattr(training, "finish", noting)
            done = run_job(folder, self.tables, spec)
        assert done.state == "finished", done.error.lines()
        self.model, self.shards = done.result["model"], done.shards
        self.whole = vertical.join_shards(
            done.shards[names[0]], {h: done.shards[h] for h in names[1:]}
        )


@pytest.fixture(scope="module")
def breast(data_file):
    return with_holes(pq.read_table(data_file("breast.parquet")), seed=3)


@pytest.fixture(scope="module")
def trained(breast, tmp_path_factory):
    return Trained(tmp_path_factory.mktemp("trained"), breast, n_estimators=6)


@pytest.fixture(scope="module")
def of_few_leaves(breast, tmp_path_factory):
    few = {"max_leaves": 4, "grow_policy": "lossguide", "max_depth": 5}
    return Trained(tmp_path_factory.mktemp("few"), breast, n_estimators=6, **few)


def test_splits_that_max_leaves_displaced_lie_with_their_hosts_and_turn_no_row(of_few_leaves):
    kept = of_few_leaves.shards[NAMES[0]].arrays["owner"] > vertical.GUEST
    held = sum(len(of_few_leaves.shards[host].arrays["tree"]) for host in NAMES[1:])
    assert kept.sum() < held
    test_predictions_are_the_margins_of_the_training_to_the_bit(of_few_leaves)


def test_predictions_are_the_margins_of_the_training_to_the_bit(trained):
    found = score(trained.folder, trained.tables, trained.model)
    at = {row: k for k, row in enumerate(encode_ids([found["id"]], ["id"]))}
    order = [at[row] for row in trained.ids]
    expected = objectives.transform("binary:logistic", trained.margin)[:, 0]
    assert len(found) == len(expected)
    assert np.array_equal(found["prediction"].to_numpy()[order], expected)


def test_predictions_stand_in_the_guests_order_beside_its_ids(trained):
    found = score(trained.folder, trained.tables, trained.model)
    assert found.column_names == ["id", "prediction"]
    assert found["id"].type == trained.tables["bank"]["id"].type == pa.int64()
    assert found["id"].equals(trained.tables["bank"]["id"])
    assert found["id"].to_pylist() != sorted(found["id"].to_pylist())


@pytest.mark.parametrize("batch_rows", [7, 1 << 18])
def test_new_rows_go_where_the_whole_model_sends_them(trained, breast, batch_rows):
    fresh = with_holes(breast, seed=11, share=0.3)
    fresh = fresh.set_column(0, "id", pc.add(fresh["id"], 100_000))
    tables = dealt(fresh.slice(0, 60))
    rng = np.random.default_rng(5)
    tables = {p: t.take(rng.permutation(len(t))) for p, t in tables.items()}
    tables["telco"] = tables["telco"].slice(0, 50)
    tables["shop"] = tables["shop"].slice(3)
    found = score(trained.folder, tables, trained.model, batch_rows=batch_rows)
    shared = set.intersection(*(set(t["id"].to_pylist()) for t in tables.values()))
    ids = found["id"].to_pylist()
    assert set(ids) == shared
    assert 0 < len(ids) < 60
    expected = margins(trained.whole, pooled(tables, ids, trained.whole))
    predicted = objectives.transform("binary:logistic", expected)[:, 0]
    assert np.array_equal(found["prediction"].to_numpy(), predicted)


def test_xgboost_predicts_the_same_from_the_exported_model(trained):
    _check_export(trained, trained.tables)


@pytest.mark.some(1, of="models of real tables")
def test_xgboost_predicts_the_same_on_give_credit(data_file, tmp_path):
    table = pq.read_table(data_file("give_credit.parquet")).slice(0, 6000)
    assert any(table[name].null_count for name in table.column_names)
    done = Trained(tmp_path, table, names=("bank", "telco"), n_estimators=15)
    _check_export(done, done.tables, ("bank", "telco"))


def _check_export(done, tables, names=NAMES):
    xgb = pytest.importorskip("xgboost")
    found = score(done.folder, tables, done.model, names=names)
    ids = found["id"].to_pylist()
    values = pooled(tables, ids, done.whole)
    assert np.isnan(values).any()
    booster = xgb.Booster(model_file=bytearray(xgboost_json(done.whole).encode()))
    rows = xgb.DMatrix(values, feature_names=feature_names(done.whole))
    gap = np.abs(booster.predict(rows) - found["prediction"].to_numpy()).max()
    assert gap <= PREDICTION_GAP_MAX
    some = np.arange(0, len(values), max(1, len(values) // 500))
    reached = booster.predict(rows, pred_leaf=True)[some].astype(np.int64)
    assert np.array_equal(reached, leaves(done.whole, values[some]))


def test_a_model_cut_by_early_stopping_predicts_its_best_round(breast, tmp_path):
    done = Trained(tmp_path, breast, n_estimators=30, early_stopping_rounds=2, learning_rate=1.0)
    bank, telco = done.shards["bank"], done.shards["telco"]
    assert bank.facts["trees"] < len(bank.facts["history"])
    assert telco.arrays["tree"].max() >= bank.facts["trees"]
    _check_export(done, done.tables)


def test_a_guest_without_columns_predicts_too(breast, tmp_path):
    columns = [name for name in breast.column_names if name not in ("id", "y")]
    tables = {"bank": breast.select(["id", "y"]), "telco": breast.select(["id", *columns])}
    spec = job_spec("secureboost", ("bank", "telco"), params={"n_estimators": 2, **PLAIN})
    done = run_job(tmp_path, tables, spec)
    new = {"bank": tables["bank"].select(["id"]), "telco": tables["telco"]}
    found = score(tmp_path, new, done.result["model"], names=("bank", "telco"))
    assert len(found) == len(breast)
    assert len(set(found["prediction"].to_pylist())) > 2


def test_whole_numbers_of_a_csv_come_back_as_integers(trained):
    path = trained.folder / "bank.csv"
    pyarrow.csv.write_csv(trained.tables["bank"], path)
    found = score(trained.folder, {**trained.tables, "bank": path}, trained.model)
    assert found["id"].equals(trained.tables["bank"]["id"])


def test_a_text_id_comes_back_as_it_was_written(trained):
    def renamed(table):
        ids = [f" Row {i:05d}" for i in table["id"].to_pylist()]
        return table.set_column(0, "id", pa.array(ids))

    tables = {party: renamed(table) for party, table in trained.tables.items()}
    found = score(trained.folder, tables, trained.model)
    assert found["id"].to_pylist() == tables["bank"]["id"].to_pylist()


def test_a_paused_prediction_goes_on_behind_its_last_batch_and_counts_its_rows_once(
    trained, monkeypatch
):
    expected = score(trained.folder, trained.tables, trained.model)
    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 64)  # ids and margins in files
    monkeypatch.setattr("fedboost.ground.mapped.FILE_BYTES_MIN", 1)
    monkeypatch.setattr("fedboost.ground.ids.IDS_AT_ONCE", 64)
    used: list[int] = []
    closed = breaking(monkeypatch, predicting, "close_batch", 3, lambda state: state.first)
    spec = job_spec("predict", NAMES, params={"model": trained.model, "batch_rows": 200})
    sources = {p: SourceSpec(path=str(trained.folder / f"{p}.parquet")) for p in NAMES}

    async def work():
        async with open_cluster(trained.folder / "cluster", spec, sources, Serial()) as made:
            host = made.parties["telco"].store
            used.append(predict(host, "bank", 0))
            journal = await resumed(made, spec)
            used.append(predict(host, "bank", 0))
            return journal

    journal = asyncio.run(work())
    assert journal.status.state == "finished"
    assert closed == [0, 200, 400, 400]
    assert used[1] - used[0] == len(expected)
    written = trained.folder / "cluster" / "var" / "bank" / "predictions"
    assert pq.read_table(written / f"{journal.status.id}.parquet").equals(expected)


def test_tables_that_lie_in_files_are_scored_to_the_same_bits(trained, breast, monkeypatch):
    fresh = with_holes(breast, seed=11, share=0.3)
    tables = dealt(fresh.set_column(0, "id", pc.cast(fresh["id"], pa.string())))
    expected = score(trained.folder, tables, trained.model, batch_rows=100)
    made = []
    array = mapped.mapped_array

    def noting(folder, shape, *others, **more):
        made.extend(shape[1:])
        return array(folder, shape, *others, **more)

    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 64)
    for module in ("fedboost.data.mapped_rows", "fedboost.ground.mapped"):
        monkeypatch.setattr(f"{module}.mapped_array", noting)
    assert score(trained.folder, tables, trained.model, batch_rows=100).equals(expected)
    assert made[:3] == [10, 10, 10]  # of three parties
    assert list((trained.folder / "cluster" / "var" / "bank").glob("tmp*")) == []


# What is refused


def allowing(**rules):
    """Gives one host other rules on predictions."""

    def change(parties):
        node = parties["telco"]
        policy = node.config.policy.model_copy(update={"predict": PredictPolicy(**rules)})
        node.config = node.config.model_copy(update={"policy": policy})
        node.judge.config = node.config

    return change


def test_more_rows_than_a_host_allows_a_day_are_refused(trained, breast):
    # The other tests' rows were scored for the same guest today.
    n = len(breast)
    used = []

    def limited(parties):
        store = parties["telco"].store
        used.append(predict(store, "bank", 0))
        allowing(peers=("bank",), rows_per_day=used[0] + n)(parties)

    assert len(score(trained.folder, trained.tables, trained.model, node=limited)) == n
    with pytest.raises(PolicyError) as caught:
        score(
            trained.folder,
            trained.tables,
            trained.model,
            node=allowing(peers=("bank",), rows_per_day=used[0] + 2 * n - 1),
        )
    assert caught.value.where["party"] == "telco"
    assert caught.value.where["key"] == "policy.predict.rows_per_day"


def test_a_host_that_does_not_predict_for_the_guest_refuses(trained):
    with pytest.raises(PolicyError) as caught:
        score(trained.folder, trained.tables, trained.model, node=allowing(rows_per_day=10**9))
    assert caught.value.where == {"key": "policy.predict.peers", "party": "telco"}


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_column_of_the_model_that_a_table_lacks_is_named(trained, party):
    table = trained.tables[party]
    column = table.column_names[-1]
    tables = {**trained.tables, party: table.drop_columns([column])}
    with pytest.raises(DataError) as caught:
        score(trained.folder, tables, trained.model)
    assert caught.value.where["party"] == party
    assert caught.value.where["column"] == column


def test_hosts_in_another_order_than_in_training_are_refused(trained):
    with pytest.raises(ConfigError, match="telco, shop"):
        score(trained.folder, trained.tables, trained.model, names=("bank", "shop", "telco"))


def test_another_guest_may_not_use_the_model(trained):
    with pytest.raises(ConfigError, match="guest bank"):
        score(trained.folder, trained.tables, trained.model, names=("telco", "bank", "shop"))


def test_a_model_that_is_not_there_is_refused(trained):
    with pytest.raises(ConfigError, match="there is no model none-1"):
        score(trained.folder, trained.tables, "none-1")
