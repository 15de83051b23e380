"""Certificates of daemons and users, signed by a CA with its key here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedboost.runtime.transport.identity import CertificateRole, own_names

CA_DAYS = 3650
SKEW = timedelta(minutes=5)  # clocks of two machines may differ by this much


class Leaf(NamedTuple):
    """Role and name of a certificate's owner."""

    role: CertificateRole
    name: str


@dataclass(frozen=True)
class Term:
    """Start and number of days of validity; `hosts` are further DNS names and IP addresses."""

    now: datetime
    days: int = 365
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class CertificateAuthority:
    """A CA that signs: its certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key."""
    return ec.generate_private_key(ec.SECP256R1())


def new_signer(common_name: str, now: datetime) -> CertificateAuthority:
    """Return a new CA."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _certificate_builder(name, key.public_key(), now, CA_DAYS).issuer_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_others=True), critical=True)
    return CertificateAuthority(builder.sign(key, hashes.SHA256()), key)


def signed_certificate(
    signer: CertificateAuthority,
    leaf: Leaf,
    key: ec.EllipticCurvePublicKey,
    term: Term,
    hosts: Iterable[x509.GeneralName],
) -> x509.Certificate:
    """Return the certificate of a key, for a term and these further names."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, leaf.name)])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    alternative = x509.SubjectAlternativeName([*own_names(*leaf), *hosts])
    return (
        _certificate_builder(subject, key, term.now, term.days)
        .issuer_name(signer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_others=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(certificate_purposes(leaf.role)), critical=False)
        .add_extension(alternative, critical=False)
        .add_extension(authority, critical=False)
        .sign(signer.key, hashes.SHA256())
    )


def certificate_purposes(role: CertificateRole) -> list[x509.ObjectIdentifier]:
    """Return the purposes of a certificate: a user calls, a daemon also serves."""
    serves = [] if role == "user" else [ExtendedKeyUsageOID.SERVER_AUTH]
    return [ExtendedKeyUsageOID.CLIENT_AUTH, *serves]


def _certificate_builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def revocation_list(signer: CertificateAuthority, serials: Iterable[int], now: datetime) -> bytes:
    """Return the list of revoked serial numbers, signed by this CA, in PEM."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.certificate.subject)
        .last_update(now)
        .next_update(signer.certificate.not_valid_after_utc)
    )
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM, unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
