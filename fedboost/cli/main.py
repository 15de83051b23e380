"""`fedboost`: runs the command line, and prints its error."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys

import click

from fedboost.cli.groups import cli
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.runtime.process import logs

log = logging.getLogger(__name__)

INTERRUPTED = 130
UNREAD = 1  # the reader of the output has gone; click ends so, too
# Errors of the system without the name of a file, with their remedies.
_NO_OUTPUT = "the output cannot be written: {}", "free some space, or lead the output elsewhere"
OUTPUT_FAULTS = {
    code: (_NO_OUTPUT[0].format(os.strerror(code)), _NO_OUTPUT[1])
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
} | {
    errno.ENOENT: (
        "the folder in which the command was started is gone",
        "change to a folder that is there",
    )
}


def main() -> None:
    """Run the command line; turn every failure into three lines and an exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report link errors ourselves
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # no plugin may read settings
    try:
        code = cli(standalone_mode=False)
        sys.stdout.flush()
    except FedboostError as error:
        sys.exit(print_error(error))
    except BrokenPipeError:  # a pager or head that has read enough
        _drop_output()
        sys.exit(UNREAD)
    except OSError as error:
        if error.errno not in OUTPUT_FAULTS or error.filename is not None:
            raise
        _drop_output()
        what, todo = OUTPUT_FAULTS[error.errno]
        sys.exit(print_error(ConfigError(what, todo=todo, private=str(error))))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_output() -> None:
    """Send the rest of the output nowhere; Python would print it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(error: FedboostError) -> int:
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
