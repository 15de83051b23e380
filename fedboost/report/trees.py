"""A tree as a picture, SVG or Graphviz's DOT: the root at the left, rows that answer yes above.

A split with unknown conditions shows only its owner. Wide edges carry a large part of the training
rows' hessian (cover).

         title, whose knowledge it is, parties with their colours
    ┌──────────────┐ yes  ┌─────────────┐ yes  ( leaf  0.25 )
    │ age < 41.5   ├──────┤ split of    ├──────
    │ gain, cover  │      │ telco       │ no   ( leaf −0.12 )
    └──────────────┘ no   └─────────────┘
                     ────  ( leaf 0.5 )
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedboost.ground.printable import printable
from fedboost.model.branches import Branch, Picture
from fedboost.report.html import Html, join, tag
from fedboost.report.pictures import (
    CHAR,
    LINE,
    MARGIN,
    colour_legend,
    colour_of,
    shortened,
    svg_document,
    text_line,
)
from fedboost.report.units import plural

DEPTH = 6  # readable layers of splits; one node summarises each deeper part
ROW = 40.0  # from one leaf to the next
TALL, FLAT = 34.0, 26.0  # a node of two lines, and of one
LAYER_GAP = 96.0  # between two layers, with room for "yes, missing"
STRIPE = 4.0  # its owner's colour at a split's left
NARROW, BROAD = 12, 30  # characters of a node, at least and at most
EDGE_WIDTHS = (1.5, 14.0)  # width of an edge with no rows, and with all rows
FAINT, FULL = 0.12, 0.55  # how strong a leaf's colour is, from value 0 to the greatest
VALUES_SHOWN = 3  # of a leaf with many outputs
HEAD, NO_LEGEND = 92.0, 70.0  # height of title and legend, and without the latter


@dataclass(frozen=True)
class _Placed:
    """A node, and where the middle of its left edge is."""

    branch: Branch
    x: float
    y: float
    below: tuple[_Placed, ...]
    is_cut: bool  # it has more below than is drawn


def tree_svg(picture: Picture, model: str, depth: int = DEPTH) -> str:
    """Return the text of an SVG file; nodes summarise splits below `depth` layers."""
    return _Drawing(picture, depth).svg_text(model)


def tree_dot(picture: Picture, model: str, depth: int | None = None) -> str:
    """Return the tree in Graphviz's language; all of it, or `depth` layers of splits."""
    label = f"{model}, {picture.title}"
    head = [
        f"digraph {json.dumps(label)} {{",
        f"  label={_quoted_text(label)}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
    ]
    return "\n".join([*head, *_dot_lines(picture.root, "n", depth), "}", ""])


def _dot_lines(branch: Branch, name: str, depth: int | None) -> Iterator[str]:
    is_cut = bool(branch.below) and depth == 0
    first, second = _node_lines(branch, is_cut)
    label = "\\n".join(_escaped_text(line) for line in (first, second) if line)
    look = "" if branch.below and not is_cut else ", shape=ellipse"
    yield f'  {name} [label="{label}"{look}];'
    if is_cut:
        return
    for place, child in enumerate(branch.below):
        yield f"  {name} -> {name}{place} [label={_quoted_text(_answer_label(branch, place))}];"
        yield from _dot_lines(child, f"{name}{place}", None if depth is None else depth - 1)


def _escaped_text(text: str) -> str:
    """Return text inside quotes for DOT: control characters are shown, never interpreted."""
    return printable(text, instead="\ufffd", most=None).replace("\\", "\\\\").replace('"', '\\"')


def _quoted_text(text: str) -> str:
    return f'"{_escaped_text(text)}"'


