"""Line charts and bars as inline SVG; colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedboost.report.html import Html, join, tag
from fedboost.report.ticks import tick_labels, tick_values, widened_range

WIDE, SQUARE = (420.0, 262.0), (330.0, 292.0)  # user units; about one pixel each on screen
TOP, TOP_WITH_WORDS, BOTTOM = 10.0, 22.0, 40.0
LABEL_CHAR = 6.6  # user units that a character of a label takes at most
LABEL_GAP = 15.0  # between two labels at the ends of lines
HITS_MAX = 60  # points of a line that say their value when hovered over
POINTS_MAX = 600  # of a line; more cannot be seen
MARKED_MAX = 12  # lines with few points show each
BAR, PITCH = 10, 17  # height of a bar, and from one to the next
HAIR_SHARE = 0.4  # percent of the width for a bar too short to be seen
LEGEND_MAX = 12  # lines; beyond, colours and dashes repeat
METER = 22  # height of a meter
BAR_SHARE = 52.0  # percent of the width for the longest bar, where words follow it

Point = tuple[float, float]
_Ticks = tuple[list[float], list[float]]  # of x and y


@dataclass(frozen=True)
class Line:
    """A line; `colour` counts from 1, as in the style sheet."""

    label: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False
    faint: bool = False  # a reference, without its own values


@dataclass(frozen=True)
class Axis:
    """An axis; without a range it fits the points."""

    name: str
    range: tuple[float, float] | None = None
    whole: bool = False


@dataclass(frozen=True)
class LineChart:
    """A chart of one or several lines over one pair of axes."""

    title: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    note: str = ""  # below the title
    rule: tuple[float, str] | None = None  # an upright line at x, with its words
    mark: tuple[Point, str] | None = None  # one point, with its words
    end_labels: bool = False  # lines named at their ends instead of in a legend
    size: tuple[float, float] = WIDE


@dataclass(frozen=True)
class Bar:
    """A bar of a group."""

    value: float
    colour: int
    words: str = ""  # that stand behind it


@dataclass(frozen=True)
class _Frame:
    """The plot's area and range of values."""

    left: float
    right: float
    top: float
    floor: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, point: Point) -> Point:
        """Return a point in user units."""
        across = (point[0] - self.x[0]) / (self.x[1] - self.x[0])
        up = (point[1] - self.y[0]) / (self.y[1] - self.y[0])
        return (
            self.left + across * (self.right - self.left),
            self.floor - up * (self.floor - self.top),
        )


def line_chart(chart: LineChart) -> Html:
    """Return a figure with caption, legend and SVG; every line needs a point, all finite."""
    named = [line for line in chart.lines if not line.faint]
    legend = "" if chart.end_labels or len(named) < 2 else legend_of(named)
    if len(named) > LEGEND_MAX:  # a point says the name of its line, too
        legend = tag("details", tag("summary", f"{len(named)} lines"), legend)
    note = tag("span", chart.note, class_="note") if chart.note else ""
    return tag("figure", tag("figcaption", tag("b", chart.title), note), legend, chart_svg(chart))


def chart_svg(chart: LineChart) -> Html:
    """Return the SVG alone, without caption and legend."""
    lines = [replace(line, points=_thinned_points(line.points, POINTS_MAX)) for line in chart.lines]
    assert all(line.points for line in lines)
    frame, marks = _frame_and_ticks(chart, lines)
    return tag(
        "svg",
        _draw_grid(chart, frame, marks),
        *(_draw_line(line, frame) for line in lines),
        _draw_rule(chart, frame),
        _draw_mark(chart, frame),
        _draw_end_labels(lines, frame) if chart.end_labels else "",
        viewBox=f"0 0 {chart.size[0]:g} {chart.size[1]:g}",
        role="img",
        aria_label=_chart_in_words(chart),
    )


def legend_of(lines: Sequence[Line]) -> Html:
    """Return lines by name, each with a sample."""
    items = []
    for line in lines:
        sample = tag(
            "svg",
            tag("line", x1=0, y1=5, x2=22, y2=5, class_=_line_class(line)),
            viewBox="0 0 22 10",
            class_="sample",
            aria_hidden="true",
        )
        items.append(tag("li", sample, line.label))
    return tag("ul", *items, class_="legend")


