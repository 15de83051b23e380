"""Options and helpers shared by commands: user, coordinator, exit codes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import user_home_folder
from fedboost.runtime.client.config import ClientConfig, client_config, config_without_tls
from fedboost.runtime.process.bridge import run_to_end

if TYPE_CHECKING:
    from fedboost.runtime.client.client import CoordinatorClient
    from fedboost.runtime.config.daemons import PartyConfig

T = TypeVar("T")
Command = Callable[..., Any]


def check_folder(out: Path) -> None:
    """Raise ConfigError if the folder of a file does not exist."""
    if not out.absolute().parent.is_dir():
        raise ConfigError(
            "the folder of --out does not exist",
            file=str(out),
            todo="create the folder, or name another",
        )


def _checked_table_file(_context: click.Context, _option: click.Parameter, out: Path) -> Path:
    """Return the file of a table to write, before anything is computed for it.

    Raise ConfigError if its ending names no format, or its folder does not exist.
    """
    from fedboost.data.table_files import check_ending

    check_ending(out)
    check_folder(out)
    return out


FILE = click.Path(path_type=Path, dir_okay=False)
DIRECTORY = click.Path(path_type=Path, file_okay=False)
YES = click.option("--yes", is_flag=True, help="Do not ask.")
OUT = click.option("--out", type=FILE, required=True, help="The file to write.")
TABLE_OUT = click.option(
    "--out",
    type=FILE,
    required=True,
    callback=_checked_table_file,
    help="The file to write: .parquet, .csv, .feather or .jsonl.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
TLS = click.option(
    "--tls",
    type=DIRECTORY,
    metavar="DIR",
    help="Folder with ca.pem and our NAME.pem and NAME.key.",
)
COORDINATOR = click.option("--coordinator", metavar="HOST:PORT", help="Address of the coordinator.")
CONFIG_VARIABLE = "FEDBOOST_CONFIG"  # what --config is where it is absent


def config_option(text: str, *name: str) -> Callable[[Command], Command]:
    """Return the option `--config` of commands that need a settings file."""
    return click.option(
        "--config", *name, envvar=CONFIG_VARIABLE, show_envvar=True, type=FILE, required=True,
        help=text,
    )  # fmt: skip


DAEMON = config_option("The daemon's settings file.")


@dataclass(frozen=True)
class CoordinatorAccess:
    """A coordinator from the command line; other sources fill in missing parts."""

    address: str | None
    tls: Path | None

    @cached_property
    def config(self) -> ClientConfig:
        """Return the client's settings, see `client_settings`."""
        return client_settings(self.address, self.tls)

    def call_coordinator(self, work: Callable[[CoordinatorClient], Awaitable[T]]) -> T:
        """Connect to the coordinator, await `work` and return its result."""
        from fedboost.runtime.client.client import CoordinatorClient

        config = self.config

        async def connect_and_work() -> T:
            async with CoordinatorClient(config) as client:
                return await work(client)

        return run_coroutine(connect_and_work())


def connection_options(command: Command) -> Command:
    """Add `--coordinator` and `--tls`; the command gets them as one `coordinator`."""

    @wraps(command)
    def with_coordinator(*, coordinator: str | None, tls: Path | None, **given: Any) -> Any:
        return command(**given, coordinator=CoordinatorAccess(coordinator, tls))

    return COORDINATOR(TLS(with_coordinator))


def client_settings(coordinator: str | None, tls: Path | None) -> ClientConfig:
    """Return settings from flags, else variables, else client.yaml; print their warnings."""
    config = client_config(coordinator, tls, os.environ, user_home_folder())
    for warning in config.warnings():
        click.echo(f"warning: {warning}", err=True)
    return config


def own_daemon_settings(party: PartyConfig, tls: Path | None) -> ClientConfig:
    """Return how an owner reaches the daemon of a party's settings file."""
    if party.insecure_loopback:
        return config_without_tls(party.name, party.listen)
    return client_settings(f"{party.name}@{party.listen}", tls)


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result."""
    return asyncio.run(run_to_end(work))
