"""Plots of the FederBoost benchmark: lines as SVG files, drawn with the report's own."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks import federboost_horizontal_tables, federboost_tables, parts
from benchmarks.federboost_tables import gap
from benchmarks.plus_tables import Row, grouped, of
from fedboost.report import charts
from fedboost.report.charts import Axis, Line, LineChart
from fedboost.report.html import Html, tag, verbatim

NAME = "federboost"
HORIZONTAL = "Horizontal: "  # before the title of a plot
SIZE = (620.0, 300.0)  # user units, of the axes and what lies between them
HEAD, EDGE = 30.0, 24.0  # above them, and to their right: names are bold, thus wider
COLOURS = {"give_credit": 1, "default_credit": 2, "susy_30k": 3, "covtype": 4}

# The report's colours, without its variables: not everything that draws SVG knows them.
STYLE = """
text { fill: #596170; font: 12px "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.head { fill: #1a1d21; font-size: 13px; font-weight: 600; } .strong { font-weight: 600; }
.page { fill: #fbfbf9; } .grid { stroke: #eceef0; } .axis, .tick { stroke: #a0a8b4; }
.line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 5 4; } .hit { fill-opacity: 0; }
.faint { fill: none; stroke: #a0a8b4; stroke-dasharray: 2 4; }
.s1 { stroke: #1f6cb0; } .s2 { stroke: #c8590a; } .s3 { stroke: #13806a; } .s4 { stroke: #9c4390; }
.f1 { fill: #1f6cb0; } .f2 { fill: #c8590a; } .f3 { fill: #13806a; } .f4 { fill: #9c4390; }
.t6 { fill: #6a7280; }
.t1 { fill: #1f6cb0; } .t2 { fill: #c8590a; } .t3 { fill: #13806a; } .t4 { fill: #9c4390; }
"""


def write(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Writes a file for each plot that has rows; gives the Markdown that shows them."""
    horizontal = federboost_horizontal_tables.by_buckets(rows)
    plots = {
        "buckets": _gaps(federboost_tables.by_buckets(rows), "buckets", "buckets"),
        "noise": _gaps(federboost_tables.by_noise(rows), "epsilon", "ε"),
        "parties": _parties(of(rows, "parties")),
        "horizontal-buckets": _gaps(horizontal, "buckets", "buckets", HORIZONTAL),
        "horizontal-parties": _parties(of(rows, "horizontal_parties"), HORIZONTAL),
    }
    drawn = {
        name: (chart.title, picture(chart)) for name, chart in plots.items() if chart is not None
    }
    return parts.write_pictures(folder, NAME, drawn)


def _gaps(
    groups: Sequence[Sequence[Row]], by: str, named: str, which: str = ""
) -> LineChart | None:
    """Mean AUC above XGBoost's, a line for each data set: Figure 5 of the paper."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        if group[0][by] is not None:
            lines.setdefault(group[0]["data"], []).append((float(group[0][by]), gap(group)))
    if not lines:
        return None
    drawn = [Line(data, points, COLOURS[data]) for data, points in lines.items()]
    at = [x for points in lines.values() for x, _ in points]
    drawn.append(Line("XGBoost", [(min(at), 0.0), (max(at), 0.0)], 6, faint=True))
    title = f"{which}Test AUC minus XGBoost's, by {named}"
    return _chart(title, drawn, Axis(named, _range(at), whole=True))


def _parties(rows: Sequence[Row], which: str = "") -> LineChart | None:
    """Seconds by parties, a line for each data set and network: Figure 6 of the paper."""
    if not rows:
        return None
    drawn = []
    for group in grouped(rows, "network", "data"):
        first = group[0]
        points = [(float(row["parties"]), median(row["seconds"])) for row in group]
        label = f"{first['data']}, {first['network']}"
        alone = first["network"] == federboost_tables.ONE_PROCESS
        drawn.append(Line(label, points, COLOURS[first["data"]], dashed=alone))
    at = [float(row["parties"]) for row in rows]
    title = f"{which}Seconds of training, by parties"
    return _chart(title, drawn, Axis("parties", _range(at), whole=True))


def _range(at: Sequence[float]) -> tuple[float, float] | None:
    return (min(at), max(at)) if max(at) > min(at) else None


def _chart(title: str, lines: list[Line], x: Axis) -> LineChart:
    """Lines named at their ends, in the order of the last points' heights."""
    named = sorted(lines, key=lambda line: mean(y for _, y in line.points))
    return LineChart(title, named, x, Axis(""), end_labels=True, size=SIZE)


def picture(chart: LineChart) -> Html:
    """One SVG file of its own."""
    wide, high = chart.size
    return tag(
        "svg",
        tag("style", verbatim(STYLE)),
        tag("rect", width="100%", height="100%", class_="page"),
        tag("text", chart.title, x=14, y=20, class_="head"),
        tag("svg", charts.plot(chart), x=0, y=HEAD, width=wide, height=high),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {wide + EDGE:g} {high + HEAD:g}",
        width=wide + EDGE,
        height=high + HEAD,
        role="img",
        aria_label=chart.title,
    )