def bar_list(group: Sequence[Bar], most: float) -> Html:
    """Return horizontal bars one below the other, with their words behind them.

    `most` is the value of the longest bar of all groups. Bars without words are only decoration:
    the numbers must be shown beside them.
    """
    words = [bar.words for bar in group if bar.words]
    full = BAR_SHARE if words else 100.0
    drawn = []
    for place, bar in enumerate(group):
        top = place * PITCH + (PITCH - BAR) / 2
        width = 0.0
        if most > 0.0 and bar.value > 0.0:
            width = max(HAIR_SHARE, full * min(1.0, bar.value / most))
        end = f"{width:.2f}%"
        if width > 0.0:
            look = f"f{bar.colour}"
            drawn.append(tag("rect", y=top, width=end, height=BAR, rx=2, class_=look))
        if bar.words:
            gap = 7 if width > 0.0 else 0
            drawn.append(tag("text", bar.words, x=end, dx=gap, y=top + BAR - 0.5))
    return tag(
        "svg",
        *drawn,
        class_="bars",
        height=max(1, len(group)) * PITCH,
        role="img" if words else None,
        aria_label="; ".join(words) or None,
        aria_hidden=None if words else "true",
    )


def budget_meter(parts: Sequence[Bar], limit: float, words: str) -> Html:
    """Return one bar of stacked parts with a mark at the limit, and a legend below it."""
    total = sum(bar.value for bar in parts)
    full = 1.05 * max(total, limit) or 1.0
    drawn, begin = [], 0.0
    for bar in parts:
        place = {"x": f"{100 * begin / full:.2f}%", "width": f"{100 * bar.value / full:.2f}%"}
        drawn.append(tag("rect", y=4, height=METER - 8, class_=f"f{bar.colour}", **place))
        begin += bar.value
    mark = f"{100 * limit / full:.2f}%"
    track = tag("rect", y=4, width="100%", height=METER - 8, class_="track")
    line = tag("line", x1=mark, x2=mark, y1=0, y2=METER, class_="limit")
    said = "; ".join([*(bar.words for bar in parts), words])
    picture = tag("svg", track, *drawn, line, height=METER, role="img", aria_label=said)
    legend = [tag("li", tag("span", class_=f"swatch b{bar.colour}"), bar.words) for bar in parts]
    legend.append(tag("li", tag("span", class_="swatch limit"), words))
    return tag("div", picture, tag("ul", *legend), class_="meter")


