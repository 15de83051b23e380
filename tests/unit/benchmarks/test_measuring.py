"""What is read off a job, and how a question's rows become its report."""

import asyncio
import json
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import federboost_horizontal, fedgbf, gbun, harness, hybridtree, rows, tables
from benchmarks.harness import Cost, JobRun, Lap, StepTotal
from benchmarks.hybridtree_accuracy import UNSCORED
from benchmarks.question import Part, Question
from fedboost.ground.errors import ConfigError
from fedboost.messages.job_pb2 import Event, JobJournal, LinkBytes, StageDone, StepCost, StepDone


def done(steps=(), trees=(), result: Any = None, **more):
    found: Any = {"rounds": [], "shards": {}, "training": {}, **more}
    own = {"protocol": "secureboost", **(result or {})}
    return JobRun(own, list(steps), load_before=[0.5], load_after=[0.6], trees=[*trees], **found)


def test_steps_of_a_journal_add_up():
    def step(seconds, cpu, sent):
        cost = StepCost(party="bank", cpu_seconds=cpu, sent=[LinkBytes(peer="telco", bytes=sent)])
        return Event(step=StepDone(stage="s", step="open", seconds=seconds, costs=[cost]))

    total = harness.step_totals([step(1.0, 2.0, 10), Event(), step(0.5, 0.25, 5)])[0]
    assert (total.calls, total.seconds) == (2, 1.5)
    assert total.cpu_seconds == {"bank": 2.25}
    assert total.bytes == {"bank->telco": 15}


def test_costs_are_of_trees_and_leave_the_keys_out():
    steps = [
        StepTotal("align", "meet", 1, 1.0, {"guest": 50.0}, {"guest->host": 50}),
        StepTotal("secureboost", "share_key", 1, 1.0, {"guest": 9.0}, {"guest->host": 9}),
        StepTotal("secureboost", "open", 3, 1.0, {"guest": 3.0, "host": 6.0}, {"a->b": 30}),
    ]
    run = done(steps, [Lap(9.0, 90.0, 9.0), Lap(1.0, 2.0, 0.5), Lap(2.0, 3.0, 1.0)])
    assert Cost.of(run) == Cost(wall_s=1.5, cpu_s=2.5, sent=10.0, others=0.5, load=[0.5])
    assert run.by_party() == {"guest": 4.0, "host": 2.0}
    unknown = done([], [Lap(1.0, 1.0, 1.0), Lap(2.0, None, None)])
    assert Cost.of(unknown) == Cost(wall_s=2.0, cpu_s=None, sent=0.0, others=None, load=[0.5])


def test_a_mix_is_timed_by_whole_cycles_after_one_that_warms_up():
    trees = [Lap(seconds, 1.0, 0.0) for seconds in (0.1, 9.0, 1.0, 3.0, 2.0, 4.0)]
    assert Cost.of(done([], trees), cycle=2).wall_s == 2.5


def test_a_first_job_warms_up_and_only_the_stage_itself_counts():
    def run(seconds, others):
        steps = [StepTotal("align", "meet", bytes={"a->b": 9999}),
                 StepTotal("secureboost", "open", bytes={"a->b": 70})]  # fmt: skip
        spent = {"seconds": 2.0, "ours": seconds / 2, "others": 2.0 * others}
        result = {"seconds": {"train": seconds, "align": 2 * seconds}}
        return done(steps, result=result, training=spent)

    runs = iter([run(9.0, 0.0), run(1.0, 0.5), run(3.0, 1.5)])
    assert harness.took(*harness.repeated(lambda: next(runs), 2)) == {
        "seconds": [1.0, 3.0], "first": 9.0, "align": 4.0, "cpu_s": 1.0, "others": 1.0,
        "sent": 70, "load": [0.5],
    }  # fmt: skip
    alone = harness.took(*harness.repeated(lambda: run(2.0, 0.0), 0))
    assert (alone["seconds"], alone["first"]) == ([2.0], 2.0)


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
    spec = harness.job("secureboost", ("guest", "host"), {})
    daemons = {"host": SimpleNamespace(pid=os.getpid())}  # as it were
    cluster: Any = SimpleNamespace(client=None, processes=daemons)
    watched = asyncio.run(harness._follow(cluster, spec))
    assert [tree.seconds for tree in watched.trees] == [2.0, 4.5]
    assert all(tree.by_daemon == {"host": tree.ours} for tree in watched.trees)


def test_our_own_processor_time_is_part_of_the_machines():
    before = harness.Busy.now()
    sum(i * i for i in range(2_000_000))
    after = harness.Busy.now()
    assert 0.03 < after.ours - before.ours <= after.machine - before.machine + 0.05


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
    found = fedgbf.cost(done(steps, trees, {"exchanges": 12}, rounds=rounds))
    assert found["exchanges"] == 3.0
    assert (found["wall_s"], found["cpu_s"], found["others"]) == (4.0, 3.0, 0.5)
    assert (found["sent"], found["test_auc"]) == (100, 0.7)


def test_phases_end_with_the_last_cut_point_and_the_last_metrics():
    def run(seconds):
        ends = {"narrow": 1.0 + seconds / 4, "read_metrics": 1.0 + 0.9 * seconds}
        result = {"seconds": {"train": seconds}}
        return done(result=result, ends={**ends, "secureboost": 1.0 + seconds})

    found = federboost_horizontal._phases_of([run(8.0), run(2.0), run(4.0)])
    assert found == {"phases": pytest.approx({"quantiles": 1.0, "trees": 2.6, "rest": 0.4})}


