"""Certificates and CAs that follow one another: at no moment does somebody who may not count."""

import asyncio

import pytest

from fedboost.ground import disk
from fedboost.ground.errors import ConfigError, PeerError, UnreachableError
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.policy.judgement import signer_at
from fedboost.runtime.transport import authority, ca_rotation, channel
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.roots import Roots
from fedboost.runtime.transport.tls import ServerCertificates, load_identity
from tests.support.certificates import LEAVES, NOW

NAMES = ("coord", "bank", "ana")


def ca(folder):
    return (folder / "ca.pem").read_bytes()


def all_count(folder):
    """Whether everybody's certificate counts with what the folder's ca.pem says now."""
    for name in NAMES:
        load_identity(tls_of(folder, name))
    return True


def test_a_new_ca_signs_while_the_old_one_still_counts(certs):
    old = ca(certs)
    before = (certs / "bank.pem").read_bytes()
    ca_rotation.add_new_ca(certs, NOW)
    assert all_count(certs)
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    assert all_count(certs)
    after = (certs / "bank.pem").read_bytes()
    assert Roots(ca(certs)).verify(before).name == "bank"
    with pytest.raises(PeerError, match="not signed"):
        Roots(old).verify(after)


def test_the_old_ca_retires_once_nobody_needs_it(certs):
    signed = load_identity(tls_of(certs, "bank"))
    text = signed.certificate_pem + b"\0" + signed.sign(b"a head of then")
    ca_rotation.add_new_ca(certs, NOW)
    authority.rotate_certificates(certs, ["bank", "coord"], Term(NOW))
    with pytest.raises(ConfigError, match="certificates of the old CA are in use: ana") as error:
        ca_rotation.retire_old_cas(certs)
    assert error.value.todo == "fedboost certs rotate ana"
    authority.rotate_certificates(certs, ["ana"], Term(NOW))
    assert ca_rotation.retire_old_cas(certs) == 1
    assert all_count(certs)
    with pytest.raises(PeerError):
        Roots(ca(certs)).verify(signed.certificate_pem)
    roots = tls_of(certs, "bank").read_all_roots()
    signer_at(roots, "bank", b"a head of then", text, NOW)
    assert ca_rotation.retire_old_cas(certs) == 0, "once more does no harm"


def test_one_change_of_cas_ends_before_the_next_begins(certs):
    ca_rotation.add_new_ca(certs, NOW)
    with pytest.raises(ConfigError, match=r"ca\.pem holds 2 CAs already"):
        ca_rotation.add_new_ca(certs, NOW)


def test_who_is_revoked_stays_so_under_the_next_ca_and_needs_no_certificate_for_it(certs):
    peer = load_identity(tls_of(certs, "ana")).peer
    authority.revoke_certificates(certs, "ana", NOW)
    ca_rotation.add_new_ca(certs, NOW)
    revocations = Authorities(tls_of(certs, "bank"))
    with pytest.raises(UnreachableError, match="ana has been revoked"):
        revocations.refuse_revoked(peer)
    authority.rotate_certificates(certs, ["bank", "coord"], Term(NOW))
    assert ca_rotation.retire_old_cas(certs) == 1
    with pytest.raises(UnreachableError, match="ana has been revoked"):
        revocations.refuse_revoked(peer)


@pytest.mark.parametrize("written", [1, 2, 3])
def test_a_crash_between_two_files_leaves_a_folder_that_signs(certs, monkeypatch, written):
    class PowerCutError(Exception):
        """Nothing more is written."""

    left = [written]
    real = disk.write_file

    def write(*args):
        if not left[0]:
            raise PowerCutError
        left[0] -= 1
        real(*args)

    for module in (ca_rotation, authority):
        monkeypatch.setattr(module, "write_file", write)
    try:
        ca_rotation.add_new_ca(certs, NOW)
    except PowerCutError:
        assert written < 3
    monkeypatch.undo()
    assert all_count(certs)
    authority.rotate_certificates(certs, NAMES, Term(NOW))
    assert all_count(certs)
    Authorities(tls_of(certs, "bank")).refuse_revoked(load_identity(tls_of(certs, "ana")).peer)
    ca_rotation.retire_old_cas(certs)
    assert all_count(certs)


