"""The TLS files of a daemon or a client: read, checked, re-read after rotation, and revocations."""

from __future__ import annotations

import codecs
import logging
import os
import re
import stat
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from pydantic import AfterValidator, Field

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.ground.settings import Settings, expand_path
from fedboost.runtime.transport.identity import (
    UNREADABLE,
    CertificateFaultError,
    CertificateRole,
    Identity,
    Peer,
    identity,
    peer_from_auth_context,
    read_roots,
    verify_certificate,
)

__all__ = [
    "CertificateRole",
    "FilePath",
    "Identity",
    "Peer",
    "Pems",
    "Revocations",
    "ServerCertificates",
    "TlsFiles",
    "load_identity",
    "peer_from_auth_context",
    "verify_certificate",
]

log = logging.getLogger(__name__)
PEM_BYTES_MAX = 1 << 20  # a bundle of CAs fits; anything larger is not a PEM file of ours

# A path written in a settings file; ~ is the home folder, relative means relative to where the
# command runs.
FilePath = Annotated[Path, Field(strict=False), AfterValidator(expand_path)]
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?(?:-----END X509 CRL-----|\Z)", re.DOTALL)
_Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles(Settings):
    """Files of the CA, of our certificate and of its key."""

    ca: FilePath  # PEM: one or more CA certificates that sign all others
    cert: FilePath  # PEM: our certificate, signed directly by one of them
    key: FilePath  # PEM: its private key, unencrypted, readable by us only

    @property
    def crl_path(self) -> Path:
        """The CA's list of revoked certificates, beside the CA: ``ca.pem`` -> ``ca.crl``."""
        return self.ca.with_suffix(".crl")

    @property
    def retired_path(self) -> Path:
        """Path of CAs that no longer sign, beside the CA, for old signatures: ``ca.retired``."""
        return self.ca.with_suffix(".retired")

    def read_retired(self) -> bytes:
        """Read the retired CAs' certificates; empty if there is no file."""
        return _read_pem(self.retired_path) if self.retired_path.exists() else b""

    def read(self) -> Pems:
        """Read the three files; a ConfigError names an unreadable one."""
        return Pems(_read_pem(self.ca), _read_pem(self.cert), _read_pem(self.key))

    def check_key_mode(self) -> None:
        """Raise a ConfigError if users other than the owner and its group may read the key."""
        mode = self.key.stat().st_mode
        if mode & stat.S_IROTH:
            raise ConfigError(
                f"every user of this machine may read the private key (mode {mode & 0o777:o})",
                todo=f"chmod 600 {self.key}",
                file=str(self.key),
            )


@dataclass(frozen=True)
class Pems:
    """Content of the three files, for gRPC's credentials; never shown."""

    ca: bytes = field(repr=False)
    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)


def load_identity(
    tls: TlsFiles,
    *,
    role: CertificateRole | None = None,
    name: str | None = None,
    now: datetime | None = None,
) -> Identity:
    """Return our identity from its files, of the expected role and name if they are given.

    Raise ConfigError with the file and its fault: unreadable, not signed by the CA, expired, not
    yet valid, of another key, too weak, without a role, of another role or name.
    """
    return _identity(tls, tls.read(), (role, name), now or datetime.now(UTC))


def _identity(
    tls: TlsFiles, pems: Pems, expected: tuple[CertificateRole | None, str | None], now: datetime
) -> Identity:
    role, name = expected
    try:
        ours = identity(pems.cert, pems.key, pems.ca, now)
    except CertificateFaultError as fault:
        raise ConfigError(
            f"the certificate {fault}",
            todo="make a new one: fedboost certs rotate, or ask the CA's operator",
            file=str(tls.cert),
            key=str(tls.key),
        ) from None
    except ConfigError as error:
        raise error.at(file=str(tls.ca)) from None
    if role is not None and ours.role != role:
        raise ConfigError(
            f"expected a {role}'s certificate, got {ours.peer}'s",
            file=str(tls.cert),
            todo="name the right file under `tls`",
        )
    if name is not None and ours.name != name:
        raise ConfigError(
            f"the certificate is {ours.peer}'s, but the settings call us {name}",
            todo="make the name and tls.cert agree",
            file=str(tls.cert),
        )
    return ours


