"""Plots of the HybridTree benchmark: accuracy by hosts and by skew, seconds of a tree."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks import federboost_plots, parts, plus_plots
from benchmarks.federboost_plots import SIZE
from benchmarks.hybridtree_accuracy import (
    ALL_LOCAL,
    EACH,
    FALLING_BACK,
    SAMPLED,
    SCORED,
    SOLO,
    TFL,
    UNSCORED,
)
from benchmarks.hybridtree_jobs import NODE_LEVEL, PLUS, PLUS_SAMPLED
from benchmarks.hybridtree_plan import SCALE, SKEW
from benchmarks.hybridtree_tables import READINGS, beside
from benchmarks.plus_plots import Group
from benchmarks.plus_tables import Row, grouped, number, of, percent
from fedboost.report.charts import Axis, Bar, Line, LineChart

NAME = "hybridtree"
DRAWN = (SCORED, UNSCORED, TFL, ALL_LOCAL, SOLO, EACH, FALLING_BACK)
COLOURS = {SCORED: 1, UNSCORED: 1, SOLO: 2, FALLING_BACK: 2, TFL: 3, EACH: 3, ALL_LOCAL: 4}
DASHED = (UNSCORED, FALLING_BACK, EACH)
BARS = {NODE_LEVEL: 6, PLUS: 3, PLUS_SAMPLED: 3, SCORED: 1, SAMPLED: 1, UNSCORED: 2}


def write(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Writes a file for each plot that has rows; gives the Markdown that shows them."""
    found = {}
    for data in dict.fromkeys(row["data"] for row in of(rows, "accuracy")):
        for name, chart in (("hosts", _hosts(data, rows)), ("skew", _skew(data, rows))):
            if chart is not None:
                found[f"{name}-{data}"] = (chart.title, federboost_plots.picture(chart))
    bars = {
        "trees": ("Seconds to build one tree", tree_groups(rows)),
        "rules": ("Share of the trees that have the same rule", rule_groups(rows)),
    }
    found |= {
        name: (title, plus_plots.picture(title, groups))
        for name, (title, groups) in bars.items()
        if groups
    }
    return parts.write_pictures(folder, NAME, found)


def _hosts(data: str, rows: Sequence[Row]) -> LineChart | None:
    """Accuracy by the number of hosts: Figure 6 of the paper."""
    own = _points(data, rows, SCALE)
    first = beside(data, rows)
    points = [(5.0, first)] if first is not None else []
    points += [(float(row["value"]), row) for row in own]
    return _chart(f"{data}: test accuracy, by hosts", points, "hosts") if own else None


def _skew(data: str, rows: Sequence[Row]) -> LineChart | None:
    """Accuracy by the concentration of classes, test rows dealt evenly: Figure 8 of the paper."""
    own = [row for row in _points(data, rows, SKEW) if not row["dealing"]["skewed_test"]]
    points = [(math.log10(row["value"]), row) for row in own]
    title = f"{data}: test accuracy, by log10 of β"
    return _chart(title, points, "log10 of β") if len(points) > 1 else None


def _points(data: str, rows: Sequence[Row], table: str) -> list[Row]:
    return [row for row in of(rows, "accuracy") if (row["data"], row["table"]) == (data, table)]


def _chart(title: str, points: Sequence[tuple[float, Row]], x: str) -> LineChart:
    lines = [
        Line(system, [(at, _accuracy(row, system)) for at, row in points], COLOURS[system],
             dashed=system in DASHED)
        for system in DRAWN
    ]  # fmt: skip
    named = sorted(lines, key=lambda line: line.points[-1][1])
    at = [place for place, _ in points]
    axis = Axis(x, (min(at), max(at)) if max(at) > min(at) else None)
    return LineChart(title, named, axis, Axis(""), end_labels=True, size=SIZE)


def _accuracy(row: Row, system: str) -> float:
    """Of single hosts the mean."""
    score = row["scores"][system]
    if isinstance(score, list):
        return float(mean(one["accuracy"] for one in score if one is not None))
    return float(score["accuracy"])


def tree_groups(rows: Sequence[Row]) -> list[Group]:
    """Wall seconds of a tree by system: Tables 2 and 11 of the paper."""
    found = []
    for group in grouped(of(rows, "trees"), "data", "setting"):
        first = group[0]
        title = f"{first['data']}, {first['setting']}: {first['host_rows']:,} rows of hosts"
        bars = [Bar(row["wall_s"], BARS[row["system"]], _words(row)) for row in group]
        found.append(Group(title, [row["system"] for row in group], bars))
    return found


def _words(row: Row) -> str:
    cpu = "" if row["cpu_s"] is None else f", CPU {number(row['cpu_s'], 2)} s"
    return f"{row['wall_s']:.2f} s{cpu}"


def rule_groups(rows: Sequence[Row]) -> list[Group]:
    """The largest shares, in each reading: Figure 3a of the paper."""
    return [
        Group(
            f"{row['data']}: {row['trees']} trees, {row['rows']:,} rows",
            list(READINGS.values()),
            [Bar(row[what]["share"], 1, percent(row[what]["share"])) for what in READINGS],
        )
        for row in of(rows, "meta_rules")
    ]