def test_what_rotations_have_replaced_can_be_revoked_alone(certs):
    old = load_identity(tls_of(certs, "bank")).peer
    assert authority.revoke_certificates(certs, "bank", NOW, superseded=True) == 0
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    assert authority.revoke_certificates(certs, "bank", NOW, superseded=True) == 1
    revocations = Authorities(tls_of(certs, "coord"))
    revocations.refuse_revoked(load_identity(tls_of(certs, "bank")).peer)
    with pytest.raises(UnreachableError, match="party bank has been revoked") as error:
        revocations.refuse_revoked(old)
    assert error.value.where == {"party": "bank"}


def test_the_lists_of_two_cas_may_stand_in_one_file(certs, tmp_path):
    other = tmp_path / "other"
    authority.create_certificates(other, LEAVES, Term(NOW))
    peers = [load_identity(tls_of(folder, "ana")).peer for folder in (certs, other)]
    for folder in (certs, other):
        authority.revoke_certificates(folder, "ana", NOW)
    lists = (certs / "ca.crl").read_bytes() + (other / "ca.crl").read_bytes()
    (certs / "ca.pem").write_bytes(ca(certs) + ca(other))
    (certs / "ca.crl").write_bytes(lists)
    revocations = Authorities(tls_of(certs, "bank"))
    for peer in peers:
        with pytest.raises(UnreachableError, match="revoked"):
            revocations.refuse_revoked(peer)
    (certs / "ca.pem").write_bytes(ca(certs)[: len(ca(certs)) // 2])
    (certs / "ca.crl").write_bytes(lists + b"\n")
    with pytest.raises(UnreachableError, match="all callers of its CA are refused"):
        revocations.refuse_revoked(peers[0])


# Daemons and commands that run


def test_a_server_is_given_a_new_certificate_once_whoever_has_looked_first(certs):
    server = ServerCertificates(tls_of(certs, "bank"), role="party", name="bank")
    server.initial_configuration()
    assert server() is None
    authority.rotate_certificates(certs, ["bank"], Term(NOW))
    first = server.fresh().peer.serial
    assert first == load_identity(tls_of(certs, "bank")).peer.serial
    assert server() is not None
    assert server() is None


def test_files_that_do_not_fit_are_complained_of_once(certs, caplog):
    server = ServerCertificates(tls_of(certs, "bank"))
    before = server.identity
    (certs / "bank.key").write_bytes((certs / "coord.key").read_bytes())
    for _ in range(5):
        assert server.fresh() == before
    assert len(caplog.records) == 1


class Channel:
    """A channel that knows whether it is open."""

    is_open = True

    async def close(self):
        self.is_open = False


class Dialling(Dialer):
    """Opens channels of ours, after it has looked at the files as always."""

    def _open(self, name, address):
        super()._open(name, address)
        return Channel()


async def test_calls_under_way_end_on_the_old_channel_and_later_ones_show_the_new_certificate(
    certs, monkeypatch
):
    moment = [0.0]
    monkeypatch.setattr(channel, "monotonic_s", lambda: moment[0])
    dialer = Dialling(tls_of(certs, "bank"), Timers())
    telco, shop = ("telco", "127.0.0.1:9"), ("shop", "127.0.0.1:9")
    with dialer.open_channel(*telco) as first, dialer.open_channel(*shop) as idle:
        pass
    with dialer.open_channel(*telco) as again:
        assert again is first
        authority.rotate_certificates(certs, ["bank"], Term(NOW))
        with dialer.open_channel(*telco) as soon:
            assert soon is first, "the files have been looked at just now"
        moment[0] += channel.LOOKED_AGAIN_S
        with dialer.open_channel(*telco) as second:
            assert second is not first
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert first.is_open, "a call uses it"
        assert not idle.is_open
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not first.is_open
    assert second.is_open
    await dialer.close()
    assert not second.is_open


async def test_a_new_ca_beside_the_old_one_reaches_links_as_well(certs):
    dialer = Dialling(tls_of(certs, "bank"), Timers())
    with dialer.open_channel("telco", "127.0.0.1:9") as first:
        pass
    ca_rotation.add_new_ca(certs, NOW)
    with dialer.open_channel("telco", "127.0.0.1:9") as second:
        assert second is not first
    await dialer.close()
