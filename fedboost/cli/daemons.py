"""`fedboost party`, `fedboost coordinator` and `fedboost doctor`: the daemons and their owners."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fedboost.cli.account import account
from fedboost.cli.complete import jobs_here
from fedboost.cli.connect import JSON, own_daemon, run, write_report
from fedboost.cli.page import page_of_coordinator, page_of_party
from fedboost.errors import ConfigError, FedboostError
from fedboost.messages import job_pb2
from fedboost.messages.party_pb2 import DenyRequest, ForgetRequest, OwnedJob, OwnedJobs
from fedboost.runtime import doctor as links
from fedboost.runtime import logs
from fedboost.runtime.channel import Dialer
from fedboost.runtime.client import ask_owner
from fedboost.runtime.config import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.identity import Role
from fedboost.runtime.tls import load_identity
from fedboost.settings import load, read_yaml

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The daemon's settings file.",
)
UNTIL_STDIN = click.option(
    "--until-stdin-closes", is_flag=True, hidden=True, help="Stop when whoever started us is gone."
)


@click.group("party")
def party_group() -> None:
    """Serve a party; look at, approve, deny and forget the jobs that want its data."""


@party_group.command("serve")
@CONFIG
@UNTIL_STDIN
def serve_party(config: Path, until_stdin_closes: bool) -> None:
    """Run the party's daemon until it is told to stop.

    \b
      fedboost party serve --config configs/party-bank.yaml
      FEDBOOST_LOGS=json fedboost party serve --config configs/party-bank.yaml

    SIGTERM and Ctrl-C stop it: running jobs pause, and go on when it is back.
    """
    from fedboost.runtime import daemon

    ours = load(PartyConfig, config)
    _log_as(ours, "party")
    how: dict[str, Any] = {"until_stdin_closes": until_stdin_closes}
    if ours.page is not None:
        from fedboost.pages.serving import beside_party

        how["beside"] = beside_party(ours, config)
    _serve(daemon.serve_party(ours, write_report=write_report, **how))


@click.group("coordinator")
def coordinator_group() -> None:
    """Serve a coordinator."""


@coordinator_group.command("serve")
@CONFIG
@UNTIL_STDIN
def serve_coordinator(config: Path, until_stdin_closes: bool) -> None:
    """Run the coordinator's daemon until it is told to stop.

    \b
      fedboost coordinator serve --config configs/coordinator.yaml
    """
    from fedboost.runtime import daemon

    ours = load(CoordinatorConfig, config)
    _log_as(ours, "coordinator")
    how: dict[str, Any] = {"until_stdin_closes": until_stdin_closes}
    if ours.page is not None:
        from fedboost.pages.serving import beside_coordinator

        how["beside"] = beside_coordinator(ours)
    _serve(daemon.serve_coordinator(ours, **how))


def _log_as(config: DaemonConfig, role: Role) -> None:
    """Logs as the command line says, or else the settings file."""
    asked = click.get_current_context().find_root().params.get("log_format")
    logs.set_up(asked or config.logs, logging.getLogger().level, f"{role} {config.name}")


def _serve(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


# The owner's side


def owner_options(command: Any) -> Any:
    """Which party's daemon, and as whom."""
    tls = click.option(
        "--tls",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Folder with ca.pem and our NAME.pem and NAME.key.",
    )
    return CONFIG(tls(command))


def _ask(config: Path, tls: Path | None, method: str, request: Any) -> Any:
    return run(ask_owner(own_daemon(load(PartyConfig, config), tls), method, request))


@party_group.command("jobs")
@owner_options
@JSON
def jobs(config: Path, tls: Path | None, as_json: bool) -> None:
    """Every job that this party has seen, and which of them wait for approval.

    \b
      fedboost party jobs --config configs/party-bank.yaml --tls certs
    """
    found: OwnedJobs = _ask(config, tls, "Jobs", job_pb2.ListRequest())
    if as_json:
        click.echo(json.dumps({"jobs": [_owned(job) for job in found.jobs]}))
        return
    table = Table(Column("job", no_wrap=True), "state", "what it wants")
    for job in found.jobs:
        reason = f": {job.reason.what}" if job.reason.what else ""
        wants = "\n".join(_wants(job))
        table.add_row(*(Text(cell) for cell in (job.id, f"{job.state}{reason}", wants)))
    Console().print(table if found.jobs else "no jobs")


@party_group.command("approve")
@click.argument("job", shell_complete=jobs_here)
@click.option("--yes", is_flag=True, help="Do not ask.")
@owner_options
def approve(job: str, yes: bool, config: Path, tls: Path | None) -> int:
    """Let a job run that waits for a person's approval; shows what it wants, and asks.

    \b
      fedboost party approve credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
    """
    known: OwnedJobs = _ask(config, tls, "Jobs", job_pb2.ListRequest())
    for wanted in known.jobs:
        if wanted.id == job:
            click.echo("\n".join(_wants(wanted)), err=True)
    if not yes and not click.confirm(f"let {job} run?", err=True):
        click.echo("nothing was approved", err=True)
        return 1
    said: OwnedJob = _ask(config, tls, "Approve", job_pb2.JobId(id=job))
    click.echo(f"{said.id} is approved")
    return 0


