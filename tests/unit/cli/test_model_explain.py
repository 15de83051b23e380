"""Contributions add up to the margins, of every kind of model, and refuse what they cannot."""

import builtins
import json
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.core.params import TreeParams
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError, install_advice
from fedboost.model import contributions, shards, vertical, whole
from fedboost.report.contributions import Effect, effects_svg
from tests.support.models import random_model
from tests.support.whole_models import (
    CITIES,
    COLUMNS,
    KINDS,
    MODEL,
    cells,
    model_of,
    sparse_table,
    stored,
    table,
    trained,
)

pytest.importorskip("xgboost")

GAP_MAX = 5e-6  # XGBoost adds in 32 bits
PARTS = {"bank": ["age", "odd [a<b]"], "telco": ["city"], "shop": ["sum"]}


@pytest.fixture(scope="module")
def frame():
    return table(1)


def on_disk(frame, path, names=COLUMNS, ids=None):
    """The frame's columns as a party's file."""
    ids = ids or [f"row-{row}" for row in range(frame.n_rows)]
    columns = {"id": pa.array(ids)}
    for name in names:
        column = frame.values[:, COLUMNS.index(name)]
        texts = [None if np.isnan(code) else CITIES[int(code)] for code in column]
        columns[name] = pa.array(texts) if name == "city" else pa.array(column)
    pq.write_table(pa.table(columns), path)
    return path


def explain(folder, *args, **more):
    words = ["explain", MODEL, "--cluster", folder, "--out", folder / "s.parquet", *args]
    more |= {"catch_exceptions": False, "standalone_mode": False}
    return CliRunner().invoke(model_group, [str(word) for word in words], **more)


def refused(folder, *args, kind=ConfigError):
    with pytest.raises(kind) as caught:
        explain(folder, *args)
    assert not (folder / "s.parquet").exists()
    return caught.value


def added_up(path, outputs):
    """float64 (rows, outputs): what a file's columns of contributions come to."""
    written = pq.read_table(path)
    names = [name for name in written.column_names if name != "id"]
    values = np.column_stack([written[name].to_numpy() for name in names]).astype(np.float64)
    return values.reshape(len(values), -1, outputs).sum(axis=1), names


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_and_bias_are_the_margin(frame, kind, tmp_path):
    found = trained(frame, **KINDS[kind])
    stored(tmp_path, frame, found)
    file = on_disk(frame, tmp_path / "new.parquet")
    explain(tmp_path, "--data", f"telco={file}")
    ours = whole.margins(model_of(frame, found), frame)
    sums, names = added_up(tmp_path / "s.parquet", ours.shape[1])
    np.testing.assert_allclose(sums, ours, rtol=0, atol=GAP_MAX)
    if ours.shape[1] == 1:
        assert names == ["age", "city", "odd _a_b_", "sum", "bias"]
    else:
        assert names[:4] == ["age_0", "age_1", "age_2", "city_0"]
        assert names[-1] == "bias_2"


def test_a_sparse_table_counts_what_it_does_not_store_as_zero():
    frame = sparse_table(5, rows=120)
    found = trained(frame)
    shard = model_of(frame, found)
    shares = contributions.contributions(whole.as_joined(shard), frame.values)
    ours = whole.margins(shard, frame)
    np.testing.assert_allclose(shares.sum(axis=2, dtype=np.float64), ours, rtol=0, atol=GAP_MAX)
    assert np.count_nonzero(cells(frame)) < frame.values.shape[0] * frame.values.shape[1] / 2


@pytest.fixture(scope="module")
def cut(frame):
    """One pooled model as the shards of three owners, by party."""
    params = TreeParams(n_estimators=4, max_depth=4, max_bin=6)
    whole_shard = model_of(frame, trained(frame, **params.model_dump(exclude_defaults=True)))
    arrays = whole.as_guest_shard(whole_shard).arrays
    names = whole_shard.facts["columns"]
    owner = [next(k for k, own in enumerate(PARTS.values()) if name in own) for name in names]
    inner = arrays["owner"] == vertical.GUEST
    feature = arrays["feature"].astype(np.int64)
    owners = np.where(inner, np.array(owner)[np.where(inner, feature, 0)], vertical.LEAF)
    made = {}
    for number, (party, own) in enumerate(PARTS.items()):
        mine = owners == number
        place = np.array([own.index(n) if n in own else -1 for n in names])
        own_feature = np.where(mine, place[np.where(inner, feature, 0)], -1).astype(np.int32)
        role = {"party": party, "role": "host" if number else "guest", "kind": ""}
        texts = {n: t for n, t in whole_shard.facts["categories"].items() if n in own}
        facts = {**whole_shard.facts, **role, "columns": own, "categories": texts}
        kept = {**arrays, "owner": owners.astype(np.int16), "feature": own_feature}
        if number:
            known = ("tree", "node", "feature", "threshold", "missing_left", "left_bins")
            kept = {name: kept[name][mine] for name in known}
        made[party] = Artefact(facts, kept)
    return made, whole.margins(whole_shard, frame)


