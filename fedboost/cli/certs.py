"""``fedboost certs``: a development CA, its certificates, and requests to another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.table import Table

from fedboost.cli.complete import certificates_here
from fedboost.cli.connect import DIRECTORY
from fedboost.cli.groups import certs_group
from fedboost.report.consoles import plain_console
from fedboost.runtime.transport import authority, ca_rotation, certificates, expiry
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.identity import ROLES, CertificateRole

OUT_FOLDER = click.option(
    "--out",
    "folder",
    type=DIRECTORY,
    default=Path("certs"),
    show_default=True,
    help="The folder with the CA.",
)
DAYS = click.option(
    "--days",
    type=click.IntRange(1, certificates.CA_DAYS),
    default=Term.days,
    show_default=True,
    help="Validity of a certificate in days.",
)


@certs_group.command("create")
@OUT_FOLDER
@DAYS
@click.option("--coordinator", "coordinator", multiple=True, metavar="NAME",
              help="A certificate for a coordinator.")  # fmt: skip
@click.option("--party", "--aggregator", "party", multiple=True, metavar="NAME",
              help="One for a party; once for each.")  # fmt: skip
@click.option("--user", "user", multiple=True, metavar="NAME",
              help="One for a user; once for each.")  # fmt: skip
@click.option("--relay", "relay", multiple=True, metavar="NAME",
              help="One for a relay of its own.")  # fmt: skip
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST_OR_IP",
    help="A further host name or address in the new certificates; none is needed.",
)
def create(folder: Path, days: int, hosts: tuple[str, ...], **named: tuple[str, ...]) -> None:
    """Make the missing certificates, and the CA if there is none; nothing is overwritten.

    \b
      fedboost certs create --coordinator coord --party bank --party telco --user ana
      fedboost certs create --out certs --party shop --days 90

    All files are in one folder: ca.pem, ca.key, ca.crl, and NAME.pem and NAME.key for each name. A
    person with ca.key can issue a certificate for any name: keep it off the daemons' machines.
    """
    leaves = [Leaf(role, name) for role in ROLES for name in named[role]]
    made = authority.create_certificates(folder, leaves, Term(datetime.now(UTC), days, hosts))
    for name, fresh in made.items():
        path = folder / f"{name}.pem"
        click.echo(f"{path}: {'made' if fresh else 'was there, kept as it is'}")


@certs_group.command("request")
@OUT_FOLDER
@click.option("--role", type=click.Choice(ROLES), required=True,
              help="The role of the certificate's owner.")  # fmt: skip
@click.option("--host", "hosts", multiple=True, metavar="HOST_OR_IP",
              help="A further host name or address; none is needed.")  # fmt: skip
@click.argument("name")
def request(folder: Path, name: str, role: CertificateRole, hosts: tuple[str, ...]) -> None:
    """Write NAME.csr for another CA; make NAME.key if it is missing.

    \b
      fedboost certs request --role party bank
      fedboost certs request --role user --out ana ana

    The CA signs it with the requested extensions. Put the certificate beside the key as NAME.pem;
    doctor checks it.
    """
    from fedboost.runtime.transport.certificate_requests import write_request

    path = write_request(folder, Leaf(role, name), hosts)
    click.echo(f"{path}: send it to the CA; the key beside it stays here")


@certs_group.command("rotate")
@OUT_FOLDER
@DAYS
@click.argument("names", nargs=-1, required=True, metavar="NAME...",
                shell_complete=certificates_here)  # fmt: skip
def rotate(folder: Path, days: int, names: tuple[str, ...]) -> None:
    """Give NAME a new key and certificate; running daemons take them up by themselves.

    \b
      fedboost certs rotate bank telco
      fedboost certs revoke --superseded bank

    Copy NAME.pem and NAME.key to the daemon of NAME. New connections show the new certificate, jobs
    run on. The old one stays valid until it ends, or is revoked as in the second line.
    """
    authority.rotate_certificates(folder, names, Term(datetime.now(UTC), days))
    for name in names:
        click.echo(f"{folder / name}.pem: replaced; the old one stays valid unless revoked")


@certs_group.command("revoke")
@OUT_FOLDER
@click.option(
    "--superseded", is_flag=True, help="Revoke only certificates that a rotation has replaced."
)
@click.argument("name", shell_complete=certificates_here)
def revoke(folder: Path, name: str, superseded: bool) -> None:
    """Revoke every certificate of NAME; give ca.crl to all daemons, beside their ca.pem.

    \b
      fedboost certs revoke telco
      fedboost certs revoke --superseded telco

    Daemons look at the list at every call. Jobs with a party that is revoked pause, and go on when
    it has a new certificate: fedboost certs rotate.
    """
    count = authority.revoke_certificates(folder, name, datetime.now(UTC), superseded=superseded)
    click.echo(f"{folder / 'ca.crl'}: {count} certificate(s) of {name} revoked")
    click.echo("daemons on this folder refuse them from now on; copy ca.crl to the others")


@certs_group.command("show")
@OUT_FOLDER
def show(folder: Path) -> None:
    """List the certificates in use and the revoked ones.

    \b
      fedboost certs show --out certs
    """
    table = Table("name", "role", "expires in", "state", "serial")
    now = datetime.now(UTC)
    for certificate in authority.issued_certificates(folder):
        if not (certificate.current or certificate.revoked):
            continue
        left = certificate.not_after - now
        is_near = timedelta() < left <= expiry.EXPIRY_WARNED
        in_use = "in use, ends soon" if is_near else "in use"
        state = "revoked" if certificate.revoked else in_use
        table.add_row(
            certificate.name,
            certificate.role,
            expiry.remaining_text(left) if left > timedelta() else "expired",
            state,
            f"{certificate.serial:x}"[:16],
        )
    plain_console().print(table)


@certs_group.command("renew-ca")
@OUT_FOLDER
def renew_ca(folder: Path) -> None:
    """Make a new CA; until `retire-ca`, certificates of both CAs are valid.

    \b
      fedboost certs renew-ca
      fedboost certs rotate coord bank telco ana
      fedboost certs retire-ca

    Give the new ca.pem to all daemons and users before you issue any certificate of the new CA, and
    then ca.crl. No daemon has to stop.
    """
    ca_rotation.add_new_ca(folder, datetime.now(UTC))
    click.echo(f"{folder / 'ca.pem'}: the new CA signs from now on; the old one is still valid")
    click.echo("copy ca.pem and ca.crl to all daemons and users, then rotate every certificate")


@certs_group.command("retire-ca")
@OUT_FOLDER
def retire_ca(folder: Path) -> None:
    """Finish `renew-ca`: only the new CA is valid from here on.

    \b
      fedboost certs retire-ca --out certs

    The command refuses while a certificate in the folder is from the old CA. Give ca.pem and
    ca.retired to all daemons and users: ledgers hold signatures under certificates of the old CA.
    """
    count = ca_rotation.retire_old_cas(folder)
    click.echo(f"{folder / 'ca.pem'}: {count} old CA(s) retired")
    click.echo("copy ca.pem and ca.retired to all daemons and users")
