"""The CAs that we trust, and whom each may certify.

Each organisation may have a CA of its own. A CA that is pinned to a name certifies that name only,
and no other CA certifies it; the CA in `tls.ca` certifies every name without a pin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from fedboost.ground.errors import PeerError
from fedboost.runtime.transport.expiry import expired_error
from fedboost.runtime.transport.identity import (
    CALLED_ROLES,
    CertificateFaultError,
    CertificateRole,
    Peer,
    check_certificate,
    check_signature,
    is_issuer,
    owner_of_certificate,
    read_certificate,
    read_roots,
)

CertificateOwner: TypeAlias = tuple[CertificateRole, str]  # role and name in a certificate


@dataclass(frozen=True)
class Roots:
    """The certificates of the CAs that we trust, in PEM."""

    own: bytes = field(repr=False)  # they certify every owner without a pin
    pinned: tuple[tuple[CertificateOwner, bytes], ...] = field(default=(), repr=False)

    @property
    def pem(self) -> bytes:
        """The certificates of all CAs."""
        return b"\n".join(dict.fromkeys((self.own, *(pem for _, pem in self.pinned))))

    def pem_for(self, owner: CertificateOwner) -> bytes:
        """Return the certificates of the CAs that may certify an owner."""
        return next((pem for named, pem in self.pinned if named == owner), self.own)

    def pem_for_daemon(self, name: str) -> bytes:
        """Return the certificates of the CAs that may certify the party or coordinator `name`."""
        pinned = [
            pem for (role, named), pem in self.pinned if role in CALLED_ROLES and named == name
        ]
        return pinned[0] if pinned else self.own

    def check_issuer(self, certificate_pem: bytes) -> None:
        """Raise PeerError if a CA signed a caller's certificate, which TLS has checked, that may
        not certify the caller.
        """
        try:
            _certified_owner(self, certificate_pem)
        except CertificateFaultError as fault:
            raise PeerError(f"the caller's certificate {fault}") from None

    def verify(self, certificate_pem: bytes, at: datetime | None = None) -> Peer:
        """Return the owner of a certificate; raise PeerError unless a CA that may certify the owner
        signed it and it is valid `at` that time, by default now.

        Raise UnreachableError for a daemon's certificate that has ended by now. Revocation is not
        checked: see `authorities.Authorities.verify`.
        """
        try:
            owner = _certified_owner(self, certificate_pem)
            certificate = read_certificate(certificate_pem)
            ended = (at or datetime.now(UTC)) > certificate.not_valid_after_utc
            if at is None and ended and owner.role != "user":
                raise expired_error(owner, certificate.not_valid_after_utc)
            issuers = read_roots(self.pem_for(owner.owner))
            return check_certificate(certificate, issuers, at or datetime.now(UTC))
        except CertificateFaultError as fault:
            raise PeerError(f"the peer's certificate {fault}") from None

    def others_who_certify(self, certificate: x509.Certificate) -> list[str]:
        """Return the owners to whom a CA is pinned that signed the certificate."""
        return [
            f"{role} {name}"
            for (role, name), pem in self.pinned
            if any(is_issuer(root, certificate) for root in read_roots(pem))
        ]


@lru_cache(maxsize=1024)
def _certified_owner(roots: Roots, certificate_pem: bytes) -> Peer:
    """Return a certificate's owner; raise CertificateFaultError unless a CA that may certify the
    owner signed it.
    """
    certificate = read_certificate(certificate_pem)
    peer = owner_of_certificate(certificate)
    if any(is_issuer(root, certificate) for root in read_roots(roots.pem_for(peer.owner))):
        return peer
    others = roots.others_who_certify(certificate)
    if not others:
        raise CertificateFaultError("is not signed by our CA")
    raise PeerError(
        f"the certificate of {peer} is signed by the CA of {' and '.join(others)}, which may "
        "certify nobody else",
        todo=f"ask {peer} for a certificate of its own CA, or pin that CA to {peer.name}",
    )


def verify_signature(
    certificate_pem: bytes, roots: Roots, owner: CertificateOwner, data: bytes, signature: bytes
) -> Peer:
    """Return the signer of `data`; raise PeerError unless it is `owner`."""
    peer = roots.verify(certificate_pem)
    if peer.owner != owner:
        raise PeerError(f"expected a signature of {owner[0]} {owner[1]}, got {peer}'s")
    check_signature(certificate_pem, peer, data, signature)
    return peer


def join_roots(
    own: bytes, certificate_pem: bytes, pins: Iterable[tuple[CertificateOwner, bytes]]
) -> Roots:
    """Return the roots of `tls.ca` and of pins.

    A CA of a pin certifies nobody else even if it stands in `tls.ca` as well, unless it also signed
    our own certificate.
    """
    pinned = tuple(pins)
    theirs = {_fingerprint(root) for _, pem in pinned for root in read_roots(pem)}
    ours, certificate = read_roots(own), read_certificate(certificate_pem)
    kept = [
        root for root in ours if _fingerprint(root) not in theirs or is_issuer(root, certificate)
    ]
    if len(kept) < len(ours):
        own = b"".join(root.public_bytes(Encoding.PEM) for root in kept)
    return Roots(own, pinned)


def _fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())
