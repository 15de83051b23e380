"""`fedboost doctor`: what of a daemon and its links works, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fedboost.cli.connect import DAEMON, JSON, run
from fedboost.cli.groups import cli
from fedboost.errors import ConfigError, FedboostError
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.daemons import doctor as links
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.identity import Role
from fedboost.runtime.transport.tls import load_identity
from fedboost.settings import load, read_yaml


@cli.command("doctor")
@DAEMON
@JSON
def doctor(config: Path, as_json: bool) -> int:
    """Check certificates, ports, clocks, versions, and every link both ways; names what fails.

    \b
      fedboost doctor --config configs/party-bank.yaml
      fedboost doctor --config configs/coordinator.yaml --json
    """
    ours, role = daemon_config(config)
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


def daemon_config(path: Path) -> tuple[DaemonConfig, Role]:
    """Return the settings of a party's or a coordinator's daemon, and which of the two it is."""
    raw = read_yaml(path)
    if isinstance(raw, dict) and "parties" in raw:
        return load(CoordinatorConfig, path), "coordinator"
    return load(PartyConfig, path), "party"


def _certificate(config: DaemonConfig, role: Role) -> links.LinkCheck:
    what = f"certificate of {role} {config.name}"
    if config.tls is None:
        return links.LinkCheck(what, note="none: insecure_loopback")
    try:
        identity = load_identity(config.tls, role=role, name=config.name)
        config.tls.check_key_mode()
    except ConfigError as error:
        return links.LinkCheck(what, error)
    return links.LinkCheck(what, note=f"valid until {identity.not_after:%Y-%m-%d}")


async def _examine(config: DaemonConfig, role: Role) -> list[links.LinkCheck]:
    try:
        dialer = Dialer(config.tls, config.timers, claim=f"{role}:{config.name}")
        try:
            return await links.examine(config, dialer, role)
        finally:
            await dialer.close()
    except FedboostError as error:
        return [links.LinkCheck("links", error)]


def _finding(finding: links.LinkCheck) -> dict[str, Any]:
    error = finding.error
    return {
        "what": finding.what,
        "ok": error is None,
        "note": finding.note,
        "error": None if error is None else error.lines(),
    }
