"""A job's card in a notebook: what it says, and that nothing in it can do harm."""

import re

import pytest

from fedboost.messages.fault_pb2 import Fault
from fedboost.messages.job_pb2 import (
    Event,
    JobJournal,
    JobStatus,
    Metric,
    Progress,
    RoundDone,
    StateChanged,
    StepDone,
    Waiting,
    Warned,
)
from fedboost.pages.parts import state_badge
from fedboost.report.card import JobCard, job_card, trouble_card
from fedboost.report.page import render_page
from fedboost.report.seen import ENDS, JobProgress
from fedboost.report.story import tone_of

START = 1_700_000_000.0
EVIL = "<script>alert(1)</script>\x1b[2J"


def seen(*events: Event) -> JobProgress:
    """What events have said, one a second."""
    found = JobProgress()
    for place, event in enumerate(events):
        event.at = START + place
        found.event(event)
    return found


def state(name: str, **more) -> Event:
    return Event(state=StateChanged(state=name, **more))


def tree(done: int, **metrics: float) -> Event:
    told = [Metric(split=split, name="auc", value=value) for split, value in metrics.items()]
    progress = Progress(round="tree", done=done, of=8)
    return Event(round=RoundDone(progress=progress, seconds=1.0, metrics=told))


def words(html: str) -> str:
    """What a reader sees of it, without style and marks."""
    bare = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", bare)


def test_a_running_job_shows_how_far_it_is_its_metrics_and_who_is_waited_for():
    found = seen(state("running"), *(tree(n, train=0.8 + n / 100) for n in range(1, 5)))
    waiting = [Waiting(party="telco", step="sum_candidates", since=START)]
    html = job_card(JobCard("credit", found, START + 9, "credit-1a", "secureboost", waiting))
    said = words(html)
    for part in ("credit", "running", "credit-1a", "tree 4 of 8", "0.8400", "about", "9 s so far"):
        assert part in said
    assert "waiting for telco, adding up encrypted gradients, 9 s" in said
    assert 'style="width: 50.0%"' in html
    assert 'aria-valuenow="4"' in html
    assert "<polyline" in html


def test_a_curve_needs_some_rounds():
    found = seen(state("running"), tree(1, train=0.8), tree(2, train=0.9))
    assert "<polyline" not in job_card(JobCard("credit", found, START))


def test_a_job_that_waits_for_owners_names_them():
    found = seen(state("waiting for approval", parties=["telco", "shop"]))
    assert "waiting for approval by telco, shop" in words(job_card(JobCard("credit", found, START)))


@pytest.mark.parametrize("name", [*ENDS, "paused", "queued", "waiting for approval"])
def test_a_state_has_one_tone_wherever_it_is_shown(name):
    tone = tone_of(name)
    assert tone
    assert f'class="state {tone}"' in job_card(JobCard("credit", seen(state(name)), START))
    assert f'class="badge {tone}"' in state_badge(name)
    assert f'class="badge {tone}"' in render_page(JobJournal(status=JobStatus(state=name)))


def test_a_job_that_failed_says_why_and_what_to_do():
    reason = Fault(code="data", what="the label is text", todo="write it as numbers")
    found = seen(state("running"), tree(3, train=0.8), state("failed", reason=reason))
    html = job_card(JobCard("credit", found, found.at))
    assert 'role="alert"' in html
    for part in ("failed", "the label is text", "To do: write it as numbers", "2 s in all"):
        assert part in words(html)


def test_nothing_from_outside_becomes_markup():
    found = seen(
        state("running"),
        Event(step=StepDone(stage=EVIL, step=EVIL)),
        Event(warned=Warned(party=EVIL, warning=EVIL)),
        state("paused", reason=Fault(what=EVIL)),
    )
    for html in (job_card(JobCard(EVIL, found, START, EVIL, EVIL)), trouble_card([EVIL])):
        assert "<script" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;" in html


def test_only_the_last_warnings_are_shown_each_once():
    warned = [Event(warned=Warned(warning=f"number {n}")) for n in (1, 2, 2, 3, 4)]
    said = words(job_card(JobCard("credit", seen(*warned), START)))
    assert [n for n in range(1, 5) if f"Warning: number {n}" in said] == [2, 3, 4]
    assert said.count("number 2") == 1
