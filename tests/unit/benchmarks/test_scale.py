"""Large tables are the same every time, and every size has its figures."""

import json

import pyarrow.parquet as pq

from benchmarks import scale


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
        scale, "measured", lambda rows: scale.Scaled(rows, "lattice", 2.5, 0.5, memory)
    )
    path = tmp_path / "scale.json"
    scale.main(["--quick", "--json", str(path)])
    told = json.loads(path.read_text())
    assert told["figures"]["rows_50000.host.memory_gb"] == 2.0
    assert told["rows"][0]["rows"] == 50_000
    assert "encryption" not in scale.job().params  # the rows choose it
    scale.main(["--rows", "7", "--rows", "9", "--json", str(path)])
    assert [one["rows"] for one in json.loads(path.read_text())["rows"]] == [7, 9]
