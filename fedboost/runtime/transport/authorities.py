"""The CAs that we trust, and what they have revoked; files are read again when they change."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cryptography import x509

from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.runtime.transport.identity import UNREADABLE, Peer, read_roots
from fedboost.runtime.transport.roots import Roots
from fedboost.runtime.transport.tls import Stamp, TlsFiles, file_stamp, read_pem

log = logging.getLogger(__name__)

_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?(?:-----END X509 CRL-----|\Z)", re.DOTALL)


class Authorities:
    """The CAs that we trust, each for its names, and what they have revoked.

    A list of revocations stands beside its CA and counts for the owners whom that CA certifies.
    Without a file nothing is revoked. A file that disappeared, is damaged or was not signed by its
    CA refuses these owners until it is corrected.
    """

    def __init__(self, tls: TlsFiles, roots: Callable[[], Roots] | None = None) -> None:
        """Trust the CAs of `roots`, by default those that the files hold now."""
        self._tls = tls
        self.roots = roots or (lambda: tls.read().roots)
        self._lock = threading.Lock()
        self._lists = {ca: RevocationList(ca) for ca in (tls.ca, *tls.pins.values())}

    def verify(self, certificate_pem: bytes, at: datetime | None = None) -> Peer:
        """Return the owner of a certificate; raise PeerError unless a CA that may certify the owner
        signed it and it is valid `at` that time, UnreachableError if it is revoked.
        """
        peer = self.roots().verify(certificate_pem, at)
        self.refuse_revoked(peer)
        return peer

    def refuse_revoked(self, peer: Peer) -> None:
        """Raise UnreachableError if `peer`'s certificate is revoked, or if the list is unusable.

        A peer without a valid certificate counts as unreachable: jobs pause, and continue when it
        has one.
        """
        with self._lock:
            try:
                revoked = peer.serial in self._lists[self._tls.ca_of(peer.owner)].serials()
            except ConfigError as error:
                log.error("all callers of a CA are refused: %s", "; ".join(error.lines()))
                raise UnreachableError(
                    "the list of revoked certificates cannot be used, "
                    "so all callers of its CA are refused",
                    todo="ask the daemon's owner, whose log says more",
                ) from None
        if revoked:
            raise UnreachableError(
                f"the certificate of {peer} has been revoked",
                todo="ask the CA's operator for a new one: fedboost certs rotate",
                **({"party": peer.name} if peer.role == "party" else {}),
            )


class RevocationList:
    """The list of certificates that a CA has revoked, read again whenever its file changes."""

    def __init__(self, ca: Path) -> None:
        """Read the list beside the file of a CA: ``ca.pem`` -> ``ca.crl``."""
        self._path, self._ca = ca.with_suffix(".crl"), ca
        self._stamp: Stamp | None = None
        self._serials: frozenset[int] = frozenset()
        self.serials()

    def serials(self) -> frozenset[int]:
        """Return the serial numbers; raise ConfigError for a file that cannot be used."""
        stamp = file_stamp(self._path)
        if stamp == self._stamp:
            return self._serials
        if stamp is None:
            raise ConfigError(
                "the revocation list is gone",
                file=str(self._path),
                todo=f"put {self._path.name} back beside {self._ca.name}",
            )
        self._serials = read_revoked(self._path, read_pem(self._ca))
        self._stamp = stamp
        return self._serials


def read_revoked(path: Path, ca_pem: bytes) -> frozenset[int]:
    """Return the serial numbers in a file of revocation lists, one list for each CA.

    Raise ConfigError unless a CA of `ca_pem` has signed each.
    """
    text, roots = read_pem(path), read_roots(ca_pem)
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
