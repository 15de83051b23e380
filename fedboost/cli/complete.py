"""`fedboost completion`: shell completion of commands, options, files and ids."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from fedboost.cli.groups import cli
from fedboost.ground.errors import FedboostError

LOOK_S = 2.0  # a coordinator that takes longer completes nothing
COMPLETION_VARIABLE = "_FEDBOOST_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@cli.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, options, files and ids in a shell.

    \b
      fedboost completion bash > ~/.local/share/bash-completion/completions/fedboost
      fedboost completion zsh > ~/.zfunc/_fedboost
      fedboost completion fish > ~/.config/fish/completions/fedboost.fish

    For one session: eval "$(fedboost completion bash)". Ids of jobs come from the coordinator named
    by --coordinator and --tls, environment variables or client.yaml, or from the store of the party
    named by --config; ids of models come from that store or the local cluster.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "fedboost", COMPLETION_VARIABLE).source())


def jobs_there(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Return matching jobs of the coordinator."""
    from fedboost.ground.settings import user_home_folder
    from fedboost.runtime.client.client import CoordinatorClient
    from fedboost.runtime.client.config import client_config

    async def read_job_ids() -> list[str]:
        given = context.params
        config = client_config(
            given.get("coordinator"), given.get("tls"), os.environ, user_home_folder()
        )
        async with asyncio.timeout(LOOK_S), CoordinatorClient(config) as client:
            return [job.id for job in await client.jobs()]

    try:
        return _with_prefix(asyncio.run(read_job_ids()), typed)
    except (FedboostError, TimeoutError, OSError):
        return []


def jobs_here(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Return matching jobs in the store of the party in --config."""
    from fedboost.ground.disk import on_disk, open_database
    from fedboost.ground.settings import load_settings
    from fedboost.runtime.config.daemons import PartyConfig

    path = context.params.get("config")
    if path is None:
        return []
    try:
        database = load_settings(PartyConfig, Path(path)).store / "store.sqlite"
        with on_disk(database), closing(open_database(database, "ro")) as connection:
            rows = connection.execute("SELECT id FROM jobs ORDER BY created DESC").fetchall()
    except (FedboostError, OSError):
        return []
    return _with_prefix((id_ for (id_,) in rows), typed)


def models_here(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Return matching models in the stores at hand."""
    from fedboost.cli.shelves import open_shelves

    given: dict[str, Any] = context.params
    try:
        models = open_shelves(given.get("config"), given.get("cluster")).models()
    except (FedboostError, OSError):
        return []
    return _with_prefix(models, typed)


def certificates_here(context: click.Context, _: click.Parameter, typed: str) -> list[str]:
    """Return matching names of certificates in the folder of a development CA."""
    from fedboost.runtime.transport import authority

    try:
        certificates = authority.issued_certificates(context.params.get("folder") or Path("certs"))
    except (FedboostError, OSError):
        return []
    return _with_prefix(
        sorted({certificate.name for certificate in certificates if certificate.current}), typed
    )


def _with_prefix(names: Iterable[str], typed: str) -> list[str]:
    return [name for name in names if name.startswith(typed)]
