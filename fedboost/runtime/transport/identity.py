"""Identities: certificates with a role and a name, and signatures by their keys.

This module works on bytes; reading and re-reading the files is in `tls`, issuing in `authority`.
A certificate names its owner in a URI of its subject alternative name: ``fedboost:ROLE:NAME``.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar, cast, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedboost.ground import formats
from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.transport.expiry import expired_error, time_text

CertificateRole: TypeAlias = Literal["party", "coordinator", "user", "relay"]
CertificateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Extension = TypeVar("Extension", bound=x509.ExtensionType)

CALLED_ROLES: tuple[CertificateRole, ...] = ("party", "coordinator")  # of daemons
ROLES: tuple[CertificateRole, ...] = get_args(CertificateRole)
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,62}")
URI_PATTERN = re.compile(r"fedboost:([a-z]+):([a-z][a-z0-9-]{0,62})")
RSA_BITS_MIN = 2048  # SECURITY: a 1024-bit key is refused
CURVE_BITS_MIN = 256  # P-256 and larger
DIGEST_BYTES_MIN = 32  # no certificate signed over SHA-1
CERTIFICATE_BYTES_MAX = 1 << 16  # a certificate larger than this is not one
# Errors of cryptography for certificates and lists that it cannot read.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
# Separates our signatures from all others by the same TLS key.
SIGNATURE_PREFIX = b"fedboost signature 1\0"
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


class CertificateFaultError(ValueError):
    """A fault of a certificate, as the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Peer:
    """Owner of a certificate: role, name, SHA-256 of its DER in hex, serial number."""

    role: CertificateRole
    name: str
    fingerprint: str
    serial: int

    def __str__(self) -> str:
        return f"{self.role} {self.name}"

    @property
    def owner(self) -> tuple[CertificateRole, str]:
        """Role and name."""
        return self.role, self.name


@dataclass(frozen=True)
class Identity:
    """Our own certificate with its key; the key never shows in `repr`."""

    peer: Peer
    certificate_pem: bytes = field(repr=False)
    not_after: datetime
    _sign: Callable[[bytes], bytes] = field(repr=False, compare=False)

    @property
    def role(self) -> CertificateRole:
        """``party``, ``coordinator``, ``user`` or ``relay``."""
        return self.peer.role

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return self.peer.name

    def sign(self, data: bytes) -> bytes:
        """Return a signature over `data` that `verify_signature` accepts: ECDSA (DER) or RSA-PSS
        with SHA-256.
        """
        return self._sign(SIGNATURE_PREFIX + data)


def check_name(name: str) -> str:
    """Return `name`; raise ConfigError unless it is a valid name in a certificate."""
    if NAME_PATTERN.fullmatch(name):
        return name
    raise ConfigError(
        f"{name!r} is not a name",
        todo="use a lower-case letter, then letters, digits and '-', 63 at most",
    )


def identity(certificate_pem: bytes, key_pem: bytes, ca_pem: bytes, now: datetime) -> Identity:
    """Return the identity in a certificate and its key; a CertificateFaultError names the fault."""
    certificate = read_certificate(certificate_pem)
    peer = check_certificate(certificate, read_roots(ca_pem), now)
    if peer.role != "user" and peer.name not in _dns_names(certificate):
        raise CertificateFaultError(
            f"lacks the DNS name {peer.name}, which clients use to reach it"
        )
    key = read_key(key_pem)
    if _public_bytes(key.public_key()) != _public_bytes(certificate.public_key()):
        raise CertificateFaultError("does not belong to the key")
    return Identity(peer, certificate_pem, certificate.not_valid_after_utc, _signer_with_key(key))


def _signer_with_key(key: CertificateKey) -> Callable[[bytes], bytes]:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return lambda text: key.sign(text, ec.ECDSA(hashes.SHA256()))
    return lambda text: key.sign(text, _PSS, hashes.SHA256())


def check_signature(certificate_pem: bytes, peer: Peer, data: bytes, signature: bytes) -> None:
    """Raise PeerError unless the key of the certificate, which is `peer`'s, signed the data."""
    key = read_certificate(certificate_pem).public_key()
    text = SIGNATURE_PREFIX + data
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, text, ec.ECDSA(hashes.SHA256()))
        else:
            cast(rsa.RSAPublicKey, key).verify(signature, text, _PSS, hashes.SHA256())
    except InvalidSignature:
        raise PeerError(f"the signature of {peer} does not fit the signed text") from None


