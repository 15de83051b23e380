"""`fedboost party` for its owner: `jobs`, `approve`, `deny`, `forget`, `reload`, `account`."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from fedboost.cli.complete import jobs_here
from fedboost.cli.connect import DAEMON, JSON, TLS, YES, own_daemon_settings, run_coroutine
from fedboost.cli.groups import party_group
from fedboost.ground.settings import load_settings
from fedboost.messages import job_pb2
from fedboost.messages.party_pb2 import (
    DenyRequest,
    ForgetRequest,
    OwnedJob,
    OwnedJobs,
    Reloaded,
    ReloadRequest,
)
from fedboost.report.consoles import plain_console
from fedboost.runtime.client.client import ask_owner
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.jobs.submitted import asks_at
from fedboost.runtime.policy.account import Account, AccountEntry, totals_by_dataset

OWNED_FIELDS = (
    "id", "name", "protocol", "state", "dataset", "parties", "reason", "coordinator", "submitter",
    "tells", "risk", "forecast", "because", "uses",
)  # fmt: skip


def owner_options(command: Any) -> Any:
    """Add options for the party's daemon and the user."""
    return DAEMON(TLS(command))


def _ask_daemon(config: Path, tls: Path | None, method: str, request: Any) -> Any:
    return run_coroutine(
        ask_owner(own_daemon_settings(load_settings(PartyConfig, config), tls), method, request)
    )


@party_group.command("jobs")
@owner_options
@JSON
def jobs(config: Path, tls: Path | None, as_json: bool) -> None:
    """List every job that this party has seen, with those that wait for approval.

    \b
      fedboost party jobs --config configs/party-bank.yaml --tls certs
    """
    listed: OwnedJobs = _ask_daemon(config, tls, "Jobs", job_pb2.ListRequest())
    if as_json:
        click.echo(json.dumps({"jobs": [_job_fields(job) for job in listed.jobs]}))
        return
    table = Table(Column("job", no_wrap=True), "state", "request")
    for job in listed.jobs:
        reason = f": {job.reason.what}" if job.reason.what else ""
        wants = "\n".join(_request_lines(job))
        table.add_row(*(Text(cell) for cell in (job.id, f"{job.state}{reason}", wants)))
    plain_console().print(table if listed.jobs else "no jobs")


@party_group.command("approve")
@click.argument("job", shell_complete=jobs_here)
@YES
@owner_options
def approve(job: str, yes: bool, config: Path, tls: Path | None) -> int:
    """Approve a job that waits for a person's approval; shows its request, and asks.

    \b
      fedboost party approve credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
    """
    known: OwnedJobs = _ask_daemon(config, tls, "Jobs", job_pb2.ListRequest())
    for wanted in known.jobs:
        if wanted.id == job:
            click.echo("\n".join(_request_lines(wanted)), err=True)
    if not yes and not click.confirm(f"approve {job}?", err=True):
        click.echo("nothing was approved", err=True)
        return 1
    job_status: OwnedJob = _ask_daemon(config, tls, "Approve", job_pb2.JobId(id=job))
    click.echo(f"approved {job_status.id}")
    return 0


@party_group.command("deny")
@click.argument("job", shell_complete=jobs_here)
@click.option("--reason", default="", help="The reason, shown to all parties of the job.")
@owner_options
def deny(job: str, reason: str, config: Path, tls: Path | None) -> None:
    """Refuse a job, for good.

    \b
      fedboost party deny credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
    """
    job_status: OwnedJob = _ask_daemon(config, tls, "Deny", DenyRequest(id=job, reason=reason))
    click.echo(f"denied {job_status.id}")


@party_group.command("reload")
@owner_options
@JSON
def reload(config: Path, tls: Path | None, as_json: bool) -> None:
    """Make the daemon reload its settings file.

    \b
      fedboost party reload --config configs/party-bank.yaml --tls certs

    A reload changes policy, peers, data sets and retention, like SIGHUP; any other change needs a
    restart, and then nothing is reloaded. Running jobs continue and are judged by the new policy
    from their next stage on.
    """
    reloaded: Reloaded = _ask_daemon(config, tls, "Reload", ReloadRequest())
    changed = list(reloaded.changed)
    text = f"changed: {', '.join(changed) or 'nothing'}"
    click.echo(json.dumps({"changed": changed}) if as_json else text)


@party_group.command("forget")
@click.argument("job", shell_complete=jobs_here)
@click.option("--keep-model", is_flag=True, help="Keep the model, and what `reuse` needs.")
@YES
@owner_options
@JSON
def forget(
    job: str, keep_model: bool, yes: bool, config: Path, tls: Path | None, as_json: bool
) -> int:
    """Delete this party's data of a job that has ended.

    \b
      fedboost party forget credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
      fedboost party forget credit-1a2b3c4d --keep-model --yes --config configs/party-bank.yaml

    That is its model, predictions, report, checkpoints, transcript and record of disclosures. The
    rows of the ledger and of `fedboost party account` stay. Other parties keep their data. The job
    can never be resumed with this party.
    """
    what = "all its data except its model" if keep_model else "all its data"
    if not yes and not click.confirm(f"delete {job}, {what}?", err=True):
        click.echo("nothing was deleted", err=True)
        return 1
    request = ForgetRequest(id=job, keeps_model=keep_model)
    job_status: OwnedJob = _ask_daemon(config, tls, "Forget", request)
    summary = {"deleted": job_status.id, "keeps_model": keep_model}
    click.echo(json.dumps(summary) if as_json else f"deleted {job_status.id}")
    return 0


