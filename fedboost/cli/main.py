"""`fedboost`: the command line's root; commands load when they are used."""

from __future__ import annotations

import importlib
import json
import logging
import sys

import click

from fedboost import __version__
from fedboost.errors import FedboostError

INTERRUPTED = 130

# Where each command lives: module, and the name of its click object there.
COMMANDS = {
    "audit": ("fedboost.cli.audit", "audit"),
    "certs": ("fedboost.cli.certs", "certs_group"),
    "cluster": ("fedboost.cli.cluster", "cluster_group"),
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


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedboost")
@click.option("-v", "--verbose", is_flag=True, help="Log every step.")
def cli(verbose: bool) -> None:
    """Gradient boosting across organisations that may not pool their tables."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("asyncio", "numba", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def main() -> None:
    """Runs the command line; every failure becomes three lines and an exit code."""
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
    for line in error.lines():
        click.echo(line, err=True)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": error.said()}))
    return error.exit_code


if __name__ == "__main__":
    main()
