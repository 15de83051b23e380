"""The GBUN benchmark: splits, grids, scores by rounds, bytes, figures, tables, plots."""

import json
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csc_array

from benchmarks import (
    gbun,
    gbun_accuracy,
    gbun_data,
    gbun_jobs,
    gbun_plan,
    gbun_plots,
    gbun_tables,
    tables,
)
from benchmarks.gbun_plan import ACCURACY, FULL, GBUN, LIGHTGBM, SYSTEMS, XGBOOST, Plan, Point
from benchmarks.harness import StepTotal
from fedboost.core import gbun as networks
from fedboost.core import local
from fedboost.data.reading import read_sheet

POINT = Point(size=4, rate=0.3, reg_lambda=1.0)
OTHERS = {XGBOOST: "xgboost", LIGHTGBM: "lightgbm"}


def toy(rows=300, classes=2):
    draw = np.random.default_rng(5)
    values = np.asfortranarray(draw.normal(size=(rows, 4)).astype(np.float32))
    pull = values.sum(axis=1) + draw.normal(size=rows)
    y = np.digitize(pull, [-1.0, 1.0]) if classes > 2 else (pull > 0.0).astype(np.int64)
    return tables.Table("vehicle", np.arange(rows) + 10**6, y, values, tuple("abcd"))


@pytest.fixture
def small(monkeypatch):
    """Every dense table is the small one."""
    monkeypatch.setattr(tables, "load", lambda name: toy(classes=3 if name == "vehicle" else 2))


# Data


def test_no_row_is_in_two_parts_and_none_is_lost(small):
    found = gbun_data.split("vehicle", 10**6, 0)
    assert found.classes == 3
    assert found.metric == "accuracy"
    parts = [found.fit, found.validation, found.test]
    seen = np.concatenate([np.asarray(part.values) for part in parts])
    assert sorted(map(tuple, seen)) == sorted(map(tuple, toy().values))
    assert all(len(part.y) == len(np.asarray(part.values)) for part in parts)
    other = gbun_data.split("vehicle", 10**6, 1)
    assert other.test.y.tolist() != found.test.y.tolist()
    fewer = gbun_data.split("vehicle", 50, 0)
    assert sum(fewer.rows.values()) == 50


def test_parties_share_all_rows_in_order(tmp_path):
    sources = gbun_data.deal_rows(toy(), gbun_data.party_names(3), tmp_path)
    assert list(sources) == ["guest", "host1", "host2"]
    found = [pq.read_table(source.path) for source in sources.values()]
    assert [one.num_rows for one in found] == [100, 100, 100]
    assert pa.concat_tables(found)["id"].to_pylist() == toy().id.tolist()
    assert found[2]["y"].to_pylist() == toy().y[200:].tolist()


def test_a_sparse_file_has_as_many_columns_as_asked_for(tmp_path):
    sources = gbun_data.deal_sparse(10_000, ("guest",), tmp_path, rows=5)
    sheet = read_sheet(sources["guest"])
    assert sheet.sparse is not None
    assert sheet.sparse.values.shape == (5, 10_000)
    assert sheet.sparse.values.nnz <= 5 * 21


# Plans


def test_sizes_and_shrinkage_lie_on_the_papers_grid():
    for grid in [*FULL.values(), *gbun_plan.QUICK.values()]:
        for system in SYSTEMS:
            for point in grid.points(system):
                least, most = (5, 10) if system == XGBOOST else (32, 1024)
                assert least <= point.size <= most
                assert system == XGBOOST or point.size.bit_count() == 1
                assert 0.0 <= point.rate <= 1.0
                assert round(10 * point.rate, 9).is_integer()
                assert point.reg_lambda <= 1.0 or system == GBUN
    assert set(FULL) == set(ACCURACY)


def test_a_grid_names_all_its_points_once():
    grid = gbun_plan.Grid(
        gbun_plan.sizes((5,), (32,)),
        gbun_plan.grid_of((32, 64), (0.1, 0.3), (0.0, 1.0), "rank"),
        (0.1, 0.3),
        (0.0, 1.0),
    )
    assert len(set(grid.points(GBUN))) == len(list(grid.points(GBUN))) == 8
    assert len(list(grid.points(XGBOOST))) == 4


# Accuracy


@pytest.mark.parametrize("name", ["vehicle", "epsilon_5k"])
def test_the_last_stage_of_every_system_is_the_model_itself(small, name):
    given = gbun_data.split(name, 10**6, 0)
    held = np.asarray(given.test.values)
    staged = gbun_accuracy.STAGED[GBUN](given, held, POINT, 3)
    params = gbun_accuracy.gbun_params(given.classes, POINT, 3)
    expected = networks.train(given.fit, params).predict(held)
    assert len(staged) == 3
    assert np.allclose(staged[-1], expected.squeeze(), atol=1e-6)
    assert not np.allclose(staged[0], staged[-1], atol=1e-3)


