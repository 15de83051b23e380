"""Time and traffic of a job: per step and party, per step and link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from fedboost.report import units
from fedboost.report.charts import Axis, Bar, Line, LineChart, bar_list, line_chart
from fedboost.report.html import Html, tag
from fedboost.report.steps import step_title
from fedboost.report.story import COLOURS, PartyLink, StepTotal, Story, Traffic
from fedboost.report.tables import (
    Band,
    Column,
    TableRow,
    absence_note,
    details,
    html_table,
    listed_names,
    section,
)

T = TypeVar("T")
LINKS_MAX = 12  # listed with their sums; the rest is one line
BARS_MAX = COLOURS  # in one group; the rest becomes one bar
SECONDS_SHOWN = 1e-3  # steps that took less in all are listed, without bars


def times_section(story: Story) -> Html:
    """Return seconds of every step for each of its parties, and of every round."""
    title = "Where the time went"
    if not story.steps:
        return section("time", title, absence_note("No step has run."))
    total = sum(step.seconds for step in story.steps)
    most = max((max(step.parties.values(), default=0.0) for step in story.steps), default=0.0)
    rows: list[TableRow] = []
    for stage, steps in _steps_by_stage(story).items():
        rows.append(Band(f"{stage}: {units.in_seconds(sum(step.seconds for step in steps))}"))
        for step in steps:
            took = units.in_seconds(step.seconds)
            drawn = bar_list(_party_bars(story, step.parties), most)
            calls = units.in_count(step.calls)
            rows.append(
                [_step_name(step.step), calls, drawn, took, units.in_percent(step.seconds, total)]
            )
    heads = [Column("step"), Column("calls", "number"), Column("seconds of each party", "wide")]
    numbers = ["until all finished", "share"]
    drawn = html_table("Seconds per step and party", heads, rows, numbers=numbers, folds=True)
    intro = (
        "Parties work on a step at the same time, so it takes as long as its slowest party, plus "
        "the network."
    )
    return section("time", title, _rounds_chart(story), drawn, intro=intro)


def traffic_section(story: Story) -> Html:
    """Return bytes of every step for each pair of parties, and of every link."""
    title = "What travelled"
    links = _traffic_by_link(story)
    if not links:
        return section("bytes", title, absence_note("No message was sent."))
    pairs = _pair_colours(links)
    most = max(sent.bytes for step in story.steps for sent in step.sent.values())
    rows: list[TableRow] = []
    for stage, steps in _steps_by_stage(story).items():
        sending = [step for step in steps if step.sent]
        if not sending:
            continue
        stage_total = sum(_bytes_of_step(step) for step in sending)
        rows.append(Band(f"{stage}: {units.in_bytes(stage_total)}"))
        for step in sending:
            rows.append(_sent_row(step, pairs, most))
    total = sum(sent.bytes for sent in links.values())
    messages = units.plural(sum(sent.messages for sent in links.values()), "message")
    size = units.in_bytes(total)
    intro = f"{size} in {messages} between parties, none of it through the coordinator."
    heads, numbers = [Column("step"), Column("bytes on each link", "wide")], ["messages", "bytes"]
    by_step = html_table("Bytes per step and link", heads, rows, numbers=numbers, folds=True)
    exact = details("Every link and step", _every_link(story))
    return section(
        "bytes",
        title,
        tag("div", _links_table(links), class_="narrow"),
        by_step,
        exact,
        intro=intro,
    )


def _rounds_chart(story: Story) -> Html:
    points = [(float(summary.done), summary.seconds) for summary in story.rounds]
    if len(points) < 2:
        return Html("")
    chart = LineChart(
        title=f"Seconds per {story.round_name}",
        lines=[Line("seconds", points, 1)],
        x=Axis(story.round_name, (points[0][0], points[-1][0]), whole=True),
        y=Axis("seconds", (0.0, max(1e-6, *(seconds for _, seconds in points)) * 1.08)),
    )
    return tag("div", line_chart(chart), class_="charts two")


def _steps_by_stage(story: Story) -> dict[str, list[StepTotal]]:
    stages: dict[str, list[StepTotal]] = {}
    for step in story.steps:
        stages.setdefault(step.stage, []).append(step)
    return stages


def _party_bars(story: Story, seconds: Mapping[str, float]) -> list[Bar]:
    """Return a bar for each party; of many, the slowest ones and one for the slowest other."""
    slowest_took = max(seconds.values(), default=0.0)
    if slowest_took < SECONDS_SHOWN:
        return [
            Bar(0.0, COLOURS, f"{listed_names(list(seconds))} {units.in_seconds(slowest_took)}")
        ]
    shown, rest = _grouped(seconds)
    group = [
        Bar(seconds[party], story.colour_of(party), f"{party} {units.in_seconds(seconds[party])}")
        for party in shown
    ]
    if rest:
        longest = max(seconds[party] for party in rest)
        words = f"{units.plural(len(rest), 'other')}, at most {units.in_seconds(longest)}"
        group.append(Bar(longest, COLOURS, words))
    return group


def _grouped(sizes: Mapping[T, float]) -> tuple[list[T], list[T]]:
    """Return keys that get a bar each and, of many, the smallest, which share one."""
    if len(sizes) <= BARS_MAX:
        return list(sizes), []
    largest = sorted(sizes, key=lambda key: -sizes[key])
    return largest[: BARS_MAX - 1], largest[BARS_MAX - 1 :]


def _traffic_by_link(story: Story) -> dict[PartyLink, Traffic]:
    links: dict[PartyLink, Traffic] = {}
    for step in story.steps:
        for link, sent in step.sent.items():
            links.setdefault(link, Traffic()).add(sent.bytes, sent.messages)
    return links


def _pair_colours(links: Mapping[PartyLink, Traffic]) -> dict[frozenset[str], int]:
    """Return pairs of parties with a colour each; the last colour is for all other pairs."""
    sizes: dict[frozenset[str], int] = {}
    for link, sent in links.items():
        pair = frozenset((link.sender, link.receiver))
        sizes[pair] = sizes.get(pair, 0) + sent.bytes
    largest = sorted(sizes, key=lambda pair: -sizes[pair])
    return {pair: min(place, COLOURS) for place, pair in enumerate(largest, start=1)}


def _sent_row(step: StepTotal, pairs: Mapping[frozenset[str], int], most: float) -> TableRow:
    """Return a bar for each link; of many, the largest ones and one for the largest other."""
    shown, rest = _grouped({link: sent.bytes for link, sent in step.sent.items()})
    group = [
        Bar(
            step.sent[link].bytes,
            pairs[frozenset((link.sender, link.receiver))],
            f"{link} {units.in_bytes(step.sent[link].bytes)}",
        )
        for link in shown
    ]
    if rest:
        size = max(step.sent[link].bytes for link in rest)
        words = f"{units.plural(len(rest), 'other link')}, at most {units.in_bytes(size)} each"
        group.append(Bar(size, COLOURS, words))
    messages = sum(sent.messages for sent in step.sent.values())
    return [
        _step_name(step.step),
        bar_list(group, most),
        units.in_count(messages),
        units.in_bytes(_bytes_of_step(step)),
    ]


def _links_table(links: Mapping[PartyLink, Traffic]) -> Html:
    total = sum(sent.bytes for sent in links.values())
    totals = [
        (str(link), sent.messages, sent.bytes)
        for link, sent in sorted(links.items(), key=lambda item: -item[1].bytes)
    ]
    if len(totals) > LINKS_MAX:
        rest = totals[LINKS_MAX - 1 :]
        messages, size = (sum(column) for column in ([r[1] for r in rest], [r[2] for r in rest]))
        totals = [*totals[: LINKS_MAX - 1], (f"{len(rest)} other links", messages, size)]
    rows: list[TableRow] = [
        [name, units.in_count(messages), units.in_bytes(size), units.in_percent(size, total)]
        for name, messages, size in totals
    ]
    return html_table("Bytes per link", ["link"], rows, numbers=["messages", "bytes", "share"])


def _every_link(story: Story) -> Html:
    rows: list[TableRow] = [
        [
            link,
            step.stage,
            _step_name(step.step),
            units.in_count(sent.messages),
            units.in_count(sent.bytes),
        ]
        for step in story.steps
        for link, sent in step.sent.items()
    ]
    heads, numbers = ["link", "stage", "step"], ["messages", "bytes"]
    return html_table("Messages and bytes per link and step", heads, rows, numbers=numbers)


def _bytes_of_step(step: StepTotal) -> int:
    return sum(sent.bytes for sent in step.sent.values())


def _step_name(name: str) -> Html:
    words = step_title(name)
    return tag("span", words[:1].upper() + words[1:], title=name)
