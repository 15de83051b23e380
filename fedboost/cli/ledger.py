"""``fedboost ledger``: the payloads that left and reached this party."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Column, Table
from rich.text import Text

from fedboost.cli.connect import JSON, config_option
from fedboost.cli.groups import ledger_group
from fedboost.ground.printable import printable
from fedboost.ground.settings import load_settings
from fedboost.report.consoles import plain_console
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row

PARTY_CONFIG = config_option("The party's settings file.", "file")


@ledger_group.command("show")
@PARTY_CONFIG
@click.option("--job", default=None, metavar="ID", help="Only this job's rows.")
@click.option("--long", "in_full", is_flag=True, help="A sentence for each row.")
@JSON
def show(file: Path, job: str | None, in_full: bool, as_json: bool) -> None:
    """List every payload that this party sent or received, with size, protection and content.

    \b
      fedboost ledger show --config configs/party-telco.yaml --job credit-1a2b3c4d --long
    """
    with opened_ledger(load_settings(PartyConfig, file)) as ledger:
        rows, head = ledger.rows(job), ledger.head()
    if as_json:
        listed = [{**asdict(row), "sentence": row.sentence} for row in rows]
        click.echo(json.dumps({"rows": listed, "head": asdict(head)}))
        return
    if not rows:
        click.echo("nothing was sent or received" + (f" in job {job}" if job else ""))
        return
    if in_full:
        for row in rows:
            click.echo(printable_text(f"{row.n}. {_row_time(row)} {row.sentence}"))
    else:
        plain_console().print(_rows_table(rows))
        plain_console().print(_legend_table(rows))
    for direction, words in (("out", "left"), ("in", "came")):
        sizes = [row.bytes for row in rows if row.direction == direction]
        click.echo(f"{words}: {len(sizes)} payloads, {_kilobytes(sum(sizes))}")


@contextmanager
def opened_ledger(config: PartyConfig) -> Iterator[Ledger]:
    with closing(Ledger(config.store / "store.sqlite", read_only=True)) as ledger:
        yield ledger


def _rows_table(rows: list[Row]) -> Table:
    names = ("way", "message", "size", "values", "rows", "groups", "smallest", "ε")
    table = Table("n", Column("at (UTC)", no_wrap=True), *names)
    for row in rows:
        way = f"to {row.peer}" if row.direction == "out" else f"from {row.peer}"
        sizes = (_kilobytes(row.bytes), f"{row.values:,}")
        counts = (row.rows, row.groups, row.smallest_group)
        facts = ["" if count is None else f"{count:,}" for count in counts]
        facts.append("" if row.epsilon is None else f"{row.epsilon:g}")
        cells = (str(row.n), _row_time(row), way, _message(row), *sizes, *facts)
        # Text, not str: a peer's words are shown and never read as markup.
        table.add_row(*(Text(printable_text(cell)) for cell in cells))
    return table


def _legend_table(rows: list[Row]) -> Table:
    """Explain each kind of message once: its content and its protection."""
    table = Table("message", "content", "protection")
    for cells in dict.fromkeys((_message(row), row.reveals, row.protection) for row in rows):
        table.add_row(*(Text(printable_text(cell)) for cell in cells))
    return table


def _row_time(row: Row) -> str:
    return row.at[5:19].replace("T", " ")


def _message(row: Row) -> str:
    """Return the last word of a message's full name."""
    return row.kind.rpartition(".")[2]


def _kilobytes(count: int) -> str:
    return f"{count / 1000:,.1f} KB"


def printable_text(text: str) -> str:
    """Replace control characters, which could overwrite the terminal."""
    return printable(text, instead="?")
