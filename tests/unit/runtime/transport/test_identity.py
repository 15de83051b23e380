"""Identities: every broken certificate and signature is refused for its reason."""

import ssl
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedboost.ground.errors import ConfigError, PeerError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.transport import authority, certificates
from fedboost.runtime.transport.certificates import Term
from fedboost.runtime.transport.identity import (
    CertificateRole,
    peer_from_auth_context,
    read_key,
)
from fedboost.runtime.transport.roots import Roots, verify_signature
from fedboost.runtime.transport.tls import TlsFiles, load_identity
from tests.support.certificates import LEAVES, NOW

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass
class Odd:
    """A certificate that the CA in a folder signs although it should not exist."""

    uris: tuple[str, ...] = ("fedboost:party:bank",)
    dns: tuple[str, ...] = ("bank",)
    usage: tuple[x509.ObjectIdentifier, ...] | None = (CLIENT, SERVER)
    start: datetime = NOW - timedelta(hours=1)
    end: datetime = NOW + timedelta(days=1)
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def write(self, folder: Path) -> TlsFiles:
        ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        ca_key = read_key((folder / "ca.key").read_bytes())
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in self.dns]
        names += [x509.UniformResourceIdentifier(uri) for uri in self.uris]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")]))
            .issuer_name(ca.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.start)
            .not_valid_after(self.end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        if self.usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(self.usage), critical=False)
        certificate = builder.sign(ca_key, hashes.SHA256())
        tls = tls_of(folder, "odd")
        tls.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        tls.key.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return tls


def test_the_wrong_ca_is_refused(certs, other_certs):
    tls = TlsFiles(ca=other_certs / "ca.pem", cert=certs / "bank.pem", key=certs / "bank.key")
    with pytest.raises(ConfigError, match="not signed by our CA") as caught:
        load_identity(tls)
    assert caught.value.where["file"] == str(certs / "bank.pem")


def test_a_self_signed_certificate_is_refused(certs):
    odd = Odd().write(certs)
    (certs / "solo").mkdir()
    authority.create_certificates(certs / "solo", LEAVES, Term(NOW))
    key = read_key(odd.key.read_bytes())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedboost development CA")])
    lone = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    odd.cert.write_bytes(lone.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ConfigError, match="not signed by our CA"):
        load_identity(odd)


def test_a_leaf_is_no_ca(certs):
    tls = TlsFiles(ca=certs / "coord.pem", cert=certs / "bank.pem", key=certs / "bank.key")
    with pytest.raises(ConfigError, match="may not sign others"):
        load_identity(tls)


def test_an_expired_certificate_is_refused_with_its_date(certs):
    odd = Odd(end=NOW - timedelta(minutes=1)).write(certs)
    with pytest.raises(ConfigError, match=f"expired on {NOW - timedelta(minutes=1):%Y-%m-%d}"):
        load_identity(odd)


def test_dates_count_to_the_second(certs):
    odd = Odd().write(certs)
    assert load_identity(odd, now=NOW + timedelta(days=1)).name == "bank"
    with pytest.raises(ConfigError, match="expired"):
        load_identity(odd, now=NOW + timedelta(days=1, seconds=1))


def test_a_certificate_of_tomorrow_is_refused_with_its_date(certs):
    odd = Odd(start=NOW + timedelta(hours=2)).write(certs)
    with pytest.raises(ConfigError, match=r"not valid before \d{4}-.*this machine's clock says"):
        load_identity(odd)


def test_an_expired_ca_is_refused(certs):
    later = NOW + timedelta(days=certificates.CA_DAYS, hours=1)
    odd = Odd(end=later + timedelta(days=1)).write(certs)
    with pytest.raises(ConfigError, match="has a CA that expired"):
        load_identity(odd, now=later)


def test_the_key_must_belong_to_the_certificate(certs):
    (certs / "bank.key").write_bytes((certs / "ana.key").read_bytes())
    with pytest.raises(ConfigError, match="does not belong to the key"):
        load_identity(tls_of(certs, "bank"))


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (lambda: rsa.generate_private_key(65537, 1024), "1024 bits, expected 2048"),
        (lambda: ec.generate_private_key(ec.SECP224R1()), "224 bits, expected 256"),
        (ed25519.Ed25519PrivateKey.generate, "neither ECDSA nor RSA"),
    ],
)
def test_weak_and_unknown_keys_are_refused_on_both_sides(certs, key, reason):
    odd = Odd(key=key()).write(certs)
    with pytest.raises(ConfigError, match=reason):
        load_identity(odd)
    with pytest.raises(PeerError, match=reason):
        peer_from_auth_context({"x509_pem_cert": [odd.cert.read_bytes()]})
    with pytest.raises(PeerError, match=reason):
        Roots(odd.ca.read_bytes()).verify(odd.cert.read_bytes())


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (Odd(uris=()), "0 URIs"),
        (Odd(uris=("fedboost:party:bank", "fedboost:coordinator:bank")), "2 URIs"),
        (Odd(uris=("fedboost:root:bank",)), "not fedboost:ROLE:NAME"),
        (Odd(uris=("fedboost:party:Bank",)), "not fedboost:ROLE:NAME"),
        (Odd(uris=("fedboost:party:bank:x",)), "not fedboost:ROLE:NAME"),
        (Odd(dns=("telco",)), "lacks the DNS name bank"),
        (Odd(usage=(SERVER,)), "may not be used by a client"),
        (Odd(usage=(CLIENT,)), "may not be used by a server"),
        (Odd(uris=("fedboost:user:ana",), usage=(CLIENT, SERVER)), "which only daemons may"),
        (Odd(uris=("fedboost:user:ana",), usage=None), "may not be used by a client"),
    ],
)
def test_a_certificate_without_clear_role_and_usage_is_refused(certs, odd, reason):
    with pytest.raises(ConfigError, match=reason):
        load_identity(odd.write(certs))


