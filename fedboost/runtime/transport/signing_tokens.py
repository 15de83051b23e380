"""Keys in PKCS#11 tokens for a party's signatures of jobs and its ledger.

They do not serve TLS: gRPC's Python credentials accept only private keys as PEM bytes. So a party
has two certificates of its name, and the one on disk only opens connections.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from pydantic import Field

from fedboost.ground.disk import read_file
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.settings import Settings, optional_library
from fedboost.runtime.transport.identity import (
    CertificateFaultError,
    Identity,
    check_certificate,
    check_signature,
    read_certificate,
    read_roots,
)
from fedboost.runtime.transport.tls import FilePath


class SigningToken(Settings):
    """A key in a PKCS#11 token that signs a party's jobs and ledger."""

    module: FilePath  # the token's library, such as /usr/lib/softhsm/libsofthsm2.so
    token: str  # its label
    pin: str = Field(repr=False)  # as ${file:/path} or ${env:NAME}
    key: str  # label of the private key: ECDSA on P-256 or larger
    cert: FilePath  # PEM: its certificate, of the same name and CA as tls.cert


def identity_in(token: SigningToken, ca_pem: bytes, name: str) -> Identity:
    """Return the signing identity of the party `name`; its key never leaves the token.

    Raise ConfigError if the extra `pkcs11` is not installed, if the token or its key is missing, or
    if the certificate does not belong to the key and the party.
    """
    pem = read_file(token.cert)
    try:
        certificate = read_certificate(pem)
        peer = check_certificate(certificate, read_roots(ca_pem), datetime.now(UTC))
        if (peer.role, peer.name) != ("party", name):
            raise CertificateFaultError(f"is {peer}'s, expected party {name}'s")
        if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
            raise CertificateFaultError("has a key that is not ECDSA")
        ours = Identity(peer, pem, certificate.not_valid_after_utc, _token_signer(token))
        check_signature(pem, peer, b"", ours.sign(b""))
    except CertificateFaultError as fault:
        raise ConfigError(
            f"the certificate {fault}", file=str(token.cert), todo="check signing.cert"
        ) from None
    except PeerError:
        raise ConfigError(
            "the certificate does not belong to the key in the token",
            file=str(token.cert),
            todo="check signing.key and signing.cert",
        ) from None
    return ours


def _token_signer(token: SigningToken) -> Callable[[bytes], bytes]:
    """Return a function that signs a text with the token's key: ECDSA (DER) with SHA-256."""
    pkcs11 = optional_library("pkcs11", "signing", "pkcs11")
    try:
        slot = pkcs11.lib(str(token.module)).get_token(token_label=token.token)
        session = slot.open(user_pin=token.pin)
        key: Any = session.get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=token.key)
    except (pkcs11.PKCS11Error, RuntimeError) as error:
        raise ConfigError(
            f"the key {token.key} in the token {token.token} cannot be used: "
            f"{type(error).__name__}",
            todo="check module, token, pin and key of `signing`",
            key="signing",
        ) from None
    one_at_a_time = threading.Lock()

    def sign_with_token(text: bytes) -> bytes:
        digest = hashlib.sha256(text).digest()
        with one_at_a_time:
            raw: bytes = key.sign(digest, mechanism=pkcs11.Mechanism.ECDSA)
        half = len(raw) // 2
        return encode_dss_signature(*(int.from_bytes(n) for n in (raw[:half], raw[half:])))

    return sign_with_token
