"""Tables, lists of names and the other plain parts of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedboost.report.html import Html, join, tag

NAMES_MAX = 4  # in a list, before the rest is counted


@dataclass(frozen=True)
class Column:
    """A column: its head and how its cells are set."""

    head: str
    kind: Literal["text", "number", "wide"] = "text"
    link: str = ""  # that sorts by it
    sort: Literal["", "ascending", "descending"] = ""  # order of the rows by this column


@dataclass(frozen=True)
class Band:
    """A row that names the rows below it."""

    words: str


TableRow = Sequence[object] | Band


def html_table(
    caption: str,
    heads: Sequence[Column | str],
    rows: Sequence[TableRow],
    *,
    numbers: Sequence[str] = (),
    folds: bool = False,
) -> Html:
    """Return a table; a row's first cell is its head. With `folds`, narrow screens show rows as
    blocks.

    A plain word in `heads` is the head of a column of text; columns of `numbers` follow.
    """
    columns = [head if isinstance(head, Column) else Column(head) for head in heads]
    columns += [Column(head, "number") for head in numbers]
    body = [_table_row(columns, row) for row in rows]
    drawn = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *map(_column_head, columns), role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_="folds" if folds else None,
    )
    return tag("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)


def section(name: str, title: str, *content: object, intro: object = "") -> Html:
    """Return a part of the page with its heading."""
    lead = tag("p", intro, class_="intro") if intro else ""
    head = tag("h2", title, id=f"{name}-title")
    return tag("section", head, lead, *content, id=name, aria_labelledby=f"{name}-title")


def details(summary: str, *content: object) -> Html:
    """Return folded content for readers who want details."""
    return tag("details", tag("summary", summary), *content)


def figure_list(facts: Sequence[tuple[str, str]]) -> Html:
    """Return figures by name; on the page the value is above its name."""
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)
    return tag("dl", *items, class_="figures")


def absence_note(why: str) -> Html:
    """Show why there is nothing to show."""
    return tag("p", why, class_="absent")


def listed_names(listed: Sequence[str]) -> str:
    """Return names with commas; a long list ends in a count."""
    if len(listed) <= NAMES_MAX + 1:
        return ", ".join(listed)
    return ", ".join(listed[:NAMES_MAX]) + f" and {len(listed) - NAMES_MAX} more"


def _column_head(column: Column) -> Html:
    words: object = column.head
    if column.link:
        words = tag("a", column.head, href=column.link, class_=f"sort {column.sort}".strip())
    return tag(
        "th",
        words,
        scope="col",
        class_=column.kind,
        role="columnheader",
        aria_sort=column.sort or None,
    )


def _table_row(columns: Sequence[Column], row: TableRow) -> Html:
    if isinstance(row, Band):
        head = tag("th", row.words, colspan=len(columns), scope="rowgroup", role="rowheader")
        return tag("tr", head, class_="band", role="row")
    cells = []
    for place, (column, cell) in enumerate(zip(columns, row, strict=True)):
        if place == 0:
            cells.append(tag("th", cell, scope="row", role="rowheader", class_=column.kind))
        else:
            label = {"data_label": column.head or None}
            cells.append(tag("td", cell, class_=column.kind, role="cell", **label))
    return tag("tr", join(*cells), role="row")
