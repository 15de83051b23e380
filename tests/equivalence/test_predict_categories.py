"""Models with columns of categories: tables with other rows and codes go where the model says."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from fedboost.core import local, objectives
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.params import TreeParams
from fedboost.data.holdout import validation_rows
from fedboost.data.ids import encode_ids
from fedboost.ground.ids import EncodedIds
from fedboost.model import vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from tests.equivalence.test_predict import (
    NAMES,
    PREDICTION_GAP_MAX,
    VALIDATION,
    Trained,
    dealt,
    score,
)
from tests.support.models import leaves, margins, own_shard, read_host_shard

CITIES = ["Aachen", "Bonn", "Chur", "Dresden", "Essen", "Fulda", "Gera", "Hof", "Ulm"]
CATEGORICAL = {"bank": ["branch"], "telco": ["city"], "shop": ["member"]}
# Dealt out in turn: each party has one of categories and one of numbers.
COLUMNS = ("branch", "city", "member", "age", "calls", "spent")
MAX_BIN = 6  # fewer than there are cities


def table_of(seed, rows=400, cities=tuple(CITIES), branches=(10, 20, 30, 40, 50), first_id=0):
    """A pooled table whose label depends on every column; a tenth of its cells are missing."""
    draw = np.random.default_rng(seed)
    weight = np.arange(len(cities), 0, -1)
    city = draw.choice(cities, rows, p=weight / weight.sum())
    branch, member = draw.choice(branches, rows), draw.random(rows) < 0.5
    age, calls, spent = np.round(draw.normal(size=(3, rows)), 1)
    pull = age + calls - spent + 2 * (branch % 20 == 0) - 2 * np.isin(city, CITIES[::2]) + member
    label = (pull + draw.normal(size=rows) > np.median(pull)).astype(np.float64)
    content = {"branch": branch, "city": city, "member": member}
    content |= {"age": age, "calls": calls, "spent": spent}
    features = {
        name: pa.array(content[name].tolist(), mask=draw.random(rows) < 0.1) for name in COLUMNS
    }
    ids = first_id + draw.permutation(rows)
    return pa.table({"id": ids, "y": label, **features})


def written(cell):
    """How a cell of these tables stands in a model's list."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def as_the_model_reads(done, tables, ids):
    """The rows of `ids` in the model's columns, a category as its place in the model's list."""
    columns = []
    for party, name in done.whole.columns:
        cell = dict(
            zip(tables[party]["id"].to_pylist(), tables[party][name].to_pylist(), strict=True)
        )
        known = done.shards[party].facts["categories"].get(name)
        numbers = (
            cell
            if known is None
            else {
                row: known.index(written(x)) if x is not None and written(x) in known else None
                for row, x in cell.items()
            }
        )
        columns.append([np.nan if numbers[row] is None else numbers[row] for row in ids])
    return np.array(columns, np.float64).T.astype(np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = {party: {"categorical": names} for party, names in CATEGORICAL.items()}
    folder = tmp_path_factory.mktemp("categories")
    done = Trained(folder, table_of(1), data=data, n_estimators=8, max_bin=MAX_BIN)
    arrays = done.whole.arrays
    divided = set(arrays["feature"][arrays["left_bins"].any(axis=1)].tolist())
    assert {done.whole.columns[f][0] for f in divided} == {"bank", "telco", "shop"}
    assert len(done.shards["telco"].facts["categories"]["city"]) == MAX_BIN
    return done


def test_tables_of_texts_grow_the_trees_of_one_table(trained):
    """The pooled table has the texts under other codes, in the order of the model's list."""
    bank = trained.tables["bank"]
    encoded = dict(zip(encode_ids([bank["id"]], ["id"]), range(len(bank)), strict=True))
    order = [encoded[row] for row in trained.ids]
    ids = [bank["id"].to_pylist()[row] for row in order]
    values = np.asfortranarray(as_the_model_reads(trained, trained.tables, ids))
    y = bank["y"].to_numpy()[order]
    held = validation_rows(
        EncodedIds.of(trained.ids), VALIDATION["fraction"], int(VALIDATION["seed"])
    )
    columns = [name for _, name in trained.whole.columns]
    categorical = tuple(c for c, name in enumerate(columns) if name in {"branch", "city", "member"})
    table, check = (
        local.TrainingTable(values[rows], y[rows], None, categorical) for rows in (~held, held)
    )
    params = TreeParams(n_estimators=8, max_depth=3, max_bin=MAX_BIN, precision_bits=BITS_ENCRYPTED)
    pooled = local.train(table, params, check, (2, 2, 2))
    assert pooled.margins(values).tobytes() == trained.margin.tobytes()


def test_predictions_are_the_margins_of_the_training_to_the_bit(trained):
    found = score(trained.folder, trained.tables, trained.model)
    at = {row: k for k, row in enumerate(encode_ids([found["id"]], ["id"]))}
    order = [at[row] for row in trained.ids]
    expected = objectives.transform("binary:logistic", trained.margin)[:, 0]
    assert len(found) == len(expected)
    assert np.array_equal(found["prediction"].to_numpy()[order], expected)


def fresh_tables(trained, **how):
    """Other rows, each party's in an order of its own; texts come under other codes."""
    table = table_of(2, rows=150, first_id=10_000, **how)
    draw = np.random.default_rng(3)
    return {
        party: table.select(own.column_names).take(draw.permutation(150))
        for party, own in trained.tables.items()
    }


def check(trained, tables, sources=None):
    found = score(trained.folder, sources or tables, trained.model, unknown_max=1.0)
    ids = found["id"].to_pylist()
    assert ids == tables["bank"]["id"].to_pylist()
    values = as_the_model_reads(trained, tables, ids)
    expected = objectives.transform("binary:logistic", margins(trained.whole, values))[:, 0]
    assert np.array_equal(found["prediction"].to_numpy(), expected)
    return values, found["prediction"].to_numpy()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"cities": CITIES[3:], "branches": (30, 50)},  # codes begin elsewhere
        {"cities": ["Aa", "Bonn", "Cham", "Ulm", "Zug"], "branches": (5, 20, 99)},  # unseen ones
        {"cities": ["Aa", "Zug"], "branches": (7, 8)},  # none that the model knows
    ],
    ids=["the same", "fewer", "others", "strangers"],
)
def test_new_rows_go_where_the_whole_model_sends_their_categories(trained, how):
    values, predicted = check(trained, fresh_tables(trained, **how))
    assert len(set(predicted.tolist())) > 10
    city = [name for _, name in trained.whole.columns].index("city")
    if how.get("cities") == ["Aa", "Zug"]:
        assert np.isnan(values[:, city]).all()


