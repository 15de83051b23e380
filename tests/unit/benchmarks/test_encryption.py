"""The encryption benchmark: operations, jobs, the line through samples, figures, choices."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import (
    encryption,
    encryption_choice,
    encryption_jobs,
    encryption_operations,
    encryption_plan,
    encryption_tables,
    lattice,
    plus_counts,
    plus_jobs,
)
from benchmarks.encryption_choice import Job, Price
from benchmarks.encryption_operations import ADD, ANSWER, CANDIDATE_BYTES, NAMES, OPERATIONS
from benchmarks.encryption_plan import (
    HIDING,
    LATTICE,
    MODULAR,
    PAILLIER,
    PLAIN,
    SCHEMES,
    SYNTHETIC,
    Plan,
)
from benchmarks.harness import JobRun, Lap, StepTotal
from fedboost import protocols
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.settings import parse
from tests.unit.benchmarks.test_plus import toy

QUICK = Plan.of(quick=True)
TINY = replace(QUICK, ring_rows=300, modular_rows=4, least_s=0.0, rounds=2, depth=1)


def tree_row(scheme, wall_s, rows=1000, **more):
    return {
        **{"what": "trees", "data": "toy", "rows": rows, "host_columns": 2, "scheme": scheme},
        **{"trees": 2, "wall_s": wall_s, "cpu_s": 2 * wall_s, "sent": 10.0 * rows, "others": 0.0},
        **{"load": [0.1], "party_cpu_s": {"guest": wall_s, "host": wall_s}, "scaled_from": []},
        **more,
    }


def auc_row(scheme, train, validation, number=0):
    return {
        **{"what": "auc", "data": "toy", "rows": 9, "host_columns": 2, "scheme": scheme},
        **{"rounds": 2, "number": number, "train": train, "validation": validation},
    }


def operation_row(scheme, ns, row_bytes, candidate_bytes):
    return {
        **{"what": OPERATIONS, "data": OPERATIONS, "scheme": scheme},
        **{"ns": dict.fromkeys(NAMES, ns), "bytes of a row": row_bytes},
        CANDIDATE_BYTES: candidate_bytes,
    }


# Operations


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(lattice, "REPEATS", 1)
    monkeypatch.setattr(encryption_operations, "CANDIDATES", 8)
    monkeypatch.setattr(encryption_operations, "TIMES", 1)
    monkeypatch.setattr(encryption_operations, "COPIES", 2)


@pytest.mark.some(3, of="benchmarks that train")
def test_every_scheme_is_measured_in_the_same_operations(hasty, monkeypatch):
    monkeypatch.delitem(SCHEMES, "paillier-3072")
    rows = encryption_operations.measure(TINY)
    assert [row["scheme"] for row in rows] == list(SCHEMES)
    for row in rows:
        assert set(NAMES) <= set(row["ns"])
        assert min(row["ns"].values()) >= 0.0
    data = {row["scheme"]: row[CANDIDATE_BYTES] for row in rows}
    assert data[LATTICE] == 9486  # docs/explanation/lattice-numbers.md, a million rows
    assert data[LATTICE] / 2 > data[PAILLIER]


def test_a_candidate_of_a_modulus_is_its_share_of_a_package(hasty):
    found = encryption_operations.modular(PLAIN, TINY)
    assert found["bytes of a row"] == 32
    assert found[CANDIDATE_BYTES] == 32.0  # one (G, H) of a million rows fits 255 bits


# Jobs


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_a_job_with_all_switches_on(scheme):
    spec = encryption_jobs.job(toy(), 2, scheme, 3)
    params = parse(protocols.named("secureboost").params, spec.params)
    assert isinstance(params, EncryptedTreeParams)
    assert params.encryption.scheme == SCHEMES[scheme]["scheme"]
    assert all(getattr(params, switch) for switch in plus_jobs.SWITCHES)
    assert (spec.validation, spec.params["max_depth"]) == (None, 3)


def test_models_whose_auc_is_measured_hold_rows_out():
    spec = encryption_jobs.job(toy(), 2, LATTICE, 3, held_out=True)
    assert spec.validation is not None


def test_the_auc_of_two_classes_is_the_jobs_own():
    table = toy(400)
    done = encryption_jobs.trained(table, 2, PLAIN, 3)
    expected = {part: found["auc"] for part, found in done.result["metrics"].items()}
    assert encryption_jobs.aucs(table, done.shards) == pytest.approx(expected, abs=1e-12)


def test_the_predictions_of_many_classes_are_those_of_the_jobs_metric(monkeypatch):
    monkeypatch.setattr(plus_jobs, "MULTI", ("toy",))
    table = toy(300)
    table = replace(table, y=table.values.sum(axis=1).astype(np.int64) % 3)
    done = encryption_jobs.trained(table, 2, PLAIN, 3)
    found = encryption_jobs.predictions(table, done.shards)
    held = table.held_out(**plus_jobs.VALIDATION)
    right = found.argmax(axis=1) == table.y
    assert right[held].mean() == pytest.approx(done.result["metrics"]["validation"]["accuracy"])
    perfect = np.eye(3)[table.y]
    assert encryption_jobs.auc(table.y, perfect) == 1.0
    assert encryption_jobs.auc(table.y, perfect[:, [1, 0, 2]]) < 0.7


@pytest.mark.some(3, of="benchmarks that train")
def test_lattice_models_are_trained_with_the_lattice(monkeypatch):
    asked = []
    kept = plus_counts.train_plain

    def train(spec, *given, **named):
        asked.append(spec.params["encryption"]["scheme"])
        return kept(spec, *given, **named)

    monkeypatch.setattr(plus_counts, "train_plain", train)
    monkeypatch.setattr(Plan, "auc_table", lambda plan, name: toy())
    rows = encryption_jobs.measure_auc("toy", replace(TINY, rounds=1, repeats={"toy": 2}))
    assert asked == ["plain", "lattice", "lattice"]
    assert [row["number"] for row in rows] == [0, 0, 1]
    assert abs(encryption_tables.gap(rows, "train")) < 0.05


def test_a_longer_synthetic_table_begins_with_the_rows_of_the_same_kind():
    table = encryption_plan.synthetic(500)
    columns = plus_jobs.parts(table)
    assert [len(columns[party]) for party in ("guest", "host")] == [2, 20]
    missing = np.isnan(table.values)
    assert not missing[:, :2].any()
    assert 0.01 < missing[:, 2:].mean() < 0.03
    few = table.first(100)
    assert len(few.y) == 100
    assert (few.id == table.id[:100]).all()
    assert 0.3 < table.y.mean() < 0.7


def test_scaled_figures_are_the_line_through_two_samples_and_say_so():
    samples = [tree_row(PAILLIER, 3.0, rows=1000), tree_row(PAILLIER, 5.0, rows=3000)]
    (found,) = encryption_jobs.scaled(samples, 11_000)
    assert (found["wall_s"], found["cpu_s"], found["sent"]) == (13.0, 26.0, 110_000.0)
    assert found["party_cpu_s"] == {}
    assert (found["rows"], found["scaled_from"]) == (11_000, [1000, 3000])
    drawn, _ = encryption_tables.shown([found])
    assert "was not run on so many rows" in drawn.note


def test_the_synthetic_table_is_sampled_for_schemes_with_a_modulus_alone(monkeypatch):
    asked = []

    def timed(table, schemes, plan):
        asked.append((len(table.y), tuple(schemes)))
        return [tree_row(scheme, 1.0 + len(table.y), rows=len(table.y)) for scheme in schemes]

    monkeypatch.setattr(encryption_jobs, "timed", timed)
    plan = replace(TINY, rows={SYNTHETIC: 90}, sampled=(10, 30))
    rows = encryption_jobs.measure_trees(SYNTHETIC, plan)
    assert asked == [(90, (LATTICE, "lattice-4096", PLAIN)), (10, MODULAR), (30, MODULAR)]
    whole = {row["scheme"]: row["wall_s"] for row in rows if row["what"] == "trees"}
    assert whole == dict.fromkeys((*HIDING, PLAIN), 91.0)
    assert sum(row["what"] == "samples" for row in rows) == 2 * len(MODULAR)


def test_memory_is_measured_on_daemons_of_its_own(monkeypatch):
    steps = [StepTotal("secureboost", "open_layer", 1, 1.0, {"guest": 1.0}, {"a->b": 4})]
    result = {"protocol": "secureboost", "memory_peak_bytes": {"guest": 1, "host": 2 * 10**9}}
    done = JobRun(result, steps, [], {}, [0.1], [0.1], {}, [Lap(1.0, 1.0, 0.0)])

    class Fake:
        def __init__(self, table, depth):
            made.append(depth)

        def __enter__(self):
            return lambda scheme, count: done

        def __exit__(self, *given):
            pass

    made: list[int] = []
    monkeypatch.setattr(encryption_jobs, "daemons", Fake)
    rows = encryption_jobs.measure_memory(SYNTHETIC, replace(TINY, rows={SYNTHETIC: 50}))
    assert len(made) == len(rows) == 2
    assert encryption_tables.figures(rows) == {"memory_gb.synthetic_1m": 2.0}
    assert encryption_jobs.measure_memory("give_credit", TINY) == []


# Figures and choices


def test_figures_are_ratios_of_one_run():
    rows = [
        operation_row(LATTICE, 100.0, 14, 9486),
        operation_row(PAILLIER, 4000.0, 512, 32),
        *(tree_row(LATTICE, 2.0), tree_row(PAILLIER, 60.0)),
        *(auc_row(PLAIN, 0.9, 0.8), auc_row(LATTICE, 0.8985, 0.81), auc_row(LATTICE, 0.9005, 0.8)),
    ]
    assert encryption_tables.figures(rows) == pytest.approx(
        {"add_ratio": 40.0, "tree_ratio.toy": 30.0, "auc_gap.lattice.toy": 0.0005}
    )
    assert encryption_tables.gap(rows[-3:], "validation") == pytest.approx(-0.005)
    assert encryption_tables.figures([tree_row(LATTICE, 2.0)]) == {}


def test_counts_of_a_tree_by_hand():
    job = Job(rows=100, columns=3, bins=4, depth=2)
    counts = job.counts()
    assert job.candidates == 3 * 3 * 3
    assert counts[ADD] == 100 * 3 * 1.5  # all rows, then half of them
    assert counts["subtract"] == 12
    assert counts["prefix sum"] == 36
    assert counts[ANSWER] == 27


def test_the_faster_scheme_depends_on_the_link():
    lattice_price = Price.of(operation_row(LATTICE, 100.0, 14, 9486))
    paillier = Price.of(operation_row(PAILLIER, 100_000.0, 512, 32))
    job = Job(10_000, 100)
    least = encryption_choice.break_even(lattice_price, paillier, job)
    assert least is not None
    slower, faster = 0.5 * least, 2.0 * least
    assert lattice_price.seconds(job, slower) > paillier.seconds(job, slower)
    assert lattice_price.seconds(job, faster) < paillier.seconds(job, faster)
    assert encryption_choice.break_even(paillier, lattice_price, job) is None
    many = Job(10_000_000, 5)
    assert not lattice_price.takes(many)
    assert paillier.takes(many)


def test_no_lattice_is_recommended_for_more_rows_than_it_takes():
    rows = [operation_row(LATTICE, 1.0, 14, 9486), operation_row(PAILLIER, 100_000.0, 512, 32)]
    (drawn,) = encryption_choice.choices(rows)
    by_rows = {line[0]: line[2:] for line in drawn.rows}
    assert all("paillier" in cell for cell in by_rows["10,000,000"][:4])
    assert by_rows["10,000,000"][4] == "never"
    assert "lattice" in by_rows["1,000,000"][3]
    assert {line[6] for line in drawn.rows if line[:2] == ("1,000,000", "5")} == {"any"}
    assert encryption_choice.choices([tree_row(LATTICE, 1.0)]) == []


# The command line


def test_parts_of_a_run_are_shown_together(tmp_path, monkeypatch):
    def operations(plan):
        return [operation_row(s, 100.0 * (1 + i), 14, 900) for i, s in enumerate(SCHEMES)]

    def trees(name, plan):
        return [tree_row(s, 1.0 + i, data=name) for i, s in enumerate(SCHEMES)]

    monkeypatch.setattr(encryption_operations, "measure", operations)
    known, _ = encryption.MEASURES["trees"]
    monkeypatch.setitem(encryption.MEASURES, "trees", (known, trees))
    files = [tmp_path / "ops.json", tmp_path / "trees.json"]
    encryption.BENCHMARK.main(
        ["--quick", "--part", "ops", "--data", "vehicle", "--json", str(files[0])]
    )
    given = ["--quick", "--part", "trees", "--data", "give_credit", "--data", "vehicle"]
    encryption.BENCHMARK.main([*given, "--json", str(files[1])])
    written = tmp_path / "all.json"
    both = [arg for file in files for arg in ("--from", str(file))]
    encryption.BENCHMARK.main([*both, "--record", str(written)])
    record = json.loads(written.read_text())
    assert record["figures"]["add_ratio"] == record["figures"]["tree_ratio.give_credit"] == 4.0
    assert "Which scheme when" in record["tables"][-1]["title"]
    rows = json.loads(files[1].read_text())["rows"]
    assert {row["data"] for row in rows} == {"give_credit"}
    assert rows[-1]["what"] == "seconds of trees"


def test_the_command_line_says_what_is_run():
    asked = encryption.BENCHMARK.options(["--quick"])
    assert (*asked.part, *encryption.LINK_PARTS) == encryption.PARTS
    assert tuple(asked.data) == (OPERATIONS, *encryption_plan.DATA)
    assert encryption.settings(Plan.of(quick=False), False)["schemes"] == tuple(SCHEMES)
    with pytest.raises(SystemExit):
        encryption.BENCHMARK.main(["--part", "speed"])
