"""`fedboost model` on models that every party holds whole: one store is enough for everything."""

import json

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from scipy.sparse import csc_array

from fedboost.cli.cluster import simulate
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import conditions, shards, whole
from fedboost.model.xgboost_json import xgboost_json
from tests.support.models import own_shard
from tests.support.whole_models import (
    CITIES,
    CLASSES,
    COLUMNS,
    MODEL,
    PARTIES,
    cells,
    model_of,
    sparse_table,
    stored,
    table,
    trained,
)
from tests.unit.cli.test_model import model


@pytest.fixture(scope="module")
def frame():
    return table(1)


@pytest.fixture(scope="module")
def found(frame):
    return trained(frame)


@pytest.fixture
def folder(frame, found, tmp_path):
    """A local cluster's folder with one model, each party's settings file, and its table."""
    stored(tmp_path, frame, found)
    pq.write_table(as_table(frame), tmp_path / "new.parquet")
    for party in PARTIES:
        raw = {
            "name": party,
            "listen": "127.0.0.1:7101",
            "insecure_loopback": True,
            "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
            "store": str(tmp_path / "var" / party),
            "datasets": {"credit": {"path": str(tmp_path / "new.parquet")}},
        }
        (tmp_path / f"{party}.yaml").write_text(yaml.safe_dump(raw))
    return tmp_path


def as_table(frame):
    """The frame as a party would have it on disk: texts, and columns that the model lacks."""
    columns = {name: pa.array(column) for name, column in zip(COLUMNS, frame.values.T, strict=True)}
    codes = frame.values[:, 1].tolist()
    texts = [None if np.isnan(code) else CITIES[int(code)] for code in codes]
    ids = [f"row-{row}" for row in range(frame.n_rows)]
    more = {"city": pa.array(texts), "id": pa.array(ids), "y": pa.array([0] * frame.n_rows)}
    return pa.table({"comment": pa.array(ids), **columns, **more})


def refused(*args, kind=ConfigError):
    with pytest.raises(kind) as caught:
        model(*args)
    return caught.value


def predict(where, data, out, *more):
    said = model("predict", MODEL, *where, "--data", data, "--out", out, "--json", *more)
    assert said.return_value == 0
    return json.loads(said.stdout), pq.read_table(out)


@pytest.mark.parametrize("party", PARTIES)
def test_every_party_predicts_alone_from_its_own_store(folder, frame, found, party):
    where, out = ("--config", folder / f"{party}.yaml"), folder / "p.parquet"
    said, scored = predict(where, f"{party}=credit", out)
    expected = {"job": None, "model": MODEL, "rows": 300, "rows_without_partner": 0}
    assert said.pop("unknown_categories") == {}
    assert said == {**expected, "out": str(out)}
    assert scored.column_names == ["id", "prediction"]
    assert scored["id"].to_pylist() == [f"row-{row}" for row in range(300)]
    assert np.array_equal(scored["prediction"].to_numpy(), found.predict(frame.values)[:, 0])


def test_a_party_of_a_local_cluster_predicts_alone_with_a_file(folder, frame, found):
    where, out = ("--cluster", folder), folder / "p.parquet"
    _, scored = predict(where, f"telco={folder / 'new.parquet'}", out)
    assert np.array_equal(scored["prediction"].to_numpy(), found.predict(frame.values)[:, 0])
    pa.csv.write_csv(as_table(frame), folder / "new.csv")
    args = (*where, "--data", f"shop={folder / 'new.csv'}", "--out", out)
    assert model("predict", MODEL, *args).stdout == f"300 rows predicted: {out}\n"
    assert pq.read_table(out) == scored


def test_a_file_will_do_where_a_settings_file_names_data_sets(folder):
    where = ("--config", folder / "telco.yaml")
    _, scored = predict(where, f"telco={folder / 'new.parquet'}", folder / "p.parquet")
    _, same = predict(where, "telco=credit", folder / "q.parquet")
    assert scored == same


def test_classes_get_a_column_each(tmp_path, frame):
    found = trained(frame, **CLASSES)
    stored(tmp_path, frame, found)
    pq.write_table(as_table(frame), tmp_path / "new.parquet")
    data, out = f"bank={tmp_path / 'new.parquet'}", tmp_path / "p.parquet"
    _, scored = predict(("--cluster", tmp_path), data, out)
    names = [f"prediction_{k}" for k in range(3)]
    assert scored.column_names == ["id", *names]
    ours = np.column_stack([scored[name].to_numpy() for name in names])
    assert np.array_equal(ours, found.predict(frame.values))


