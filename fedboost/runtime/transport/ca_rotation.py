"""Replacement of a development CA in its folder, with valid certificates at every moment.

    begin     ca.pem holds the new CA and the old one, ca.key is the new one's
    rotate    new certificates come from the new CA (`authority.rotate_certificates`)
    retire    ca.pem holds the new CA alone; the old one is in ca.retired, for old signatures

After each step copy the files to all daemons, which reload them without a restart.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from fedboost.ground.disk import PUBLIC_MODE, SECRET_MODE, read_file, write_file
from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.authority import (
    CA_NAME,
    issued_certificates,
    read_leaf,
    read_signer,
    write_crl,
)
from fedboost.runtime.transport.certificates import certificate_pem, key_pem, new_signer
from fedboost.runtime.transport.identity import is_issuer, read_roots


def add_new_ca(folder: Path, now: datetime) -> None:
    """Add a new CA, which signs from now on; certificates of both CAs are valid.

    Raise ConfigError if an earlier change of CAs has not ended.
    """
    read_signer(folder)  # a new CA requires the key of the old one
    old = read_roots(read_file(folder / "ca.pem"))
    if len(old) > 1:
        raise ConfigError(
            f"ca.pem holds {len(old)} CAs already",
            todo="end the last change first: fedboost certs retire-ca",
            file=str(folder / "ca.pem"),
        )
    revoked = {
        certificate.serial for certificate in issued_certificates(folder) if certificate.revoked
    }
    fresh = new_signer(f"{CA_NAME} of {now:%Y-%m-%d %H:%M:%S}", now)
    # In this order the folder is whole after each write: see `read_signer`.
    both = b"".join(map(certificate_pem, (fresh.certificate, *old)))
    write_file(folder / "ca.pem", both, PUBLIC_MODE)
    write_file(folder / "ca.key", key_pem(fresh.key), SECRET_MODE)
    write_crl(folder, fresh, revoked, now)


def retire_old_cas(folder: Path) -> int:
    """Make the signing CA the only valid one; return the number of retired CAs.

    Raise ConfigError with the names that still have a certificate of another CA.
    """
    signer = read_signer(folder)
    others = [r for r in read_roots(read_file(folder / "ca.pem")) if r != signer.certificate]
    names = [
        certificate.name
        for certificate in issued_certificates(folder)
        if certificate.current and not certificate.revoked
    ]
    late = [name for name in names if not is_issuer(signer.certificate, read_leaf(folder, name))]
    if late:
        raise ConfigError(
            f"certificates of the old CA are in use: {', '.join(late)}",
            todo=f"fedboost certs rotate {' '.join(late)}",
            file=str(folder / "ca.pem"),
        )
    kept = folder / "ca.retired"
    before = read_file(kept) if kept.exists() else b""
    write_file(kept, before + b"".join(map(certificate_pem, others)), PUBLIC_MODE)
    write_file(folder / "ca.pem", certificate_pem(signer.certificate), PUBLIC_MODE)
    return len(others)