@pytest.mark.parametrize("system", OTHERS)
@pytest.mark.parametrize("name", ["vehicle", "epsilon_5k"])
def test_others_predict_probabilities_after_every_round(small, system, name):
    pytest.importorskip(OTHERS[system])
    given = gbun_data.split(name, 10**6, 0)
    held = np.asarray(given.test.values)
    staged = gbun_accuracy.STAGED[system](given, held, POINT, 3)
    shape = (len(held), 3) if given.classes == 3 else (len(held),)
    assert [one.shape for one in staged] == [shape] * 3
    assert all((one >= 0.0).all() and (one <= 1.0).all() for one in staged)
    assert not np.allclose(staged[0], staged[-1], atol=1e-3)


def test_rounds_are_chosen_by_validation_and_best_by_test(small):
    given = gbun_data.split("vehicle", 10**6, 0)
    run = gbun_accuracy.trained(GBUN, given, POINT, 6)
    assert run is not None
    assert run.test[run.best] == max(run.test)
    assert run.validation[run.chosen] == max(run.validation)
    assert set(run.maps) == {run.best, run.chosen}
    assert all(0.0 < one <= 1.0 for one in run.maps.values())


def test_a_point_without_a_solution_is_no_run():
    same = np.zeros((20, 2), np.float32)
    part = local.TrainingTable(same, np.arange(20.0) % 2)
    given = gbun_data.Split("toy", part, part, part, 2)
    assert gbun_accuracy.trained(GBUN, given, Point(4, 0.3, 0.0), 2) is None
    assert gbun_accuracy.trained(GBUN, given, Point(4, 0.3, 0.5), 2) is not None


def test_finalists_are_trained_for_all_rounds(small):
    given = gbun_data.split("epsilon_5k", 10**6, 0)
    grid = gbun_plan.Grid(
        gbun_plan.sizes((2,), (4,)),
        gbun_plan.grid_of((4, 8), (0.3,), (0.1, 1.0), "standard"),
        (0.3,),
        (0.1, 1.0),
        tried=2,
        finalists=1,
    )
    row = gbun_accuracy.searched(GBUN, given, grid, 5)
    assert [run["rounds"] for run in row["runs"]] == [2, 2, 2, 2, 5]
    best_short = max(row["runs"][:4], key=lambda run: run["validation"])
    assert row["runs"][4]["size"] == best_short["size"]
    assert row["best"]["score"] == max(run["best"] for run in row["runs"])
    assert row["chosen"]["score"] <= row["best"]["score"]


def test_mean_average_precision_is_1_for_a_perfect_ranking():
    y = np.array([0.0, 1.0, 2.0, 1.0])
    perfect = np.eye(3, dtype=np.float32)[y.astype(int)]
    assert gbun_accuracy.mean_average_precision(y, perfect) == 1.0
    # The rows of class 1 come first and third in the order of its column: (1 + 2/3) / 2.
    worse = perfect.copy()
    worse[:, 1] = [0.5, 0.9, 0.1, 0.3]
    assert gbun_accuracy.mean_average_precision(y, worse) == pytest.approx((2 + 5 / 6) / 3)


def test_sparse_rows_stay_sparse_for_the_others():
    rows = csc_array(np.eye(3, dtype=np.float32))
    assert gbun_accuracy._by_row(rows).format == "csr"
    assert gbun_accuracy._joined(rows, rows).shape == (6, 3)


# Jobs


def test_the_formula_is_the_issues():
    assert gbun_jobs.formula(64, 1) == 8 * (129 + 2080 + 64)
    assert gbun_jobs.formula(8, 4) == 8 * (17 + 4 * 36 + 4 * 8)


@pytest.mark.some(3, of="benchmarks that train")
def test_a_round_is_within_a_tenth_of_the_formula_whatever_the_columns(tmp_path):
    found = []
    for columns in (30, 3000):
        parties = gbun_data.party_names(2)
        sources = gbun_data.deal_sparse(columns, parties, tmp_path / str(columns), rows=40)
        params = gbun_jobs.networks_of(2, 2)
        found.append(gbun_jobs.counted(gbun_jobs.NETWORKS, params, parties, sources))
    first, second = found
    assert 1.0 < first["up"] / first["formula"] < 1.1
    assert second["up"] == first["up"]
    assert set(first["by_step"]) == {"sum_outputs", "sum_system", "measure"}


