"""Plots of the SecureBoost+ benchmark: bars as SVG files, drawn with the report's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import parts, plus_tables
from benchmarks.plus_tables import ONE, Row, grouped, of
from fedboost.report import charts
from fedboost.report.charts import PITCH, Bar
from fedboost.report.html import Html, tag, verbatim

NAME = "secureboost_plus"
WIDE, LEFT = 760.0, 206.0  # user units: the picture, and where bars begin
HEAD, GAP = 26.0, 22.0  # above the bars of a group, and below them
EDGE = 14.0
COLOURS = {"baseline": 6, "all": 1, "mix": 3, "layered": 4}  # of the style; a switch alone has 2

# The report's colours, without its variables: not everything that draws SVG knows them.
STYLE = """
text { fill: #1a1d21; font: 12.5px "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.head { font-weight: 600; }
.name { fill: #596170; text-anchor: end; }
.page { fill: #fbfbf9; }
.f1 { fill: #1f6cb0; } .f2 { fill: #c8590a; } .f3 { fill: #13806a; }
.f4 { fill: #9c4390; } .f6 { fill: #6a7280; }
"""


@dataclass(frozen=True)
class Group:
    """Bars under one heading, on a scale of their own."""

    title: str
    names: Sequence[str]
    bars: Sequence[Bar]

    @property
    def height(self) -> float:
        """In user units."""
        return HEAD + PITCH * len(self.bars) + GAP


def write(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Writes a file for each plot that has rows; gives the Markdown that shows them."""
    plots = {
        "trees": ("Seconds to build one tree", tree_groups(rows)),
        "multi": ("Seconds to the accuracy of one tree a class", multi_groups(rows)),
    }
    drawn = {
        name: (title, picture(title, groups)) for name, (title, groups) in plots.items() if groups
    }
    return parts.write_pictures(folder, NAME, drawn)


def tree_groups(rows: Sequence[Row]) -> list[Group]:
    """Wall seconds of a tree by variant: figures 7 and 8 of the paper."""
    groups = []
    for group in grouped(of(rows, "switches"), "data", "part", "scheme"):
        first = group[0]
        alone = ", each switch alone" if first["part"] == "alone" else ""
        title = f"{first['data']}, {first['scheme']}{alone}: {plus_tables.size(first)}"
        bars = [Bar(row["wall_s"], COLOURS.get(row["variant"], 2), _seconds(row)) for row in group]
        names = [row["variant"].replace("_", " ") for row in group]
        groups.append(Group(title, names, bars))
    return groups


def _seconds(row: Row) -> str:
    cpu = "" if row["cpu_s"] is None else f", CPU {row['cpu_s']:.2f} s"
    return f"{row['wall_s']:.2f} s{cpu}"


def multi_groups(rows: Sequence[Row]) -> list[Group]:
    """Wall seconds to the same training accuracy, by kind of tree: figure 10 of the paper."""
    groups = []
    for group in grouped(of(rows, "multi"), "data", "scheme"):
        first = group[0]
        met = plus_tables.reached(first["data"], of(rows, "curves"))
        names, bars = [], []
        for row in group:
            seconds = None if met is None else plus_tables.to_target(row, met)
            if met is None or seconds is None:
                continue
            trees = met.trees(row["kind"], row["classes"])
            packed = ", compressed" if row["compressing"] else ""
            names.append(f"{row['kind']}{packed}")
            words = f"{seconds:,.0f} s: {trees} trees of {row['wall_s']:.2f} s"
            bars.append(Bar(seconds, 6 if row["kind"] == ONE else 1, words))
        if bars and met is not None:
            title = f"{first['data']}, {first['scheme']}: training accuracy {met.target:.3f}"
            groups.append(Group(f"{title}, {plus_tables.size(first)}", names, bars))
    return groups


def picture(title: str, groups: Sequence[Group]) -> Html:
    """One SVG file of its own; bars of different groups have different scales."""
    drawn: list[Html] = []
    top = EDGE
    for group in groups:
        drawn.append(tag("text", group.title, x=EDGE, y=top + 13, class_="head"))
        top += HEAD
        for place, name in enumerate(group.names):
            middle = top + place * PITCH + PITCH / 2 + 4
            drawn.append(tag("text", name, x=LEFT - 8, y=middle, class_="name"))
        most = max(bar.value for bar in group.bars)
        bars = charts.bars(group.bars, most)
        height = PITCH * len(group.bars)
        drawn.append(tag("svg", bars, x=LEFT, y=top, width=WIDE - LEFT - EDGE, height=height))
        top += height + GAP
    return tag(
        "svg",
        tag("style", verbatim(STYLE)),
        tag("rect", width="100%", height="100%", class_="page"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDE:g} {top:g}",
        width=WIDE,
        height=top,
        role="img",
        aria_label=title,
    )
