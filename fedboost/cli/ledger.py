"""``fedboost ledger``: what left this party and what came, and whether the record is whole."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fedboost.runtime.config import PartyConfig
from fedboost.runtime.ledger import Ledger, Row
from fedboost.settings import load

CONFIG = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The party's settings file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group("ledger")
def ledger_group() -> None:
    """Show and verify the party's disclosure ledger; works while the daemon runs."""


@ledger_group.command("show")
@CONFIG
@click.option("--job", default=None, metavar="ID", help="Only this job's rows.")
@JSON
def show(config: Path, job: str | None, as_json: bool) -> None:
    """List every payload that left or came: to whom, how much, how protected, what it tells."""
    with closing(_open(config)) as ledger:
        rows, head = ledger.rows(job), ledger.head()
    if as_json:
        content = {"rows": [asdict(row) for row in rows], "head": asdict(head)}
        click.echo(json.dumps(content))
        return
    if not rows:
        click.echo("nothing has left or come" + (f" in job {job}" if job else ""))
        return
    Console().print(_table(rows))
    Console().print(_legend(rows))
    for direction, words in (("out", "left"), ("in", "came")):
        sizes = [row.bytes for row in rows if row.direction == direction]
        click.echo(f"{words}: {len(sizes)} payloads, {_kilobytes(sum(sizes))}")


@ledger_group.command("verify")
@CONFIG
@JSON
def verify(config: Path, as_json: bool) -> None:
    """Check every row's hash and the chain; a broken row is named and ends with an error."""
    with closing(_open(config)) as ledger:
        head = ledger.verify()
    if as_json:
        click.echo(json.dumps({"whole": True, "rows": head.n, "head": head.hash}))
    else:
        click.echo(f"the ledger is whole: {head.n} rows, head {head.hash}")


def _open(config: Path) -> Ledger:
    return Ledger(load(PartyConfig, config).store / "store.sqlite", read_only=True)


def _table(rows: list[Row]) -> Table:
    table = Table("n", Column("at (UTC)", no_wrap=True), "way", "message", "size", "values")
    for row in rows:
        way = f"to {row.peer}" if row.direction == "out" else f"from {row.peer}"
        at = row.at[5:19].replace("T", " ")
        cells = (str(row.n), at, way, _message(row), _kilobytes(row.bytes), f"{row.values:,}")
        # Text, not str: a peer's words are shown and never read as markup.
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    return table


def _legend(rows: list[Row]) -> Table:
    """What each kind of message tells and how it is protected, once each."""
    table = Table("message", "what it tells", "protection")
    for cells in dict.fromkeys((_message(row), row.reveals, row.protection) for row in rows):
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    return table


def _message(row: Row) -> str:
    """The last word of a message's full name."""
    return row.kind.rpartition(".")[2]


def _kilobytes(count: int) -> str:
    return f"{count / 1000:,.1f} KB"


def _printable(text: str) -> str:
    """Without control characters, which could write over the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
