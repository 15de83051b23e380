"""A job as a card for notebooks: a self-contained piece of HTML, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.messages.job_pb2 import Waiting
from fedboost.report import units
from fedboost.report.charts import Axis, Line, LineChart, line_chart
from fedboost.report.html import Html, join, style_sheet, tag
from fedboost.report.seen import JobProgress, waiting_words
from fedboost.report.story import ordered_splits, tone_of
from fedboost.report.training import COLOUR_OF, OTHER_COLOUR

SIZE = (330.0, 190.0)  # of the chart, user units
ROUNDS_DRAWN_MIN = 3  # fewer are no curve
WARNINGS_MAX = 3


@dataclass(frozen=True)
class JobCard:
    """A job as a card shows it; `now` in seconds since 1970."""

    name: str
    seen: JobProgress
    now: float
    id: str = ""
    protocol: str = ""
    waiting: Sequence[Waiting] = ()


def job_card(shown: JobCard) -> Html:
    """Return the card, with its own style sheet."""
    seen = shown.seen
    facts = [seen.pace_words(shown.now), waiting_words(shown.waiting, shown.now)]
    lines = [tag("p", words, class_="quiet") for words in facts if words]
    warnings = list(dict.fromkeys(seen.warnings))[-WARNINGS_MAX:]
    lines += [tag("p", f"Warning: {words}", class_="warned") for words in warnings]
    return _card_frame(
        _card_head(shown),
        _progress_bar(seen),
        _trouble_lines(seen.reason),
        _metrics_and_curve(seen),
        *lines,
    )


def trouble_card(lines: Sequence[str]) -> Html:
    """Return an error's lines in a frame like a card."""
    return _card_frame(_trouble_lines(lines))


def _card_frame(*content: Html) -> Html:
    return tag("div", style_sheet("card.css"), *content, class_="fedboost-card")


def _tone_of_job(seen: JobProgress) -> str:
    return tone_of(seen.state) or ("running" if seen.state == "running" else "")


def _card_head(shown: JobCard) -> Html:
    state = shown.seen.state_words or "starting"
    badge = tag("span", state, class_=f"state {_tone_of_job(shown.seen)}".strip())
    head = tag("p", tag("b", shown.name), badge, class_="head")
    facts = [tag("span", shown.protocol)] if shown.protocol else []
    facts += [tag("code", shown.id)] if shown.id else []
    if not facts:
        return head
    more = (join(" · ", fact) for fact in facts[1:])
    return join(head, tag("p", facts[0], *more, class_="quiet"))


def _progress_bar(seen: JobProgress) -> Html:
    if not seen.of:
        return tag("p", seen.count_words, class_="quiet") if seen.stage else join()
    percent = 100.0 * min(1.0, seen.done / seen.of)
    filled = tag("span", style=f"width: {percent:.1f}%")
    track = tag(
        "span",
        filled,
        role="progressbar",
        aria_valuenow=str(seen.done),
        aria_valuemin="0",
        aria_valuemax=str(seen.of),
        aria_label=seen.count_words,
    )
    return tag(
        "div", track, tag("span", seen.count_words), class_=f"bar {_tone_of_job(seen)}".strip()
    )


def _trouble_lines(lines: Sequence[str]) -> Html:
    if not lines:
        return join()
    return tag("div", *(tag("p", line) for line in lines), role="alert", class_="trouble")


def _metrics_and_curve(seen: JobProgress) -> Html:
    """Return the last metrics as a table, and the first of them by round."""
    if not seen.metrics:
        return join()
    splits = ordered_splits(seen.metrics)
    names = dict.fromkeys(name for split in splits for name in seen.metrics[split])
    heads = [tag("th", ""), *(tag("th", split, scope="col", class_="number") for split in splits)]
    rows = []
    for name in names:
        values = (seen.metrics[split].get(name, math.nan) for split in splits)
        cells = [tag("td", units.metric_text(value)) for value in values]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    metrics = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return tag("div", metrics, _metric_curve(seen, next(iter(names)), splits), class_="told")


def _metric_curve(seen: JobProgress, name: str, splits: Sequence[str]) -> Html:
    lines = []
    for split in splits:
        rounds = sorted(seen.rounds.items())
        values = ((number, metrics.get(split, {}).get(name)) for number, metrics in rounds)
        points = [(float(n), v) for n, v in values if v is not None and math.isfinite(v)]
        if len(points) >= ROUNDS_DRAWN_MIN:
            colour = COLOUR_OF.get(split, OTHER_COLOUR)
            lines.append(Line(split, points, colour, dashed=split == "train"))
    if not lines:
        return join()
    axes = Axis(seen.round_name, whole=True), Axis("")
    return line_chart(LineChart(name, lines, *axes, size=SIZE))
