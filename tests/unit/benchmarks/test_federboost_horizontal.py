"""The horizontal half of the FederBoost benchmark: rows dealt, models, floor, figures, tables."""

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import (
    federboost,
    federboost_horizontal,
    federboost_horizontal_floor,
    federboost_horizontal_jobs,
    federboost_horizontal_tables,
    federboost_jobs,
    federboost_plots,
    federboost_room,
    tables,
)
from benchmarks.federboost_horizontal_jobs import EXACT, Plan
from benchmarks.federboost_horizontal_tables import WideArea
from benchmarks.harness import JobRun, StepTotal
from fedboost.core import local
from fedboost.core.binning import Binning
from fedboost.job import JobSpec
from fedboost.runtime.config.policy import Policy

TINY = {"n_estimators": 2, "max_depth": 2}


def toy(rows=900, columns=4):
    draw = np.random.default_rng(5)
    values = np.asfortranarray(draw.normal(size=(rows, columns)).astype(np.float32))
    y = (values.sum(axis=1) + draw.normal(size=rows) > 0.0).astype(np.int64)
    names = tuple("abcdefgh"[:columns])
    return tables.Table("susy_30k", np.arange(rows) + 10**6, y, values, names)


def given(**more):
    return federboost_horizontal_jobs.params("susy_30k", **TINY, **more)


def job_run(seconds, trees=2, began=100.0):
    """A finished job: a quarter of it quantiles, then trees until a tenth of it is left."""
    steps = [
        StepTotal("federboost-horizontal", "count_below", calls=9, seconds=seconds / 4),
        StepTotal("federboost-horizontal", "add_up", 20, 0.1, {"guest": 0.5}, {"guest->host1": 70}),
        StepTotal("other", "meet", bytes={"host1->guest": 9999}),
    ]
    ends = {"narrow": began + seconds / 4, "read_metrics": began + 0.9 * seconds}
    ends["federboost-horizontal"] = began + seconds
    times = {"train": seconds}
    result: dict[str, Any] = {"protocol": "federboost-horizontal", "seconds": times}
    result["exchanges"] = 20 + 10 * trees
    spent = {"seconds": 2.0, "ours": seconds / 2, "others": 0.0, "stolen": 0.0}
    rounds: list[dict[str, Any]] = [{"seconds": 0.05 * seconds, "metrics": {}}] * trees
    return JobRun(result, steps, rounds, {}, [0.5], [0.6], spent, ends=ends)


def test_every_row_has_one_party_and_shares_are_equal():
    table = toy(rows=100)
    shares = federboost_horizontal_jobs.dealt(table, 3)
    assert list(shares) == ["guest", "host1", "host2"]
    assert sorted(len(share.y) for share in shares.values()) == [33, 33, 34]
    together = np.concatenate([share.id for share in shares.values()])
    assert sorted(together) == table.id.tolist()
    again = federboost_horizontal_jobs.dealt(table, 3)
    assert again["host1"].id.tolist() == shares["host1"].id.tolist()


def test_rows_are_written_with_labels_and_all_columns(tmp_path):
    shares = federboost_horizontal_jobs.dealt(toy(rows=9), 2)
    sources = tables.deal_rows(shares, tmp_path / "data")
    written = pq.read_table(sources["host1"].path)
    assert written.column_names == ["id", "y", "a", "b", "c", "d"]
    assert written["id"].to_pylist() == shares["host1"].id.tolist()
    assert written["y"].to_pylist() == shares["host1"].y.tolist()


def test_a_job_may_be_added_up_by_its_guest_or_apart():
    shares = federboost_horizontal_jobs.dealt(toy(), 3)
    for aggregator in ("guest", federboost_horizontal_jobs.APART):
        spec = federboost_horizontal_jobs.job(shares, given(), aggregator)
        assert isinstance(spec, JobSpec)
        assert spec.parties.aggregator == aggregator
        assert set(spec.data) == set(shares)
        assert all(one.label == "y" for one in spec.data.values())


@pytest.mark.parametrize("aggregator", ["guest", "aggregator"])
def test_the_room_trains_the_pooled_trees_of_rows(aggregator):
    table = toy(rows=960)
    shares = federboost_horizontal_jobs.dealt(table, 3)
    asked = given(max_bin=8, quantile_tolerance=EXACT)
    trained = federboost_room.train_horizontal(shares, asked, aggregator)
    cuts = []
    for column in table.values.T:
        ranked = np.sort(column)
        cuts.append((ranked[119:-1:120] + ranked[120::120]) / 2)
    params = federboost_horizontal_floor.tree_params(asked)
    values = np.concatenate([share.values for share in shares.values()])
    y = np.concatenate([share.y for share in shares.values()]).astype(np.float64)
    learned = local.TrainingTable(
        values,
        y,
        row_groups=tuple(len(share.y) for share in shares.values()),
        own_rows_min=(Policy().own_rows_min,) * len(shares),
    )
    pooled = local.train(learned, params, cuts=Binning(8, tuple(cuts)))
    found = federboost_room.predict_whole(trained.shards, table)
    assert found == pytest.approx(pooled.predict(table.values)[:, 0], abs=1e-6)
    assert trained.ended > trained.ends["read_metrics"] > trained.ends["narrow"] > trained.began


