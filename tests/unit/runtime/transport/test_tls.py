"""Certificates from the CA to the daemon: made, rotated under it, revoked, never shown."""

import base64
import shutil
import stat
from datetime import timedelta

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedboost.cli.groups import certs_group
from fedboost.ground.errors import ConfigError, UnreachableError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.tls import ServerCertificates, load_identity
from tests.support.certificates import LEAVES, NOW

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def test_created_certificates_carry_role_and_name(certs):
    for role, name in LEAVES:
        ours = load_identity(tls_of(certs, name), role=role, name=name)
        assert (ours.role, ours.name) == (role, name)
        assert str(ours.peer) == f"{role} {name}"


def test_keys_are_readable_by_their_owner_only(certs):
    for path in certs.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_only_daemons_may_serve(certs):
    for role, name in LEAVES:
        certificate = x509.load_pem_x509_certificate((certs / f"{name}.pem").read_bytes())
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert CLIENT in usage
        assert (SERVER in usage) == (role != "user")


def test_creating_again_adds_what_is_missing_and_overwrites_nothing(certs):
    before = {path.name: path.read_bytes() for path in certs.iterdir() if path.stem != "issued"}
    made = authority.create_certificates(certs, [*LEAVES, Leaf("party", "telco")], Term(NOW))
    assert made == {"ca": False, "coord": False, "bank": False, "ana": False, "telco": True}
    for name, content in before.items():
        assert (certs / name).read_bytes() == content
    assert load_identity(tls_of(certs, "telco")).name == "telco"


@pytest.mark.parametrize("name", ["", "Bank", "1bank", "ba_nk", "bank\n", "../x", "b" * 64, "bänk"])
def test_odd_names_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="is not a name"):
        authority.create_certificates(tmp_path / "certs", [Leaf("party", name)], Term(NOW))
    assert not (tmp_path / "certs").exists()


def test_the_ca_cannot_be_overwritten_by_a_leaf_of_its_name(certs):
    with pytest.raises(ConfigError, match=r"ca\.pem is the CA's own"):
        authority.create_certificates(certs, [Leaf("party", "ca")], Term(NOW))


def test_one_name_has_one_role(certs):
    with pytest.raises(ConfigError, match="bank is already a party"):
        authority.create_certificates(certs, [Leaf("user", "bank")], Term(NOW))
    with pytest.raises(ConfigError, match="at once"):
        authority.create_certificates(certs, [Leaf("user", "eve"), Leaf("party", "eve")], Term(NOW))


@pytest.mark.parametrize(
    ("name", "todo"),
    [("bank", "remove it, then create again"), ("ca", "put the other file back")],
)
def test_half_a_pair_is_not_completed(certs, name, todo):
    (certs / f"{name}.key").unlink()
    with pytest.raises(ConfigError, match="only one is there") as refused:
        authority.create_certificates(certs, LEAVES, Term(NOW))
    assert refused.value.todo == todo


def test_a_host_name_cannot_be_another_partys_name(tmp_path):
    with pytest.raises(ConfigError, match="host name with a dot"):
        authority.create_certificates(tmp_path, LEAVES, Term(NOW, hosts=("telco",)))


