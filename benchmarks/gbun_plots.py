"""Plots of the GBUN benchmark: lines as SVG files."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import parts
from benchmarks.federboost_plots import SIZE, picture
from benchmarks.gbun_plan import GBUN, LIGHTGBM, RATES, XGBOOST
from benchmarks.gbun_tables import seconds_ratio
from benchmarks.plus_tables import Row, grouped, of
from fedboost.report.charts import Axis, Line, LineChart

COLOURS = {GBUN: 1, XGBOOST: 2, LIGHTGBM: 3}
CURVE = 5  # rounds between two points of a curve


def write(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Writes a file for each plot that has rows; gives the Markdown that shows them."""
    plots = {
        f"curve-{group[0]['data']}": _curves(group)
        for group in grouped(of(rows, "accuracy"), "data")
    }
    plots["bandwidth"] = _bandwidth(of(rows, "bandwidth"))
    plots["parties"] = _parties(of(rows, "parties"))
    drawn = {
        name: (chart.title, picture(chart)) for name, chart in plots.items() if chart is not None
    }
    return parts.write_pictures(folder, "gbun", drawn)


def _curves(group: Sequence[Row]) -> LineChart | None:
    """Test scores of the best point of each system, by rounds: Figure 4 of the paper."""
    lines = [
        Line(row["system"], curve(row), COLOURS[row["system"]])
        for row in group
        if row["split"] == 0
    ]
    if not lines or min(len(line.points) for line in lines) < 2:
        return None
    first = group[0]
    title = f"{first['data']}: test {first['metric']} of the best points, by rounds"
    return _chart(title, lines, "rounds")


def curve(row: Row) -> list[tuple[float, float]]:
    """Rounds and scores."""
    return [(1.0 + CURVE * place, score) for place, score in enumerate(row["curve"])]


def _bandwidth(rows: Sequence[Row]) -> LineChart | None:
    """Seconds of a round as multiples of those without a limit: Figure 7 of the paper."""
    lines = []
    for colour, group in enumerate(grouped(rows, "system"), 1):
        free = next((row for row in group if row["bits_per_s"] == RATES[0]), None)
        limited = [row for row in group if row["bits_per_s"] != RATES[0]]
        if free is not None and len(limited) > 1:
            points = [
                (math.log10(row["bits_per_s"] / 1e6), math.log10(seconds_ratio(row, free)))
                for row in sorted(limited, key=lambda row: row["bits_per_s"])
            ]
            lines.append(Line(group[0]["system"], points, colour))
    title = "Seconds of a round ÷ unlimited (log10), by bandwidth (log10 of Mbit/s)"
    return _chart(title, lines, "log10 of Mbit/s") if lines else None


def _parties(rows: Sequence[Row]) -> LineChart | None:
    """Rounds a second as multiples of one party's: Figures 5 and 6 of the paper."""
    lines = []
    for colour, group in enumerate(grouped(rows, "outputs"), 1):
        if len(group) > 1:
            outputs = f"{group[0]['outputs']} outputs"
            wall = [(float(r["parties"]), _times(group[0]["seconds"], r["seconds"])) for r in group]
            first = group[0]["busiest_cpu_s"]
            own = [(float(r["parties"]), first / r["busiest_cpu_s"]) for r in group]
            lines.append(Line(f"{outputs}, here", wall, colour, dashed=True))
            lines.append(Line(f"{outputs}, CPU", own, colour))
    title = "Rounds a second ÷ those of one party: here, and by the busiest party's CPU seconds"
    return _chart(title, lines, "parties") if lines else None


def _times(first: Sequence[float], seconds: Sequence[float]) -> float:
    return median(first) / median(seconds)


def _chart(title: str, lines: list[Line], x: str) -> LineChart:
    """Lines named at their ends, in the order of the last points' heights."""
    named = sorted(lines, key=lambda line: line.points[-1][1])
    at = [point[0] for line in lines for point in line.points]
    return LineChart(
        title, named, Axis(x, (min(at), max(at))), Axis(""), end_labels=True, size=SIZE
    )