def peer_from_auth_context(auth_context: Mapping[str, Sequence[bytes]]) -> Peer:
    """Return the caller, from gRPC's ``auth_context()``; a PeerError without a certificate.

    TLS has checked the chain. The name is read from the certificate itself, because gRPC's list of
    alternative names does not tell which of them are URIs.
    """
    pems = auth_context.get("x509_pem_cert") or ()
    if len(pems) != 1:
        raise PeerError("the caller showed no certificate", todo="connect with mTLS")
    try:
        return _peer_of(bytes(pems[0]))[0]
    except CertificateFaultError as fault:
        raise PeerError(f"the caller's certificate {fault}") from None


def refuse_expired(auth_context: Mapping[str, Sequence[bytes]], now: datetime) -> None:
    """Raise UnreachableError for a caller whose certificate has expired in the meantime.

    TLS checks dates only when a connection opens, and one may stay open for months.
    """
    peer, not_after = _peer_of(bytes(auth_context["x509_pem_cert"][0]))
    if now > not_after:
        raise expired_error(peer, not_after)


@lru_cache(maxsize=1024)
def _peer_of(certificate_pem: bytes) -> tuple[Peer, datetime]:
    certificate = read_certificate(certificate_pem)
    _check_strength(certificate)
    return owner_of_certificate(certificate), certificate.not_valid_after_utc


def read_certificate(pem: bytes) -> x509.Certificate:
    """Return the first certificate in `pem`; raise CertificateFaultError if it is unreadable."""
    if len(pem) > CERTIFICATE_BYTES_MAX:
        raise CertificateFaultError(f"has {len(pem)} bytes, too many for one")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except UNREADABLE:
        raise CertificateFaultError("is not a PEM certificate") from None
    return _read_whole(certificate)


def read_roots(ca_pem: bytes) -> list[x509.Certificate]:
    """Return the CA certificates in `ca_pem`, at least one; raise ConfigError if one is no CA."""
    try:
        roots = [_read_whole(root) for root in x509.load_pem_x509_certificates(ca_pem)]
    except UNREADABLE:
        raise ConfigError("the CA file is not PEM", todo="check tls.ca") from None
    for root in roots:
        constraints = _extension(root, x509.BasicConstraints)
        if constraints is None or not constraints.ca:
            raise ConfigError(
                f"the CA file holds {root.subject.rfc4514_string()}, which may not sign others",
                todo="put the CA's own certificate into tls.ca",
            )
    return roots


def read_key(pem: bytes) -> CertificateKey:
    """Return the private key in `pem`; the CertificateFaultError reveals nothing of the key."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise CertificateFaultError("has a key file that is no unencrypted PEM key") from None
    if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return key
    raise CertificateFaultError("has a key that is neither ECDSA nor RSA")


def check_certificate(
    certificate: x509.Certificate, roots: Sequence[x509.Certificate], now: datetime
) -> Peer:
    """Return the owner; raise CertificateFaultError on issuer, dates, strength, role or usage."""
    root = _issuer_of_certificate(certificate, roots)
    _check_dates(certificate, now, "")
    _check_dates(root, now, "has a CA that ")
    _check_strength(certificate)
    return owner_of_certificate(certificate)


def owner_of_certificate(certificate: x509.Certificate) -> Peer:
    """Return the role and name in the certificate; raise CertificateFaultError for a bad one."""
    names = _extension(certificate, x509.SubjectAlternativeName)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    ours = [uri for uri in uris if uri.startswith("fedboost:")]
    if len(ours) != 1:
        raise CertificateFaultError(
            f"has {len(ours)} URIs of the form fedboost:ROLE:NAME, expected one"
        )
    match = URI_PATTERN.fullmatch(ours[0])
    if match is None or match[1] not in ROLES:
        raise CertificateFaultError("has a URI that is not fedboost:ROLE:NAME")
    role = cast(CertificateRole, match[1])
    _check_usage(certificate, role)
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    return Peer(role, match[2], fingerprint, certificate.serial_number)


def is_issuer(root: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the key of `root` signed the certificate."""
    try:
        certificate.verify_directly_issued_by(root)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _issuer_of_certificate(
    certificate: x509.Certificate, roots: Sequence[x509.Certificate]
) -> x509.Certificate:
    for root in roots:
        if is_issuer(root, certificate):
            return root
    raise CertificateFaultError("is not signed by our CA")