class ServerCertificates:
    """A daemon's certificate as gRPC asks for it at each new connection, and links out show it.

    Give `initial_configuration()` and the object itself to ``grpc.dynamic_ssl_server_credentials``.
    After ``certs rotate`` new connections get the new certificate; old ones live on. Files that are
    broken or half replaced are logged and the last good certificate stays in use.
    """

    def __init__(
        self, tls: TlsFiles, *, role: CertificateRole | None = None, name: str | None = None
    ) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._pems = tls.read()
        self._expected = (role, name)
        self._shown = self._pems  # the files that gRPC has last been given
        self._bad: _Stamp | None = None  # files that were refused, and said so
        self._identity = _identity(tls, self._pems, self._expected, datetime.now(UTC))

    @property
    def identity(self) -> Identity:
        """The identity that new connections see."""
        with self._lock:
            return self._identity

    def fresh(self) -> Identity:
        """Return the identity after checking the files again."""
        self.reload()
        return self.identity

    @property
    def current_pems(self) -> Pems:
        """The files' contents that are in use."""
        with self._lock:
            return self._pems

    def initial_configuration(self) -> Any:
        """Return the first ``grpc.ServerCertificateConfiguration``."""
        self._shown = self._pems
        return _configuration(self._pems)

    def __call__(self) -> Any:
        """Return the new configuration, or None if gRPC already has it."""
        self.reload()
        pems = self.current_pems
        if pems is self._shown:
            return None
        self._shown = pems
        return _configuration(pems)

    def reload(self) -> bool:
        """Read the files again if they changed; True where a new certificate is in use."""
        with self._lock:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return False
            try:
                pems = self._tls.read()
                fresh = _identity(self._tls, pems, self._expected, datetime.now(UTC))
            except ConfigError as error:
                if stamp != self._bad:
                    log.warning("keeping the old certificate: %s", "; ".join(error.lines()))
                # A rotation replaces key and certificate one after the other: look again.
                self._bad = stamp
                return False
            changed = pems != self._pems
            self._stamp, self._identity = stamp, fresh
            if changed:
                self._pems = pems
            return changed

    def _stamp_now(self) -> _Stamp:
        return tuple(_file_stamp(path) for path in (self._tls.ca, self._tls.cert, self._tls.key))


class Revocations:
    """The CA's revocation list, read again whenever its file changes; asked at each call.

    Without a file nothing is revoked. A file that disappeared, is damaged or was not signed by our
    CA refuses all callers until it is corrected.
    """

    def __init__(self, tls: TlsFiles) -> None:
        self._tls, self._list = tls, tls.crl_path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._serials: frozenset[int] = frozenset()
        self._refresh()

    def check(self, peer: Peer) -> None:
        """Raise UnreachableError if `peer`'s certificate is revoked, or if the list is unusable.

        A peer without a valid certificate counts as unreachable: jobs pause, and continue when it
        has one.
        """
        with self._lock:
            try:
                self._refresh()
            except ConfigError as error:
                log.error("all callers are refused: %s", "; ".join(error.lines()))
                raise UnreachableError(
                    "the list of revoked certificates cannot be used, so all callers are refused",
                    todo="ask the daemon's owner, whose log says more",
                ) from None
            revoked = peer.serial in self._serials
        if revoked:
            raise UnreachableError(
                f"the certificate of {peer} has been revoked",
                todo="ask the CA's operator for a new one: fedboost certs rotate",
                **({"party": peer.name} if peer.role == "party" else {}),
            )

    def _refresh(self) -> None:
        stamp = _file_stamp(self._list)
        if stamp == self._stamp:
            return
        if stamp is None:
            raise ConfigError(
                "the revocation list is gone",
                file=str(self._list),
                todo="put ca.crl back beside ca.pem",
            )
        self._serials = read_revoked(self._list, _read_pem(self._tls.ca))
        self._stamp = stamp


def read_revoked(path: Path, ca_pem: bytes) -> frozenset[int]:
    """Return the serial numbers in a file of revocation lists, one list for each CA.

    Raise ConfigError unless a CA of `ca_pem` has signed each.
    """
    text, roots = _read_pem(path), read_roots(ca_pem)
    serials: set[int] = set()
    for block in _LIST.findall(text) or [text]:
        try:
            listed = x509.load_pem_x509_crl(block)
            numbers = {entry.serial_number for entry in listed}
            is_ours = any(_signed_by(listed, root) for root in roots)
        except UNREADABLE:
            raise ConfigError(
                "the revocation list is damaged",
                file=str(path),
                todo="take ca.crl from your CA's folder",
            ) from None
        if not is_ours:
            raise ConfigError(
                "the revocation list is not signed by our CA",
                file=str(path),
                todo="take ca.crl from your CA's folder",
            )
        serials |= numbers
    return frozenset(serials)


def _signed_by(listed: x509.CertificateRevocationList, root: x509.Certificate) -> bool:
    key = root.public_key()
    try:
        return listed.is_signature_valid(key)  # type: ignore[arg-type]  # other kinds: TypeError
    except TypeError:
        return False


def _configuration(pems: Pems) -> Any:
    import grpc

    return grpc.ssl_server_certificate_configuration(
        [(pems.key, pems.cert)], root_certificates=pems.ca
    )


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a file's stamp: inode, size, time of change in ns; None if the file is absent."""
    try:
        stat = os.stat(path)  # faster than `path.stat`: asked at each message
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read_pem(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}",
            todo="check the path and the file's permissions",
            file=str(path),
        ) from None
    if len(text) > PEM_BYTES_MAX:
        raise ConfigError(
            f"the file has over {PEM_BYTES_MAX} bytes",
            file=str(path),
            todo="name a file of certificates in PEM",
        )
    if text.lstrip().startswith(b"-----BEGIN ") and b"\n" not in text.strip():
        raise ConfigError(
            "the file holds its PEM in one line",
            file=str(path),
            todo="write it with its line breaks: a variable or a form has dropped them",
        )
    return text.removeprefix(codecs.BOM_UTF8)  # Windows' editors put it first
