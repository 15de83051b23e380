"""Large tables are the same every time, and every size has its figures."""

import dataclasses
import json

import pyarrow.parquet as pq
import pytest

from benchmarks import encryption_operations, scale, scale_model, scale_predict, shard_bytes
from benchmarks.encryption_plan import Plan


def test_tables_are_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "GROUP_ROWS", 40)
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        sources = scale.tables(tmp_path / name, 100)
        found.append([pq.read_table(source.path) for source in sources.values()])
    guest, host = found[0]
    assert found[1] == [guest, host]
    assert guest["id"].equals(host["id"])
    assert (guest.num_rows, guest.num_columns, host.num_columns) == (100, 12, 11)


def test_each_size_has_its_figures(tmp_path, monkeypatch):
    memory = {"guest": 10**9, "host": 2 * 10**9}
    monkeypatch.setattr(
        scale,
        "measured",
        lambda rows, workers, *_: scale.Scaled(rows, workers, "lattice", 2.5, 0.5, memory),
    )
    path = tmp_path / "scale.json"
    scale.main(["--quick", "--json", str(path)])
    told = json.loads(path.read_text())
    assert told["figures"]["rows_50000.host.memory_gb"] == 2.0
    assert told["rows"][0]["rows"] == 50_000
    assert "encryption" not in scale.job().params  # the rows choose it
    assert told["rows"][0]["workers"] == "embedded"
    scale.main(["--rows", "7", "--rows", "9", "--json", str(path)])
    assert [one["rows"] for one in json.loads(path.read_text())["rows"]] == [7, 9]


def test_workers_on_dask_have_figures_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_bytes, "ROWS", 64)
    memory = {"guest": 1, "host": 1}
    monkeypatch.setattr(
        scale,
        "measured",
        lambda rows, workers, *_: scale.Scaled(rows, workers, "lattice", 2.5, 0.5, memory),
    )
    path = tmp_path / "scale.json"
    scale.main(["--rows", "7", "--workers", "embedded,dask", "--json", str(path)])
    figures = json.loads(path.read_text())["figures"]
    assert figures["rows_7.dask.seconds_per_tree"] == figures["rows_7.seconds_per_tree"] == 0.5
    assert figures["rows_7.dask.over_embedded"] == 1
    assert figures["paillier.answer_bytes"] > 512
    assert figures["lattice.answer_bytes"] < 1000  # of a cell of 16,400


def test_predictions_have_figures_of_their_own(tmp_path, monkeypatch):
    scored = scale_predict.Predicted(100, "job", 4.0, {"guest": 1, "host": 1})
    monkeypatch.setattr(scale, "predicted", lambda _: [scored])
    path = tmp_path / "scale.json"
    scale.main(["--predict", "--json", str(path)])
    assert json.loads(path.read_text())["figures"] == {"rows_100.job.rows_per_second": 25.0}


def test_the_model_weighs_few_shards_for_many(monkeypatch):
    """What three sizes are weighed for is what a fourth comes to."""
    monkeypatch.setattr(shard_bytes, "ROWS", 1 << 12)
    for scheme in ("lattice", "paillier"):
        weighed = scale_model.Carries.weighed(scheme)
        expected = shard_bytes.carried(scheme, 9, 3)
        found = weighed.of(scale_model.Size(columns=9, workers=3))
        for (_, mine), (_, other) in zip(found, expected, strict=True):
            assert mine == pytest.approx(other, rel=0.05)  # bits fill whole bytes


UNITS = scale_model.Units(
    "ring",
    scale_model.Carries((0, 0, 1), (0, 8, 0), (0, 4, 0), 7, 3, 100),
    dict.fromkeys(encryption_operations.NAMES, 1e9),
    row_bytes=16,
    candidate_bytes=1000,
    by_columns=True,
)


def test_the_model_of_a_tree_is_counts_times_prices():
    size, one = scale_model.Size(rows=1000, columns=5, workers=2, bins=4, depth=2), UNITS
    assert (size.rows_added, size.cells, size.candidates) == (1500, 40, 45)
    found = {part.what: part for part in scale_model.parts(one, size)}
    assert found["rows to workers"].bytes == 1000 * 2 * 8
    assert found["divisions to workers"].bytes == 1000 * 2 * 4
    assert found["add up"].seconds == 1500 * 3  # columns of the worker that has most
    assert found["keys to workers"].bytes == 2 * 7
    assert found["sums asked of workers"].bytes == 45 * 3
    assert found["sums from workers"].bytes == 45 * 100
    assert found["run up and answer"].seconds == pytest.approx((3 * 40 + 45) * 3 / 5)
    figures = scale_model.figures([one], size)
    assert figures["model.ring.seconds_per_tree"] == sum(p.seconds for p in found.values())
    assert figures["model.ring.worker_gb"] == pytest.approx(1000 * 21 / 2 / 1e9)
    *_, link, tree = scale_model.table([one, one], size).rows
    assert (link[0], tree[0]) == ("of that the host's link", "a tree")
    rows = dataclasses.replace(one, by_columns=False)
    [added] = [part for part in scale_model.parts(rows, size) if part.what == "add up"]
    assert added.seconds == pytest.approx(1500 * 5 / 2)


def test_the_model_has_a_report_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(scale_model, "measure", lambda *_: [UNITS])
    path = tmp_path / "model.json"
    scale.main(["--model", "--json", str(path)])
    told = json.loads(path.read_text())
    assert told["settings"]["rows"] == 100_000_000
    assert told["figures"]["model.ring.link_gb"] > 1


def test_units_are_those_of_both_kinds_of_schemes(monkeypatch):
    monkeypatch.setattr(shard_bytes, "ROWS", 64)
    asked = {"ns": UNITS.ns, "bytes of a row": 7, "bytes of a candidate": 9}
    for kind in ("rings", "modular"):
        monkeypatch.setattr(encryption_operations, kind, lambda *_: asked)
    size = scale_model.Size()
    ring, number = scale_model.measure(Plan.of(quick=True), size)
    assert (ring.by_columns, ring.row_bytes, ring.ns) == (True, 7, UNITS.ns)
    assert (number.by_columns, number.candidate_bytes) == (False, 9)