@party_group.command("deny")
@click.argument("job", shell_complete=jobs_here)
@click.option("--reason", default="", help="Why; everybody in the job reads it.")
@owner_options
def deny(job: str, reason: str, config: Path, tls: Path | None) -> None:
    """Refuse a job, for good.

    \b
      fedboost party deny credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
    """
    said: OwnedJob = _ask(config, tls, "Deny", DenyRequest(id=job, reason=reason))
    click.echo(f"{said.id} is denied")


@party_group.command("forget")
@click.argument("job", shell_complete=jobs_here)
@click.option("--keep-model", is_flag=True, help="Keep the model, and what `reuse` needs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@owner_options
@JSON
def forget(
    job: str, keep_model: bool, yes: bool, config: Path, tls: Path | None, as_json: bool
) -> int:
    """Delete what this party keeps of a job that is over.

    \b
      fedboost party forget credit-1a2b3c4d --config configs/party-bank.yaml --tls certs
      fedboost party forget credit-1a2b3c4d --keep-model --yes --config configs/party-bank.yaml

    That is its model, predictions, report, checkpoints, transcript and what it disclosed. The rows
    of the ledger and of `fedboost party account` stay. Other parties keep what they have. The job
    can never be resumed with this party.
    """
    what = "what is kept of it, but its model" if keep_model else "all that is kept of it"
    if not yes and not click.confirm(f"delete {job}, {what}?", err=True):
        click.echo("nothing was deleted", err=True)
        return 1
    asked = ForgetRequest(id=job, keeps_model=keep_model)
    said: OwnedJob = _ask(config, tls, "Forget", asked)
    if as_json:
        click.echo(json.dumps({"deleted": said.id, "keeps_model": keep_model}))
    else:
        click.echo(f"{said.id} is deleted")
    return 0


party_group.add_command(account)
party_group.add_command(page_of_party)
coordinator_group.add_command(page_of_coordinator)


def _wants(job: OwnedJob) -> list[str]:
    """Everything that a job wants of its party, a line each."""
    lines = [f"{job.protocol} for {job.submitter} at {job.coordinator}"]
    lines += [f"{use.about}: {use.says}" for use in job.uses]
    return [*lines, *([job.tells] if job.tells else [])]


def _owned(job: OwnedJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "protocol": job.protocol,
        "state": job.state,
        "dataset": job.dataset,
        "parties": list(job.parties),
        "reason": job.reason.what,
        "coordinator": job.coordinator,
        "submitter": job.submitter,
        "tells": job.tells,
        "uses": {use.about: use.says for use in job.uses},
    }


# The doctor


@click.command("doctor")
@CONFIG
@JSON
def doctor(config: Path, as_json: bool) -> int:
    """Check certificates, ports, clocks, versions, and every link both ways; names what fails.

    \b
      fedboost doctor --config configs/party-bank.yaml
      fedboost doctor --config configs/coordinator.yaml --json
    """
    ours, role = _daemon_config(config)
    findings = [_certificate(ours, role)]
    findings += run(_examine(ours, role))
    failed = [finding for finding in findings if finding.error is not None]
    if as_json:
        click.echo(json.dumps({"findings": [_finding(f) for f in findings], "failed": len(failed)}))
    else:
        table = Table("looked at", "", "")
        for finding in findings:
            good = finding.error is None
            said = finding.note if finding.error is None else "\n".join(finding.error.lines())
            table.add_row(finding.what, "[green]ok[/]" if good else "[red]failed[/]", said)
        Console().print(table)
    return failed[0].error.exit_code if failed and failed[0].error else 0


def _daemon_config(path: Path) -> tuple[DaemonConfig, Role]:
    raw = read_yaml(path)
    if isinstance(raw, dict) and "parties" in raw:
        return load(CoordinatorConfig, path), "coordinator"
    return load(PartyConfig, path), "party"


def _certificate(config: DaemonConfig, role: Role) -> links.Finding:
    what = f"certificate of {role} {config.name}"
    if config.tls is None:
        return links.Finding(what, note="none: insecure_loopback")
    try:
        identity = load_identity(config.tls, role=role, name=config.name)
    except ConfigError as error:
        return links.Finding(what, error)
    return links.Finding(what, note=f"valid until {identity.not_after:%Y-%m-%d}")


async def _examine(config: DaemonConfig, role: Role) -> list[links.Finding]:
    try:
        dialer = Dialer(config.tls, config.timers, claim=f"{role}:{config.name}")
        try:
            return await links.examine(config, dialer, role)
        finally:
            await dialer.close()
    except FedboostError as error:
        return [links.Finding("links", error)]


def _finding(finding: links.Finding) -> dict[str, Any]:
    error = finding.error
    return {
        "what": finding.what,
        "ok": error is None,
        "note": finding.note,
        "error": None if error is None else error.lines(),
    }
