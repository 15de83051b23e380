"""Rows of measurements: chosen, grouped, and shown as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

say = Console(stderr=True)
DISTURBED = 0.2  # cores that others keep busy: above it wall times say little
NOTE = (
    f"Where other processes kept more than {DISTURBED} cores busy, wall times are longer than the "
    "job's own; CPU seconds compare better."
)
KEYS = ("what", "data")  # of a table
LISTED_MAX = 4  # numbers of a list that a cell names


def of(rows: Sequence[Row], what: str) -> list[Row]:
    """Return the rows of one kind."""
    return [row for row in rows if row["what"] == what]


def grouped(rows: Sequence[Row], *keys: str) -> Iterator[list[Row]]:
    """Yield rows that agree in these keys, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from found.values()


def disturbance(group: Sequence[Row]) -> str:
    """Say what to think of times that others' work has made longer."""
    return NOTE if any((row.get("others") or 0.0) > DISTURBED for row in group) else ""


def number(value: float | None, digits: int) -> str:
    """Write a number with so many digits; nothing for what is unknown."""
    return "" if value is None else f"{value:,.{digits}f}"


@dataclass(frozen=True)
class Shown:
    """A table for people: printed, and written as Markdown."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def print(self) -> None:
        """Print to standard error, so that standard output stays for machines."""
        drawn = Table(title=self.title, title_justify="left", caption=self.note or None)
        drawn.caption_justify = "left"
        for place, head in enumerate(self.heads):
            drawn.add_column(head, justify="right" if place else "left")
        for row in self.rows:
            drawn.add_row(*row)
        say.print(drawn)

    def markdown(self) -> str:
        """Return the same, as Markdown."""
        lines = [f"### {self.title}", "", f"| {' | '.join(self.heads)} |"]
        lines.append(f"| --- |{' ---: |' * (len(self.heads) - 1)}")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


def drawn(rows: Sequence[Row]) -> list[Shown]:
    """Draw a table of each kind of row and data set; its title says what all its rows share."""
    return [_table(group) for group in grouped(rows, "what", "data")]


def _table(group: Sequence[Row]) -> Shown:
    cells = [dict(_cells(row)) for row in group]
    title = ", ".join(filter(None, (cells[0].pop("what"), cells[0].pop("data"))))
    if len(cells) == 1:
        return Shown(title, ("", "value"), list(cells[0].items()), disturbance(group))
    names = list(dict.fromkeys(name for row in cells for name in row if name not in KEYS))
    shared = [name for name in names if len({row.get(name, "") for row in cells}) == 1]
    heads = tuple(name for name in names if name not in shared)
    said = [f"{name} {cells[0][name]}" for name in shared if cells[0].get(name)]
    lines = [tuple(row.get(name, "") for name in heads) for row in cells]
    return Shown(", ".join([title, *said]), heads, lines, disturbance(group))


def _cells(row: Row, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and texts of a row's values; of lists of rows nothing, as --json has them."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{before}{name} ")
        elif not (isinstance(value, list | tuple) and any(isinstance(x, dict) for x in value)):
            yield f"{before}{name}", _text(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        known = [one for one in value if one is not None]
        if len(known) <= LISTED_MAX or isinstance(known[0], str):
            return ", ".join(map(_text, known))
        return f"{_text(min(known))} … {_text(max(known))}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
