"""Forests of a job from round to round: their trees, and the rows of each tree."""

from __future__ import annotations

from collections.abc import Sequence

from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.report import units
from fedboost.report.charts import Axis, Line, LineChart, line_chart
from fedboost.report.html import Html, join, tag
from fedboost.report.story import Story
from fedboost.report.tables import TableRow, details, html_table, section
from fedboost.report.training import kept_rule, whole_range

NAME, TITLE = "forest", "Forest of each round"


def schedule_section(story: Story) -> Html:
    """Return trees and share of rows by round, from the job's settings; empty without a forest."""
    params = _forest_params(story)
    if params is None:
        return join()
    sizes = (forest.trees_each_round(params) * params.trees_per_round).tolist()
    rates = forest.row_rates(params).tolist()
    charts = [
        _chart_by_round(
            story, Line("trees", _numbered_points(sizes), 1), "Trees per round", whole=True
        ),
        _chart_by_round(
            story, Line("share", _numbered_points(rates), 2), "Share of the rows that a tree sees"
        ),
    ]
    trees = units.plural(sum(sizes), "tree")
    work = sum(size * rate for size, rate in zip(sizes, rates, strict=True))
    intro = (
        f"Planned: {trees} in {units.plural(len(sizes), 'round')}, which together see "
        f"as many rows as {work:,.2f} trees on all of them. The trees of a round are averaged."
    )
    rows: list[TableRow] = [
        [number, units.in_count(size), units.in_percent(rate, 1.0)]
        for number, (size, rate) in enumerate(zip(sizes, rates, strict=True), start=1)
    ]
    heads = ["round", "trees", "share of rows"]
    values = details(
        "The values as a table", html_table("Forest by round", [], rows, numbers=heads)
    )
    return section(NAME, TITLE, tag("div", *charts, class_="charts two"), values, intro=intro)


def is_drawn(story: Story) -> bool:
    """Return True if the job has a forest to show."""
    return _forest_params(story) is not None


def _forest_params(story: Story) -> TreeParams | None:
    params = story.params
    return params if isinstance(params, TreeParams) and params.forest is not None else None


def _numbered_points(values: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(number), float(value)) for number, value in enumerate(values, start=1)]


def _chart_by_round(story: Story, line: Line, title: str, *, whole: bool = False) -> Html:
    """Draw one value over all rounds, from zero."""
    rounds = len(line.points)
    return line_chart(
        LineChart(
            title=title,
            lines=[line],
            x=Axis("round", whole_range(range(1, rounds + 1)), whole=True),
            y=Axis(title, (0.0, max(value for _, value in line.points)), whole=whole),
            rule=kept_rule(story, rounds),
        )
    )