def _check_dates(certificate: x509.Certificate, now: datetime, whose: str) -> None:
    if now > certificate.not_valid_after_utc:
        raise CertificateFaultError(
            f"{whose}expired on {time_text(certificate.not_valid_after_utc)}"
        )
    if now < certificate.not_valid_before_utc:
        start = time_text(certificate.not_valid_before_utc)
        raise CertificateFaultError(
            f"{whose}is not valid before {start} (this machine's clock says {time_text(now)})"
        )


def _check_strength(certificate: x509.Certificate) -> None:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise CertificateFaultError(
                f"has an RSA key of {key.key_size} bits, expected {RSA_BITS_MIN} at least"
            )
    elif not isinstance(key, ec.EllipticCurvePublicKey):
        raise CertificateFaultError("has a key that is neither ECDSA nor RSA")
    elif key.key_size < CURVE_BITS_MIN:
        raise CertificateFaultError(
            f"has a curve of {key.key_size} bits, expected {CURVE_BITS_MIN} at least"
        )
    digest = certificate.signature_hash_algorithm
    if digest is not None and digest.digest_size < DIGEST_BYTES_MIN:
        raise CertificateFaultError(f"is signed over {digest.name}, which is too weak")


def _check_usage(certificate: x509.Certificate, role: CertificateRole) -> None:
    """Refuse a user's certificate that may serve, so no user can pose as a daemon."""
    usage = _extension(certificate, x509.ExtendedKeyUsage)
    if usage is None and role != "user":
        return
    allowed = set(usage or ())
    if ExtendedKeyUsageOID.CLIENT_AUTH not in allowed:
        raise CertificateFaultError("may not be used by a client")
    serves = ExtendedKeyUsageOID.SERVER_AUTH in allowed
    if serves and role == "user":
        raise CertificateFaultError("is a user's and may serve, which only daemons may")
    if not serves and role != "user":
        raise CertificateFaultError(f"is a {role}'s and may not be used by a server")


def _dns_names(certificate: x509.Certificate) -> list[str]:
    names = _extension(certificate, x509.SubjectAlternativeName)
    return names.get_values_for_type(x509.DNSName) if names else []


def _read_whole(certificate: x509.Certificate) -> x509.Certificate:
    """Return the certificate; raise CertificateFaultError if a part of it is unreadable.

    cryptography reads each part only on access.
    """
    try:
        certificate.public_key()
        for part in ("extensions", "signature_hash_algorithm", "not_valid_before_utc",
                     "not_valid_after_utc"):  # fmt: skip
            getattr(certificate, part)
    except UNREADABLE:
        raise CertificateFaultError("has parts that cannot be read") from None
    return certificate


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _public_bytes(key: object) -> bytes:
    assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def hello_reply(ours: Identity) -> HelloReply:
    """Return a daemon's identity, for any caller."""
    return HelloReply(
        name=ours.name,
        role=ours.role,
        version=build_version(),
        wire_version=formats.WIRE_VERSION,
        wire_oldest=formats.WIRE_VERSIONS_SPOKEN[0],
        clock=time.time(),
        certificate=ours.certificate_pem.decode(),
    )


# With a dot: a host name without one could be the name of another party, which it must not be.
DOTTED_HOST_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)+")


def general_name(host: str) -> x509.GeneralName:
    """Return an IP address or host name as certificates hold it; others are a ConfigError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not DOTTED_HOST_PATTERN.fullmatch(host):
        raise ConfigError(
            f"{host!r} is neither an IP address nor a host name with a dot",
            todo="leave it out: clients use the party's name, at any address",
        )
    return x509.DNSName(host)


def further_names(
    certificate: x509.Certificate, role: CertificateRole, name: str
) -> list[x509.GeneralName]:
    """Return the names in a certificate beside those of its owner."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    owners = set(own_names(role, name))
    return [further for further in names if further not in owners]


def own_names(role: CertificateRole, name: str) -> list[x509.GeneralName]:
    """Return the names that every certificate has, by its owner."""
    uri = x509.UniformResourceIdentifier(f"fedboost:{role}:{name}")
    return [x509.DNSName(name), uri]