def test_what_is_sent_once_is_no_part_of_a_round(monkeypatch):
    steps = [
        StepTotal("gbun", "count_rows", bytes={"guest->sum": 5000, "sum->guest": 10**6}),
        StepTotal("gbun", "sum_outputs", bytes={"guest->sum": 200, "host1->sum": 220}),
        StepTotal("gbun", "add_up", bytes={"sum->guest": 10**6}),
        StepTotal("done", "sum_outputs", bytes={"guest->sum": 10**6}),
    ]
    monkeypatch.setattr(harness, "run_here", lambda *_: done(steps))
    params = gbun.networks_of(4, 2)
    found = gbun.counted("gbun", params, ("guest", "host1"), lambda _: {})
    assert found["up"] == 110
    assert found["by_step"] == {"sum_outputs": 110}
    assert found["once"] == 0  # of the party that sends most in a round
    assert found["formula"] == gbun.formula(64, 4)
    assert gbun.formula(8, 4) == 8 * (17 + 4 * 36 + 4 * 8)


def test_the_busiest_party_is_not_the_aggregator():
    steps = [
        StepTotal("gbun", "count_rows", cpu_seconds={"guest": 50.0}),
        StepTotal("gbun", "sum_system", cpu_seconds={"guest": 2.0, "host1": 5.0}),
        StepTotal("gbun", "add_up", cpu_seconds={"sum": 90.0}),
        StepTotal("gbun", "solve", cpu_seconds={"guest": 2.0, "host1": 1.0}),
    ]
    assert gbun.busiest(done(steps), 2) == 3.0


@pytest.mark.parametrize(
    ("system", "protocol", "more"),
    [
        (hybridtree.SECUREBOOST, "predict", {}),
        (UNSCORED, "predict-hybrid", {"split": "unscored"}),
    ],
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
        return done(steps, result={"seconds": {"predict": 2.0}})

    found = hybridtree.predicted(run, system, done(result={"job": "abc"}))
    assert asked == [(protocol, {"model": "abc", **more})]
    assert found == {"sent": 37, "exchanges": 6, "seconds": 2.0}


# Reports


@dataclass(frozen=True)
class Plan:
    count: int = 3
    line: str | None = None


def measure(name, plan):
    return [{"n": n, "others": 0.5} for n in range(plan.count)]


TOY = Question(
    *("toy", "A toy."),
    {
        "near": Part(measure, ("a", "b")),
        "far": Part(measure, ("a",), "line"),
        "once": Part(measure),
    },
    *(Plan(), Plan(1)),
    figures=lambda found: {f"rows.{row['data']}": float(row["n"]) for row in found},
    options={"line": {"type": str}, "count": {"type": int}},
)


def answered(tmp_path, *given):
    files = [tmp_path / name for name in ("all.json", "record.json")]
    TOY.main([*given, "--json", str(files[0]), "--record", str(files[1])])
    found, record = (json.loads(file.read_text()) for file in files)
    assert set(found) == {"name", "machine", "versions", "settings", "rows", "figures"}
    assert {"cores", "model", "memory"} <= set(found["machine"])
    assert record["figures"] == found["figures"]
    assert record["machine"] == found["machine"] | found["versions"]
    assert all(len(line) == len(t["heads"]) for t in record["tables"] for line in t["rows"])
    return found


def test_parts_and_data_sets_are_those_that_the_command_asks_for(tmp_path):
    whole = answered(tmp_path)
    assert [(row["what"], row["data"], row["n"]) for row in whole["rows"]] == [
        *(("near", name, n) for name in "ab" for n in range(3)),
        *(("once", "", n) for n in range(3)),
    ]  # fmt: skip
    quick = answered(tmp_path, "--quick", "--data", "b", "--part", "near")
    assert [(row["what"], row["data"]) for row in quick["rows"]] == [("near", "b")]
    assert quick["settings"] == {"count": 1, "line": None, "quick": True}
    linked = answered(tmp_path, "--line", "slow", "--count", "2")
    assert [row["what"] for row in linked["rows"]] == ["far", "far"]
    assert (linked["name"], linked["settings"]["line"]) == ("toy_line", "slow")
    with pytest.raises(SystemExit):
        TOY.main(["--fast"])


def test_runs_are_shown_together_and_the_later_one_counts(tmp_path):
    files = []
    for number, given in enumerate((["--part", "near"], ["--part", "near", "--data", "b"])):
        (folder := tmp_path / str(number)).mkdir()
        answered(folder, *given, "--count", str(2 - number))
        files.append(folder / "all.json")
    report = TOY.earlier(files)
    assert [(row["data"], row["n"]) for row in report.rows] == [("a", 0), ("a", 1), ("b", 0)]
    assert report.figures == {"rows.a": 1.0, "rows.b": 0.0}


def test_a_table_has_what_differs_and_its_title_what_does_not():
    same = {"what": "trees", "data": "toy", "rows": 1000, "laps": [{"s": 1.0}], "load": [0.5, 2]}
    found: Any = [{**same, "wall_s": s, "cpu": {"guest": 2 * s}, "others": 0.9} for s in (1.0, 2.5)]
    (table,) = rows.drawn(found)
    assert table.title == "trees, toy, rows 1,000, load 0.5, 2, others 0.9"
    assert (table.heads, table.rows) == (("wall_s", "cpu guest"), [("1", "2"), ("2.5", "5")])
    assert "CPU seconds compare better" in table.markdown()
    (alone,) = rows.drawn([{"what": "trees", "data": "toy", "wall_s": None, "sent": 123456.0}])
    assert alone.rows == [("wall_s", ""), ("sent", "123,456")]


def test_an_absent_data_set_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBOOST_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="default_credit"):
        tables.load("default_credit")
