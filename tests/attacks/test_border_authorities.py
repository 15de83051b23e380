"""Certificates of somebody else's name: the CA of one organisation signs a name of another.

Bank, telco and the coordinator's owner each have a CA. All links are real TLS.
"""

import asyncio
from datetime import UTC, datetime

import pytest

from fedboost.ground.errors import FedboostError, PeerError, UnreachableError
from fedboost.messages import job_pb2, party_pb2, party_pb2_grpc
from fedboost.runtime.cluster.local import tls_of
from fedboost.runtime.policy.judgement import Signatures, Trust
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server
from fedboost.runtime.transport.tls import ServerCertificates, load_identity
from tests.support.listener import Listener

NOW = datetime.now(UTC).replace(microsecond=0)
TIMERS = Timers(call_s=5.0)
LEAVES = {  # by owner of a CA
    "bank": [Leaf("party", "bank"), Leaf("user", "bob")],
    "telco": [Leaf("party", "telco"), Leaf("user", "tim")],
    "club": [Leaf("coordinator", "coord"), Leaf("user", "ana")],
}
FORGED = [  # names of others, by telco's CA
    Leaf("user", "bob"),  # who approves at bank
    Leaf("user", "ana"),  # who submits
    Leaf("party", "bank"),
    Leaf("coordinator", "coord"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of certificates for each CA; in `forged` telco's CA has signed others' names."""
    found = {}
    for owner, leaves in LEAVES.items():
        found[owner] = tmp_path_factory.mktemp(owner)
        authority.create_certificates(found[owner], leaves, Term(NOW))
    found["forged"] = tmp_path_factory.mktemp("forged")
    for name in ("ca.pem", "ca.key", "ca.crl"):
        if (found["telco"] / name).exists():
            (found["forged"] / name).write_bytes((found["telco"] / name).read_bytes())
    authority.create_certificates(found["forged"], FORGED, Term(NOW))
    return found


@pytest.fixture
def files_of(folders, tmp_path):
    """The files of an owner that trusts all three CAs, each for its names or for everybody."""

    def made(owner, name, *, pinned):
        ours = tls_of(folders[owner], name)
        if pinned:
            return ours.with_pins(
                {
                    (leaf.role, leaf.name): folders[other] / "ca.pem"
                    for other, leaves in LEAVES.items()
                    for leaf in leaves
                    if other != owner
                }
            )
        every = b"".join((folders[other] / "ca.pem").read_bytes() for other in LEAVES)
        (tmp_path / "ca.pem").write_bytes(every)
        return ours.model_copy(update={"ca": tmp_path / "ca.pem"})

    return made


def call(server_files, name, caller_files):
    """Who a daemon says has called, or the error that the caller gets."""
    node = Listener()

    async def run():
        gate = CallerGate(Authorities(server_files))
        server, port = bind_server(ServerCertificates(server_files), "127.0.0.1:0", TIMERS)
        service = party_pb2.DESCRIPTOR.services_by_name["Party"]
        servicer = Servicer(node, gate, service)
        party_pb2_grpc.add_PartyServicer_to_server(servicer, server)
        await server.start()
        dialer = Dialer(caller_files, TIMERS)
        try:
            await dialer.call(
                (name, f"127.0.0.1:{port}"),
                lambda channel: party_pb2_grpc.PartyStub(channel).Hello(
                    job_pb2.HelloRequest(), timeout=5.0
                ),
            )
        finally:
            await dialer.close()
            await server.stop(0)

    try:
        asyncio.run(run())
    except FedboostError as error:
        return error
    return node.callers


NAMES = [leaf.name for leaf in FORGED]


@pytest.mark.parametrize("name", NAMES)
def test_a_ca_certifies_no_name_of_another_organisation(folders, files_of, name):
    bank, forged = files_of("bank", "bank", pinned=True), tls_of(folders["forged"], name)
    forged = forged.with_pins({("party", "bank"): folders["bank"] / "ca.pem"})
    said = call(bank, "bank", forged)
    assert isinstance(said, PeerError)
    assert f"{name} is signed by the CA of" in said.what
    assert "telco" in said.what


@pytest.mark.parametrize("name", NAMES)
def test_a_ca_certifies_any_name_where_all_cas_stand_in_one_file(folders, files_of, name):
    bank, forged = files_of("bank", "bank", pinned=False), tls_of(folders["forged"], name)
    forged = forged.with_pins({("party", "bank"): folders["bank"] / "ca.pem"})
    [caller] = call(bank, "bank", forged)
    assert caller.endswith(f" {name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_pinned_ca_in_the_common_file_certifies_its_names_alone(
    folders, files_of, tmp_path, name
):
    common = files_of("bank", "bank", pinned=False)
    bank = common.with_pins({("party", "telco"): folders["telco"] / "ca.pem"})
    forged = tls_of(folders["forged"], name)
    forged = forged.with_pins({("party", "bank"): folders["bank"] / "ca.pem"})
    assert isinstance(call(bank, "bank", forged), PeerError)


@pytest.mark.parametrize(
    ("owner", "name"), [("telco", "telco"), ("club", "coord"), ("bank", "bob")]
)
def test_everybody_comes_in_by_its_own_ca(folders, files_of, owner, name):
    bank, caller = files_of("bank", "bank", pinned=True), files_of(owner, name, pinned=True)
    [heard] = call(bank, "bank", caller)
    assert heard.endswith(f" {name}")


def test_a_daemon_of_another_cas_certificate_is_not_called(folders, files_of):
    false_bank = tls_of(folders["forged"], "bank")
    caller = files_of("telco", "telco", pinned=True)
    assert isinstance(call(false_bank, "bank", caller), UnreachableError)


def test_a_daemon_of_another_cas_certificate_is_called_where_all_cas_stand_in_one_file(
    folders, files_of
):
    false_bank = tls_of(folders["forged"], "bank")
    caller = files_of("telco", "telco", pinned=False)
    assert call(false_bank, "bank", caller) == ["party telco"]


def signed_by_false_bank(folders):
    trust = Trust.of_files(tls_of(folders["forged"], "bank"), "bank")
    return Signatures(trust, insecure=False).sign(b"a job")


def signatures_of_club(files):
    ours = load_identity(files)
    return Signatures(Trust(lambda: ours, Authorities(files)), insecure=False)


def test_a_signature_by_another_cas_certificate_does_not_count(folders, files_of):
    club = signatures_of_club(files_of("club", "coord", pinned=True))
    with pytest.raises(PeerError, match="party bank is signed by the CA of party telco"):
        club.check("bank", b"a job", signed_by_false_bank(folders))


def test_a_signature_by_another_cas_certificate_counts_where_all_cas_stand_in_one_file(
    folders, files_of
):
    club = signatures_of_club(files_of("club", "coord", pinned=False))
    club.check("bank", b"a job", signed_by_false_bank(folders))


def test_a_ca_revokes_nobody_of_another_organisation(folders, files_of):
    """Serial numbers are its own choice, so its list could hold those of others."""
    bank = load_identity(tls_of(folders["bank"], "bank")).peer
    authorities = Authorities(files_of("club", "coord", pinned=True))
    theirs = authorities._lists[folders["telco"] / "ca.pem"]
    theirs._serials = frozenset({bank.serial})
    authorities.refuse_revoked(bank)
    theirs._serials = frozenset({load_identity(tls_of(folders["telco"], "telco")).peer.serial})
    with pytest.raises(UnreachableError, match="telco has been revoked"):
        authorities.refuse_revoked(load_identity(tls_of(folders["telco"], "telco")).peer)