def test_primitives_are_those_of_the_trees_and_nothing_else():
    table = toy()
    shares = federboost_horizontal_jobs.dealt(table, 3)
    found = federboost_horizontal_floor.primitives(table, shares, given(max_bin=8))
    kinds = {"bins and gradients", "histograms", "splits", "margins", "metrics", "masks"}
    assert set(found["alone"]) == kinds
    assert min(found["alone"].values()) > 0.0
    # Two layers and the metrics of each of two trees; a layer asks for one node's histograms.
    assert found["vectors"] == 2 * 3
    cells = 4 * 9 * 2  # columns, bins with that of missing values, g and h
    assert 4 * cells < found["words"] < 4 * cells + 2 * 10
    assert len(federboost_horizontal_floor.pooled_seconds(table, given(max_bin=8), 2)) == 2


def test_phases_end_with_the_last_cut_point_and_the_last_metrics():
    found = federboost_horizontal._phases_of([job_run(8.0), job_run(2.0), job_run(4.0)])
    assert found == {"phases": pytest.approx({"quantiles": 1.0, "trees": 2.6, "rest": 0.4})}


def test_a_walk_leaves_the_first_one_out_where_there_are_others():
    shares = federboost_horizontal_jobs.dealt(toy(), 2)
    once = federboost_horizontal.walk(shares, given(max_bin=4), 0)
    assert once["seconds"] == [once["first"]]
    thrice = federboost_horizontal.walk(shares, given(max_bin=4), 2)
    assert len(thrice["seconds"]) == 2
    assert set(thrice["phases"]) == set(federboost_horizontal_tables.PHASES)
    assert thrice["sent"] == once["sent"] > 0


# Figures and tables


def utility(seed, auc, buckets=24, tolerance: int | None = None, data="susy_30k"):
    facts = {"what": "horizontal_utility", "data": data, "rows": 9, "columns": 4, "seed": seed}
    return {**facts, "buckets": buckets, "tolerance": tolerance, "auc": auc, "xgboost": 0.8}


UTILITY = [
    *(utility(seed, auc) for seed, auc in enumerate([0.79, 0.82])),
    *(utility(seed, 0.7, tolerance=EXACT) for seed in range(2)),
    *(utility(seed, 0.6, buckets=8) for seed in range(2)),
]
PHASES = {"quantiles": 0.5, "trees": 2.0, "rest": 0.1}


def timed(what, seconds, network, **more):
    facts = {"what": what, "data": "susy_30k", "rows": 9, "columns": 4, "parties": 3, "trees": 200}
    spent = {"first": 9.0, "cpu_s": 0.5, "others": 0.0, "sent": 70, "load": [1.0], "phases": PHASES}
    return {**facts, "network": network, "seconds": seconds, **spent, **more}


def wide(dropout, trees, **more):
    facts = {"what": "horizontal_wan", "data": "susy_30k", "rows": 9, "columns": 4, "parties": 3}
    each = {"wait": 5, "continue": 11}[dropout]
    spent: dict[str, Any] = {
        "seconds": [20.0 + 1.5 * trees],
        "rounds": [1.5] * trees,
        "load": [1.0],
    }
    spent |= {"exchanges": 34.0 + each * trees, "sent": 5000 + 2_000_000 * trees, "searches": 31}
    return {**facts, "depth": 4, "dropout": dropout, "trees": trees, **spent, **more}


def test_gaps_are_those_at_the_papers_buckets_without_its_search():
    found = federboost_horizontal_tables.figures(UTILITY)
    assert found == pytest.approx({"auc_gap.horizontal.susy_30k": 0.005})


def test_two_hundred_trees_count_on_daemons_with_the_guest_adding_up():
    rows = [
        timed("horizontal_200", [7.0, 8.0], "daemons", by="aggregator", steps=[]),
        timed("horizontal_200", [3.0, 5.0, 4.0], "daemons", by="guest", steps=[]),
        timed("horizontal_200", [1.0], "one process", by="guest"),
    ]
    assert federboost_horizontal_tables.figures(rows) == {"horizontal_200_seconds": 4.0}
    assert federboost_horizontal_tables.figures(rows[::2]) == {}


def test_a_tree_on_the_wide_area_is_what_one_job_has_more_than_the_other():
    found = WideArea.of(wide("wait", 2), wide("wait", 12))
    assert (found.exchanges, found.sent, found.seconds) == (5.0, 2e6, 1.5)
    assert (found.start_exchanges, found.start_sent, found.start_seconds) == (34.0, 5e3, 20.0)


def test_tables_say_exchanges_as_layers_and_a_constant():
    rows = [wide(how, trees) for how in ("wait", "continue") for trees in (2, 12)]
    (table,) = federboost_horizontal_tables.shown(rows)
    said = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    assert [one["layers + constant"] for one in said] == ["4 + 1.0", "8 + 3.0"]
    assert [one["MB a tree"] for one in said] == ["2.000", "2.000"]


