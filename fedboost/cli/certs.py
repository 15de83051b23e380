"""``fedboost certs``: a development CA and its certificates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fedboost.runtime import authority
from fedboost.runtime.authority import Leaf, Term
from fedboost.runtime.identity import ROLES

OUT = click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("certs"),
    show_default=True,
    help="The folder with the CA.",
)
DAYS = click.option(
    "--days",
    type=click.IntRange(1, authority.CA_DAYS),
    default=Term.days,
    show_default=True,
    help="How long a certificate is valid.",
)


@click.group("certs")
def certs_group() -> None:
    """Make, replace, revoke and show certificates of a development CA."""


@certs_group.command("create")
@OUT
@DAYS
@click.option("--coordinator", "coordinators", multiple=True, metavar="NAME")
@click.option("--party", "--aggregator", "parties", multiple=True, metavar="NAME")
@click.option("--user", "users", multiple=True, metavar="NAME")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST_OR_IP",
    help="A further host name or address in the new certificates; none is needed.",
)
def create(
    folder: Path,
    days: int,
    coordinators: tuple[str, ...],
    parties: tuple[str, ...],
    users: tuple[str, ...],
    hosts: tuple[str, ...],
) -> None:
    """Make the CA and certificates that are missing; nothing is overwritten."""
    named = dict(zip(ROLES, (parties, coordinators, users), strict=True))
    leaves = [Leaf(role, name) for role in ROLES for name in named[role]]
    made = authority.create(folder, leaves, Term(datetime.now(UTC), days, hosts))
    for name, fresh in made.items():
        path = folder / f"{name}.pem"
        click.echo(f"{path}: {'made' if fresh else 'was there, kept as it is'}")


@certs_group.command("rotate")
@OUT
@DAYS
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def rotate(folder: Path, days: int, names: tuple[str, ...]) -> None:
    """Give NAME a new key and certificate; running daemons take them up by themselves."""
    authority.rotate(folder, names, Term(datetime.now(UTC), days))
    for name in names:
        click.echo(f"{folder / name}.pem: replaced; the old one stays valid unless revoked")


@certs_group.command("revoke")
@OUT
@click.argument("name")
def revoke(folder: Path, name: str) -> None:
    """Revoke every certificate of NAME; give ca.crl to all daemons, beside their ca.pem."""
    count = authority.revoke(folder, name, datetime.now(UTC))
    click.echo(f"{folder / 'ca.crl'}: {count} certificate(s) of {name} revoked")
    click.echo("daemons on this folder refuse them from now on; copy ca.crl to the others")


@certs_group.command("show")
@OUT
def show(folder: Path) -> None:
    """List the certificates in use and those that were revoked."""
    table = Table("name", "role", "expires in", "state", "serial")
    now = datetime.now(UTC)
    for one in authority.issued(folder):
        if not (one.current or one.revoked):
            continue
        state = "revoked" if one.revoked else "in use"
        table.add_row(one.name, one.role, _left(one.not_after, now), state, f"{one.serial:x}"[:16])
    Console().print(table)


def _left(end: datetime, now: datetime) -> str:
    seconds = (end - now).total_seconds()
    if seconds <= 0:
        return f"expired on {end:%Y-%m-%d}"
    if seconds < 172_800:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / 86_400:.0f} days"
