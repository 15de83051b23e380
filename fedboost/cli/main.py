"""`fedboost`: the command line's root; commands load when they are used."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from typing import get_args

import click

from fedboost import __version__
from fedboost.errors import FedboostError
from fedboost.runtime import logs

log = logging.getLogger(__name__)

INTERRUPTED = 130

# Where each command lives: module, and the name of its click object there.
COMMANDS = {
    "audit": ("fedboost.cli.audit", "audit"),
    "certs": ("fedboost.cli.certs", "certs_group"),
    "cluster": ("fedboost.cli.cluster", "cluster_group"),
    "completion": ("fedboost.cli.complete", "completion"),
    "coordinator": ("fedboost.cli.daemons", "coordinator_group"),
    "data": ("fedboost.cli.data", "data_group"),
    "demo": ("fedboost.cli.demo", "demo"),
    "doctor": ("fedboost.cli.daemons", "doctor"),
    "estimate": ("fedboost.cli.estimate", "estimate_command"),
    "job": ("fedboost.cli.job", "job_group"),
    "ledger": ("fedboost.cli.ledger", "ledger_group"),
    "model": ("fedboost.cli.model", "model_group"),
    "party": ("fedboost.cli.daemons", "party_group"),
    "simulate": ("fedboost.cli.cluster", "simulate"),
}


class Commands(click.Group):
    """A group whose commands are imported when somebody asks for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="fedboost")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
@click.option("--log-format", type=click.Choice(get_args(logs.LogFormat)), envvar="FEDBOOST_LOGS",
              show_envvar=True, help="How log lines on stderr look; a daemon's settings file says "
              "it as `logs:`.  [default: text]")  # fmt: skip
def cli(verbose: bool, log_format: logs.LogFormat | None) -> None:
    """Gradient boosting across organisations that may not pool their tables.

    \b
      fedboost demo
      fedboost cluster run job.yaml --data bank=bank.parquet --data telco=telco.parquet
      fedboost job submit job.yaml --watch --coordinator 127.0.0.1:7100 --tls certs

    Errors are three lines on stderr: what, where, and what to do. Exit codes: 0 done, 1 the job
    failed, 2 the command line, a file or the job is wrong, 3 somebody is not there, 4 refused by a
    policy, 130 interrupted.
    """
    if not logging.getLogger().handlers:  # whoever calls us from a program logs as it likes
        logs.set_up(log_format or "text", logging.DEBUG if verbose else logging.INFO)


def main() -> None:
    """Runs the command line; every failure becomes three lines and an exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it says of links we say ourselves
    try:
        code = cli(standalone_mode=False)
    except FedboostError as error:
        sys.exit(refuse(error))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def refuse(error: FedboostError) -> int:
    """Prints an error for people, and for programs that asked for JSON; gives the exit code."""
    if logs.is_json():
        log.error("%s", "; ".join(error.lines()))
    else:
        for line in error.lines():
            click.echo(line, err=True)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": error.said()}))
    return error.exit_code


if __name__ == "__main__":
    main()