def test_tables_name_the_papers_auc_and_the_exact_search():
    (table,) = federboost_horizontal_tables.shown(UTILITY)
    assert [row[0] for row in table.rows] == ["24", "24, exact", "8"]
    assert table.rows[1][4] == "-0.10000"
    assert "0.8722" in table.note


def test_tables_add_steps_and_floor_up():
    step: dict[str, Any] = {"step": "add_up", "calls": 5, "seconds": 1.5}
    step["bytes"] = {"guest->host1": 1000}
    step["cpu_seconds"] = {"guest": 0.25, "host1": 0.5}
    alone = {"histograms": 0.3, "masks": 0.6}
    size = {"what": "horizontal_floor", "data": "susy_30k", "parties": 3}
    floor = {**size, "pooled": [0.4, 0.2, 0.3], "alone": alone, "vectors": 1000, "words": 866_100}
    row = timed("horizontal_200", [4.0], "daemons", by="guest", steps=[step, step])
    compared, steps, floors = federboost_horizontal_tables.shown([row, floor])
    assert compared.rows[0][:6] == ("daemons", "guest", "4.000", "0.500", "2.000", "0.100")
    assert steps.rows[0] == ("add_up", "5", "1.500", "0.750", "0.500", "1,000")
    assert steps.rows[-1][:4] == ("all steps", "", "3.000", "1.500")
    assert floors.rows[0] == ("core.local, pooled", "0.300", "")
    assert floors.rows[-1] == ("all of these", "0.900", "0.300")


def test_plots_of_the_horizontal_half_are_files_of_their_own(tmp_path):
    times = [timed("horizontal_parties", [1.0 * n], "daemons", data="give_credit") for n in (2, 4)]
    rows = [{**row, "parties": n} for row, n in zip(times, (2, 4), strict=True)]
    shown = federboost_plots.write(tmp_path, [*UTILITY, *rows])
    assert len(shown) == 2
    count = {}
    for name in ("buckets", "parties"):
        drawn = ElementTree.parse(tmp_path / f"federboost-horizontal-{name}.svg").getroot()
        count[name] = len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline")))
    assert count == {"buckets": 2, "parties": 1}  # XGBoost's among the gaps


# The command


@pytest.fixture
def small(monkeypatch):
    """Tables of no size, and daemons that take no time."""

    @contextmanager
    def daemons(shares, aggregator="guest", around=None):
        yield lambda asked: job_run(0.1 * len(shares), asked["n_estimators"])

    named: Any = lambda name: replace(toy(rows=4000, columns=2), name=name)  # noqa: E731
    monkeypatch.setattr(federboost_jobs, "load", named)
    monkeypatch.setattr(federboost_horizontal_jobs, "daemons", daemons)
    monkeypatch.setattr(federboost_horizontal_jobs, "compared_params", given)
    trees = {name: TINY for name in federboost_horizontal_jobs.DATA}
    monkeypatch.setattr(federboost_horizontal_jobs, "TREES", trees)
    monkeypatch.setattr(federboost_jobs, "TREES", trees | {"covtype": TINY})


def run(data, file):
    asked = [f"--part={part}" for part in federboost_horizontal.PARTS]
    federboost.BENCHMARK.main(["--quick", *asked, "--data", data, "--json", str(file)])
    return json.loads(file.read_text())


@pytest.mark.some(3, of="benchmarks that train")
def test_the_horizontal_figures_are_the_interfaces(small, tmp_path):
    found = run("susy_30k", tmp_path / "f.json")
    expected = {"auc_gap.horizontal.susy_30k", "horizontal_200_seconds"}
    assert set(found["figures"]) == expected
    assert found["figures"]["horizontal_200_seconds"] == pytest.approx(0.3)
    assert {row["what"] for row in found["rows"]} == {
        *federboost_horizontal.PARTS,
        "horizontal_floor",
    }
    assert found["settings"]["horizontal max_bin"] == 24
    shown = federboost.BENCHMARK.earlier([tmp_path / "f.json"])
    assert shown.figures == found["figures"]


@pytest.mark.some(3, of="benchmarks that train")
def test_only_the_papers_data_is_dealt_in_rows(small, tmp_path):
    found = run("default_credit", tmp_path / "f.json")
    assert set(found["figures"]) == {"auc_gap.horizontal.default_credit"}
    walked = [row for row in found["rows"] if row["what"] == "horizontal_parties"]
    assert [(row["network"], row["parties"]) for row in walked] == [
        ("one process", 2), ("one process", 8),
    ]  # fmt: skip
    assert run("covtype", tmp_path / "none.json")["rows"] == []


def test_a_whole_run_measures_what_the_paper_does():
    plan = Plan.of(quick=False)
    assert plan.buckets == (4, 8, 12, 16, 20, 24, 28, 32)
    assert len(plan.seeds) == 5
    assert plan.walked == (2, 4, 8, 16, 32)
    assert plan.aggregators == ("guest", "aggregator")
    assert plan.dropouts == ("wait", "continue")
    assert {federboost_horizontal_jobs.BUCKETS} <= set(Plan.of(quick=True).buckets)
