"""`fedboost relay`: serve."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import click

from fedboost.cli.connect import DAEMON
from fedboost.cli.groups import relay_group
from fedboost.ground.settings import load_settings
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.process import deadline, logs


@relay_group.command("serve")
@DAEMON
@click.option("--until-stdin-closes", is_flag=True, hidden=True,
              help="Stop when the process that started us exits.")  # fmt: skip
def serve_relay(config: Path, until_stdin_closes: bool) -> None:
    """Run a relay, which joins daemons that only dial out, until it receives a stop signal.

    \b
      fedboost relay serve --config configs/relay.yaml

    Its members dial its one port. It cannot read what passes.
    """
    from fedboost.runtime.daemons.relay import serve_relay as serve

    ours = load_settings(RelayConfig, config)
    log_format = click.get_current_context().find_root().params.get("log_format")
    logs.set_up_logging(log_format or ours.logs, logging.getLogger().level, f"relay {ours.name}")
    reread = partial(load_settings, RelayConfig, config)
    asyncio.run(serve(ours, until_stdin_closes=until_stdin_closes, reread=reread))
    deadline.end_process()
