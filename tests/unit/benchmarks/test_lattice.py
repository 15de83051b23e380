"""The lattice scheme's costs: every operation of both rings is measured, and one run tells all."""

import json

from benchmarks import lattice


def test_one_run_measures_every_operation_of_both_rings(tmp_path, monkeypatch):
    monkeypatch.setattr(lattice, "QUICK_ROWS", 500)
    monkeypatch.setattr(lattice, "REPEATS", 1)
    found = tmp_path / "lattice.json"
    lattice.main(["--quick", "--json", str(found)])
    told = json.loads(found.read_text())
    operations = {(row["scheme"], row["operation"]) for row in told["rows"]}
    wanted = {"encrypt", "add, all rows", "add, a node of few rows", "answer", "decrypt"}
    assert {(ring, name) for ring in ("lattice", "lattice-4096") for name in wanted} < operations
    assert len(told["figures"]) == len(told["rows"]) == len(operations)
    assert told["figures"]["lattice.answer_ns"] > 0
