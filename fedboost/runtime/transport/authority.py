"""A development CA in a folder: issues, rotates, revokes and lists certificates.

    certs/ca.pem   ca.key      the CA; with ca.key a certificate for any name can be made
    certs/ca.crl               the serial numbers of revoked certificates, signed by the CA
    certs/issued.json          every certificate ever issued: name, role, serial, end
    certs/NAME.pem NAME.key    one leaf per daemon or user

In production an organisation uses its own CA; the daemons only need certificates in the form that
`identity` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedboost.ground.disk import PUBLIC_MODE, SECRET_MODE, write_file
from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.authorities import read_revoked
from fedboost.runtime.transport.certificates import (
    CertificateAuthority,
    Leaf,
    Term,
    certificate_pem,
    key_pem,
    new_key,
    new_signer,
    revocation_list,
    signed_certificate,
)
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    CertificateRole,
    check_name,
    further_names,
    general_name,
    owner_of_certificate,
    read_certificate,
    read_key,
    read_roots,
)

CA_NAME = "fedboost development CA"
ROTATE = "fedboost certs rotate NAME makes another"


@dataclass(frozen=True)
class Issued:
    """One certificate issued by the CA; `current` if NAME.pem holds it."""

    name: str
    role: str
    serial: int
    not_after: datetime
    revoked: bool
    current: bool


def create_certificates(folder: Path, leaves: Sequence[Leaf], term: Term) -> dict[str, bool]:
    """Add the leaves that are missing, and the CA if there is none; nothing is overwritten.

    Returns for ``ca`` and each name whether it was made now. A ConfigError refuses a bad name,
    two roles for one name, half a pair of files, and a folder that cannot be written.
    """
    _check_leaves(leaves)
    hosts = [general_name(host) for host in term.hosts]
    made = {"ca": not _pair_exists(folder, "ca")}
    for leaf in leaves:
        made[leaf.name] = not _pair_exists(folder, leaf.name)
        if not made[leaf.name]:
            _check_same_role(folder, leaf)
    _make_folder(folder)
    signer = _create_ca(folder, term) if made["ca"] else read_signer(folder)
    for leaf in leaves:
        if made[leaf.name]:
            _issue_certificate(folder, signer, leaf, term, hosts)
    return made


def rotate_certificates(folder: Path, names: Sequence[str], term: Term) -> None:
    """Give each name a new key and certificate, with its present role and alternative names.

    Key and certificate are each replaced in one step; a daemon that sees only one new file keeps
    the old pair until both are new. The old certificate stays valid until it expires or is revoked.
    """
    signer = read_signer(folder)
    leaves = [(name, read_leaf(folder, name)) for name in names]
    for name, old in leaves:
        leaf = Leaf(_role_in_certificate(folder, name, old), name)
        hosts = further_names(old, *leaf) or [general_name(host) for host in term.hosts]
        _issue_certificate(folder, signer, leaf, term, hosts)


def revoke_certificates(folder: Path, name: str, now: datetime, *, superseded: bool = False) -> int:
    """Revoke every unexpired certificate of `name`; return their number.

    ``rotate_certificates`` then gives the name a valid certificate again. With `superseded` the
    current one stays: only certificates replaced by rotations are revoked, possibly none.
    """
    signer = read_signer(folder)
    current = read_leaf(folder, name).serial_number
    old = _revoked_serials(folder)
    serials = {
        certificate.serial
        for certificate in issued_certificates(folder)
        if certificate.name == name and certificate.not_after > now
    }
    serials = serials - {current} if superseded else serials | {current}
    if not (serials - old or superseded):
        raise _folder_error(
            f"every certificate of {name} is already revoked",
            folder,
            "nothing is left to do: give ca.crl to all daemons",
        )
    write_crl(folder, signer, old | serials, now)
    return len(serials - old)


def issued_certificates(folder: Path) -> list[Issued]:
    """Return every certificate of the folder, oldest first; raise ConfigError without a CA."""
    if not (folder / "ca.pem").exists():
        raise ConfigError("there is no ca.pem", file=str(folder), todo="fedboost certs create")
    revoked = _revoked_serials(folder)
    current = {read_leaf(folder, name).serial_number for name in _leaf_names(folder)}
    return [
        Issued(
            name=entry["name"],
            role=entry["role"],
            serial=int(entry["serial"], 16),
            not_after=datetime.fromisoformat(entry["not_after"]),
            revoked=int(entry["serial"], 16) in revoked,
            current=int(entry["serial"], 16) in current,
        )
        for entry in _read_issued(folder)
    ]


def _check_leaves(leaves: Sequence[Leaf]) -> None:
    if not leaves:
        raise ConfigError("no name was given for a certificate", todo="give --party NAME or --user")
    roles: dict[str, CertificateRole] = {}
    for leaf in leaves:
        check_name(leaf.name)
        if leaf.name == "ca":
            raise ConfigError("ca.pem is the CA's own file", todo="choose another name than ca")
        if roles.setdefault(leaf.name, leaf.role) != leaf.role:
            raise ConfigError(
                f"{leaf.name} cannot be {roles[leaf.name]} and {leaf.role} at once",
                todo="give each its own name",
            )


def _check_same_role(folder: Path, leaf: Leaf) -> None:
    role = _role_in_certificate(folder, leaf.name, read_leaf(folder, leaf.name))
    if role != leaf.role:
        raise ConfigError(
            f"{leaf.name} is already a {role} and cannot be a {leaf.role} too",
            todo="choose another name",
            file=str(folder / f"{leaf.name}.pem"),
        )


def _role_in_certificate(folder: Path, name: str, certificate: x509.Certificate) -> CertificateRole:
    try:
        return owner_of_certificate(certificate).role
    except CertificateFaultError as fault:
        path = folder / f"{name}.pem"
        raise _folder_error(f"the certificate {fault}", path, ROTATE) from None


def _create_ca(folder: Path, term: Term) -> CertificateAuthority:
    signer = new_signer(CA_NAME, term.now)
    write_file(folder / "ca.key", key_pem(signer.key), SECRET_MODE)
    write_crl(folder, signer, (), term.now)
    write_file(folder / "ca.pem", certificate_pem(signer.certificate), PUBLIC_MODE)
    return signer


def _issue_certificate(
    folder: Path,
    signer: CertificateAuthority,
    leaf: Leaf,
    term: Term,
    hosts: Iterable[x509.GeneralName],
) -> None:
    end = term.now + timedelta(days=term.days)
    if end > signer.certificate.not_valid_after_utc:
        raise ConfigError(
            f"the CA itself ends on {signer.certificate.not_valid_after_utc:%Y-%m-%d}, "
            f"before {term.days} days are over",
            todo="give fewer --days, or make a new CA in another folder",
        )
    key = new_key()
    certificate = signed_certificate(signer, leaf, key.public_key(), term, hosts)
    # Listed before it exists, so that no certificate can escape a later revocation.
    _append_issued(folder, leaf, certificate)
    write_file(folder / f"{leaf.name}.key", key_pem(key), SECRET_MODE)
    write_file(folder / f"{leaf.name}.pem", certificate_pem(certificate), PUBLIC_MODE)


def write_crl(
    folder: Path, signer: CertificateAuthority, serials: Iterable[int], now: datetime
) -> None:
    """Write the list of revoked serial numbers, signed by this CA."""
    write_file(folder / "ca.crl", revocation_list(signer, serials, now), PUBLIC_MODE)


def _revoked_serials(folder: Path) -> frozenset[int]:
    path = folder / "ca.crl"
    return read_revoked(path, _read_file(folder / "ca.pem")) if path.exists() else frozenset()


def read_signer(folder: Path) -> CertificateAuthority:
    """Return the CA that signs in a folder: the one in ca.pem with the key ca.key."""
    try:
        key = read_key(_read_file(folder / "ca.key"))
    except CertificateFaultError as fault:
        raise _folder_error(
            f"the CA {fault}", folder / "ca.key", "fedboost certs renew-ca makes another"
        ) from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        for root in read_roots(_read_file(folder / "ca.pem")):
            if root.public_key() == key.public_key():
                return CertificateAuthority(root, key)
    raise _folder_error(
        "ca.key is not the key of ca.pem", folder / "ca.key", "put the CA's own key beside it"
    )


def read_leaf(folder: Path, name: str) -> x509.Certificate:
    """Read the certificate in NAME.pem."""
    path = folder / f"{check_name(name)}.pem"
    try:
        return read_certificate(_read_file(path))
    except CertificateFaultError as fault:
        raise _folder_error(f"the certificate {fault}", path, ROTATE) from None


def _leaf_names(folder: Path) -> list[str]:
    names = sorted({entry["name"] for entry in _read_issued(folder)})
    return [name for name in names if (folder / f"{name}.pem").exists()]


def _read_issued(folder: Path) -> list[dict[str, str]]:
    path = folder / "issued.json"
    if not path.exists():
        return []
    try:
        entries: list[dict[str, str]] = json.loads(_read_file(path))
    except ValueError:
        raise _folder_error(
            "the list of issued certificates is damaged", path, "restore the folder from a backup"
        ) from None
    return entries


def _append_issued(folder: Path, leaf: Leaf, certificate: x509.Certificate) -> None:
    entry = {
        "name": leaf.name,
        "role": leaf.role,
        "serial": f"{certificate.serial_number:x}",
        "not_after": certificate.not_valid_after_utc.isoformat(),
    }
    entries = [*_read_issued(folder), entry]
    text = json.dumps(entries, indent=1).encode()
    write_file(folder / "issued.json", text, PUBLIC_MODE)


def _pair_exists(folder: Path, name: str) -> bool:
    there = [path for path in (folder / f"{name}.pem", folder / f"{name}.key") if path.exists()]
    if len(there) == 1:
        todo = "put the other file back" if name == "ca" else "remove it, then create again"
        raise ConfigError(
            f"of {name}.pem and {name}.key only one is there", todo=todo, file=str(there[0])
        )
    return len(there) == 2


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _folder_error(
            f"cannot make the folder: {error.strerror}",
            folder,
            "check the path and who may write there",
        ) from None


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _folder_error(
            f"cannot read the file: {error.strerror}", path, "check the path and who may read it"
        ) from None


def _folder_error(what: str, path: Path, todo: str) -> ConfigError:
    return ConfigError(what, todo=todo, file=str(path))
