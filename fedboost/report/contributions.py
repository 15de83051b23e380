"""Contributions of columns to predictions, as bars: the mean of |contribution| over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedboost.report.html import Html, tag
from fedboost.report.pictures import (
    CHAR,
    COLOURS,
    LINE,
    MARGIN,
    colour_legend,
    colour_of,
    shortened,
    svg_document,
    text_line,
)
from fedboost.report.units import in_count

OTHER_COLUMNS = "other columns"  # in the place of a party
TOP = 20  # columns that are drawn
NAME_CHARS = 36
BAR, PITCH = 14.0, 24.0  # height of a bar, and from one to the next
LONGEST = 380.0  # width of the longest bar
HAIR = 1.5  # of a bar too short to be seen
ROOM = 70.0  # for the number behind a bar
HEAD = 84.0


@dataclass(frozen=True)
class Effect:
    """A column's mean |contribution|, in the unit of the margin, for each output."""

    name: str
    means: tuple[float, ...]
    party: str = ""  # owner of the column; empty: every party

    @property
    def total(self) -> float:
        """Return the sum over all outputs."""
        return sum(self.means)


def effects_svg(effects: Sequence[Effect], rows: int, model: str, top: int = TOP) -> str:
    """Return the text of an SVG file with the greatest effects; a segment for each output.

    The last bar is the sum of the other columns.
    """
    shown = _listed_effects(effects, top)
    outputs = len(shown[0].means) if shown else 1
    owners = {
        party: colour_of(k) for k, party in enumerate(dict.fromkeys(e.party for e in effects))
    }
    pieces = _legend_entries(outputs, owners)
    longest = max((len(shortened(effect.name, NAME_CHARS)) for effect in shown), default=0)
    left = MARGIN + CHAR * longest + 10
    head = HEAD + (LINE if pieces else 0.0)
    most = max((effect.total for effect in shown), default=0.0)
    drawn: list[Html] = [
        text_line("What moves the predictions", (MARGIN, MARGIN + 10), "title"),
        text_line(f"{model}, {in_count(rows)} rows", (MARGIN, MARGIN + 10 + LINE), "quiet"),
        text_line("mean |contribution| to the margin", (left, head - 8), "quiet"),
    ]
    if pieces:
        drawn.append(colour_legend(pieces, (MARGIN, MARGIN + 12 + 2 * LINE)))
    unit = LONGEST / most if most else 0.0
    for place, effect in enumerate(shown):
        at = left, head + place * PITCH
        drawn.append(_draw_bar(effect, at, unit, owners.get(effect.party, COLOURS)))
    size = (left + LONGEST + ROOM + MARGIN, head + len(shown) * PITCH + MARGIN)
    summary = ", ".join(f"{effect.name} {effect.total:.3g}" for effect in shown[:5])
    return svg_document(drawn, size, f"Mean absolute contributions of {model}: {summary}")


def ranked_effects(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects, greatest first."""
    return sorted(effects, key=lambda effect: -effect.total)


def _listed_effects(effects: Sequence[Effect], top: int) -> list[Effect]:
    order = ranked_effects(effects)
    if len(order) <= top:
        return order
    rest = order[top - 1 :]
    summed = tuple(map(sum, zip(*(effect.means for effect in rest), strict=True)))
    return [*order[: top - 1], Effect(f"{len(rest)} other columns", summed, OTHER_COLUMNS)]


def _legend_entries(outputs: int, owners: dict[str, int]) -> list[tuple[str, int]]:
    """Return the entries of the legend: classes, or else parties; none if there is only one."""
    if outputs == 1:
        return list(owners.items()) if len(owners) > 1 else []
    names = [(f"class {k}", colour_of(k)) for k in range(min(outputs, COLOURS - 1))]
    return names + ([("other classes", COLOURS)] if outputs >= COLOURS else [])


def _draw_bar(effect: Effect, at: tuple[float, float], unit: float, single: int) -> Html:
    """Draw a column's bar; `single` is its colour where it is one piece."""
    left, top = at
    middle = top + PITCH / 2 + 4
    drawn = [
        tag("title", f"{effect.name}: {', '.join(f'{mean:.4g}' for mean in effect.means)}"),
        text_line(shortened(effect.name, NAME_CHARS), (left - 10, middle), "", "end"),
    ]
    x, y = left, top + (PITCH - BAR) / 2
    for output, mean in enumerate(effect.means):
        width = mean * unit
        if len(effect.means) == 1 and mean > 0.0:
            width = max(HAIR, width)
        if width > 0.0:
            place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}"}
            look = single if len(effect.means) == 1 else colour_of(output)
            drawn.append(tag("rect", **place, height=BAR, rx=2, class_=f"f{look}"))
        x += width
    drawn.append(text_line(f"{effect.total:.3g}", (x + 7, middle), "quiet"))
    return tag("g", *drawn)
