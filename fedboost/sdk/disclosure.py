"""Messages between the parties of a fit, described in the words of their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedboost.messages.job_pb2 import JobJournal
from fedboost.report import units
from fedboost.report.consoles import plain_console
from fedboost.report.disclosure import BARE
from fedboost.report.html import Html, join, tag
from fedboost.report.story import read_story
from fedboost.report.tables import Column, html_table
from fedboost.runtime.ledger.rows import Row

PRINT_WIDTH = 110  # of the text that a terminal prints


@dataclass(frozen=True)
class Crossing:
    """All messages of one kind from one party to another."""

    stage: str
    message: str
    sender: str
    receiver: str
    messages: int
    bytes: int  # of the payloads
    values: int  # numbers, ids or ciphertexts in them
    rows: int | None  # people that the largest of them was about; None: not known, or none
    smallest_group: int | None  # rows in the smallest group that one of them describes
    epsilon: float | None  # of the noise on a value
    reveals: str
    protected: str


@dataclass(frozen=True, repr=False)
class Disclosure:
    """The messages between the parties of one fit; pandas, polars and pyarrow read it as a table.

    `epsilon`: by host, the ε per row of its noisy values; inf without noise. `released`: by host,
    the number of released sums about one bin of its most released column, divided by its training
    rows; many such sums could let the guest find out which rows are in a bin.
    """

    crossings: tuple[Crossing, ...] = ()
    epsilon: Mapping[str, float] | None = None
    released: Mapping[str, float] | None = None
    warnings: tuple[str, ...] = ()  # warnings to owners

    @property
    def bytes(self) -> dict[str, int]:
        """Payload by link, ``{"bank->telco": 1200}``."""
        sizes: dict[str, int] = {}
        for crossing in self.crossings:
            link = f"{crossing.sender}->{crossing.receiver}"
            sizes[link] = sizes.get(link, 0) + crossing.bytes
        return sizes

    def to_arrow(self) -> pa.Table:
        """Return a table with a row for each kind of message and link."""
        return pa.Table.from_pylist([vars(c) for c in self.crossings], schema=_SCHEMA)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self.crossings)

    def __repr__(self) -> str:
        console = plain_console(width=PRINT_WIDTH, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def __rich__(self) -> RenderableType:
        drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for head in ("from → to", "message"):
            drawn.add_column(head, no_wrap=True)
        drawn.add_column("bytes", justify="right", no_wrap=True)
        for head in ("reveals", "protected"):
            drawn.add_column(head)
        for cells in self._table_rows():
            drawn.add_row(*map(Text, cells))
        if not self.crossings:
            return Text(self._headline())
        return Group(Text(self._headline()), Text(), drawn, *map(Text, self._sentences()))

    def _repr_html_(self) -> str:
        rows = self._table_rows()
        heads = [Column("from → to"), Column("message"), Column("bytes", "number")]
        heads += [Column("reveals"), Column("protected")]
        notes: list[Html] = [tag("p", words) for words in self._sentences()]
        drawn = html_table(self._headline(), heads, rows, folds=True) if rows else join()
        return str(join(drawn, *notes) if rows else tag("p", self._headline()))

    def _table_rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table that people read."""
        rows: list[tuple[str, ...]] = []
        for c in self.crossings:
            link, size = f"{c.sender} → {c.receiver}", units.in_bytes(c.bytes)
            rows.append((link, c.message, size, c.reveals, c.protected))
        return rows

    def _headline(self) -> str:
        if not self.crossings:
            return "Nothing crossed between parties: all rows lay on one table."
        sent = units.in_bytes(sum(crossing.bytes for crossing in self.crossings))
        count = units.plural(sum(crossing.messages for crossing in self.crossings), "message")
        return f"{sent} crossed between parties, in {count}"

    def _sentences(self) -> list[str]:
        sentences = [
            f"{host} told values of ε {value:g} a row" if value < inf
            else f"{host} told values without noise"
            for host, value in (self.epsilon or {}).items()
        ]  # fmt: skip
        sentences += [
            f"{host} released {value:.3g} sums a bin and row"
            for host, value in (self.released or {}).items()
        ]
        return [*sentences, *(f"warning: {words}" for words in self.warnings)]


_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
_SCHEMA = pa.schema(
    [(field.name, _TYPES[str(field.type).removesuffix(" | None")]) for field in fields(Crossing)]
)


def disclosure_of_job(journal: JobJournal, sent: Mapping[str, Sequence[Row]]) -> Disclosure:
    """Read a job's journal and its parties' ledgers; `sent` are the rows of sent messages."""
    story = read_story(journal)
    reports = story.told
    warnings = [BARE] if story.hides_nothing else []
    warnings += [
        f"{event.warned.party}: {event.warned.warning}"
        for event in journal.events
        if event.HasField("warned") and event.warned.party != story.guest
    ]
    return Disclosure(
        crossings=tuple(_crossings(sent)),
        epsilon={p.party: p.epsilon_row if p.noise else inf for p in reports.privacy},
        released={sums.party: sums.counted for sums in reports.released},
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _crossings(sent: Mapping[str, Sequence[Row]]) -> Iterable[Crossing]:
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for sender, rows in sent.items():
        for row in rows:
            groups.setdefault((row.stage, row.kind, sender, row.peer), []).append(row)
    for (stage, kind, sender, receiver), rows in groups.items():
        about = [row.rows for row in rows if row.rows is not None]
        smallest = [row.smallest_group for row in rows if row.smallest_group is not None]
        epsilons = [row.epsilon for row in rows if row.epsilon is not None]
        yield Crossing(
            stage=stage,
            message=kind.rpartition(".")[2],
            sender=sender,
            receiver=receiver,
            messages=len(rows),
            bytes=sum(row.bytes for row in rows),
            values=sum(row.values for row in rows),
            rows=max(about, default=None),
            smallest_group=min(smallest, default=None),
            epsilon=max(epsilons, default=None),
            reveals=rows[0].reveals,
            protected=rows[0].protection,
        )


def facts_of(disclosure: Disclosure) -> dict[str, Any]:
    """Return a disclosure as JSON."""
    return {
        "crossings": disclosure.to_arrow().to_pylist(),
        "epsilon": dict(disclosure.epsilon or {}),
        "released": dict(disclosure.released or {}),
        "warnings": list(disclosure.warnings),
    }


def from_facts(facts: Mapping[str, Any]) -> Disclosure:
    """Read what `facts_of` returned."""
    return Disclosure(
        crossings=tuple(Crossing(**crossing) for crossing in facts["crossings"]),
        epsilon=facts["epsilon"],
        released=facts["released"],
        warnings=tuple(facts["warnings"]),
    )
