"""SVG files that stand alone: frame, colours by day and night, words.

Colours are written out in the style sheet: some viewers of SVG do not support variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedboost.report.html import Html, join, style_sheet, tag

CHAR = 7.2  # user units, about one pixel each, that a character takes at most
COLOURS = 6  # of the style sheet
MARGIN = 24.0
LINE = 20.0  # from one line of words to the next
SAMPLE = 10.0  # a legend's square
GAP = 18.0  # behind a legend's word

Point = tuple[float, float]


def svg_document(drawn: Sequence[Html], size: Point, label: str) -> str:
    """Return the text of an SVG file for UTF-8; `label` is read out by screen readers."""
    width, height = (f"{length:.0f}" for length in size)
    page = tag(
        "svg",
        tag("title", label),
        style_sheet("pictures.css"),
        tag("rect", width=width, height=height, class_="page"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{page}\n'


def text_line(text: str, at: Point, kind: str = "", anchor: str | None = None) -> Html:
    """Draw one line of text at a point, set by `anchor`."""
    place = {"x": f"{at[0]:.1f}", "y": f"{at[1]:.1f}"}
    return tag("text", text, **place, class_=kind or None, text_anchor=anchor)


def colour_legend(names: Sequence[tuple[str, int]], at: Point) -> Html:
    """Return names with squares of their colours, one behind the other."""
    x, y = at
    drawn: list[Html] = []
    for name, colour in names:
        square = {"x": f"{x:.1f}", "y": f"{y - SAMPLE + 1:.1f}"}
        drawn.append(tag("rect", **square, width=SAMPLE, height=SAMPLE, rx=2, class_=f"f{colour}"))
        drawn.append(text_line(name, (x + SAMPLE + 6, y), "quiet"))
        x += SAMPLE + 6 + CHAR * len(name) + GAP
    return join(*drawn)


def colour_of(place: int) -> int:
    """Return the colour, from 1, of item `place`; the last colour is for all further items."""
    return min(place, COLOURS - 1) + 1


def shortened(text: str, most: int) -> str:
    """Return the text with at most `most` characters, an ellipsis included."""
    return text if len(text) <= most else text[: most - 1] + "…"
