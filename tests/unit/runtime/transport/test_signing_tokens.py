"""A party signs with a key that never leaves its token; what is wrong with the token is said."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from fedboost.ground.errors import ConfigError, PeerError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.daemons.daemon import _signing_identity
from fedboost.runtime.policy.judgement import Signatures, Trust
from fedboost.runtime.transport import authority, certificates
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.identity import own_names
from fedboost.runtime.transport.signing_tokens import SigningToken, identity_in

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
pkcs11: Any = pytest.importorskip("pkcs11", reason="pip install python-pkcs11")
pytestmark = pytest.mark.skipif(
    not MODULE.exists() or shutil.which("softhsm2-util") is None,
    reason="SoftHSM is not installed: apt install softhsm2",
)
PIN = "12345678"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CA, and a token with a key `bank` of which it has signed the certificate."""
    made = tmp_path_factory.mktemp("token")
    (made / "tokens").mkdir()
    config = made / "softhsm2.conf"
    config.write_text(f"directories.tokendir = {made / 'tokens'}\nlog.level = ERROR\n")
    os.environ["SOFTHSM2_CONF"] = str(config)  # read once, where the library is loaded
    words = ["--init-token", "--free", "--label", "ours", "--pin", PIN, "--so-pin", PIN]
    subprocess.run(["softhsm2-util", *words], check=True, capture_output=True)
    authority.create_certificates(made, [Leaf("party", "bank")], Term(datetime.now(UTC)))
    token = pkcs11.lib(str(MODULE)).get_token(token_label="ours")
    with token.open(user_pin=PIN, rw=True) as session:
        for label in ("bank", "other"):
            curve = pkcs11.util.ec.encode_named_curve_parameters("secp256r1")
            parameters = session.create_domain_parameters(
                pkcs11.KeyType.EC, {pkcs11.Attribute.EC_PARAMS: curve}, local=True
            )
            public, _ = parameters.generate_keypair(store=True, label=label)
            der = pkcs11.util.ec.encode_ec_public_key(public)
            issue(made, f"{label}-signing", serialization.load_der_public_key(der))
    weak = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issue(made, "rsa", weak.public_key())
    issue(made, "telco", serialization.load_der_public_key(der), name="telco")
    yield made
    del os.environ["SOFTHSM2_CONF"]


@pytest.fixture(autouse=True)
def nobody_is_logged_in(folder):
    """A process logs in once to a token, whatever it opens later; here each test is the first."""
    pkcs11.lib(str(MODULE)).reinitialize()


def issue(folder, file, key, name="bank"):
    """The CA signs somebody's certificate for a key that it has not made."""
    ca, now = authority.read_signer(folder), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=9))
        .add_extension(
            x509.ExtendedKeyUsage(certificates.certificate_purposes("party")), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(own_names("party", name)), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    (folder / f"{file}.pem").write_bytes(certificates.certificate_pem(certificate))


def settings(folder, **changes):
    said = {"module": MODULE, "token": "ours", "pin": PIN, "key": "bank"}
    return SigningToken(**{**said, "cert": folder / "bank-signing.pem", **changes})


def test_what_a_token_signs_is_the_party_s_to_everybody_who_has_the_ca(folder):
    ca = (folder / "ca.pem").read_bytes()
    ours = identity_in(settings(folder), ca, "bank")
    trust = Trust(lambda: ours, Authorities(tls_of(folder, "bank")))
    signatures = Signatures(trust, insecure=False)
    signature = signatures.sign(b"a ledger's head")
    signatures.check("bank", b"a ledger's head", signature)
    with pytest.raises(PeerError, match="does not fit"):
        signatures.check("bank", b"another head", signature)
    assert PIN not in repr(settings(folder))


def test_a_daemon_signs_by_its_token_where_the_settings_name_one(folder):
    class Certificates:
        class current_pems:  # noqa: N801
            ca = (folder / "ca.pem").read_bytes()

        def fresh(self) -> Any:
            return "the key of TLS"

    class Config:
        name, signing = "bank", settings(folder)

    config: Any = Config()
    certificates: Any = Certificates()
    assert (
        _signing_identity(config, certificates)().certificate_pem
        == (folder / "bank-signing.pem").read_bytes()
    )
    config.signing = None
    of_tls: Any = _signing_identity(config, certificates)()
    assert of_tls == "the key of TLS"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"pin": "0000"}, "cannot be used"),
        ({"key": "nobody"}, "cannot be used"),
        ({"token": "theirs"}, "cannot be used"),
        ({"module": Path("/nowhere.so")}, "cannot be used"),
        ({"key": "other"}, "does not belong to the key"),
        ({"cert": "rsa.pem"}, "not ECDSA"),
        ({"cert": "telco.pem"}, "expected party bank"),
    ],
)
def test_a_token_that_does_not_fit_is_refused_by_its_fault(folder, changes, what):
    changes = {k: folder / v if k == "cert" else v for k, v in changes.items()}
    with pytest.raises(ConfigError, match=what) as refused:
        identity_in(settings(folder, **changes), (folder / "ca.pem").read_bytes(), "bank")
    assert PIN not in "".join(refused.value.lines())


def test_without_its_package_the_daemon_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(ConfigError, match="not installed"):
        identity_in(settings(folder), (folder / "ca.pem").read_bytes(), "bank")
