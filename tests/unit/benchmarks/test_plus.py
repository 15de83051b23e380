"""The SecureBoost+ benchmark: jobs, counts, ratios and what its command line accepts."""

import asyncio
import json
import os
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import (
    harness,
    plus_counts,
    plus_jobs,
    plus_plots,
    plus_tables,
    secureboost_plus,
    tables,
)
from benchmarks.harness import JobRun, Lap, StepTotal
from benchmarks.plus_counts import Operations, Shape
from benchmarks.plus_jobs import Plan
from benchmarks.plus_tables import MULTI, ONE, XGBOOST, Reached
from benchmarks.tree_cost import Cost
from fedboost.crypto.packing import GhLayout
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, JobJournal, StageDone, StepDone

# Equations 8 to 15 by hand: 10 rows, 3 columns, 4 bins, depth 2, so 4 nodes and 48 cells.
SHAPE = Shape(rows=10, columns=3, bins=4, depth=2, capacity=6)


def toy(rows=200, columns=("a", "b", "host_a")):
    draw = np.random.default_rng(5)
    values = draw.integers(0, 4, (rows, len(columns))).astype(np.float32)
    y = (values.sum(axis=1) + draw.normal(size=rows) > 4.5).astype(np.int64)
    return tables.Table("toy", np.arange(rows) + 10**6, y, values, columns)


def cost(wall_s, others=0.0):
    return Cost(wall_s, 2 * wall_s, 100.0, others, [0.0, 0.0, 0.0])


def row(what, **more):
    return {"what": what, "data": "toy", "rows": 9, "host_columns": 2, "classes": 3, **more}


def switch_rows(seconds, scheme="paillier", others=0.0):
    """Rows of the kind `switches`, from wall seconds by variant."""
    timed = {variant: asdict(cost(wall_s, others)) for variant, wall_s in seconds.items()}
    return [
        row("switches", part="together", scheme=scheme, variant=variant, **spent)
        for variant, spent in timed.items()
    ]


def multi_rows(one, multi):
    """Rows of the kinds `multi` and `curves`: seconds of a tree, and training accuracy."""
    curves = {ONE: [0.5, 0.7, 0.9, 0.9], MULTI: multi, XGBOOST: [0.8]}
    drawn = [
        row("curves", kind=kind, train=c, validation=c, released=[10.0 * i for i in range(len(c))])
        for kind, c in curves.items()
    ]
    timed = [
        row("multi", scheme="paillier", kind=kind, compressing=on, **asdict(cost(one * factor)))
        for kind, factor in ((ONE, 1.0), (MULTI, 2.0))
        for on in (False, True)
    ]
    return [*drawn, *timed]


def test_equations_of_the_paper_by_hand():
    found = plus_counts.baseline(SHAPE)
    assert found == Operations(additions=120 + 96, encryptions=20, decryptions=96)
    assert found.ciphertexts == 116
    found = plus_counts.plus(SHAPE)
    assert found == Operations(additions=30 + 48, encryptions=10, decryptions=8)


def test_the_papers_example_saves_what_the_paper_says():
    shape = Shape(rows=10**6, columns=2000, bins=32, depth=5, capacity=6)
    before, after = plus_counts.baseline(shape), plus_counts.plus(shape)
    assert after.additions / before.additions == pytest.approx(0.25, abs=0.01)
    assert 1 - after.ciphertexts / before.ciphertexts == pytest.approx(0.78, abs=0.02)


def test_counts_of_a_stump_equal_a_hand_count():
    table = toy()
    kept = int((~table.held_out(**plus_jobs.VALIDATION)).sum())
    one_layer = {"max_depth": 1}
    with plus_counts.counting(2047) as off:
        plus_jobs.plain(table, 2, {**plus_jobs.OFF, **one_layer})
    # One host column with four bins: the rows, three prefix sums, three candidates; g and h apart.
    expected = Operations(additions=2 * (kept + 3), encryptions=2 * kept, decryptions=2 * 3)
    assert off.per_tree(2) == expected
    with plus_counts.counting(2047) as on:
        plus_jobs.plain(table, 2, one_layer)
    assert GhLayout(53, kept, 2047).lanes[0].capacity > 3
    assert on.per_tree(2) == Operations(additions=kept + 3, encryptions=kept, decryptions=1)


