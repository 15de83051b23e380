"""`fedboost`: runs the command line, and prints its error."""

from __future__ import annotations

import json
import logging
import os
import sys

import click

from fedboost.cli.groups import cli
from fedboost.ground.errors import FedboostError
from fedboost.runtime.process import logs

log = logging.getLogger(__name__)

INTERRUPTED = 130


def main() -> None:
    """Run the command line; turn every failure into three lines and an exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report link errors ourselves
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # no plugin may read settings
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
    """Print an error for people, and with `--json` for programs; return the exit code."""
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