class _Drawing:
    """A tree while it is drawn."""

    def __init__(self, picture: Picture, depth: int) -> None:
        self._picture, self._depth = picture, depth
        self._colours = {party: colour_of(k) for k, party in enumerate(picture.parties)}
        shown = list(_drawn_branches(picture.root, depth))
        splits = [node for node in shown if node[0].below]
        ends = [node for node in shown if not node[0].below]
        self._chars, self._end_chars = _longest(splits), _longest(ends)
        self._width, self._end = (_width_of_chars(n) for n in (self._chars, self._end_chars))
        self._leaves, self._head_height = 0, HEAD if self._colours else NO_LEGEND
        self._cover = picture.root.cover or 0.0
        values = [abs(leaf.value[0]) for leaf in picture.root.leaves if len(leaf.value) == 1]
        self._most = max(values, default=0.0)

    def svg_text(self, model: str) -> str:
        """Return the tree as an SVG file that says which model it is of."""
        picture = self._picture
        root = self._place(picture.root, 0)
        drawn = [*self._draw_head(model), join(*self._draw_edges(root)), join(*self._nodes(root))]
        layers = min(picture.root.depth, self._depth)
        cut_off = picture.root.depth > self._depth  # some node of the last layer is a split's
        wide = (
            2 * MARGIN
            + layers * (self._width + LAYER_GAP)
            + max(self._end, self._width if cut_off else 0.0)
        )
        names = CHAR * max(len(self._owner_in_words()), sum(len(p) + 6 for p in picture.parties))
        size = (max(wide, names + 2 * MARGIN), self._head_height + ROW * self._leaves + MARGIN)
        label = (
            f"{model}, {picture.title}: {plural(len(picture.root.leaves), 'leaf', 'leaves')}, "
            f"{plural(picture.root.depth, 'layer')} of splits"
        )
        return svg_document(drawn, size, label)

    def _place(self, branch: Branch, layer: int) -> _Placed:
        x = MARGIN + layer * (self._width + LAYER_GAP)
        if not branch.below or layer == self._depth:
            y = self._head_height + ROW * (self._leaves + 0.5)
            self._leaves += 1
            return _Placed(branch, x, y, (), bool(branch.below))
        below = tuple(self._place(child, layer + 1) for child in branch.below)
        return _Placed(branch, x, (below[0].y + below[1].y) / 2, below, False)

    def _draw_head(self, model: str) -> list[Html]:
        title = f"{self._picture.title[0].upper()}{self._picture.title[1:]}"
        lines = [
            text_line(title, (MARGIN, MARGIN + 10), "title"),
            text_line(f"{model}, {self._owner_in_words()}", (MARGIN, MARGIN + 10 + LINE), "quiet"),
        ]
        if self._colours:
            lines.append(
                colour_legend(list(self._colours.items()), (MARGIN, MARGIN + 12 + 2 * LINE))
            )
        return lines

    def _owner_in_words(self) -> str:
        if not self._picture.seen_by:
            return "all of it"
        return f"as {self._picture.seen_by} knows it: what others' splits ask is not shown"

    def _draw_edges(self, node: _Placed) -> Iterator[Html]:
        for place, child in enumerate(node.below):
            start, end = node.x + self._width, child.x
            middle = (start + end) / 2
            way = (
                f"M{start:.1f} {node.y:.1f}C{middle:.1f} {node.y:.1f} "
                f"{middle:.1f} {child.y:.1f} {end:.1f} {child.y:.1f}"
            )
            share = (child.branch.cover or 0.0) / self._cover if self._cover > 0 else 0.0
            width = EDGE_WIDTHS[0] + (EDGE_WIDTHS[1] - EDGE_WIDTHS[0]) * min(1.0, max(0.0, share))
            yield tag("path", d=way, class_="edge", stroke_width=f"{width:.1f}")
            aside = width / 2 + (3 if place == 0 else 10)
            at = (end - 7, child.y + (-aside if place == 0 else aside))
            yield text_line(_answer_label(node.branch, place), at, "answer", "end")
            yield from self._draw_edges(child)

    def _nodes(self, node: _Placed) -> Iterator[Html]:
        branch = node.branch
        first, second = _node_lines(branch, node.is_cut)
        height = TALL if second else FLAT
        top = node.y - height / 2
        is_end = not branch.below
        width, chars = (self._end, self._end_chars) if is_end else (self._width, self._chars)
        frame = {"x": f"{node.x:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}"}
        drawn = [tag("title", ". ".join(line for line in (first, second) if line))]
        drawn += self._draw_frame(node, frame, height)
        left = node.x + 12
        kind = "" if branch.asks or not branch.below or node.is_cut else "told"
        drawn.append(text_line(shortened(first, chars), (left, top + (15 if second else 17)), kind))
        if second:
            look = "fine" if is_end else "quiet"
            drawn.append(text_line(shortened(second, chars + 2), (left, top + 28), look))
        yield tag("g", *drawn)
        for child in node.below:
            yield from self._nodes(child)

    def _draw_frame(self, node: _Placed, frame: dict[str, str], height: float) -> list[Html]:
        """Draw the background of a node's words."""
        branch = node.branch
        if node.is_cut:
            return [tag("rect", **frame, height=height, rx=6, class_="more")]
        if branch.below:
            stripe = {**frame, "width": f"{STRIPE:.1f}"}
            number = self._colours.get(branch.party, 1 if not self._colours else 6)
            return [
                tag("rect", **frame, height=height, rx=6, class_="box"),
                tag("rect", **stripe, height=height, rx=2, class_=f"f{number}"),
            ]
        round_ends = height / 2
        if not branch.value:
            return [tag("rect", **frame, height=height, rx=round_ends, class_="unknown")]
        drawn = [tag("rect", **frame, height=height, rx=round_ends, class_="box")]
        if len(branch.value) == 1 and self._most > 0:
            value = branch.value[0]
            strength = FAINT + (FULL - FAINT) * abs(value) / self._most
            kind, opacity = "up" if value >= 0 else "down", f"{strength:.2f}"
            drawn.append(
                tag("rect", **frame, height=height, rx=round_ends, class_=kind, opacity=opacity)
            )
        return drawn