def town(cut, frame, folder, ids=None):
    """A local cluster's folder with the three shards, and every party's table as --data."""
    data = []
    for party, shard in cut[0].items():
        shards.save_shard(folder / "var" / party / "models" / MODEL, shard)
        file = on_disk(frame, folder / f"{party}.parquet", PARTS[party], (ids or {}).get(party))
        data += ["--data", f"{party}={file}"]
    return data


def test_a_merged_model_explains_the_rows_that_all_tables_have(cut, frame, tmp_path):
    ids = {"shop": [f"row-{row + 100}" for row in range(frame.n_rows)]}
    data = town(cut, frame, tmp_path, ids)
    said = json.loads(explain(tmp_path, *data, "--json").stdout)
    assert (said["rows"], said["rows_without_partner"]) == (200, 100)
    written = pq.read_table(tmp_path / "s.parquet")
    assert written["id"].to_pylist() == [f"row-{row}" for row in range(100, 300)]
    assert set(said["mean_abs"]) == set(written.column_names) - {"id", "bias"}


def test_a_merged_models_contributions_are_its_margin(cut, frame, tmp_path):
    data = town(cut, frame, tmp_path)
    explain(tmp_path, *data[2:], *data[:2])  # in whatever order
    sums, names = added_up(tmp_path / "s.parquet", 1)
    np.testing.assert_allclose(sums, cut[1], rtol=0, atol=GAP_MAX)
    assert {name.split(".")[0] for name in names} == {*PARTS, "bias"}


def test_every_partys_table_is_asked_for_and_no_other(cut, frame, tmp_path):
    data = town(cut, frame, tmp_path)
    assert "missing for shop" in refused(tmp_path, *data[:4]).what
    file = tmp_path / "bank.parquet"
    assert "names mill" in refused(tmp_path, *data, "--data", f"mill={file}").what
    nobody = {"shop": [f"other-{row}" for row in range(frame.n_rows)]}
    town(cut, frame, tmp_path, nobody)
    assert refused(tmp_path, *data, kind=DataError).what == "no row of bank is in every table"


def test_without_a_hosts_splits_nothing_is_explained(cut, frame, tmp_path):
    data = town(cut, frame, tmp_path)
    shards.delete_model(tmp_path / "var" / "telco" / "models" / MODEL)
    assert "the splits of telco are missing" in refused(tmp_path, *data).what


def test_a_whole_model_explains_one_partys_rows(frame, tmp_path):
    stored(tmp_path, frame, trained(frame))
    file = on_disk(frame, tmp_path / "new.parquet")
    both = ("--data", f"bank={file}", "--data", f"telco={file}")
    assert "names 2 parties" in refused(tmp_path, *both).what
    assert "no shard of the model of mill" in refused(tmp_path, "--data", f"mill={file}").what
    assert "--out does not" not in explain(tmp_path, *both[:2]).stdout


def test_without_xgboost_the_error_names_the_extra(frame, tmp_path, monkeypatch):
    stored(tmp_path, frame, trained(frame))
    file = on_disk(frame, tmp_path / "new.parquet")
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "xgboost":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    error = refused(tmp_path, "--data", f"bank={file}")
    assert error.todo == install_advice("explain")


def test_nodes_that_weigh_nothing_are_refused_and_never_written():
    frame = table(1, rows=60)
    shard = model_of(frame, trained(frame))
    shard.arrays["cover"] = np.zeros_like(shard.arrays["cover"])
    with pytest.raises(DataError, match="weigh nothing"):
        contributions.contributions(whole.as_joined(shard), np.zeros((2, 4), np.float32))


def test_the_picture_has_a_bar_for_each_of_the_greatest_columns(frame, tmp_path):
    stored(tmp_path, frame, trained(frame))
    file = on_disk(frame, tmp_path / "new.parquet")
    args = ("--data", f"bank={file}", "--picture", tmp_path / "s.svg", "--top", 3, "--json")
    said = json.loads(explain(tmp_path, *args).stdout)
    page = ET.fromstring((tmp_path / "s.svg").read_text())
    texts = ["".join(one.itertext()) for one in page.iter("{http://www.w3.org/2000/svg}text")]
    order = list(said["mean_abs"])
    assert [text for text in texts if text in order] == order[:2]
    assert "2 other columns" in texts
    written = pq.read_table(tmp_path / "s.parquet")
    for name, (mean,) in said["mean_abs"].items():
        assert mean == pytest.approx(np.abs(written[name].to_numpy()).mean(), rel=1e-6)


def test_a_picture_of_many_classes_has_a_colour_for_five_and_one_for_the_rest():
    text = effects_svg([Effect("a<b", tuple([0.1] * 8)), Effect("c", tuple([0.0] * 8))], 10, MODEL)
    page = ET.fromstring(text)
    texts = ["".join(one.itertext()) for one in page.iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if "class" in t] == [
        *(f"class {k}" for k in range(5)),
        "other classes",
    ]
    assert "a<b" in texts


def test_a_merged_models_columns_are_known_by_their_party():
    made = random_model(3)
    model = vertical.join_shards(made["bank"], {party: made[party] for party in ("telco", "shop")})
    assert contributions.parties(model)[0] == "bank"
    assert contributions.party_facts(model, "telco")["columns"] == [
        "calls",
        "age",
        "odd [a<b]",
        "city",
    ]
    assert list(contributions.party_facts(model, "telco")["categories"]) == ["city"]
