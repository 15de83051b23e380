"""A CA that is not ours signs what `certs request` writes, with OpenSSL's own commands."""

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from fedboost.cli.groups import cli
from fedboost.ground.errors import ConfigError
from fedboost.runtime.transport.certificate_requests import write_request
from fedboost.runtime.transport.certificates import Leaf
from fedboost.runtime.transport.tls import TlsFiles, load_identity

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")


def openssl(*args):
    subprocess.run([str(OPENSSL), *map(str, args)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A CA of somebody's own."""
    folder = tmp_path_factory.mktemp("ca")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 30, "-subj", "/CN=Theirs",
            "-keyout", folder / "ca.key", "-out", folder / "ca.pem")  # fmt: skip
    return folder


def signed(foreign, folder, name):
    own = folder / f"{name}.pem"
    openssl("x509", "-req", "-in", folder / f"{name}.csr", "-copy_extensions", "copyall",
            "-days", 9, "-CA", foreign / "ca.pem", "-CAkey", foreign / "ca.key",
            "-out", own)  # fmt: skip
    return TlsFiles(ca=foreign / "ca.pem", cert=own, key=folder / f"{name}.key")


@pytest.mark.parametrize(
    ("role", "name"), [("party", "bank"), ("coordinator", "coord"), ("user", "ana")]
)
def test_a_foreign_ca_signs_a_request_as_it_is(foreign, tmp_path, role, name):
    write_request(tmp_path, Leaf(role, name), ["bank.example", "10.0.0.7"])
    identity = load_identity(signed(foreign, tmp_path, name), role=role, name=name)
    assert str(identity.peer) == f"{role} {name}"
    assert (tmp_path / f"{name}.key").stat().st_mode & 0o077 == 0


def test_a_second_request_is_by_the_key_that_is_there(foreign, tmp_path):
    write_request(tmp_path, Leaf("party", "bank"))
    first = load_identity(signed(foreign, tmp_path, "bank"))
    key = (tmp_path / "bank.key").read_bytes()
    write_request(tmp_path, Leaf("party", "bank"))
    assert (tmp_path / "bank.key").read_bytes() == key
    again = load_identity(signed(foreign, tmp_path, "bank"))
    assert again.peer.serial != first.peer.serial


def test_the_command_says_where_the_request_is(tmp_path):
    args = ["certs", "request", "--role", "party", "--out", str(tmp_path), "bank"]
    said = CliRunner().invoke(cli, args)
    assert said.output.startswith(f"{tmp_path / 'bank.csr'}: send it to the CA")


def test_bad_names_hosts_and_keys_are_refused(tmp_path):
    for leaf, hosts, what in (
        (Leaf("party", "Bank"), (), "is not a name"),
        (Leaf("party", "ca"), (), "own file"),
        (Leaf("party", "bank"), ("nodot",), "neither an IP address"),
    ):
        with pytest.raises(ConfigError, match=what):
            write_request(tmp_path, leaf, hosts)
    (tmp_path / "bank.key").write_text("no key")
    with pytest.raises(ConfigError, match="no unencrypted PEM key"):
        write_request(tmp_path, Leaf("party", "bank"))
