"""`fedboost backup`, `restore` and `party move`: a daemon's store in one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from fedboost.cli.connect import DAEMON, FILE, OUT
from fedboost.cli.daemons import daemon_config
from fedboost.cli.groups import cli, party_group
from fedboost.runtime.store.backups import Backup, move_store, restore_backup, write_backup


@cli.command("backup")
@DAEMON
@OUT
@click.option(
    "--without-key", is_flag=True, help="Leave out the key that unseals the secrets of jobs."
)
def backup(config: Path, out: Path, without_key: bool) -> None:
    """Write a daemon's store into one file; the daemon may run.

    \b
      fedboost backup --config configs/party-bank.yaml --out bank-2026-11-25.tar
    """
    settings, _ = daemon_config(config)
    _print_size(write_backup(settings.store, out, with_key=not without_key), f"written to {out}")


@cli.command("restore")
@DAEMON
@click.argument("file", type=FILE)
def restore(config: Path, file: Path) -> None:
    """Put the store of a backup into the empty folder that the settings name, every file checked.

    \b
      fedboost restore --config configs/party-bank.yaml bank-2026-11-25.tar
    """
    settings, _ = daemon_config(config)
    _print_size(restore_backup(file, settings.store), f"restored to {settings.store}")
    click.echo("start the daemon; what left after the backup: fedboost ledger restored")


@party_group.command("move")
@DAEMON
@OUT
def move(config: Path, out: Path) -> None:
    """Write a stopped daemon's store for another machine, and close the store here.

    \b
      fedboost party move --config configs/party-bank.yaml --out bank.tar
    """
    settings, _ = daemon_config(config)
    _print_size(
        move_store(settings.store, out), f"written to {out}; no daemon opens it here any more"
    )


def _print_size(done: Backup, where: str) -> None:
    click.echo(f"{done.files} files, {done.bytes / 1e6:.1f} MB {where}")