def test_a_sparse_file_is_scored_too(tmp_path):
    frame = sparse_table(5, rows=60)
    found = trained(frame)
    stored(tmp_path, frame, found)
    by_row = csc_array(cells(frame)).tocsr()
    lines = []
    for row in range(60):
        part = by_row[[row]].tocoo()
        entries = sorted(zip(part.col.tolist(), part.data.tolist(), strict=True))
        lines.append(" ".join(["0", *(f"{column}:{value!r}" for column, value in entries)]))
    (tmp_path / "new.svmlight").write_text("\n".join(lines) + "\n")
    data, out = f"bank={tmp_path / 'new.svmlight'}", tmp_path / "p.parquet"
    _, scored = predict(("--cluster", tmp_path), data, out)
    assert np.array_equal(scored["prediction"].to_numpy(), found.predict(frame.values)[:, 0])


def test_predicting_with_several_parties_or_strangers_is_refused(folder):
    file, out = folder / "new.parquet", ("--out", folder / "p.parquet")
    both = ("--data", f"bank={file}", "--data", f"telco={file}")
    error = refused("predict", MODEL, "--cluster", folder, *both, *out)
    assert error.what.startswith("--data names 2 parties")
    strange = ("--data", f"mill={file}")
    error = refused("predict", MODEL, "--cluster", folder, *strange, *out)
    assert error.todo == "name one of: bank, shop, telco"
    absent = ("--data", f"telco={file}")
    error = refused("predict", MODEL, "--config", folder / "bank.yaml", *absent, *out)
    assert error.todo == "name one of: bank"
    assert not (folder / "p.parquet").exists()


def test_predicting_from_nothing_or_into_nothing_is_refused(folder):
    bank, out = ("--config", folder / "bank.yaml"), ("--out", folder / "p.parquet")
    error = refused("predict", MODEL, *bank, "--data", "bank=none", *out)
    assert error.what.startswith("'none' is neither a file nor a data set")
    assert error.todo == "its data sets are: credit"
    error = refused("predict", MODEL, "--cluster", folder, "--data", "bank=none", *out)
    assert error.where == {"party": "bank", "file": "none"}
    lost = ("--out", folder / "none" / "p.parquet")
    assert (
        "--out does not exist"
        in refused("predict", MODEL, *bank, "--data", "bank=credit", *lost).what
    )
    with pytest.raises(click.UsageError, match="predicts here"):
        model("predict", MODEL, *bank, "--data", "bank=credit", *out, "--coordinator", "a:1")


def test_a_table_without_a_column_of_the_model_is_refused_by_its_name(folder, frame):
    pq.write_table(as_table(frame).drop_columns(["age"]), folder / "new.parquet")
    args = ("--cluster", folder, "--data", f"bank={folder / 'new.parquet'}")
    error = refused("predict", MODEL, *args, "--out", folder / "p.parquet", kind=DataError)
    assert error.where == {"party": "bank", "file": "new.parquet", "column": "age"}
    assert not (folder / "p.parquet").exists()


def test_a_damaged_shard_is_refused_with_its_party(folder, frame, found):
    broken = model_of(frame, found)
    broken.facts["trees"] = 9
    shards.save_shard(folder / "var" / "bank" / "models" / MODEL, broken)
    args = ("--cluster", folder, "--data", f"bank={folder / 'new.parquet'}")
    error = refused("predict", MODEL, *args, "--out", folder / "p.parquet", kind=DataError)
    assert error.what == "the model says 9 trees, has 4"
    assert error.where["party"] == "bank"


def test_export_needs_one_store_and_no_other_shard(folder, frame, found):
    out, host = folder / "m.json", ("--config", folder / "telco.yaml")
    said = model("export", MODEL, *host, "--out", out, "--json")
    assert json.loads(said.stdout) == {"model": MODEL, "format": "xgboost-json", "out": str(out)}
    assert out.read_text() == xgboost_json(whole.as_joined(model_of(frame, found)))
    model("export", MODEL, *host, "--format", "json", "--out", out)
    assert out.read_text() == own_shard(model_of(frame, found, "telco"))
    error = refused("export", MODEL, *host, "--out", out, "--with", out)
    assert error.what.startswith("every party holds the whole model")


