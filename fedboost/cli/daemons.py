"""`fedboost party` and `fedboost coordinator`: `serve` and `page`; `fedboost doctor`."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Coroutine, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fedboost.cli.connect import DAEMON, JSON, run_coroutine
from fedboost.cli.groups import cli, coordinator_group, party_group
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import FedboostError
from fedboost.ground.settings import load_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import JobJournal
from fedboost.pages import token
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.daemons import doctor as links
from fedboost.runtime.process import deadline, logs
from fedboost.runtime.transport.identity import CertificateRole

if TYPE_CHECKING:
    from fedboost.runtime.party.job.memory import Space

# What Arrow and numba load wherever it is installed, for 0.3 s; a daemon has no use for it.
UNUSED = ("pandas", "coverage")

UNTIL_STDIN = click.option(
    "--until-stdin-closes",
    is_flag=True,
    hidden=True,
    help="Stop when the process that started us exits.",
)


@party_group.command("serve")
@DAEMON
@UNTIL_STDIN
def serve_party(config: Path, until_stdin_closes: bool) -> None:
    """Run the party's daemon until it receives a stop signal.

    \b
      fedboost party serve --config configs/party-bank.yaml
      FEDBOOST_LOGS=json fedboost party serve --config configs/party-bank.yaml

    SIGTERM and Ctrl-C stop it: running jobs pause, and continue when it is back.
    """
    from fedboost.runtime.daemons import daemon
    from fedboost.runtime.process import memory

    memory.limit_freed_memory()
    ours = load_settings(PartyConfig, config)
    _set_up_logs(ours, "party")
    how: dict[str, Any] = {
        "until_stdin_closes": until_stdin_closes,
        "reread": lambda: load_settings(PartyConfig, config),
        "memory_of": _memory_of,
    }
    if ours.page is not None:
        from fedboost.pages.serving import party_companion

        how["beside"] = party_companion(ours, config)
    prevent_imports(*UNUSED)
    _serve_and_exit(daemon.serve_party(ours, write_report=_write_report, **how))


@coordinator_group.command("serve")
@DAEMON
@UNTIL_STDIN
def serve_coordinator(config: Path, until_stdin_closes: bool) -> None:
    """Run the coordinator's daemon until it receives a stop signal.

    \b
      fedboost coordinator serve --config configs/coordinator.yaml
    """
    from fedboost.runtime.daemons import daemon
    from fedboost.runtime.process import memory

    memory.limit_freed_memory()
    ours = load_settings(CoordinatorConfig, config)
    _set_up_logs(ours, "coordinator")
    how: dict[str, Any] = {
        "until_stdin_closes": until_stdin_closes,
        "reread": lambda: load_settings(CoordinatorConfig, config),
    }
    if ours.page is not None:
        from fedboost.pages.serving import coordinator_companion

        how["beside"] = coordinator_companion(ours)
    _serve_and_exit(daemon.serve_coordinator(ours, **how))


def _set_up_logs(config: DaemonConfig, role: CertificateRole) -> None:
    """Set up logs as the command line says, or else the settings file."""
    log_format = click.get_current_context().find_root().params.get("log_format")
    logs.set_up_logging(
        log_format or config.logs, logging.getLogger().level, f"{role} {config.name}"
    )


def _serve_and_exit(work: Coroutine[Any, Any, None]) -> NoReturn:
    asyncio.run(work)
    deadline.end_process()


def _write_report(journal: JobJournal, path: str) -> None:
    """Write a report; import the code that draws it only now."""
    from fedboost.cli.outcome import write_report

    write_report(journal, path)


def _memory_of(spec: JobSpec, party: str, source: SourceSpec) -> Space:
    """Return a job's peak memory and disk; import the code that estimates them only now."""
    from fedboost.runtime.estimate.footprint import footprint

    return footprint(spec, party, source)


def prevent_imports(*packages: str) -> None:
    """Keep this process from importing packages that it has not imported yet."""
    sys.meta_path.insert(0, _Absent(packages))