def _drawn_branches(branch: Branch, depth: int) -> Iterator[tuple[Branch, bool]]:
    """Yield the nodes to draw, and whether each summarises the nodes below it."""
    is_cut = bool(branch.below) and depth == 0
    yield branch, is_cut
    for child in () if is_cut else branch.below:
        yield from _drawn_branches(child, depth - 1)


def _answer_label(branch: Branch, place: int) -> str:
    word = ("yes", "no")[place]
    has_missing = branch.missing_left is not None and branch.missing_left == (place == 0)
    return f"{word}, missing" if has_missing else word


def _node_lines(branch: Branch, is_cut: bool) -> tuple[str, str]:
    """Return the two lines of a node; the second may be empty."""
    facts = [] if branch.gain is None or is_cut else [f"gain {branch.gain:.4g}"]
    facts += [] if branch.cover is None else [f"cover {branch.cover:.4g}"]
    if is_cut:
        return f"{plural(len(branch.leaves), 'leaf', 'leaves')} below", " · ".join(facts)
    if branch.below:
        asks = branch.asks or f"split of {branch.party or 'another party'}"
        return asks, " · ".join(facts)
    if not branch.value:
        return branch.note, ""
    return _values_text(branch.value), " · ".join([*facts, *([branch.note] if branch.note else [])])


def _longest(nodes: Sequence[tuple[Branch, bool]]) -> int:
    """Return the greatest number of characters shown in these nodes' lines."""
    longest = max((len(line) for node in nodes for line in _node_lines(*node)), default=0)
    return min(BROAD, max(NARROW, longest))


def _width_of_chars(chars: int) -> float:
    return CHAR * chars + 24


def _values_text(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:+.4g}" for value in values[:VALUES_SHOWN]).replace("-", "−")
    return shown + (", …" if len(values) > VALUES_SHOWN else "")
