"""The FedGBF benchmark: schedules, bounds, critical paths, and what its command line accepts."""

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import fedgbf, fedgbf_jobs, fedgbf_plots, fedgbf_tables, plus_jobs, tables
from benchmarks.fedgbf_jobs import DYNAMIC, LONE, ROUNDS, SECUREBOOST, Plan, Schedule
from benchmarks.fedgbf_tables import Jobs
from benchmarks.harness import JobRun, Lap, StepTotal
from benchmarks.plus_tables import XGBOOST
from fedboost.core import sampling
from fedboost.core.params import TreeParams
from fedboost.job import JobSpec

SIZES = [5, 5, 4, 2]  # trees of four rounds: ⌈2 + 3·cos θ⌉ at θ = 0, 30, 60 and 90 degrees


def toy(rows=300, name="give_credit"):
    draw = np.random.default_rng(5)
    values = draw.integers(0, 4, (rows, 3)).astype(np.float32)
    y = (values.sum(axis=1) + draw.normal(size=rows) > 4.5).astype(np.int64)
    return tables.Table(name, np.arange(rows) + 10**6, y, values, ("a", "b", "host_a"))


def laps(*seconds, known=True):
    """Rounds that keep one core and a half busy."""
    return [
        {"seconds": s, "ours": 1.5 * s if known else None, "others": 0.0 if known else None}
        for s in seconds
    ]


def timed(system, *seconds, draw=0, known=True, others=0.0):
    own = laps(*seconds, known=known)
    return {
        **{"what": "time", "data": "toy", "rows": 9, "host_columns": 2, "scheme": "paillier"},
        **{"system": system, "draw": draw, "rounds": len(seconds), "laps": own},
        **{"wall_s": sum(seconds), "cpu_s": 1.5 * sum(seconds) if known else None},
        **{"sent": 10, "exchanges": 13.0, "others": others, "load": [0.0], "test_auc": 0.7},
    }


def jobs(known=True, others=0.0):
    return [
        timed(SECUREBOOST, 20.0, 10.0, 10.0, 10.0, known=known, others=others),
        timed(DYNAMIC, 9.0, 8.0, 8.0, 15.0, known=known),
        timed(LONE, 1.0, 2.0, 3.0, 4.0, known=known),
        timed(LONE, 2.0, 1.0, 3.0, 5.0, draw=1, known=known),
        timed(LONE, 1.0, 1.0, 1.0, 99.0, draw=2, known=known),
    ]


def scores(rounds, **auc):
    systems = {"dynamic": DYNAMIC, "secureboost": SECUREBOOST, "xgboost": XGBOOST}
    return [
        {"what": "scores", "data": "toy", "rows": 9, "host_columns": 2, "rounds": rounds,
         "system": systems[name],
         **{part: {"auc": value, "accuracy": 0.9, "f1": 0.1} for part in ("train", "validation")}}
        for name, value in auc.items()
    ]  # fmt: skip


def test_the_schedule_of_100_rounds_is_the_papers():
    moving = Schedule.of(100)
    assert moving.least == pytest.approx(22.705, abs=0.001)
    assert moving.most == pytest.approx(93.68, abs=0.01)
    assert (moving.sizes[0], moving.sizes[-1]) == (5, 2)
    assert Schedule.of(4).sizes.tolist() == SIZES


def test_the_paper_saves_six_percent_of_a_hundred_rounds_one_tree_after_the_other():
    # Table 2 of the paper: 58,195 s by equation 10, 62,104 s by equation 11.
    assert Schedule.of(100).most / 100 == pytest.approx(58_195 / 62_104, abs=0.001)


@pytest.mark.parametrize("system", [SECUREBOOST, DYNAMIC, LONE])
def test_every_system_is_a_job_of_the_papers_depth_and_learning_rate(system):
    params = fedgbf_jobs.PARAMS.get(system) or fedgbf_jobs.lone(3)
    found = plus_jobs.job(toy(), 20, "paillier", params)
    assert isinstance(found, JobSpec)
    assert (found.params["max_depth"], found.params["learning_rate"]) == (3, 0.1)
    assert ("forest" in found.params) == (system != SECUREBOOST)
    assert "goss" not in found.params


def test_a_lone_tree_is_the_first_of_its_forest():
    gradients = np.zeros((500, 1))
    whole = TreeParams(n_estimators=4, forest=fedgbf_jobs.PARAMS[DYNAMIC]["forest"])
    params = fedgbf_jobs.lone(0)
    alone = TreeParams(n_estimators=4, forest=params["forest"], seed=params["seed"])
    for number, size in enumerate(SIZES):
        forest = sampling.of_round(whole, gradients, number, number).trees
        tree = sampling.of_round(alone, gradients, number, number).trees
        assert (len(forest), len(tree)) == (size, 1)
        np.testing.assert_array_equal(forest[0], tree[0])