def _request_lines(job: OwnedJob) -> list[str]:
    """Return everything that a job wants of its party, a line each."""
    lines = [f"risk {job.risk}: {job.forecast}"] if job.risk else []
    lines += [f"- {reason}" for reason in job.because]
    lines += [f"{job.protocol} for {asks_at(job.submitter, job.coordinator)}"]
    lines += [f"{use.about}: {use.says}" for use in job.uses]
    return [*lines, *([job.tells] if job.tells else [])]


def _job_fields(job: OwnedJob) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in OWNED_FIELDS}
    lists = {"parties": list(job.parties), "because": list(job.because)}
    uses = {use.about: use.says for use in job.uses}
    return {**fields, **lists, "reason": job.reason.what, "uses": uses}


@party_group.command("account")
@DAEMON
@JSON
def account(config: Path, as_json: bool) -> None:
    """Show the releases of each data set, by job and guest; the daemon may run.

    \b
      fedboost party account --config configs/party-telco.yaml

    Released sums count per row, for the column with most released bins, together for all guests
    that may cooperate; ε per row adds up over all jobs. Totals are values of sums under masks, per
    training row. An unfinished job counts with its expected releases.
    """
    ours = load_settings(PartyConfig, config)
    with closing(Account(ours.store / "store.sqlite", read_only=True)) as stored:
        entries = stored.entries()
    spent = _spent_by_dataset(entries, ours.policy)
    if as_json:
        click.echo(
            json.dumps({"jobs": [_entry_fields(entry) for entry in entries], "spent": spent})
        )
        return
    if not entries:
        click.echo("no job has released anything of any data set")
        return
    plain_console().print(_account_table(entries))
    for column in spent:
        click.echo(_spent_in_words(column))


def _spent_by_dataset(entries: list[AccountEntry], policy: Policy) -> list[dict[str, Any]]:
    """Return the sums of each data set sent to guests, and the noisy values sent to anyone."""
    rows: list[dict[str, Any]] = []
    for total in totals_by_dataset(entries, policy.disclosure_apart):
        if total.guest:
            limits = {"warn": policy.disclosure_warn, "max": policy.disclosure_max}
            placed = {"placed": total.placed, "placed_max": policy.placed_max}
            told = {"sums": total.told, **limits, **placed}
            row = {"dataset": total.dataset, "guest": total.guest, **told}
        else:
            row = {
                "dataset": total.dataset,
                "epsilon_row": total.told,
                "max": policy.epsilon_row_max,
            }
        rows.append(_without_infinity(row))
    return rows


def _spent_in_words(spent: dict[str, Any]) -> str:
    most = "without limit" if spent["max"] is None else f"of {spent['max']:g}"
    if "guest" in spent:
        words = f"{spent['sums']:.3g} released sums per bin and row to {spent['guest']}"
        attack = f"an attack could place {spent['placed']:.0%} of the rows"
        return f"{spent['dataset']}: {words}, {most}; {attack}"
    words = "without noise" if spent["epsilon_row"] is None else f"{spent['epsilon_row']:g}"
    return f"{spent['dataset']}: epsilon per row {words}, {most}"


def _entry_fields(entry: AccountEntry) -> dict[str, Any]:
    """Return an entry in the form of `--json`, with its counted amounts."""
    charged = {kind: _without_infinity(dict(amounts)) for kind, amounts in entry.charged.items()}
    counts = {"counted": entry.counted, "sums": entry.sums, "placed": entry.placed}
    counts["noise"] = entry.noise
    return {**_without_infinity({**asdict(entry), **counts}), "charged": charged}


def _without_infinity(values: dict[str, Any]) -> dict[str, Any]:
    """Replace infinity, which JSON lacks, by null: no noise, or no limit."""
    return {key: None if value == math.inf else value for key, value in values.items()}


def _account_table(entries: list[AccountEntry]) -> Table:
    """Return a table with a row for each job, without empty columns."""
    columns = {
        "sums": [f"{entry.counted:.3g}" if entry.sums else "" for entry in entries],
        "expected": [f"{entry.planned:.3g}" if entry.sums else "" for entry in entries],
        "placed": [f"{entry.placed:.0%}" if entry.placed else "" for entry in entries],
        "ε per row": [f"{entry.noise:g}" if entry.noise else "" for entry in entries],
        "rows scored": [str(entry.scored) if entry.scored else "" for entry in entries],
        "totals per row": [f"{entry.totals:.3g}" if entry.totals else "" for entry in entries],
    }
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    table = Table(Column("job", no_wrap=True), "data set", "guest", "at (UTC)", "state")
    for head in shown:
        table.add_column(head, justify="right")
    for entry, *cells in zip(entries, *shown.values(), strict=True):
        at, state = entry.at[:19].replace("T", " "), entry.state or "deleted"
        row = (entry.job, entry.dataset, entry.guest, at, state, *cells)
        table.add_row(*(Text(cell) for cell in row))
    return table
