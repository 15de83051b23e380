"""The HybridTree benchmark: timed jobs, figures, tables, plots, its command line."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from benchmarks import hybridtree, hybridtree_jobs, hybridtree_plots, hybridtree_tables, meta_rules
from benchmarks.harness import StepTotal
from benchmarks.hybridtree_accuracy import (
    ALL_LOCAL,
    ALL_XGBOOST,
    EACH,
    FALLING_BACK,
    MISSING,
    OWN_ROWS,
    SAMPLED,
    SCORED,
    SOLO,
    TFL,
    UNSCORED,
    VOTE,
)
from benchmarks.hybridtree_jobs import NODE_LEVEL, PLUS, SECUREBOOST, Cluster
from benchmarks.hybridtree_plan import GUEST_SIZE, HOLDERS, MAIN, MANY, ONE, SCALE, SKEW, Plan
from fedboost import protocols
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.settings import parse
from fedboost.protocols.hybridtree.params import HybridTreeParams

PARTIES = Cluster(
    "adult",
    {
        "guest": pa.table({"id": [1, 2], "y": [0, 1], "age": [3.0, 4.0], "job": ["a", "b"]}),
        "host1": pa.table({"id": [1], "town": ["x"]}),
    },
)


# Jobs


def test_jobs_say_which_columns_are_categories_where_models_learn_them():
    trained = PARTIES.job("hybridtree", hybridtree_jobs.params(SCORED, "adult", 2, "plain"))
    assert trained.data["guest"].categorical == ["job"]
    assert (trained.data["guest"].label, trained.data["host1"].label) == ("y", None)
    given = {"model": "a" * 8, "split": "scored"}
    predicted = PARTIES.job("predict-hybrid", given)
    assert predicted.data["guest"].categorical == []
    assert predicted.data["guest"].label is None
    facts = {"data": "adult", "rows": 2, "hosts": 1, "host_rows": 1, "columns": [2, 1]}
    assert PARTIES.facts() == facts


def test_every_system_has_seven_layers_and_the_same_scheme():
    for system in hybridtree_jobs.SYSTEMS:
        given = hybridtree_jobs.params(system, "adult", 2, "paillier")
        params = parse(protocols.named(hybridtree_jobs.protocol_of(system)).params, given)
        assert isinstance(params, EncryptedTreeParams)
        assert (params.encryption.scheme, params.encryption.key_bits) == ("paillier", 2048)
        depth = params.max_depth
        if isinstance(params, HybridTreeParams):
            depth = params.guest_depth + params.host_depth
        assert (depth, params.n_estimators) == (7, 2)
        assert (params.goss is not None) is ("GOSS" in system)
        assert params.gh_packing is (system != NODE_LEVEL)
        assert params.histogram_subtraction is (system != NODE_LEVEL)


def test_processor_seconds_of_parties_are_of_a_tree_of_the_training():
    steps = [
        StepTotal("align-pairs", "meet", cpu_seconds={"guest": 50.0}),
        StepTotal("hybridtree", "grow_top", cpu_seconds={"guest": 3.0}),
        StepTotal("hybridtree", "sum_candidates", cpu_seconds={"guest": 1.0, "host1": 6.0}),
    ]
    run = SimpleNamespace(steps=steps, result={"protocol": "hybridtree"}, trees=[1, 2])
    assert hybridtree_jobs.by_party(run) == {"guest": 2.0, "host1": 3.0}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("system", "protocol", "more"),
    [(SECUREBOOST, "predict", {}), (UNSCORED, "predict-hybrid", {"split": "unscored"})],
)
def test_a_prediction_counts_what_its_own_stage_sends(system, protocol, more):
    asked = []

    def run(name, given):
        asked.append((name, dict(given)))
        steps = [
            StepTotal("align", "meet", calls=1, bytes={"guest->host": 50}),
            StepTotal(protocol, "ask", calls=3, bytes={"guest->host": 30}),
            StepTotal(protocol, "answer", calls=3, bytes={"host->guest": 7}),
            StepTotal(protocol, "close", calls=3),
        ]
        return SimpleNamespace(steps=steps, result={"seconds": {"predict": 2.0}})

    model = SimpleNamespace(result={"job": "abc"})
    found = hybridtree_jobs._predicted(run, system, model)  # type: ignore[arg-type]
    assert asked == [(protocol, {"model": "abc", **more})]
    assert (found["sent"], found["exchanges"], found["seconds"]["predict"]) == (37, 6, 2.0)


# Figures, tables, plots


def scores(scored, single=0.7, all_in=0.9):
    def of(value):
        return {"accuracy": value, "auc": value}

    return {
        SCORED: of(scored), SAMPLED: of(scored - 0.05), UNSCORED: of(scored - 0.1),
        SOLO: of(0.6), TFL: of(0.65),
        ALL_XGBOOST: of(all_in), ALL_LOCAL: of(all_in - 0.01), EACH: of(0.81),
        MISSING: [of(0.3), None, of(0.5)], FALLING_BACK: [of(single), None, of(0.61)],
        OWN_ROWS: [None, None, of(0.8)],
    }  # fmt: skip


def judged(table=MAIN, value=None, found=None, **dealing):
    plain = {
        "hosts": 5, "seed": 0, "skew": None, "skewed_test": True, "overlap": 0.0,
        "drop_columns": 0.0, "guest_rows": 1.0, "guest_columns": 1.0,
    }  # fmt: skip
    return {
        "what": "accuracy", "data": "adult", "table": table, "value": value, "depth": 7,
        "trees": 50, "label_holders": 5, "dealing": {**plain, **dealing}, "majority": 0.76,
        "rows": {"train": 100, "test": 50}, "guest_columns": ["a"],
        "host_columns": {"host1": ["b"]}, "host_rows": {"host1": 100},
        "scores": found or scores(0.88),
    }  # fmt: skip


def timed(setting, system, wall_s, sent, others=0.0):
    return {
        "what": "trees", "data": "adult", "rows": 9, "hosts": 1, "host_rows": 9,
        "columns": [1, 1], "setting": setting, "system": system, "trees": 2, "wall_s": wall_s,
        "cpu_s": 2 * wall_s, "sent": sent, "others": others, "load": [1.0],
        "party_cpu_s": {"guest": 1.0, "host1": 2.0, "host2": 0.5},
    }  # fmt: skip


def predicted(system, seconds, sent):
    return {
        "what": "predictions", "data": "adult", "rows": 10, "hosts": 1, "host_rows": 10,
        "columns": [1, 1], "setting": ONE, "system": system, "trees": 50, "seconds": seconds,
        "sent": sent, "exchanges": 2, "load": [1.0],
    }  # fmt: skip


def ruled():
    reading = {"share": 0.5, "repeated": 0.9, "rule": "age < 3"}
    found = dict.fromkeys(("leaf", "coarse", "determined", "held"), reading)
    facts = {"what": "meta_rules", "data": "a9a", "rows": 10, "trees": 40, "rules": 7}
    return {**facts, **found, "hosts": dict(found)}


HELD = {
    **{name: one for name, one in scores(0.87).items() if name != SAMPLED},
    SOLO: [{"accuracy": 0.5, "auc": 0.5}],
    **{f"{one}, {VOTE}": {"accuracy": 0.55, "auc": 0.55} for one in (SCORED, UNSCORED, TFL)},
}  # fmt: skip
ROWS = [
    judged(),
    judged(seed=1, found=scores(0.86)),
    judged(hosts=25, found=scores(0.7)),
    judged(HOLDERS, found=HELD),
    judged(GUEST_SIZE, 0.2, guest_rows=0.2),
    judged(GUEST_SIZE, 0.2, guest_columns=0.2),
    judged(SCALE, 10, hosts=10),
    *(judged(SKEW, beta, skew=beta, skewed_test=even) for beta in (0.5, 1.0) for even in (1, 0)),
    timed(ONE, NODE_LEVEL, 40.0, 900),
    timed(ONE, PLUS, 12.0, 200),
    timed(ONE, SCORED, 8.0, 100),
    timed(MANY, SCORED, 10.0, 120),
    {"what": "pooled", "data": "adult", "rows": 9, "wall_s": 0.125},
    predicted(SECUREBOOST, [1.0, 3.0, 2.0], 400),
    predicted(SCORED, [0.5], 100),
    ruled(),
]


def test_the_figures_are_the_interfaces_of_scored_splits_and_five_hosts():
    found = hybridtree_tables.figures(ROWS)
    assert found == {
        "accuracy_gap.adult": pytest.approx(0.9 - 0.87),
        "gain_over_single_host.adult": pytest.approx(0.87 - 0.7),
        "speedup.adult": 5.0,
        "bytes_saving.adult": 9.0,
        "speedup_plus.adult": 1.5,
    }


def test_a_figure_that_was_not_measured_is_absent():
    assert hybridtree_tables.figures([timed(ONE, SCORED, 8.0, 100)]) == {}
    assert hybridtree_tables.figures([judged(hosts=25)]) == {}


def test_tables_show_ranges_of_hosts_means_of_seeds_and_votes():
    shown = "\n".join(table.markdown() for table in hybridtree_tables.shown(ROWS))
    assert "| 5 hosts, seed 0 | 0.6000 | 0.3000–0.5000 | 0.6100–0.7000 | 0.8000–0.8000 |" in shown
    assert "| 5 hosts, mean (of the best) | 0.6000 ± 0.0000 |" in shown
    assert "0.8700 ± 0.0141" in shown
    assert "| +0.0200 | +0.0700 | +0.1200 |" in shown
    assert "| vote |" in shown
    assert "| 20% of rows |" in shown
    assert "| 20% of columns |" in shown
    assert "| β 0.5, even |" in shown
    assert shown.count("| 5 | 0.6000 |") == 1  # Table 1's row beside those of Figure 6
    assert "5.0 / 5.0 / 9.0" in shown
    assert "4.0 / 4.0 / 7.5" in shown
    assert "core/local takes 0.125 s" in shown
    assert "| one host | HybridTree, scored | 0.500 | 100 | 10.0 | 2 | 4.0 | 4.0 |" in shown
    assert "| a9a | 10 | 40 | 7 | 50.0% |" in shown
    assert "cores busy" not in shown
    busy = hybridtree_tables.shown([timed(ONE, SCORED, 1.0, 1, others=0.9)])
    assert "cores busy" in busy[0].markdown()


def test_plots_are_drawings(tmp_path):
    links = hybridtree_plots.write(tmp_path, ROWS)
    files = {"hosts-adult", "skew-adult", "trees", "rules"}
    assert {path.name for path in tmp_path.iterdir()} == {f"hybridtree-{f}.svg" for f in files}
    assert len(links) == 4
    for path in tmp_path.iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    drawn = (tmp_path / "hybridtree-hosts-adult.svg").read_text()
    assert all(system in drawn for system in hybridtree_plots.DRAWN)
    looks = {
        (colour, system in hybridtree_plots.DASHED)
        for system, colour in hybridtree_plots.COLOURS.items()
    }
    assert len(looks) == len(hybridtree_plots.DRAWN)  # no two lines look alike
    assert hybridtree_plots.write(tmp_path, []) == []


# The command


def test_runs_of_parts_are_shown_together(tmp_path, monkeypatch):
    kinds = {
        "accuracy": ("accuracy",),
        "trees": ("trees", "pooled"),
        "predictions": ("predictions",),
        "rules": ("meta_rules",),
    }
    known = {
        part: (names, lambda name, plan, part=part: of(kinds[part], name))
        for part, (names, _) in hybridtree.MEASURES.items()
    }
    monkeypatch.setattr(hybridtree, "MEASURES", known)

    def of(whats, name):
        return [row for row in ROWS if row["what"] in whats and row["data"] == name]

    files = [tmp_path / f"{part}.json" for part in hybridtree.BENCHMARK.parts]
    for part, file in zip(hybridtree.BENCHMARK.parts, files, strict=True):
        hybridtree.BENCHMARK.main(["--quick", "--part", part, "--json", str(file)])
    report = hybridtree.BENCHMARK.earlier(files)
    assert [row for row in report.rows if "part" not in row] == ROWS
    took = [(row["data"], row["part"]) for row in report.rows if "part" in row]
    assert took == [*(("adult", part) for part in hybridtree.BENCHMARK.parts[:3]), ("a9a", "rules")]
    assert report.figures == hybridtree_tables.figures(ROWS)
    shown, plots = tmp_path / "all.json", tmp_path / "plots"
    plots.mkdir()
    given = ["--record", str(shown), "--plots", str(plots)]
    hybridtree.BENCHMARK.main([*given, *(f"--from={file}" for file in files)])
    record = json.loads(shown.read_text())
    assert record["figures"]["speedup.adult"] == 5.0
    assert (plots / "hybridtree-trees.svg").exists()
    assert any(row[:3] == ["a9a", "rules", "0"] for t in record["tables"] for row in t["rows"])
    assert json.loads(files[0].read_text())["name"] == "hybridtree"


def test_rules_are_counted_of_the_plans_trees_and_rows(monkeypatch):
    asked = []

    def measure(*given):
        asked.append(given)
        return [ruled()]

    monkeypatch.setattr(meta_rules, "measure", measure)
    plan = Plan.of(quick=True)
    assert hybridtree.measure("a9a", plan, "rules")[:-1] == [ruled()]
    [(names, params, rows)] = asked
    assert (names, params.n_estimators, params.max_depth, rows) == (["a9a"], 10, 7, 5000)
    assert hybridtree.measure("a9a", plan, "accuracy") == []


def test_an_unknown_option_is_refused():
    with pytest.raises(SystemExit):
        hybridtree.BENCHMARK.main(["--fast"])