def test_an_exported_file_is_a_booster_that_predicts_the_same(folder, frame, found):
    xgb = pytest.importorskip("xgboost")
    model("export", MODEL, "--cluster", folder, "--out", folder / "m.json")
    booster = xgb.Booster(model_file=folder / "m.json")
    known = model_of(frame, found).facts["categories"]["city"]
    values = cells(frame)
    values[:, 1] = [
        np.nan if np.isnan(x) or CITIES[int(x)] not in known else known.index(CITIES[int(x)])
        for x in values[:, 1]
    ]
    names, types = booster.feature_names, booster.feature_types
    rows = xgb.DMatrix(values, feature_names=names, feature_types=types, enable_categorical=True)
    np.testing.assert_allclose(booster.predict(rows), found.predict(frame.values)[:, 0], atol=1e-5)


def test_show_and_list_say_that_the_model_is_whole(folder):
    host = ("--config", folder / "shop.yaml")
    text = model("show", MODEL, *host, "--trees", 4).stdout
    assert "columns:    4 of every party, which holds the whole model" in text
    assert "age < " in text
    raw = json.loads(model("show", MODEL, *host, "--json").stdout)
    assert raw["whole"] is True
    assert (raw["role"], raw["rounds"], raw["trees"]) == ("host", 4, 4)
    assert {share["column"] for share in raw["importance"]} <= set(COLUMNS)
    assert all(share["gain"] > 0 for share in raw["importance"])
    (listed,) = json.loads(model("list", "--cluster", folder, "--json").stdout)["models"]
    assert (listed["whole"], listed["here"]) == (True, ["bank", "shop", "telco"])
    assert listed["metrics"]["train"]["auc"] > 0.5
    assert MODEL in model("list", *host).stdout


def test_rules_show_what_trees_share_at_any_party(folder, frame, found):
    host = ("--config", folder / "shop.yaml")
    raw = json.loads(model("rules", MODEL, *host, "--json", "--top", 1000).stdout)
    assert raw["model"] == MODEL
    assert raw["unknown_leaves"] == 0
    trees = [tree for (tree,) in found.rounds]
    expected = [list(one.trees) for one in conditions.find_rules(trees)]
    assert [one["trees"] for one in raw["rules"]] == expected
    first = raw["rules"][0]
    assert first["share"] == len(first["trees"]) / len(trees)
    text = model("rules", MODEL, *host).stdout
    assert f"{first['share']:.0%}" in text
    assert "city" in text
    assert "other parties" not in text
    assert len(json.loads(model("rules", MODEL, *host, "--json").stdout)["rules"]) == 10


def test_rules_can_be_those_of_some_columns(folder):
    where = ("--cluster", folder)
    chosen = model("rules", MODEL, *where, "--columns", "city,sum", "--json").stdout
    assert all({"city", "sum"} & set(one["columns"]) for one in json.loads(chosen)["rules"])
    error = refused("rules", MODEL, *where, "--columns", "city,weather")
    assert error.where == {"column": "weather"}
    assert error.todo == f"fedboost model show {MODEL} --json lists them"


def test_delete_at_one_party_leaves_the_model_to_the_others(folder):
    model("delete", MODEL, "--config", folder / "telco.yaml", "--yes")
    left = {p: shards.model_ids(folder / "var" / p / "models") for p in PARTIES}
    assert left == {"bank": [MODEL], "telco": [], "shop": [MODEL]}


def test_a_job_that_predicts_with_a_whole_model_ends_with_what_to_do_instead(folder):
    job = {
        "name": "score",
        "protocol": "predict",
        "parties": {"guest": "bank", "hosts": ["telco", "shop"]},
        "params": {"model": MODEL},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    data = [f"--data={party}={folder / 'new.parquet'}" for party in PARTIES]
    args = [str(folder / "job.yaml"), *data, "--dir", str(folder), "--json"]
    ended = CliRunner().invoke(simulate, args, catch_exceptions=False, standalone_mode=False)
    said = json.loads(ended.stdout.splitlines()[-1])
    assert (ended.return_value, said["state"], said["error"]["code"]) == (2, "failed", "config")
    assert said["error"]["what"].startswith("every party holds the model whole")
    assert f"fedboost model predict {MODEL}" in said["error"]["todo"]
