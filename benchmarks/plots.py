"""Plots of benchmarks as SVG files, drawn with the report's own lines and bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rows import Row
from fedboost.report import charts
from fedboost.report.charts import PITCH, Axis, Bar, Line, LineChart
from fedboost.report.html import Html, tag, verbatim

SIZE = (620.0, 300.0)  # user units, of the axes and what lies between them
HEAD, EDGE = 30.0, 24.0  # above them, and to their right: names are bold, thus wider
WIDE, LEFT = 760.0, 206.0  # of a picture of bars, and where they begin
GROUP_HEAD, GAP, MARGIN = 26.0, 22.0, 14.0  # above the bars of a group, below, and at the sides

# The report's colours, without its variables: not everything that draws SVG knows them.
COLOURS = ".f1 { fill: #1f6cb0; } .f2 { fill: #c8590a; } .f3 { fill: #13806a; }\n" + (
    ".f4 { fill: #9c4390; } .f6 { fill: #6a7280; } .page { fill: #fbfbf9; }\n"
)
OF_LINES = """
text { fill: #596170; font: 12px "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.head { fill: #1a1d21; font-size: 13px; font-weight: 600; } .strong { font-weight: 600; }
.grid { stroke: #eceef0; } .axis, .tick { stroke: #a0a8b4; }
.line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 5 4; } .hit { fill-opacity: 0; }
.faint { fill: none; stroke: #a0a8b4; stroke-dasharray: 2 4; }
.s1 { stroke: #1f6cb0; } .s2 { stroke: #c8590a; } .s3 { stroke: #13806a; } .s4 { stroke: #9c4390; }
.t6 { fill: #6a7280; }
.t1 { fill: #1f6cb0; } .t2 { fill: #c8590a; } .t3 { fill: #13806a; } .t4 { fill: #9c4390; }
"""
OF_BARS = """
text { fill: #1a1d21; font: 12.5px "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.head { font-weight: 600; }
.name { fill: #596170; text-anchor: end; }
"""

Picture = tuple[str, Html]  # and its title before it


@dataclass(frozen=True)
class Group:
    """Bars under one heading, on a scale of their own; of each what it says and its colour."""

    title: str
    bars: Mapping[str, Bar]


def lines(title: str, drawn: Sequence[Line], x: str, *, whole: bool = False) -> Picture | None:
    """Draw lines that are named at their ends; None where there is nothing to draw."""
    at = [place for line in drawn for place, _ in line.points]
    if not at or max(len(line.points) for line in drawn) < 2:
        return None
    named = sorted(drawn, key=lambda line: line.points[-1][1])
    axis = Axis(x, (min(at), max(at)) if max(at) > min(at) else None, whole=whole)
    chart = LineChart(title, named, axis, Axis(""), end_labels=True, size=SIZE)
    inner = tag("svg", charts.chart_svg(chart), x=0, y=HEAD, width=SIZE[0], height=SIZE[1])
    head = tag("text", title, x=14, y=20, class_="head")
    return title, _svg(title, OF_LINES, (head, inner), (SIZE[0] + EDGE, SIZE[1] + HEAD))


def bars(title: str, groups: Sequence[Group]) -> Picture | None:
    """Draw groups of bars, one below the other; None where there is none."""
    if not groups:
        return None
    drawn: list[Html] = []
    top = MARGIN
    for group in groups:
        drawn.append(tag("text", group.title, x=MARGIN, y=top + 13, class_="head"))
        top += GROUP_HEAD
        for place, name in enumerate(group.bars):
            middle = top + place * PITCH + PITCH / 2 + 4
            drawn.append(tag("text", name, x=LEFT - 8, y=middle, class_="name"))
        own = list(group.bars.values())
        inner = charts.bar_list(own, max(bar.value for bar in own))
        height = PITCH * len(own)
        drawn.append(tag("svg", inner, x=LEFT, y=top, width=WIDE - LEFT - MARGIN, height=height))
        top += height + GAP
    return title, _svg(title, OF_BARS, drawn, (WIDE, top))


def known(pictures: Mapping[str, Picture | None]) -> dict[str, Picture]:
    """Return those that there are."""
    return {name: one for name, one in pictures.items() if one is not None}


def _svg(title: str, style: str, inner: Sequence[Html], size: tuple[float, float]) -> Html:
    wide, high = size
    return tag(
        "svg",
        tag("style", verbatim(style + COLOURS)),
        tag("rect", width="100%", height="100%", class_="page"),
        *inner,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {wide:g} {high:g}",
        width=wide,
        height=high,
        role="img",
        aria_label=title,
    )


def size(row: Row) -> str:
    """Say rows and columns of a host."""
    return f"{row['rows']:,} rows, {row['host_columns']} host columns"


def seconds(row: Row) -> str:
    """Say what a tree took."""
    cpu = "" if row["cpu_s"] is None else f", CPU {row['cpu_s']:.2f} s"
    return f"{row['wall_s']:.2f} s{cpu}"
