"""`fedboost party serve` and `fedboost coordinator serve`: the daemons."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

import click

from fedboost.cli.connect import DAEMON
from fedboost.cli.groups import coordinator_group, party_group
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.process import absent, deadline, logs
from fedboost.runtime.transport.identity import Role
from fedboost.settings import load

# What Arrow and numba load wherever it is installed, for 0.3 s; a daemon has no use for it.
UNUSED = ("pandas", "coverage")

UNTIL_STDIN = click.option(
    "--until-stdin-closes", is_flag=True, hidden=True, help="Stop when whoever started us is gone."
)


@party_group.command("serve")
@DAEMON
@UNTIL_STDIN
def serve_party(config: Path, until_stdin_closes: bool) -> None:
    """Run the party's daemon until it is told to stop.

    \b
      fedboost party serve --config configs/party-bank.yaml
      FEDBOOST_LOGS=json fedboost party serve --config configs/party-bank.yaml

    SIGTERM and Ctrl-C stop it: running jobs pause, and go on when it is back.
    """
    from fedboost.runtime.daemons import daemon

    ours = load(PartyConfig, config)
    _log_as(ours, "party")
    how: dict[str, Any] = {"until_stdin_closes": until_stdin_closes}
    if ours.page is not None:
        from fedboost.pages.serving import beside_party

        how["beside"] = beside_party(ours, config)
    absent.leave_out(*UNUSED)
    _serve(daemon.serve_party(ours, write_report=_write_report, **how))


@coordinator_group.command("serve")
@DAEMON
@UNTIL_STDIN
def serve_coordinator(config: Path, until_stdin_closes: bool) -> None:
    """Run the coordinator's daemon until it is told to stop.

    \b
      fedboost coordinator serve --config configs/coordinator.yaml
    """
    from fedboost.runtime.daemons import daemon

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


def _serve(work: Coroutine[Any, Any, None]) -> NoReturn:
    asyncio.run(work)
    deadline.end()


def _write_report(journal: JobJournal, path: str) -> None:
    """Loads what draws reports when there is one to draw."""
    from fedboost.cli.outcome import write_report

    write_report(journal, path)