def test_figures_compare_with_secureboost():
    rows = [*scores(20, dynamic=0.79, secureboost=0.8, xgboost=0.9), *jobs()]
    assert fedgbf_tables.figures(rows) == pytest.approx(
        {
            "test_auc_gap.toy.20": 0.01,
            "cpu_ratio.toy": 40.0 / 50.0,
            "critical_path_ratio.toy": (2.0 + 2.0 + 3.0 + 5.0) / 50.0,
            "exchanges_ratio.toy": 1.0,
        }
    )


def test_a_round_is_as_long_as_the_slowest_tree_of_its_forest():
    found = Jobs.of(jobs())
    # The last forest has two trees: the third draw, 99 s, is none of them.
    assert found.path("wall_s") == 2.0 + 2.0 + 3.0 + 5.0
    assert found.path("wall_s", draws=1) == 1.0 + 2.0 + 3.0 + 4.0
    assert found.path("cpu_s") == 1.5 * 12.0


def test_what_is_unknown_leaves_no_figure():
    found = fedgbf_tables.figures(jobs(known=False))
    assert found == {"exchanges_ratio.toy": 1.0}
    assert set(fedgbf_tables.figures(jobs()[:2])) == {"cpu_ratio.toy", "exchanges_ratio.toy"}


def test_the_bounds_come_from_one_tree_after_the_first():
    found = Jobs.of(jobs())
    assert (found.unit("wall_s"), found.unit("cpu_s")) == (10.0, 15.0)
    bounds = fedgbf_tables.shown(jobs())[1]
    least, most = Schedule.of(4).least, Schedule.of(4).most
    assert bounds.rows[0][1:6] == (
        *("40.0", f"{10.0 * least:.1f}", f"{10.0 * most:.1f}", "50.0", "40.0"),
    )
    # The other numbers of rounds have estimates, but nothing that was measured.
    assert [row[0] for row in bounds.rows[1:4]] == [f"{rounds} rounds, wall s" for rounds in ROUNDS]
    assert all(row[4:6] == ("", "") for row in bounds.rows[1:4])


def test_tables_say_what_was_not_timed_and_what_was_disturbed():
    _, _, path = fedgbf_tables.shown(jobs())
    assert "up to 5 trees, of which 3 were timed" in path.note
    assert [row[0] for row in path.rows] == ["1", "2", "3"]
    quiet, busy = (fedgbf_tables.shown(jobs(others=others))[0] for others in (0.0, 0.9))
    assert "CPU seconds compare better" not in quiet.note
    assert "CPU seconds compare better" in busy.note


def test_scores_show_the_signed_gap_of_the_same_rounds():
    rows = [
        *scores(20, dynamic=0.79, secureboost=0.8, xgboost=0.9),
        *scores(50, dynamic=0.85, secureboost=0.84, xgboost=0.9),
    ]
    (table,) = fedgbf_tables.shown(rows)
    assert [row[-1] for row in table.rows] == ["-0.0100", "", "", "+0.0100", "", ""]
    assert len(table.heads) == len(table.rows[0])


def test_exchanges_of_a_round_leave_alignment_and_the_key_out():
    sent = {"guest->host": 100}
    steps = [
        StepTotal("align", "blind", calls=5, bytes=sent),
        StepTotal("align", "count", calls=2),
        StepTotal("secureboost", "share_key", calls=1, bytes=sent),
        StepTotal("secureboost", "open_layer", calls=6, bytes=sent),
        StepTotal("secureboost", "close_trees", calls=2),
    ]
    rounds = [{"metrics": {"validation.auc": auc}} for auc in (0.6, 0.7)]
    trees = [Lap(3.0, 2.0, 1.0), Lap(1.0, 1.0, 1.0)]
    run = JobRun({"exchanges": 12}, steps, rounds, {}, [0.5], [0.6], {}, trees)
    found = fedgbf._cost(run)
    assert found["exchanges"] == 3.0
    assert (found["wall_s"], found["cpu_s"], found["others"]) == (4.0, 3.0, 0.5)
    assert (found["sent"], found["test_auc"]) == (100, 0.7)


def test_xgboost_is_scored_after_each_number_of_rounds():
    pytest.importorskip("xgboost")
    found = fedgbf_jobs.pooled(toy(rows=2000))
    assert tuple(found) == ROUNDS
    train = [found[rounds]["train"]["auc"] for rounds in ROUNDS]
    assert train == sorted(train)
    assert train[0] < train[-1]
    assert set(found[20]["validation"]) == {"auc", "accuracy", "f1"}


def test_the_plot_has_measured_bars_between_its_bounds(tmp_path):
    (shown,) = fedgbf_plots.write(tmp_path, jobs())
    assert shown.endswith("](fedgbf-time.svg)")
    drawn = ElementTree.parse(tmp_path / "fedgbf-time.svg").getroot()
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text and text.endswith(" s")] == [
        *("75.0 s", f"{15 * Schedule.of(4).most:.1f} s", "60.0 s", "18.0 s"),
        f"{15 * Schedule.of(4).least:.1f} s",
    ]
    (group,) = fedgbf_plots.groups(jobs(known=False))
    assert group.title.startswith("toy, wall seconds")
    assert fedgbf_plots.write(tmp_path, []) == []


