"""Progress in a terminal and without one, and the summary of a result."""

import io
import json
from typing import Any

import pytest
from rich.console import Console

from fedboost.messages.job_pb2 import Event, Metric, Progress, RoundDone, StateChanged, Waiting
from fedboost.report import progress as shown
from fedboost.report import units
from fedboost.report.seen import JobProgress
from tests.unit.report.test_journal import START, journal


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def lines_of(events) -> list[str]:
    """What a log file gets of a job's events."""
    out = io.StringIO()
    console = Console(file=out, width=60)
    with shown.Progress(console, "credit", clock=Clock()) as progress:
        for event in events:
            progress.event(event)
    return out.getvalue().splitlines()


def on_screen(progress: shown.Progress, width: int = 100) -> str:
    """The live display as text."""
    out = io.StringIO()
    Console(file=out, width=width).print(progress)
    return out.getvalue()


def tree(number: int, of: int, at: float, seconds: float = 2.0) -> Event:
    done = RoundDone(
        stage="secureboost",
        progress=Progress(round="tree", done=number, of=of),
        seconds=seconds,
        metrics=[Metric(split="validation", name="auc", value=0.5 + number / 1000)],
    )
    return Event(at=at, round=done)


def test_a_prediction_says_rows_a_second_where_its_batches_are_known():
    def batch(number: int, of: int) -> Event:
        progress = Progress(round="batch", done=number, of=of)
        return Event(at=2.0 * number, round=RoundDone(progress=progress, seconds=2.0))

    seen = JobProgress(batch_rows=262_144)
    seen.event(tree(1, 3, at=1.0))
    assert "rows" not in seen.pace_words(1.0)
    seen.event(batch(1, 0))
    assert seen.count_words == "batch 1"
    assert "2 s a batch, 131,072 rows a second" in seen.pace_words(2.0)
    seen.event(batch(2, 2))
    assert seen.count_words == "batch 2 of 2"
    assert "rows" not in seen.pace_words(4.0)  # the last one may hold a few alone
    unknown = JobProgress()
    unknown.event(batch(1, 0))
    assert "rows" not in unknown.pace_words(2.0)


def test_without_a_terminal_each_line_is_whole_and_free_of_codes():
    lines = lines_of(journal().events)
    assert all(line.startswith("credit: ") for line in lines)
    assert not any("\x1b" in line for line in lines)
    assert lines[0] == "credit: waiting for approval by telco"
    assert lines[-1].startswith("credit: stage secureboost done in ")


def test_fast_trees_give_a_line_for_each_tenth():
    lines = lines_of(tree(n, 200, START + 0.01 * n, 0.01) for n in range(1, 201))
    counts = [int(line.split()[2]) for line in lines]
    assert counts == [1, *range(21, 200, 20), 200]


def test_slow_trees_give_a_line_at_least_every_ten_seconds():
    assert len(lines_of(tree(n, 1000, START + 12.0 * n, 12.0) for n in range(1, 6))) == 5


def test_a_line_holds_count_metrics_pace_bytes_and_time_left():
    (line,) = (line for line in lines_of(journal().events) if "tree 12 of 25" in line)
    for words in ("train auc 0.8366", "validation auc 0.7953", " s a tree", " MB sent", " s left"):
        assert words in line


def test_rounds_of_several_trees_are_counted_as_rounds():
    (line,) = (
        line
        for line in lines_of(journal(round_name="round", of_round=3).events)
        if "round 12 of 25" in line
    )
    assert " s a round" in line
    assert "tree" not in line


def test_the_time_left_is_the_median_of_the_last_trees_times_what_is_to_do():
    progress = shown.Progress(Console(file=io.StringIO()), "credit", clock=lambda: START + 20.0)
    for number, seconds in enumerate((50.0, 2.0, 2.0, 2.0, 2.0, 2.0), start=1):
        progress.event(tree(number, 26, START + 20.0, seconds))
    assert "about 40 s left" in on_screen(progress)


def test_a_resume_forgets_the_pace_from_before():
    progress = shown.Progress(Console(file=io.StringIO()), "credit", clock=lambda: START)
    progress.event(tree(1, 10, START, 100.0))
    progress.event(Event(at=START, state=StateChanged(state="running")))
    assert "left" not in on_screen(progress)


def test_rounds_of_one_stage_say_nothing_of_the_time_that_those_of_another_take():
    progress = shown.Progress(Console(file=io.StringIO()), "credit", clock=lambda: START)
    scored = RoundDone(stage="predict", progress=Progress(round="batch", done=1, of=1), seconds=90)
    progress.event(Event(at=START, round=scored))
    progress.event(tree(1, 11, START, 2.0))
    assert "about 20 s left" in on_screen(progress)


