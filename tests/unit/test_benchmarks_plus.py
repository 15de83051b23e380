"""The SecureBoost+ benchmark: jobs, counts, ratios and what its command line accepts."""

import json

import numpy as np
import pytest

from benchmarks import harness, plus_counts, plus_jobs, secureboost_plus, tables
from benchmarks.harness import JobRun, Report, StepTotal
from benchmarks.plus_counts import Operations, Shape
from benchmarks.plus_jobs import Plan
from benchmarks.secureboost_plus import Cost, Reached
from fedboost.crypto.packing import GhLayout
from fedboost.job import JobSpec

# Equations 8 to 15 by hand: 10 rows, 3 columns, 4 bins, depth 2, so 4 nodes and 48 cells.
SHAPE = Shape(rows=10, columns=3, bins=4, depth=2, capacity=6)


def toy(rows=200, columns=("a", "b", "host_a")):
    draw = np.random.default_rng(5)
    values = draw.integers(0, 4, (rows, len(columns))).astype(np.float32)
    y = (values.sum(axis=1) + draw.normal(size=rows) > 4.5).astype(np.int64)
    return tables.Table("toy", np.arange(rows) + 10**6, y, values, columns)


def cost(wall_s):
    return Cost(wall_s, 2 * wall_s, 100.0, [0.0, 0.0, 0.0])


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


def test_costs_are_of_rounds_and_leave_the_keys_out():
    steps = [
        StepTotal("align", "meet", 1, 1.0, {"guest": 50.0}, {"guest->host": 50}),
        StepTotal("secureboost", "share_key", 1, 1.0, {"guest": 9.0}, {"guest->host": 9}),
        StepTotal("secureboost", "open", 3, 1.0, {"guest": 3.0, "host": 6.0}, {"a->b": 30}),
    ]
    rounds = [{"seconds": seconds, "metrics": {}} for seconds in (9.0, 1.0, 2.0)]
    run = JobRun({}, steps, rounds, {}, [0.5], [0.6], {})
    assert Cost.of(run) == Cost(wall_s=1.5, cpu_s=3.0, sent=10.0, load=[0.5])


def test_a_mix_is_timed_by_whole_cycles_after_one_that_warms_up():
    rounds = [{"seconds": seconds, "metrics": {}} for seconds in (0.1, 9.0, 1.0, 3.0, 2.0, 4.0)]
    run = JobRun({}, [], rounds, {}, [0.5], [0.6], {})
    assert Cost.of(run, cycle=2).wall_s == 2.5


def test_cuts_are_shares_of_the_time_saved():
    costs = {"baseline": cost(10.0), "all": cost(1.0), "mix": cost(0.6), "layered": cost(0.8)}
    found = secureboost_plus.cuts("toy", costs)
    assert found == pytest.approx({"cut_all.toy": 0.9, "cut_mix.toy": 0.4, "cut_layered.toy": 0.2})


def test_multi_output_is_compared_at_the_accuracy_of_one_tree_a_class():
    curves = {"one tree a class": [0.5, 0.7, 0.9, 0.9], "multi-output": [0.4, 0.6, 0.8, 0.85, 0.91]}
    found = Reached.of(curves)
    assert found == Reached(0.9, {"one tree a class": 3, "multi-output": 5})
    costs = {"one tree a class": cost(10.0), "multi-output": cost(2.0)}
    assert found.ratio(costs) == pytest.approx(5 * 2 / (3 * 10))
    never = Reached.of({**curves, "multi-output": [0.1]})
    assert never.ratio(costs) is None


def test_the_command_line_says_what_is_run():
    quick = harness.arguments("secureboost_plus", "", plus_jobs.DATA, ["--quick"])
    assert quick.quick
    assert tuple(quick.data) == plus_jobs.DATA
    assert Plan.of(quick=True).schemes == ("paillier",)
    assert Plan.of(quick=False).schemes == ("paillier", "iterative-affine")
    with pytest.raises(SystemExit):
        secureboost_plus.main(["--fast"])


def test_the_figures_are_the_interfaces(monkeypatch, tmp_path):
    timed = {"baseline": 10.0, "all": 1.0, "mix": 0.5, "layered": 0.8}
    monkeypatch.setattr(secureboost_plus, "train", lambda *given: cost(timed.get(given[3], 2.0)))
    monkeypatch.setattr(Plan, "timed_table", lambda plan, name: toy())
    monkeypatch.setattr(Plan, "accuracy_table", lambda plan, name: toy())
    monkeypatch.setattr(secureboost_plus, "ROUNDS", 2)
    written = tmp_path / "f.json"
    secureboost_plus.main(["--quick", "--data", "epsilon_5k", "--json", str(written)])
    found = json.loads(written.read_text())
    assert found["name"] == "secureboost_plus"
    gaps = {f"auc_gap.{mode}.epsilon_5k" for mode in plus_jobs.MODES}
    assert set(found["figures"]) == gaps | {
        *("cut_all.epsilon_5k", "cut_mix.epsilon_5k", "cut_layered.epsilon_5k")
    }
    assert found["figures"]["cut_all.epsilon_5k"] == pytest.approx(0.9)


def test_a_target_never_reached_leaves_no_figure(monkeypatch):
    monkeypatch.setattr(secureboost_plus, "train", lambda *given: cost(1.0))
    monkeypatch.setattr(Plan, "timed_table", lambda plan, name: toy())
    curve = {True: [0.5] * 100, False: [0.9] * 25}

    def plain(table, rounds, params):
        rounds = [{"train.accuracy": one} for one in curve[bool(params)]]
        return plus_counts.PlainRun({}, rounds)

    monkeypatch.setattr(plus_jobs, "plain", plain)
    report = Report("secureboost_plus", {})
    secureboost_plus.measure_multi("vehicle", Plan.of(quick=True), report)
    assert report.figures == {}
    curve[True] = [0.95] * 100
    secureboost_plus.measure_multi("vehicle", Plan.of(quick=True), report)
    expected = {"multi_output_time.vehicle": 1.0, "multi_output_time_compressed.vehicle": 1.0}
    assert report.figures == expected
