"""Running jobs at a party: their current step, and their releases against the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.messages.job_pb2 import Released
from fedboost.messages.party_pb2 import StepReply
from fedboost.pages import parts
from fedboost.pages.approval import OwnedJobView
from fedboost.pages.records import EARLIER, SPENT
from fedboost.report import units
from fedboost.report.charts import Bar, bar_list, budget_meter
from fedboost.report.html import Html, join, tag
from fedboost.report.states import person_of, state_in_words
from fedboost.report.steps import step_title
from fedboost.report.story import COLOURS
from fedboost.report.tables import absence_note, listed_names
from fedboost.runtime.ledger.rows import Amount


@dataclass(frozen=True)
class JobUnderWay:
    """A running job, as far as this party knows it."""

    view: OwnedJobView
    stage: str  # empty between stages
    now: StepReply  # the current step, with the parties whose messages are missing
    amounts: Sequence[Amount]
    released: Sequence[Released]  # one, or none where its sums tell nothing
    noisy: Sequence[Html]  # the ε of its data set against the limit, drawn; none without noise


def running_page(under_way: Sequence[JobUnderWay]) -> list[object]:
    """Show a card for each job that goes on."""
    cards = tag("div", *map(_job_card, under_way), class_="cards one")
    states = ", ".join(
        f"{job.view.owned.name} {state_in_words(job.view.job.state.shown)}" for job in under_way
    )
    intro = (
        "This party’s own view: its step, whom it waits for, and what it has sent. The "
        "coordinator’s page counts the rounds."
    )
    return [
        tag("h1", "Running"),
        tag("p", intro, class_="intro"),
        parts.live_part(
            "running",
            parts.announcement(states or "No job is running here"),
            cards if under_way else absence_note("No job is running here."),
        ),
    ]


def _job_card(job: JobUnderWay) -> Html:
    view, owned = job.view, job.view.owned
    link = tag("a", owned.name or owned.id, href=f"/jobs/{owned.id}")
    person = person_of(owned.submitter)
    terms = f"{owned.protocol} on {owned.dataset or 'no data set'} for {person}, among "
    left, came = ([a for a in job.amounts if a.direction == way] for way in ("out", "in"))
    facts: list[tuple[object, object]] = [("Step", _current_step(job))]
    facts += [
        ("Sent so far", _amounts_in_words(left)),
        ("Received so far", _amounts_in_words(came)),
    ]
    facts += [("Budget", drawn) for drawn in (*map(_budget_bar, job.released), *job.noisy)]
    return tag(
        "article",
        tag("h2", link, " ", parts.state_badge(view.job.state.shown)),
        tag("p", terms, listed_names(list(owned.parties)), class_="facts"),
        tag("p", view.job.reason, class_="reason") if view.job.reason else "",
        tag("p", f"{view.job.state.shown} for ", parts.time_since(view.job.since), class_="facts"),
        parts.fact_list(facts),
        class_=f"card {'edge-go' if job.stage else 'edge-wait'}",
    )


def _current_step(job: JobUnderWay) -> Html:
    if not job.stage:
        return join("none: the job is waiting, or a stage is starting")
    waits = f", waiting for {listed_names(list(job.now.waits_for))}" if job.now.waits_for else ""
    step = step_title(job.now.step) if job.now.step else "between two steps"
    return join(f"{job.stage}: {step}{waits}")


def _amounts_in_words(amounts: Sequence[Amount]) -> str:
    """Describe the amount of all kinds and peers."""
    if not amounts:
        return "nothing"
    messages = units.plural(sum(amount.messages for amount in amounts), "message")
    values = units.in_count(sum(amount.values for amount in amounts))
    size = units.in_bytes(sum(amount.bytes for amount in amounts))
    peers = listed_names(sorted({amount.peer for amount in amounts}))
    way = "to" if amounts[0].direction == "out" else "from"
    return f"{messages} with {values} values, {size}, {way} {peers}"


def _budget_bar(released: Released) -> Html:
    """Draw the sums per bin and row so far, those still expected, and the limit."""
    before, counted = released.before, released.counted
    rest = max(0.0, released.planned - counted)
    shown = [
        Bar(before, EARLIER, f"earlier jobs: {before:.2g}"),
        Bar(counted, SPENT, f"this job so far: {counted:.2g}"),
        Bar(rest, COLOURS, f"still expected: {rest:.2g}"),
    ]
    attack = f"an attack could place {released.placed.counted:.0%} of the rows so far"
    about = tag("span", f"sums per bin and row; {attack}", class_="note")
    if released.max == math.inf:
        return join(about, bar_list(shown, max(bar.value for bar in shown)))
    return join(about, budget_meter(shown, released.max, f"limit: {released.max:g}"))