def test_a_pause_says_why_where_and_what_to_do():
    text = "\n".join(lines_of(journal().events))
    assert "credit: paused: telco did not answer within 60 s" in text
    assert "credit: Where: party telco, step sum_candidates" in text
    assert "credit: To do: check that its daemon runs: fedboost doctor" in text


def test_the_display_says_who_is_waited_for_and_since_when():
    clock = Clock()
    progress = shown.Progress(
        Console(file=io.StringIO(), force_terminal=True), "credit", clock=clock
    )
    progress.waiting(
        [
            Waiting(party="shop", step="sum_candidates", since=START - 40.0),
            Waiting(party="telco", step="sum_candidates", since=START - 42.0),
            Waiting(party="bank", step="commit", since=START - 1.0),
        ]
    )
    assert "waiting for shop, telco, adding up encrypted gradients, 42 s" in on_screen(progress)
    progress.waiting([])
    assert "waiting" not in on_screen(progress)


def test_without_a_terminal_waiting_is_said_every_ten_seconds_and_not_at_once():
    out, clock = io.StringIO(), Clock()
    progress = shown.Progress(Console(file=out, width=80), "credit", clock=clock)
    for second in range(31):
        clock.now = START + second
        progress.waiting([Waiting(party="telco", step="approval", since=START)])
    said = out.getvalue().splitlines()
    assert said == [f"credit: waiting for telco, the owner’s approval, {s} s" for s in (10, 20, 30)]


def test_on_a_terminal_the_display_moves_and_leaves_stdout_alone(capsys):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with shown.Progress(console, "credit", clock=Clock()) as progress:
        for event in journal(trees=3, paused_after=None).events:
            progress.event(event)
        print('{"json": 1}')  # noqa: T201
    assert capsys.readouterr().out == '{"json": 1}\n'
    assert "stage align done" in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_names_from_outside_cannot_steer_the_terminal():
    evil = "\x1b]0;x\x07[red]\r\n"
    out = io.StringIO()
    console = Console(file=out, width=200)
    with shown.Progress(console, evil, clock=Clock()) as progress:
        progress.event(Event(at=START, state=StateChanged(state=evil, parties=[evil])))
        progress.waiting([Waiting(party=evil, step=evil, since=START - 99.0)])
    assert not {"\x1b", "\x07", "\r"} & set(out.getvalue())
    assert "[red]" in out.getvalue()


@pytest.fixture
def result() -> Any:
    return json.loads(journal(kept=21).events[-1].finished.result)


def summed(result) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(shown.result_summary(result))
    return out.getvalue()


def test_the_summary_holds_metrics_costs_and_where_things_are(result):
    lines = [" ".join(line.split()) for line in summed(result).splitlines()]
    assert lines[0].startswith("credit finished with 21 trees in ")
    assert "metric train validation" in lines
    assert "auc 0.8535 0.8110" in lines
    assert "rows 30,000 aligned, 21,000 train, 9,000 validation" in lines
    assert "model credit-1f2e3d4c" in lines
    assert "report fedboost job report credit-1f2e3d4c" in lines
    (bank,) = (line for line in lines if line.startswith("bank "))
    sent = sum(n for link, n in result["bytes"].items() if link.startswith("bank->"))
    assert units.in_bytes(sent) in bank


def test_the_summary_of_a_bare_result_does_not_fail():
    assert "credit finished" in summed({"name": "credit", "state": "finished"})
    assert "metric" not in summed({"name": "credit", "metrics": {}})


def test_the_summary_shows_markup_and_codes_as_text():
    said = summed({"name": "[red]\x1b[31m", "model": "[bold]m", "metrics": {"[b]": {"[i]": 1.0}}})
    assert "\x1b" not in said
    assert "[red]" in said
    assert "[bold]m" in said
    assert "[i]" in said


def test_a_log_says_once_for_twenty_kernels_that_they_are_compiled():
    out = io.StringIO()
    with shown.Progress(Console(file=out, width=60), "credit") as progress:
        for kernels in (1, 2, 20, 21, 40, 41):
            progress.compiling(kernels)
    said = "credit: compiling once on this machine, a first job about 30 s: kernel"
    assert out.getvalue().splitlines() == [f"{said} {kernels}" for kernels in (1, 21, 41)]


def test_the_screen_shows_compilation_until_the_first_round_is_done():
    progress = shown.Progress(Console(file=io.StringIO()), "credit")
    assert "compiling" not in on_screen(progress)
    progress.compiling(7)
    assert "compiling once on this machine, a first job about 30 s: kernel 7" in on_screen(progress)
    progress.event(tree(1, 5, START))
    assert "compiling" not in on_screen(progress)