def test_a_csv_has_the_categories_of_a_parquet_file(trained):
    tables = fresh_tables(trained)
    sources = {}
    for party, table in tables.items():
        sources[party] = trained.folder / f"fresh-{party}.csv"
        pyarrow.csv.write_csv(table, sources[party])
    check(trained, tables, sources)


def test_a_column_that_is_empty_today_keeps_its_categories(trained):
    tables = fresh_tables(trained)
    place = tables["telco"].column_names.index("city")
    empty = pa.nulls(150, pa.string())
    tables["telco"] = tables["telco"].set_column(place, "city", empty)
    values, _ = check(trained, tables)
    assert np.isnan(values).any(axis=0).all()


def test_xgboost_predicts_the_same_from_the_exported_model(trained):
    xgb = pytest.importorskip("xgboost")
    cities = ["Aa", *CITIES]
    values, predicted = check(trained, fresh_tables(trained, cities=cities))
    booster = xgb.Booster(model_file=bytearray(xgboost_json(trained.whole).encode()))
    rows = xgb.DMatrix(
        values,
        feature_names=feature_names(trained.whole),
        feature_types=["c" if known else "float" for known in trained.whole.categories],
        enable_categorical=True,
    )
    assert np.abs(booster.predict(rows) - predicted).max() <= PREDICTION_GAP_MAX
    reached = booster.predict(rows, pred_leaf=True).astype(np.int64)
    assert np.array_equal(reached, leaves(trained.whole, values))


def test_shards_that_went_through_json_join_to_the_same_file(trained):
    handed = {
        host: read_host_shard(own_shard(trained.shards[host]).encode(), party=host)
        for host in NAMES[1:]
    }
    joined = vertical.join_shards(trained.shards["bank"], handed)
    assert joined.categories == trained.whole.categories
    assert xgboost_json(joined) == xgboost_json(trained.whole)


def test_tables_that_lie_in_files_are_scored_to_the_same_bits(trained, monkeypatch):
    """Codes of a batch are other ones than those of the table, and some cities are new."""
    pooled = table_of(4, cities=(*CITIES, "Yverdon"), first_id=1000)
    tables = dealt(pooled)
    expected = score(trained.folder, tables, trained.model)
    monkeypatch.setattr("fedboost.data.mapped_rows.BATCH_ROWS", 37)
    assert score(trained.folder, tables, trained.model).equals(expected)