def test_what_is_sent_once_is_no_part_of_a_round(monkeypatch):
    steps = [
        StepTotal("gbun", "count_rows", bytes={"guest->sum": 5000, "sum->guest": 10**6}),
        StepTotal("gbun", "sum_outputs", bytes={"guest->sum": 200, "host1->sum": 220}),
        StepTotal("gbun", "add_up", bytes={"sum->guest": 10**6}),
        StepTotal("done", "sum_outputs", bytes={"guest->sum": 10**6}),
    ]
    monkeypatch.setattr(gbun_jobs, "in_this_process", lambda *_: steps)
    params = gbun_jobs.networks_of(4, 2)
    found = gbun_jobs.counted("gbun", params, ("guest", "host1"), {})
    assert found["up"] == 110
    assert found["by_step"] == {"sum_outputs": 110}
    assert found["once"] == 0  # of the party that sends most in a round
    assert found["formula"] == gbun_jobs.formula(64, 4)


def test_the_busiest_party_is_not_the_aggregator():
    steps = [
        StepTotal("gbun", "count_rows", cpu_seconds={"guest": 50.0}),
        StepTotal("gbun", "sum_system", cpu_seconds={"guest": 2.0, "host1": 5.0}),
        StepTotal("gbun", "add_up", cpu_seconds={"sum": 90.0}),
        StepTotal("gbun", "solve", cpu_seconds={"guest": 2.0, "host1": 1.0}),
    ]
    run = SimpleNamespace(steps=steps)
    assert gbun_jobs._busiest(run, 2) == 3.0  # type: ignore[arg-type]


def test_jobs_have_an_aggregator_without_rows():
    spec = gbun_jobs.job("gbun", gbun_data.party_names(2), gbun_jobs.networks_of(3, 7))
    assert spec.parties.aggregator == "sum"
    assert set(spec.data) == {"guest", "host1"}
    assert (spec.params["outputs"], spec.params["num_class"]) == (64, 3)
    trees = gbun_jobs.job("federboost-horizontal", ("guest", "a"), gbun_jobs.trees_of(2, 3))
    assert "outputs" not in trees.params


# Figures, tables, plots


def score(system, best, split=0):
    run: dict[str, Any] = {"size": 32, "rate": 0.1, "reg_lambda": 0.5, "rounds": 300}
    run |= {"columns": "bins", "sharpness": 3.0, "weights": 4}
    facts = {**run, "map": None, "cpu_s": 1.0, "round": 7}
    return {
        "what": "accuracy", "data": "vehicle", "metric": "accuracy", "classes": 4, "columns": 18,
        "rows": {"fit": 9, "validation": 3, "test": 4}, "system": system, "split": split,
        "best": {"score": best, **facts}, "chosen": {"score": best, **facts},
        "runs": [run], "curve": [0.1, 0.2, 0.3], "cpu_s": 3.0, "seconds": 4.0, "load": [1.0],
        "unsolvable": 0,
    }  # fmt: skip


def sent(columns, up, data="sparse", outputs=64):
    return {
        "what": "bytes", "data": data, "columns": columns, "classes": 2, "outputs": outputs,
        "protocol": "gbun" if outputs else "federboost-horizontal", "up": up, "once": 9,
        "formula": 1000 if outputs else None, "metric": ["error"], "rounds": 2, "parties": 3,
    }  # fmt: skip


def limited(system, bits_per_s, seconds, others=0.0):
    return {
        "what": "bandwidth", "data": "epsilon_5k", "system": system, "bits_per_s": bits_per_s,
        "parties": 2, "seconds": seconds, "first": 9.0, "cpu_s": 1.0, "others": others,
        "load": [1.0],
    }  # fmt: skip


def divided(parties, seconds, busiest):
    return {
        "what": "parties", "data": "covtype", "rows": 9, "columns": 54, "classes": 7,
        "outputs": 64, "parties": parties, "rounds": 3, "seconds": [seconds], "first": 1.0,
        "cpu_s": None, "busiest_cpu_s": busiest, "others": None, "load": [1.0],
    }  # fmt: skip