def test_an_rsa_identity_signs_too(certs):
    odd = Odd(key=rsa.generate_private_key(65537, 2048)).write(certs)
    ours = load_identity(odd)
    pem, ca = ours.certificate_pem, odd.ca.read_bytes()
    signature = ours.sign(b"manifest")
    assert verify_signature(pem, Roots(ca), ("party", "bank"), b"manifest", signature) == ours.peer
    with pytest.raises(PeerError, match="does not fit"):
        verify_signature(pem, Roots(ca), ("party", "bank"), b"another", signature)


def test_the_expected_role_and_name_are_checked(certs):
    with pytest.raises(ConfigError, match="expected a coordinator's"):
        load_identity(tls_of(certs, "bank"), role="coordinator")
    with pytest.raises(ConfigError, match="the settings call us telco"):
        load_identity(tls_of(certs, "bank"), name="telco")


@pytest.mark.parametrize("part", ["ca", "cert", "key"])
def test_a_missing_file_is_named(certs, part):
    tls = tls_of(certs, "bank")
    getattr(tls, part).unlink()
    with pytest.raises(ConfigError, match="cannot read") as caught:
        load_identity(tls)
    assert caught.value.where["file"] == str(getattr(tls, part))


@pytest.mark.parametrize("part", ["ca", "cert", "key"])
def test_a_file_that_is_not_pem_is_refused(certs, part):
    tls = tls_of(certs, "bank")
    getattr(tls, part).write_bytes(b"-----BEGIN NONSENSE-----\nAAAA\n-----END NONSENSE-----\n")
    with pytest.raises(ConfigError, match="PEM"):
        load_identity(tls)


# Object identifiers in DER; a certificate with the first one in place of the second says how its
# key is used twice.
USAGE, KEY_ID = b"\x06\x03\x55\x1d\x0f", b"\x06\x03\x55\x1d\x0e"


@pytest.mark.parametrize("part", ["ca", "cert"])
def test_a_certificate_with_a_part_that_cannot_be_read_is_refused(certs, part):
    tls = tls_of(certs, "bank")
    path = getattr(tls, part)
    sound = x509.load_pem_x509_certificate(path.read_bytes())
    data = sound.public_bytes(serialization.Encoding.DER).replace(KEY_ID, USAGE)
    twice = x509.load_der_x509_certificate(data)
    path.write_bytes(twice.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ConfigError, match=r"cannot be read|not PEM"):
        load_identity(tls)


@pytest.mark.parametrize("part", ["ca", "cert"])
def test_a_certificate_of_no_version_is_refused(certs, part):
    tls = tls_of(certs, "bank")
    path = getattr(tls, part)
    data = ssl.PEM_cert_to_DER_cert(path.read_text())
    head = data.index(b"\xa0\x03\x02\x01\x02")  # the version's tag, and 2 for X.509 v3
    path.write_text(ssl.DER_cert_to_PEM_cert(data[: head + 4] + b"\x07" + data[head + 5 :]))
    with pytest.raises(ConfigError, match="PEM"):
        load_identity(tls)


def test_signatures_are_bound_to_name_role_ca_and_content(certs, other_certs):
    ours = load_identity(tls_of(certs, "bank"))
    ca = (certs / "ca.pem").read_bytes()
    signature = ours.sign(b"manifest")
    assert (
        verify_signature(ours.certificate_pem, Roots(ca), ("party", "bank"), b"manifest", signature)
        == ours.peer
    )
    odd: list[tuple[str, CertificateRole, bytes, bytes, str]] = [
        ("telco", "party", b"manifest", signature, "expected a signature of party telco"),
        ("bank", "user", b"manifest", signature, "expected a signature of user bank"),
        ("bank", "party", b"manifes", signature, "does not fit"),
        ("bank", "party", b"manifest", signature[:-1], "does not fit"),
        ("bank", "party", b"manifest", b"", "does not fit"),
    ]
    for name, role, data, claimed, reason in odd:
        with pytest.raises(PeerError, match=reason):
            verify_signature(ours.certificate_pem, Roots(ca), (role, name), data, claimed)
    other_ca = (other_certs / "ca.pem").read_bytes()
    with pytest.raises(PeerError, match="not signed by our CA"):
        verify_signature(
            ours.certificate_pem, Roots(other_ca), ("party", "bank"), b"manifest", signature
        )


def test_a_signature_is_kept_apart_from_other_uses_of_the_key(certs):
    key = read_key((certs / "bank.key").read_bytes())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    bare = key.sign(b"manifest", ec.ECDSA(hashes.SHA256()))
    pem, roots = (certs / "bank.pem").read_bytes(), Roots((certs / "ca.pem").read_bytes())
    with pytest.raises(PeerError, match="does not fit"):
        verify_signature(pem, roots, ("party", "bank"), b"manifest", bare)


def test_the_caller_is_who_the_certificate_says(certs):
    pem = (certs / "bank.pem").read_bytes()
    context = {
        "transport_security_type": [b"ssl"],
        "x509_pem_cert": [pem],
        # gRPC's own list does not count: here it claims somebody else.
        "x509_subject_alternative_name": [b"fedboost:party:telco"],
    }
    assert peer_from_auth_context(context) == load_identity(tls_of(certs, "bank")).peer


@pytest.mark.parametrize(
    "context",
    [{}, {"x509_pem_cert": []}, {"x509_pem_cert": [b""]}, {"x509_pem_cert": [b"x" * 99999]}],
)
def test_a_caller_without_a_certificate_is_refused(context):
    with pytest.raises(PeerError, match="certificate"):
        peer_from_auth_context(context)