def test_counting_ends_with_its_block():
    with plus_counts.counting(2047) as done:
        pass
    plus_jobs.plain(toy(), 1, {"max_depth": 1})
    assert done == Operations()


@pytest.mark.parametrize("variant", plus_jobs.VARIANTS)
@pytest.mark.parametrize("scheme", ["paillier", "iterative-affine"])
def test_every_variant_is_a_job(variant, scheme):
    found = plus_jobs.job(toy(), 2, scheme, plus_jobs.VARIANTS[variant])
    assert isinstance(found, JobSpec)
    assert found.params["encryption"]["scheme"] == scheme
    assert found.params["allow_insecure"] == (scheme == "iterative-affine")


def test_variants_differ_from_the_baseline_in_their_own_switch_alone():
    for switch in plus_jobs.SWITCHES:
        differs = {
            name: value
            for name, value in plus_jobs.ALONE[switch].items()
            if value != plus_jobs.OFF[name]
        }
        assert differs == {switch: True}


def test_mixes_are_timed_in_whole_cycles():
    for quick in (False, True):
        assert Plan.of(quick=quick).timed_rounds("mix") % plus_jobs.CYCLE == 0


def test_fewer_columns_are_the_hosts():
    table = toy(columns=("a", "host_a", "b", "host_b", "host_c"))
    assert plus_jobs.parts(table) == {"guest": ("a", "b"), "host": ("host_a", "host_b", "host_c")}
    few = plus_jobs.fewer_columns(table, 1)
    assert few.columns == ("a", "host_a", "b")
    assert (few.values == table.values[:, :3]).all()
    assert plus_jobs.fewer_columns(table, None) is table


def test_costs_are_of_trees_and_leave_the_keys_out():
    steps = [
        StepTotal("align", "meet", 1, 1.0, {"guest": 50.0}, {"guest->host": 50}),
        StepTotal("secureboost", "share_key", 1, 1.0, {"guest": 9.0}, {"guest->host": 9}),
        StepTotal("secureboost", "open", 3, 1.0, {"guest": 3.0, "host": 6.0}, {"a->b": 30}),
    ]
    trees = [Lap(9.0, 90.0, 9.0), Lap(1.0, 2.0, 0.5), Lap(2.0, 3.0, 1.0)]
    run = JobRun({"protocol": "secureboost"}, steps, [], {}, [0.5], [0.6], {}, trees)
    assert Cost.of(run) == Cost(wall_s=1.5, cpu_s=2.5, sent=10.0, others=0.5, load=[0.5])


def test_what_the_machine_does_not_say_is_unknown():
    run = JobRun({}, [], [], {}, [0.5], [0.6], {}, [Lap(1.0, 1.0, 1.0), Lap(2.0, None, None)])
    assert Cost.of(run) == Cost(wall_s=2.0, cpu_s=None, sent=0.0, others=None, load=[0.5])
    unknown = row("switches", **asdict(Cost.of(run)))
    assert plus_tables.saved(unknown, unknown, "cpu_s") is None
    assert plus_tables.saved(unknown, unknown, "wall_s") == 0.0


def test_a_mix_is_timed_by_whole_cycles_after_one_that_warms_up():
    trees = [Lap(seconds, 1.0, 0.0) for seconds in (0.1, 9.0, 1.0, 3.0, 2.0, 4.0)]
    run = JobRun({}, [], [], {}, [0.5], [0.6], {}, trees)
    assert Cost.of(run, cycle=2).wall_s == 2.5


class FakeClient:
    """A coordinator's client whose one job has long been done."""

    def __init__(self, *given, **named):
        steps = [(3.0, "close_trees"), (4.0, "open_layer"), (7.5, "close_trees")]
        self._events = [
            Event(at=1.0, stage=StageDone(stage="align")),
            *(Event(at=at, step=StepDone(step=step)) for at, step in steps),
            Event(at=9.0, stage=StageDone(stage="secureboost")),
        ]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *given):
        pass

    async def submit(self, spec):
        return "job"

    async def watch(self, job):
        for event in self._events:
            yield event

    async def journal(self, job):
        return JobJournal(events=self._events)


