"""`fedboost health`: one check of this machine's daemon, for probes of containers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from fedboost.cli.connect import DAEMON
from fedboost.cli.groups import cli
from fedboost.ground.errors import FedboostError
from fedboost.ground.settings import load_settings
from fedboost.runtime.transport.health import DaemonEndpoint

NOT_HEALTHY = 1  # the only code besides 0 that Docker knows


@cli.command("health")
@DAEMON
@click.option("--live", is_flag=True,
              help="For a liveness probe: an ended certificate exits 0, because no restart cures "
                   "it.")  # fmt: skip
def health(config: Path, live: bool) -> int:
    """Check within 5 seconds that this machine's daemon serves.

    \b
      fedboost health --config configs/party-bank.yaml
      fedboost health --config configs/coordinator.yaml --live

    The exit code is 1 if it does not: a stopped process and a blocked event loop do not answer in
    time. The daemon's own certificate opens the connection to `listen`. Peers and tables are
    checked by fedboost doctor.
    """
    try:
        endpoint = load_settings(DaemonEndpoint, config)
        if live and (fault := endpoint.certificate_fault(datetime.now(UTC))):
            click.echo(f"{fault}; not checked", err=True)
            return 0
        endpoint.check_health()
    except FedboostError as error:
        click.echo("\n".join(error.lines()), err=True)
        return NOT_HEALTHY
    return 0