ROWS = [
    *(score(GBUN, best, split) for split, best in enumerate([0.8, 0.9])),
    *(score(XGBOOST, best, split) for split, best in enumerate([0.7, 0.8])),
    *(score(LIGHTGBM, best, split) for split, best in enumerate([0.9, 0.9])),
    *(sent(columns, 1005) for columns in (100, 1_000_000)),
    sent(100, 90_000, data="epsilon_5k", outputs=None),
    *(limited("GBUN", rate, [seconds]) for rate, seconds in [(1e12, 0.1), (1e7, 0.2), (1e6, 1.0)]),
    divided(1, 2.0, 1.6),
    divided(2, 1.0, 0.8),
    {
        "what": "federated", "data": "vehicle", "rows": 846, "columns": 18, "parties": 3,
        "rounds": 5, "outputs": 64, "reg_lambda": 1.0, "gap": 1.6e-8, "mean_gap": 1e-8,
        "largest": 2.3, "seconds": 0.1,
    },
]  # fmt: skip


def test_the_figures_are_the_interfaces():
    found = gbun_tables.figures(ROWS)
    assert set(found) == {"score_gap.vehicle", "bytes_ratio.100", "bytes_ratio.1000000"}
    assert found["score_gap.vehicle"] == pytest.approx(0.9 - 0.85)
    assert found["bytes_ratio.100"] == found["bytes_ratio.1000000"] == 1.005


def test_there_is_no_gap_without_all_three():
    alone = [row for row in ROWS if row.get("system") != LIGHTGBM]
    assert "score_gap.vehicle" not in gbun_tables.figures(alone)


def test_tables_say_ratios_and_the_better_of_both():
    shown = "\n".join(table.markdown() for table in gbun_tables.shown(ROWS))
    best = "| vehicle | accuracy | bins | test rows (best) | 0.8500 | 0.7500 | 0.9000 |"
    assert f"{best} +0.0500 | 2 |" in shown
    assert "| 1 Mbit/s | 1.000 | 10.00 |" in shown
    assert "| 2 | 1.000 | 1.00 | 2.00 | 0.800 | 2.00 |" in shown
    assert "| 1,005 | 1,000 | 1.0050 |" in shown
    assert "1.6e-08" in shown
    assert "cores busy" not in shown
    beside = gbun_tables.shown([limited("GBUN", 1e12, [0.1], others=0.9)])
    assert "cores busy" in beside[0].markdown()


def test_plots_are_drawings_with_a_line_for_each_system(tmp_path):
    links = gbun_plots.write(tmp_path, ROWS)
    files = {"gbun-curve-vehicle.svg", "gbun-bandwidth.svg", "gbun-parties.svg"}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert len(links) == 3
    for file in files:
        drawn = ElementTree.parse(tmp_path / file)
        assert drawn.getroot().tag.endswith("svg")
    words = (tmp_path / "gbun-curve-vehicle.svg").read_text()
    assert all(system in words for system in SYSTEMS)
    assert gbun_plots.curve(score(GBUN, 0.5)) == [(1.0, 0.1), (6.0, 0.2), (11.0, 0.3)]
    assert gbun_plots.write(tmp_path, []) == []


# The command


def test_runs_of_parts_are_shown_together(tmp_path, monkeypatch):
    known = {
        part: (names, lambda name, plan, part=part: of(part, name))
        for part, (names, _) in gbun.MEASURES.items()
    }
    monkeypatch.setattr(gbun, "MEASURES", known)

    def of(part, name):
        return [row for row in ROWS if (row["what"], row["data"]) == (part, name)]

    files = [tmp_path / f"{part}.json" for part in gbun.BENCHMARK.parts]
    for part, file in zip(gbun.BENCHMARK.parts, files, strict=True):
        gbun.BENCHMARK.main(["--quick", "--part", part, "--json", str(file)])
    report = gbun.BENCHMARK.earlier(files)
    assert len(report.rows) == len(ROWS)
    assert report.figures == gbun_tables.figures(ROWS)
    shown, plots = tmp_path / "all.json", tmp_path / "plots"
    plots.mkdir()
    given = ["--record", str(shown), "--plots", str(plots)]
    gbun.BENCHMARK.main([*given, *(f"--from={file}" for file in files)])
    assert json.loads(shown.read_text())["figures"]["score_gap.vehicle"] == pytest.approx(0.05)
    assert (plots / "gbun-parties.svg").exists()
    assert json.loads(files[0].read_text())["name"] == "gbun"


def test_an_unknown_option_is_refused():
    with pytest.raises(SystemExit):
        gbun.BENCHMARK.main(["--fast"])


def test_the_quick_plan_limits_and_divides_less():
    quick, full = Plan.of(quick=True), Plan.of(quick=False)
    assert quick.columns == full.columns == (100, 10_000, 1_000_000)
    assert set(full.limited) == {64, 1024}
    assert full.parties == (1, 2, 4, 8)
    assert quick.rows_of("covtype") < full.rows_of("covtype") == 20_000