def test_a_tree_is_timed_from_the_end_of_the_one_before(monkeypatch):
    monkeypatch.setattr(harness, "CoordinatorClient", FakeClient)
    spec = plus_jobs.job(toy(), 2, "plain", {})
    daemons = {"host": SimpleNamespace(pid=os.getpid())}  # as it were
    cluster: Any = SimpleNamespace(client=None, processes=daemons)
    watched = asyncio.run(harness._follow(cluster, spec))
    assert [tree.seconds for tree in watched.trees] == [2.0, 4.5]
    if watched.begun is not None:  # the kernel says
        assert all(tree.by_daemon == {"host": tree.ours} for tree in watched.trees)


def test_cuts_are_shares_of_the_time_saved():
    rows = switch_rows({"baseline": 10.0, "all": 1.0, "mix": 0.6, "layered": 0.8})
    expected = {"cut_all.toy": 0.9, "cut_mix.toy": 0.4, "cut_layered.toy": 0.2}
    assert plus_tables.figures(rows) == pytest.approx(expected)
    broken = switch_rows({"baseline": 1.0, "all": 1.0, "mix": 1.0, "layered": 1.0}, "other")
    assert plus_tables.figures([*rows, *broken]) == pytest.approx(expected)


def test_multi_output_is_compared_at_the_accuracy_of_one_tree_a_class():
    found = Reached.of({ONE: [0.5, 0.7, 0.9, 0.9], MULTI: [0.4, 0.6, 0.8, 0.85, 0.91]})
    assert found == Reached(0.9, {ONE: 3, MULTI: 5})
    assert (found.trees(ONE, 3), found.trees(MULTI, 3)) == (9, 5)
    rows = multi_rows(1.0, [0.4, 0.6, 0.8, 0.85, 0.91])
    ratio = 5 * 2.0 / (3 * 3 * 1.0)
    expected = {"multi_output_time.toy": ratio, "multi_output_time_compressed.toy": ratio}
    assert plus_tables.figures(rows) == pytest.approx(expected)


def test_a_target_never_reached_leaves_no_figure():
    rows = multi_rows(1.0, [0.4, 0.6])
    assert plus_tables.figures(rows) == {}
    curves, timed = plus_tables.shown(rows)
    assert [cells[3] for cells in curves.rows] == ["3", "never", ""]
    assert [cells[5] for cells in timed.rows] == ["9", "9", "", ""]
    assert [cells[6] for cells in timed.rows] == ["18", "18", "", ""]
    assert [group.names for group in plus_plots.multi_groups(rows)] == [[ONE, f"{ONE}, compressed"]]


def test_a_disturbed_time_says_so():
    seconds = {"baseline": 10.0, "all": 1.0, "mix": 0.6, "layered": 0.8}
    quiet, busy = (
        plus_tables.shown(switch_rows(seconds, others=others))[0] for others in (0.1, 0.9)
    )
    assert "CPU seconds compare better" not in quiet.note
    assert "CPU seconds compare better" in busy.note
    assert [cells[-2] for cells in busy.rows] == ["0.90"] * 4


def test_plots_are_xml_with_a_bar_for_each_time(tmp_path):
    rows = switch_rows({"baseline": 10.0, "all": 1.0, "mix": 0.6, "layered": 0.8})
    shown = plus_plots.write(tmp_path, [*rows, *multi_rows(1.0, [0.9])])
    assert len(shown) == 2
    drawn = ElementTree.parse(tmp_path / "secureboost_plus-trees.svg").getroot()
    bars = [one for one in drawn.iter("{http://www.w3.org/2000/svg}rect") if one.get("height")]
    widths = [float(bar.attrib["width"].rstrip("%")) for bar in bars if bar.get("height") != "100%"]
    assert [width / widths[0] for width in widths] == pytest.approx([1.0, 0.1, 0.06, 0.08])
    assert plus_plots.write(tmp_path, []) == []