def _thinned_points(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Return at most so many of the points, evenly spaced, the last one kept."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]


def _frame_and_ticks(chart: LineChart, lines: Sequence[Line]) -> tuple[_Frame, _Ticks]:
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_range = chart.x.range or (
        (min(xs), max(xs)) if max(xs) > min(xs) else widened_range(xs[0], xs[0])
    )
    y_range = chart.y.range or widened_range(min(ys), max(ys))
    x_ticks = tick_values(*x_range, 7, whole=chart.x.whole)
    y_ticks = tick_values(*y_range, 6, whole=chart.y.whole)
    left = 12 + LABEL_CHAR * max((len(label) for label in tick_labels(y_ticks)), default=1)
    longest = max((len(line.label) for line in lines), default=0) if chart.end_labels else 0
    right = chart.size[0] - max(14.0, 12 + LABEL_CHAR * longest if longest else 0.0)
    top = TOP if chart.rule is None else TOP_WITH_WORDS
    floor = chart.size[1] - BOTTOM
    return _Frame(left, right, top, floor, x_range, y_range), (x_ticks, y_ticks)


def _draw_grid(chart: LineChart, frame: _Frame, marks: _Ticks) -> Html:
    x_ticks, y_ticks = marks
    floor = frame.floor
    drawn = []
    for value, label in zip(y_ticks, tick_labels(y_ticks), strict=True):
        y = frame.at((frame.x[0], value))[1]
        drawn.append(_svg_line("grid", (frame.left, y), (frame.right, y)))
        drawn.append(_svg_text(label, (frame.left - 8, y + 4), "end"))
    for value, label in zip(x_ticks, tick_labels(x_ticks), strict=True):
        x = frame.at((value, frame.y[0]))[0]
        drawn.append(_svg_line("tick", (x, floor), (x, floor + 4)))
        drawn.append(_svg_text(label, (x, floor + 17), "middle"))
    drawn.append(_svg_line("axis", (frame.left, floor), (frame.right, floor)))
    middle = (frame.left + frame.right) / 2
    drawn.append(_svg_text(chart.x.name, (middle, floor + BOTTOM - 5), "middle"))
    return join(*drawn)


def _draw_line(line: Line, frame: _Frame) -> Html:
    points = [frame.at(point) for point in line.points]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = [tag("polyline", points=way, class_=_line_class(line))]
    if line.faint:
        return drawn[0]
    if len(points) <= MARKED_MAX:
        drawn += [_svg_circle(place, f"dot f{line.colour}", 3) for place in points]
    for point in _thinned_points(line.points, HITS_MAX):
        words = f"{line.label}: {_short_number(point[1])} at {_short_number(point[0])}"
        drawn.append(_svg_circle(frame.at(point), f"hit f{line.colour}", 6, words))
    return join(*drawn)


def _draw_rule(chart: LineChart, frame: _Frame) -> Html:
    if chart.rule is None:
        return join()
    at, words = chart.rule
    x = frame.at((at, frame.y[0]))[0]
    return join(
        _svg_line("rule", (x, frame.top), (x, frame.floor)),
        _svg_text(words, (x, frame.top - 7), "middle", "halo"),
    )


def _draw_mark(chart: LineChart, frame: _Frame) -> Html:
    if chart.mark is None:
        return join()
    point, words = chart.mark
    x, y = frame.at(point)
    return join(
        _svg_circle((x, y), "mark", 4.5),
        _svg_text(words, (x, min(y + 22, frame.floor - 8)), "middle", "halo strong"),
    )


def _draw_end_labels(lines: Sequence[Line], frame: _Frame) -> Html:
    """Return each line's name at its end, moved apart if two would touch."""
    ends = sorted(((frame.at(line.points[-1])[1], line) for line in lines), key=lambda end: end[0])
    heights: list[float] = []
    for height, _ in ends:
        heights.append(
            max(height, heights[-1] + LABEL_GAP) if heights else max(height, frame.top + 6)
        )
    over = max(0.0, heights[-1] - (frame.floor - 4)) if heights else 0.0
    return join(
        *(
            _svg_text(
                line.label, (frame.right + 7, height - over + 4), "start", f"strong t{line.colour}"
            )
            for height, (_, line) in zip(heights, ends, strict=True)
        )
    )


def _line_class(line: Line) -> str:
    if line.faint:
        return "faint"
    return f"line s{line.colour}" + (" dashed" if line.dashed else "")


def _chart_in_words(chart: LineChart) -> str:
    """Describe the chart in text, for a screen reader."""
    described = [
        f"{line.label} from {_short_number(line.points[0][1])} "
        f"to {_short_number(line.points[-1][1])}"
        for line in chart.lines
        if not line.faint
    ]
    marked = f"; {chart.mark[1]}" if chart.mark else ""
    return f"{chart.title} by {chart.x.name}: {', '.join(described)}{marked}"


def _svg_line(kind: str, start: Point, end: Point) -> Html:
    (x1, y1), (x2, y2) = start, end
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _svg_circle(place: Point, kind: str, radius: float, words: str = "") -> Html:
    title = (tag("title", words),) if words else ()
    return tag("circle", *title, cx=f"{place[0]:.1f}", cy=f"{place[1]:.1f}", r=radius, class_=kind)


def _svg_text(words: str, place: Point, anchor: str, kind: str = "") -> Html:
    return tag(
        "text",
        words,
        x=f"{place[0]:.1f}",
        y=f"{place[1]:.1f}",
        text_anchor=anchor,
        class_=kind or None,
    )


def _short_number(value: float) -> str:
    return f"{value:.4g}"
