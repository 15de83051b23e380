"""Filter, order and paging of a long list by the page's address.

The daemon does all of it, so it works without scripts and for lists of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlencode

from fedboost.pages import parts
from fedboost.report.html import Html, join, tag
from fedboost.report.tables import Column

WORDS_CHARS_MAX = 200
Each = TypeVar("Each")
FALLS = "-"  # in front of a column's key: the greatest first


@dataclass(frozen=True)
class Choice:
    """Filter, order and page in a page's address."""

    path: str
    words: str = ""  # words that a row must contain, all of them
    picked: Mapping[str, str] = field(default_factory=dict)  # the value of each select; "": any
    sort: str = ""  # a column's key, behind `FALLS` if the greatest comes first
    at: int = 1  # the page, from 1

    @property
    def is_all(self) -> bool:
        """Return True if no row is filtered out."""
        return not self.words and not any(self.picked.values())

    @property
    def query(self) -> str:
        """The choice as the end of an address, without its page."""
        given = {"q": self.words, **self.picked, "sort": self.sort}
        return urlencode({key: value for key, value in given.items() if value})

    def sorted_by(self, key: str) -> Choice:
        """Return the same rows sorted by another column, or by the same one in reverse."""
        return replace(self, sort=f"{FALLS}{key}" if self.sort == key else key)

    def matches_words(self, *texts: str) -> bool:
        """Return whether the texts of a row contain all words."""
        text = " ".join(texts).casefold()
        return all(word in text for word in self.words.casefold().split())


def read_choice(path: str, query: Mapping[str, str], selects: Sequence[str], at: int = 1) -> Choice:
    """Read the choice in an address; `selects` are the names of the fields beside the words."""
    picked = {name: query.get(name, "")[:WORDS_CHARS_MAX] for name in selects}
    words, sort = (query.get(name, "")[:WORDS_CHARS_MAX] for name in ("q", "sort"))
    return Choice(path, words, picked, sort, at)


def sorted_rows(
    choice: Choice, rows: Sequence[Each], keys: Mapping[str, Callable[[Each], object]]
) -> list[Each]:
    """Return the rows in the chosen order; rows with the value None always come last."""
    key = keys.get(choice.sort.removeprefix(FALLS))
    if key is None:
        return list(rows)
    known = [row for row in rows if key(row) is not None]
    falls = choice.sort.startswith(FALLS)
    known.sort(key=key, reverse=falls)  # type: ignore[arg-type]
    return [*known, *(row for row in rows if key(row) is None)]


def sortable_column(choice: Choice, key: str, head: str, kind: str = "text") -> Column:
    """Return a column whose head sorts by it."""
    link = f"{choice.path}?{choice.sorted_by(key).query}"
    way = {key: "ascending", f"{FALLS}{key}": "descending"}.get(choice.sort, "")
    return Column(head, kind, link, way)  # type: ignore[arg-type]


def filter_form(
    choice: Choice, selects: Mapping[str, tuple[str, Sequence[str]]], keys: Mapping[str, str]
) -> Html:
    """Return the filter fields; `selects` has a label and the values of each, `keys` each order."""
    words = tag(
        "label",
        "Filter ",
        tag(
            "input", type="search", name="q", value=choice.words, autocomplete="off",
            maxlength=str(WORDS_CHARS_MAX), placeholder="words",
        ),
    )  # fmt: skip
    fields = [
        _select_field(label, name, [("", "any"), *((value, value) for value in values)], choice)
        for name, (label, values) in selects.items()
    ]
    if keys:  # on a phone a table has no heads to press
        ways = [
            (f"{way}{key}", f"{words}{', greatest first' * bool(way)}")
            for key, words in keys.items()
            for way in ("", FALLS)
        ]
        fields.append(_select_field("Sort by", "sort", [("", "newest first"), *ways], choice))
    clear = "" if choice.is_all else tag("a", "Show all", href=choice.path)
    press = tag("button", "Show", type="submit")
    return tag(
        "form", words, *fields, press, clear, method="get", action=choice.path, class_="filter",
        role="search",
    )  # fmt: skip


def rows_of_page(choice: Choice, rows: Sequence[Each], per_page: int) -> tuple[list[Each], Html]:
    """Return the rows of the current page, and links to the others."""
    first = (choice.at - 1) * per_page
    path = f"{choice.path}?{choice.query}{'&' if choice.query else ''}"
    return list(rows[first : first + per_page]), parts.page_links(
        path, choice.at, len(rows), per_page
    )


def _select_field(label: str, name: str, values: Sequence[tuple[str, str]], choice: Choice) -> Html:
    now = choice.sort if name == "sort" else choice.picked.get(name, "")
    options = [
        tag("option", words, value=value, selected="" if value == now else None)
        for value, words in values
    ]
    return tag("label", join(label, " "), tag("select", *options, name=name))
