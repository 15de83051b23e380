"""Do estimators learn the model of `fedboost simulate`, and predict what a prediction job does?"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.cluster import simulate
from fedboost.model import shards
from fedboost.sdk import (
    FederBoostClassifier,
    GBUNClassifier,
    HybridTreeClassifier,
    SecureBoostClassifier,
)
from fedboost.sdk.seats import from_tables

ROWS = 150
PLAIN = {"scheme": "plain"}
OWN = ("job", "name", "created", "format", "arrays_sha256", "telling")  # facts of a single job


def table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.nan
    y = (np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 5]) > 0).astype(float)
    return x, y


X, Y = table()
NUMBERS = np.arange(1, ROWS + 1)


def columns(x, first=0):
    return {f"f{first + k}": x[:, k] for k in range(x.shape[1])}


def by_columns():
    bank, telco = columns(X[:, :3]), columns(X[:, 3:])
    files = {"bank": {"id": NUMBERS, "y": Y, **bank}, "telco": {"id": NUMBERS, **telco}}
    return files, ({"bank": X[:, :3], "telco": X[:, 3:]}, Y)


def by_rows():
    parts = {"north": slice(0, 80), "south": slice(80, ROWS)}
    files = {
        party: {"id": np.arange(1, len(Y[rows]) + 1), "y": Y[rows], **columns(X[rows])}
        for party, rows in parts.items()
    }
    return files, ({p: X[r] for p, r in parts.items()}, {p: Y[r] for p, r in parts.items()})


JOBS = [
    (
        SecureBoostClassifier,
        by_columns,
        {"encryption": {"scheme": "okamoto-uchiyama"}, "n_estimators": 1},
    ),
    (SecureBoostClassifier, by_columns, {"encryption": PLAIN, "subsample": 0.6, "seed": 9}),
    (FederBoostClassifier, by_columns, {"epsilon": None, "buckets": 8}),
    (FederBoostClassifier, by_rows, {"max_bin": 8, "quantile_tolerance": 2}),
    (HybridTreeClassifier, by_columns, {"encryption": PLAIN, "guest_depth": 2, "host_depth": 2}),
    (GBUNClassifier, by_rows, {"outputs": 8}),
]
VALIDATION = {"fraction": 0.2, "seed": 3}


def simulated(folder, protocol, files, params):
    """The shards that `fedboost simulate` leaves, by party, and the job's result."""
    guest, *hosts = files
    job = {
        "name": "same",
        "protocol": protocol,
        "parties": {"guest": guest, "hosts": hosts},
        "data": {party: {"label": "y"} if "y" in one else {} for party, one in files.items()},
        "validation": VALIDATION,
        "params": params,
    }
    if guest == "north":
        job["parties"]["aggregator"] = "aggregator"
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    words = [str(folder / "job.yaml"), "--dir", str(folder / "cluster"), "--json"]
    for party, one in files.items():
        pq.write_table(pa.table(one), folder / f"{party}.parquet")
        words += ["--data", f"{party}={folder / party}.parquet"]
    done = CliRunner().invoke(simulate, words, catch_exceptions=False, standalone_mode=False)
    result = json.loads(done.stdout.splitlines()[-1])
    stores = folder / "cluster" / "var"
    return {p: shards.load_shard(stores / p / "models" / result["model"]) for p in files}, result


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("kind", "tables", "params"),
    JOBS,
    ids=lambda given: getattr(given, "__name__", None) or str(given),
)
def test_an_estimator_learns_the_model_of_the_same_job(tmp_path, kind, tables, params):
    files, (x, y) = tables()
    params = {"n_estimators": 2, **params}
    layout = {"layout": "horizontal"} if kind is FederBoostClassifier and "north" in x else {}
    model = kind(validation=VALIDATION, **params, **layout).fit(x, y)
    theirs, result = simulated(tmp_path, model.result_["protocol"], files, params)
    assert model.result_["metrics"] == result["metrics"]
    assert model.result_["rows"] == result["rows"]
    for party, shard in theirs.items():
        own = model.shards_[party]
        assert {k: v for k, v in own.facts.items() if k not in (*OWN, "id", "ids")} == {
            k: v for k, v in shard.facts.items() if k not in (*OWN, "id", "ids")
        }
        if kind is HybridTreeClassifier:
            continue  # hosts know nodes by numbers that are drawn in secret for every job
        assert own.arrays.keys() == shard.arrays.keys()
        for name, array in shard.arrays.items():
            np.testing.assert_array_equal(own.arrays[name], array)


@pytest.mark.parametrize("kind", [SecureBoostClassifier, HybridTreeClassifier])
def test_walking_all_shards_gives_the_bits_of_a_prediction_job(kind):
    depths = {"guest_depth": 2, "host_depth": 2} if kind is HybridTreeClassifier else {}
    x, (fresh, _) = {"bank": X[:, :3], "telco": X[:, 3:]}, table(seed=1)
    model = kind(n_estimators=3, encryption=PLAIN, **depths).fit(x, Y)
    new = {"bank": fresh[:, :3], "telco": fresh[:, 3:]}
    asked = model._asked(from_tables(new, None))
    np.testing.assert_array_equal(model.predict_proba(new)[:, 1:], asked)


def test_several_classes_and_forests_are_walked_as_a_job_walks_them():
    y = np.digitize(np.nan_to_num(X[:, 0]), [-0.5, 0.5])
    x = {"bank": X[:, :3], "telco": X[:, 3:]}
    forest = {"n_trees": 2, "subsample": 0.8}
    model = SecureBoostClassifier(n_estimators=2, encryption=PLAIN, forest=forest).fit(x, y)
    np.testing.assert_array_equal(model.predict_proba(x), model._asked(from_tables(x, None)))