@pytest.fixture
def small(monkeypatch):
    """Tables of no size and jobs that take no time."""
    seconds = {SECUREBOOST: 10.0, DYNAMIC: 8.0, LONE: 2.0}

    def measure_time(name, plan):
        return [
            {**timed(system, *[seconds[system]] * plan.rounds, draw=draw), "data": name}
            for system, draw, _ in plan.jobs(name)
        ]

    def sampled(plan, name):
        return replace(toy(), name=name)

    halves: dict[str, Any] = {"guest": ("a", "b"), "host": ("host_a",)}
    monkeypatch.setattr(plus_jobs, "parts", lambda table: halves)
    monkeypatch.setattr(fedgbf, "measure_time", measure_time)
    monkeypatch.setattr(fedgbf, "ROUNDS", (1, 2))
    monkeypatch.setattr(fedgbf_jobs, "ROUNDS", (1, 2))
    monkeypatch.setattr(Plan, "accuracy_table", sampled)


@pytest.mark.some(3, of="benchmarks that train")
def test_the_figures_are_the_interfaces(small, tmp_path):
    pytest.importorskip("xgboost")
    written = tmp_path / "f.json"
    fedgbf.BENCHMARK.main(["--quick", "--data", "default_credit", "--json", str(written)])
    found = json.loads(written.read_text())
    assert found["name"] == "fedgbf"
    assert set(found["figures"]) == {
        *("test_auc_gap.default_credit.1", "test_auc_gap.default_credit.2"),
        *(f"{name}.default_credit" for name in ("cpu_ratio", "critical_path_ratio")),
        "exchanges_ratio.default_credit",
    }
    assert found["figures"]["cpu_ratio.default_credit"] == pytest.approx(0.8)
    train = {(row["system"], row["rounds"]): row["train"] for row in found["rows"][:6]}
    assert train[SECUREBOOST, 1] != train[SECUREBOOST, 2]
    assert train[SECUREBOOST, 2]["auc"] == pytest.approx(train[XGBOOST, 2]["auc"], abs=0.02)


def test_runs_of_parts_and_data_sets_are_shown_together(small, tmp_path, monkeypatch):
    files = [tmp_path / f"{number}.json" for number in range(3)]
    time = ["--quick", "--part", "time", "--json"]
    fedgbf.BENCHMARK.main([*time, str(files[0]), "--data", "default_credit"])
    fedgbf.BENCHMARK.main([*time, str(files[1])])
    runs = [json.loads(file.read_text()) for file in files[:2]]
    runs[0]["rows"][0]["cpu_s"] = 5.0  # measured again by the second run
    accuracy = {**runs[0], "rows": scores(20, dynamic=0.7, secureboost=0.8, xgboost=0.9)}
    for row in accuracy["rows"]:
        row["data"] = "give_credit"
    files[0].write_text(json.dumps(runs[0]))
    files[2].write_text(json.dumps(accuracy))
    monkeypatch.setattr(fedgbf, "_facts", None)
    shown = tmp_path / "all.json"
    together = ["--record", str(shown), "--plots", str(tmp_path)]
    fedgbf.BENCHMARK.main([*together, *(arg for file in files for arg in ("--from", str(file)))])
    report = fedgbf.BENCHMARK.earlier(files)
    assert sorted(report.rows, key=str) == sorted([*runs[1]["rows"], *accuracy["rows"]], key=str)
    assert report.figures == {
        **runs[1]["figures"],
        "test_auc_gap.give_credit.20": pytest.approx(0.1),
    }
    assert json.loads(shown.read_text())["figures"]["cpu_ratio.give_credit"] == 0.8
    assert (tmp_path / "fedgbf-time.svg").exists()


def test_fewer_rounds_are_timed_where_the_command_line_says_so(small, tmp_path):
    written = tmp_path / "f.json"
    time = ["--quick", "--part", "time", "--data", "give_credit"]
    fedgbf.BENCHMARK.main([*time, "--rounds", "3", "--json", str(written)])
    found = json.loads(written.read_text())
    assert {row["rounds"] for row in found["rows"]} == {3} == {found["settings"]["timed rounds"]}


def test_the_command_line_says_what_is_run():
    quick = fedgbf.BENCHMARK.options(["--quick"])
    assert quick.quick
    assert tuple(quick.data) == fedgbf_jobs.DATA
    assert tuple(quick.part) == fedgbf.BENCHMARK.parts
    assert fedgbf.BENCHMARK.options(["--part", "time"]).part == ["time"]
    assert Plan.of(quick=False).rounds == ROUNDS[0]
    with pytest.raises(SystemExit):
        fedgbf.BENCHMARK.main(["--fast"])
