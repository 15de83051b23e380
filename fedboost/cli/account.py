"""``fedboost party account``: what jobs have told of each data set, of what the policy allows."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fedboost.cli.groups import party_group
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.account import Account, AccountEntry, totals
from fedboost.settings import load


@party_group.command("account")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The party's settings file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def account(config: Path, as_json: bool) -> None:
    """What jobs have told of each data set, by job and guest; works while the daemon runs.

    \b
      fedboost party account --config configs/party-telco.yaml

    Released sums count per bin of the most told column and row, of all guests that may compare
    notes; ε per row adds up over all jobs. Totals are values of sums under masks, by training rows.
    A job that goes on counts with what it is expected to tell.
    """
    ours = load(PartyConfig, config)
    with closing(Account(ours.store / "store.sqlite", read_only=True)) as found:
        entries = found.entries()
    spent = _spent(entries, ours.policy)
    if as_json:
        click.echo(json.dumps({"jobs": [_job(one) for one in entries], "spent": spent}))
        return
    if not entries:
        click.echo("no job has told anything of any data set")
        return
    Console().print(_table(entries))
    for one in spent:
        click.echo(_in_words(one))


def _spent(entries: list[AccountEntry], policy: Policy) -> list[dict[str, Any]]:
    """Return what guests have received of each data set's sums, and everybody of noisy values."""
    found: list[dict[str, Any]] = []
    for one in totals(entries, policy.disclosure_apart):
        if one.guest:
            limits = {"warn": policy.disclosure_warn, "max": policy.disclosure_max}
            told = {"dataset": one.dataset, "guest": one.guest, "sums": one.told, **limits}
        else:
            told = {"dataset": one.dataset, "epsilon_row": one.told, "max": policy.epsilon_row_max}
        found.append(_finite(told))
    return found


def _in_words(spent: dict[str, Any]) -> str:
    most = "without limit" if spent["max"] is None else f"of {spent['max']:g}"
    if "guest" in spent:
        told = f"{spent['sums']:.3g} released sums per bin and row to {spent['guest']}"
        return f"{spent['dataset']}: {told}, {most}"
    told = "without noise" if spent["epsilon_row"] is None else f"{spent['epsilon_row']:g}"
    return f"{spent['dataset']}: epsilon per row {told}, {most}"


def _job(one: AccountEntry) -> dict[str, Any]:
    """An entry, with what counts for it."""
    charged = {kind: _finite(dict(amounts)) for kind, amounts in one.charged.items()}
    counts = {"counted": one.counted, "sums": one.sums, "noise": one.noise}
    return {**_finite({**asdict(one), **counts}), "charged": charged}


def _finite(said: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity: null stands for no noise, and for no limit."""
    return {key: None if value == math.inf else value for key, value in said.items()}


def _table(entries: list[AccountEntry]) -> Table:
    """A row for each job; of what no job has told there is no column."""
    told = {
        "sums": [f"{one.counted:.3g}" if one.sums else "" for one in entries],
        "at most": [f"{one.planned:.3g}" if one.sums else "" for one in entries],
        "ε per row": [f"{one.noise:g}" if one.noise else "" for one in entries],
        "totals per row": [f"{one.totals:.3g}" if one.totals else "" for one in entries],
    }
    shown = {head: cells for head, cells in told.items() if any(cells)}
    table = Table(Column("job", no_wrap=True), "data set", "guest", "at (UTC)", "state")
    for head in shown:
        table.add_column(head, justify="right")
    for one, *cells in zip(entries, *shown.values(), strict=True):
        at, state = one.at[:19].replace("T", " "), one.state or "deleted"
        row = (one.job, one.dataset, one.guest, at, state, *cells)
        table.add_row(*(Text(cell) for cell in row))
    return table