def test_hosts_become_alternative_names_and_survive_rotation(tmp_path):
    term = Term(NOW, hosts=("10.0.0.1", "bank.example.org"))
    authority.create_certificates(tmp_path, LEAVES, term)
    authority.rotate_certificates(tmp_path, ["bank"], Term(NOW))
    certificate = x509.load_pem_x509_certificate((tmp_path / "bank.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["bank", "bank.example.org"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


def test_a_leaf_cannot_outlive_its_ca(certs):
    with pytest.raises(ConfigError, match="the CA itself ends"):
        authority.create_certificates(
            certs, [Leaf("party", "telco")], Term(NOW + timedelta(days=3600))
        )


def test_nothing_shows_a_key(certs):
    tls = tls_of(certs, "bank")
    shown = repr(load_identity(tls)) + repr(tls.read()) + repr(ServerCertificates(tls).__dict__)
    for line in tls.key.read_text().splitlines():
        assert line not in shown
    assert "PrivateKey" not in shown


def test_a_server_takes_up_a_rotated_certificate(certs):
    server = ServerCertificates(tls_of(certs, "bank"), role="party", name="bank")
    old = server.identity.peer
    assert not server.reload()
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    assert server.reload()
    assert server.identity.peer.fingerprint != old.fingerprint
    assert not server.reload()


def test_a_server_keeps_its_certificate_while_a_rotation_is_half_done(certs, tmp_path):
    server = ServerCertificates(tls_of(certs, "bank"))
    old = server.identity.peer
    former = (certs / "bank.pem").read_bytes()
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    fresh = (certs / "bank.pem").read_bytes()
    (certs / "bank.pem").write_bytes(former)  # the key is new, the certificate is not yet
    assert not server.reload()
    assert server.identity.peer == old
    (certs / "bank.pem").write_bytes(fresh)
    assert server.reload()
    assert server.identity.peer != old


def test_a_server_never_takes_up_another_partys_certificate(certs):
    server = ServerCertificates(tls_of(certs, "bank"), role="party", name="bank")
    for ending in ("pem", "key"):
        (certs / f"bank.{ending}").write_bytes((certs / f"coord.{ending}").read_bytes())
    assert not server.reload()
    assert server.identity.name == "bank"


def test_a_revoked_certificate_is_refused_until_rotated(certs):
    tls = tls_of(certs, "bank")
    revocations = Authorities(tls)
    revocations.refuse_revoked(load_identity(tls).peer)
    assert authority.revoke_certificates(certs, "bank", NOW) == 1
    with pytest.raises(UnreachableError, match="party bank has been revoked"):
        revocations.refuse_revoked(load_identity(tls).peer)
    revocations.refuse_revoked(load_identity(tls_of(certs, "coord")).peer)
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    revocations.refuse_revoked(load_identity(tls).peer)
    with pytest.raises(ConfigError, match="cannot read"):
        authority.revoke_certificates(certs, "nobody", NOW)


def test_revoking_reaches_certificates_that_were_rotated_away(certs):
    tls = tls_of(certs, "bank")
    first = load_identity(tls).peer
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    assert authority.revoke_certificates(certs, "bank", NOW) == 2
    with pytest.raises(UnreachableError, match="revoked"):
        Authorities(tls).refuse_revoked(first)
    with pytest.raises(ConfigError, match="already revoked"):
        authority.revoke_certificates(certs, "bank", NOW)


def test_without_a_revocation_list_nobody_is_revoked(certs):
    (certs / "ca.crl").unlink()
    tls = tls_of(certs, "bank")
    authorities = Authorities(tls)
    authorities.refuse_revoked(load_identity(tls).peer)
    authority.revoke_certificates(certs, "bank", NOW)
    with pytest.raises(UnreachableError, match="revoked"):
        authorities.refuse_revoked(load_identity(tls).peer)


def test_a_list_that_vanishes_or_is_not_our_cas_lets_nobody_in(certs, other_certs):
    tls = tls_of(certs, "bank")
    peer = load_identity(tls).peer
    revocations = Authorities(tls)
    whole = tls.ca.with_suffix(".crl").read_bytes()
    tls.ca.with_suffix(".crl").unlink()
    with pytest.raises(UnreachableError, match="all callers of its CA are refused"):
        revocations.refuse_revoked(peer)
    data = x509.load_pem_x509_crl(whole).public_bytes(serialization.Encoding.DER)
    data = data.replace(b"\x02\x01\x01", b"\x02\x01\x07", 1)  # the version, 1 for X.509 v2
    lines = base64.encodebytes(data)
    odd = b"-----BEGIN X509 CRL-----\n" + lines + b"-----END X509 CRL-----\n"
    for broken in (b"", whole[:-60], odd, (other_certs / "ca.crl").read_bytes()):
        tls.ca.with_suffix(".crl").write_bytes(broken)
        with pytest.raises(UnreachableError, match="all callers of its CA are refused"):
            revocations.refuse_revoked(peer)
    tls.ca.with_suffix(".crl").write_bytes(whole)
    revocations.refuse_revoked(peer)


def test_the_commands_make_rotate_revoke_and_show(tmp_path):
    out = str(tmp_path / "certs")

    def run(*args):
        done = CliRunner().invoke(certs_group, [args[0], "--out", out, *args[1:]])
        assert done.exception is None, done.output
        return done.output

    everybody = [
        "--coordinator",
        "coord",
        "--party",
        "bank",
        "--aggregator",
        "sum",
        "--user",
        "ana",
    ]
    assert run("create", *everybody).count("made") == 5
    assert run("create", *everybody, "--party", "telco").count("kept as it is") == 5
    assert load_identity(tls_of(tmp_path / "certs", "sum"), role="party").name == "sum"
    run("rotate", "bank", "telco")
    assert "2 certificate(s) of bank" in run("revoke", "bank")
    shown = run("show")
    assert shown.count("revoked") == 2
    assert "365 days" in shown
    with pytest.raises(ConfigError, match="no name was given"):
        CliRunner().invoke(certs_group, ["create", "--out", out], catch_exceptions=False)


def test_a_second_revocation_keeps_the_first(certs):
    peers = [load_identity(tls_of(certs, name)).peer for name in ("bank", "ana")]
    for peer in peers:
        authority.revoke_certificates(certs, peer.name, NOW)
    for peer in peers:
        with pytest.raises(UnreachableError, match="revoked"):
            Authorities(tls_of(certs, "coord")).refuse_revoked(peer)


def test_a_pem_with_a_byte_order_mark_is_read_and_one_in_a_line_is_named(certs, tmp_path):
    files = tls_of(shutil.copytree(certs, tmp_path / "copies"), "bank")
    pem = files.cert.read_bytes()
    for path in (files.ca, files.cert, files.key):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_identity(files).name == "bank"
    files.cert.write_bytes(pem.replace(b"\n", b" "))
    with pytest.raises(ConfigError, match="PEM in one line") as refused:
        load_identity(files)
    assert "line breaks" in refused.value.todo