class _Absent(MetaPathFinder):
    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is left out here", name=fullname)


def _page_command(kind: type[DaemonConfig], whose: str) -> click.Command:
    @click.command("page")
    @DAEMON
    @click.option(
        "--new", is_flag=True, help="Draw a new token; all signed-in users are signed out."
    )
    @JSON
    def page(config: Path, new: bool, as_json: bool) -> None:
        ours = load_settings(kind, config)
        token.page_settings(ours)  # refuses settings without a page
        secret = token.renew_token(ours.store) if new else token.read_token(ours.store)
        url = token.sign_in_url(ours, secret)
        click.echo(json.dumps({"url": url}) if as_json else url)

    page.help = f"""Print the link that signs you in to {whose} page, token included.

    \b
      fedboost {_EXAMPLES[kind]}

    Whoever has the link can do there what `page.user` of the settings may do. The token lies in
    the store, in a file that only the daemon's user can read.
    """
    return page


_EXAMPLES: dict[type[DaemonConfig], str] = {
    CoordinatorConfig: "coordinator page --config configs/coordinator.yaml",
    PartyConfig: "party page --config configs/party-bank.yaml",
}

party_group.add_command(_page_command(PartyConfig, "the party's"))
coordinator_group.add_command(_page_command(CoordinatorConfig, "the coordinator's"))


@cli.command("doctor")
@DAEMON
@JSON
def doctor(config: Path, as_json: bool) -> int:
    """Check certificates, disk, tables, clocks, versions and every link both ways; list failures.

    \b
      fedboost doctor --config configs/party-bank.yaml
      fedboost doctor --config configs/coordinator.yaml --json
    """
    ours, role = daemon_config(config)
    findings = [
        *links.check_certificates(ours, role),
        links.check_store(ours),
        *links.check_tables(ours),
    ]
    findings += [*links.check_workers(ours), *run_coroutine(_examine_links(ours, role))]
    failed = [finding for finding in findings if finding.error is not None]
    if as_json:
        click.echo(
            json.dumps({"findings": [_finding_fields(f) for f in findings], "failed": len(failed)})
        )
    else:
        from rich.table import Table
        from rich.text import Text

        from fedboost.report.consoles import plain_console

        table = Table("looked at", "", "")
        for finding in findings:
            outcome, style, note = _shown_outcome(finding)
            table.add_row(finding.what, Text(outcome, style=style), note)
        plain_console().print(table)
    return failed[0].error.exit_code if failed and failed[0].error else 0


def _shown_outcome(finding: links.LinkCheck) -> tuple[str, str, str]:
    """Return a check's outcome, its style, and the text beside it."""
    if finding.error is not None:
        return "failed", "red", "\n".join(finding.error.lines())
    if finding.warning:
        notes = "\n".join(filter(None, (finding.note, finding.warning)))
        return "warning", "yellow", notes
    return "ok", "green", finding.note


def daemon_config(path: Path) -> tuple[DaemonConfig, CertificateRole]:
    """Return the settings of a daemon, and whether it is a party or a coordinator."""
    raw = read_yaml(path)
    if isinstance(raw, dict) and "parties" in raw:
        return load_settings(CoordinatorConfig, path), "coordinator"
    return load_settings(PartyConfig, path), "party"


async def _examine_links(config: DaemonConfig, role: CertificateRole) -> list[links.LinkCheck]:
    try:
        dialer = links.open_links(config, role)
        try:
            return await links.check_links(config, dialer, role)
        finally:
            await dialer.close()
    except FedboostError as error:
        return [links.LinkCheck("links", error)]


def _finding_fields(finding: links.LinkCheck) -> dict[str, Any]:
    error = finding.error
    return {
        "what": finding.what,
        "ok": error is None,
        "note": finding.note,
        "warning": finding.warning,
        "error": None if error is None else error.lines(),
    }
