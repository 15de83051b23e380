"""Large tables are the same every time, and every size has its figures."""

import json

import pyarrow.parquet as pq

from benchmarks import scale, shard_bytes


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
        lambda rows, workers: scale.Scaled(rows, workers, "lattice", 2.5, 0.5, memory),
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
        lambda rows, workers: scale.Scaled(rows, workers, "lattice", 2.5, 0.5, memory),
    )
    path = tmp_path / "scale.json"
    scale.main(["--rows", "7", "--workers", "embedded,dask", "--json", str(path)])
    figures = json.loads(path.read_text())["figures"]
    assert figures["rows_7.dask.seconds_per_tree"] == figures["rows_7.seconds_per_tree"] == 0.5
    cells = 8 * 10 * 33
    assert figures["paillier.layer_bytes"] > 512 * cells
    assert figures["lattice.layer_bytes"] < 1000 * cells  # which have 16,400
