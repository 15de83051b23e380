"""The TLS files of a daemon or a client: read, checked, re-read after rotation."""

from __future__ import annotations

import codecs
import logging
import os
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, PrivateAttr

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings, expand_path
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    CertificateRole,
    Identity,
    identity,
    read_roots,
)
from fedboost.runtime.transport.roots import CertificateOwner, Roots, join_roots

log = logging.getLogger(__name__)
PEM_BYTES_MAX = 1 << 20  # a bundle of CAs fits; anything larger is not a PEM file of ours

# A path written in a settings file; ~ is the home folder, relative means relative to where the
# command runs.
FilePath = Annotated[Path, Field(strict=False), AfterValidator(expand_path)]
Stamp: TypeAlias = tuple[int, int, int]  # of a file: inode, size, time of change in ns


class TlsFiles(Settings):
    """Files of the CA, of our certificate and of its key."""

    ca: FilePath  # PEM: one or more CA certificates that sign all others
    cert: FilePath  # PEM: our certificate, signed directly by one of them
    key: FilePath  # PEM: its private key, unencrypted, readable by us only

    _pins: dict[CertificateOwner, Path] = PrivateAttr(
        default_factory=dict
    )  # other organisations' CAs

    def with_pins(self, pins: Mapping[CertificateOwner, Path | None]) -> TlsFiles:
        """Return these files with the CA of each owner who has another than ours."""
        copy = self.model_copy()
        copy._pins = {owner: path for owner, path in pins.items() if path is not None}
        return copy

    @property
    def pins(self) -> Mapping[CertificateOwner, Path]:
        """The files of other organisations' CAs, by the owner of a certificate."""
        return self._pins

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, those of pinned CAs included."""
        return (self.ca, self.cert, self.key, *self._pins.values())

    def ca_of(self, owner: CertificateOwner) -> Path:
        """Return the file of the CA that certifies `owner`."""
        return self._pins.get(owner, self.ca)

    def read(self) -> Pems:
        """Read the files; a ConfigError names an unreadable one."""
        ca, cert, key = map(read_pem, (self.ca, self.cert, self.key))
        return Pems(ca, cert, key, self._join_roots(ca, cert, read_pem))

    def read_all_roots(self) -> Roots:
        """Read the CAs, and for old signatures those that no longer sign.

        Retired ones stand beside a CA: ``ca.retired``.
        """

        def read_both(path: Path) -> bytes:
            retired = path.with_suffix(".retired")
            return read_pem(path) + (read_pem(retired) if retired.exists() else b"")

        return self._join_roots(read_both(self.ca), read_pem(self.cert), read_both)

    def _join_roots(self, ca: bytes, cert: bytes, read: Callable[[Path], bytes]) -> Roots:
        pins = {owner: read(path) for owner, path in self._pins.items()}
        for owner, pem in pins.items():
            try:
                read_roots(pem)
            except ConfigError as error:
                raise error.at(file=str(self._pins[owner])) from None
        try:
            return join_roots(ca, cert, pins.items())
        except CertificateFaultError as fault:
            raise _certificate_error(self, fault) from None
        except ConfigError as error:
            raise error.at(file=str(self.ca)) from None

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
    """Content of the files, for gRPC's credentials; never shown."""

    ca: bytes = field(repr=False)  # our own
    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)
    roots: Roots = field(repr=False)  # our CA and those of others, each for its names


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
        raise _certificate_error(tls, fault) from None
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


def _certificate_error(tls: TlsFiles, fault: CertificateFaultError) -> ConfigError:
    return ConfigError(
        f"the certificate {fault}",
        todo="make a new one: fedboost certs rotate, or ask the CA's operator",
        file=str(tls.cert),
        key=str(tls.key),
    )


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
        self._bad: tuple[Stamp | None, ...] | None = None  # files that were refused, and said so
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

    def fresh_pems(self) -> Pems:
        """Return the files' contents after checking the files again."""
        self.reload()
        return self.current_pems

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

    def _stamp_now(self) -> tuple[Stamp | None, ...]:
        return tuple(map(file_stamp, self._tls.files))


def _configuration(pems: Pems) -> Any:
    import grpc

    return grpc.ssl_server_certificate_configuration(
        [(pems.key, pems.cert)], root_certificates=pems.roots.pem
    )


def file_stamp(path: Path) -> Stamp | None:
    """Return a file's stamp; None if the file is absent."""
    try:
        stat = os.stat(path)  # faster than `path.stat`: asked at each message
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def read_pem(path: Path) -> bytes:
    """Read a file of certificates or keys; raise ConfigError if it cannot be one."""
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