def test_the_command_line_says_what_is_run():
    quick = secureboost_plus.BENCHMARK.options(["--quick"])
    assert quick.quick
    assert tuple(quick.data) == plus_jobs.DATA
    assert tuple(quick.part) == secureboost_plus.BENCHMARK.parts
    assert secureboost_plus.BENCHMARK.options(["--part", "time"]).part == ["time"]
    assert Plan.of(quick=True).schemes == ("paillier",)
    assert Plan.of(quick=False).schemes == ("paillier", "iterative-affine")
    with pytest.raises(SystemExit):
        secureboost_plus.BENCHMARK.main(["--fast"])


@pytest.fixture
def small(monkeypatch):
    """Tables and rounds of no size, and trees that take no time."""
    seconds = {"baseline": 10.0, "all": 1.0, "mix": 0.5, "layered": 0.8}

    def train(table, scheme, jobs):
        return {name: cost(seconds.get(name, 2.0)) for name in jobs}

    def sampled(plan, name):
        y = toy().values.sum(axis=1).astype(np.int64) % (3 if name in plus_jobs.MULTI else 2)
        return replace(toy(), name=name, y=y)

    halves = {"guest": ("a", "b"), "host": ("host_a",)}
    monkeypatch.setattr(plus_jobs, "parts", lambda table: halves)
    monkeypatch.setattr(secureboost_plus, "train", train)
    monkeypatch.setattr(secureboost_plus, "ROUNDS", 2)
    for table in ("sample", "timed_table", "accuracy_table"):
        monkeypatch.setattr(Plan, table, sampled)


@pytest.mark.some(3, of="benchmarks that train")
def test_the_figures_are_the_interfaces(small, tmp_path):
    written = tmp_path / "f.json"
    secureboost_plus.BENCHMARK.main(["--quick", "--data", "epsilon_5k", "--json", str(written)])
    found = json.loads(written.read_text())
    assert found["name"] == "secureboost_plus"
    gaps = {f"auc_gap.{mode}.epsilon_5k" for mode in plus_jobs.MODES}
    assert set(found["figures"]) == gaps | {
        *("cut_all.epsilon_5k", "cut_mix.epsilon_5k", "cut_layered.epsilon_5k")
    }
    assert found["figures"]["cut_all.epsilon_5k"] == pytest.approx(0.9)


@pytest.mark.some(3, of="benchmarks that train")
def test_runs_of_parts_and_data_sets_are_shown_together(small, tmp_path, monkeypatch):
    files = [tmp_path / f"{number}.json" for number in range(3)]
    one = ["--quick", "--data", "give_credit"]
    secureboost_plus.BENCHMARK.main([*one, "--part", "time", "--json", str(files[0])])
    secureboost_plus.BENCHMARK.main([*one, "--json", str(files[1])])
    secureboost_plus.BENCHMARK.main(["--quick", "--data", "vehicle", "--json", str(files[2])])
    runs = [json.loads(file.read_text()) for file in files]
    runs[0]["rows"][0]["wall_s"] = 5.0  # measured again by the second run
    files[0].write_text(json.dumps(runs[0]))
    shown = tmp_path / "all.json"
    monkeypatch.setattr(secureboost_plus, "_facts", None)
    together = ["--record", str(shown), "--plots", str(tmp_path)]
    secureboost_plus.BENCHMARK.main(
        [*together, *(arg for file in files for arg in ("--from", str(file)))]
    )
    report = secureboost_plus.BENCHMARK.earlier(files)
    expected = [*runs[1]["rows"], *runs[2]["rows"]]
    assert sorted(report.rows, key=str) == sorted(expected, key=str)
    assert report.figures == runs[1]["figures"] | runs[2]["figures"]
    assert json.loads(shown.read_text())["figures"]["cut_all.give_credit"] == 0.9
    assert (tmp_path / "secureboost_plus-trees.svg").exists()
