"""Anybody with a certificate asks a party whom it reaches: its peers, their addresses, who is down.

The defences are `doctor.check_asker`, which answers those who need to know, and `without_address`.
"""

from contextlib import suppress

import pytest

from fedboost.ground.errors import ConfigError, PolicyError, UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.messages.job_pb2 import CheckLinkRequest
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.daemons import doctor
from fedboost.runtime.daemons.access import DaemonAccess, _Served
from fedboost.runtime.transport.faults import error_of_fault
from fedboost.runtime.transport.identity import Peer
from tests.support.federated import now

SECRET = "10.20.30.40"
PARTY = {
    "name": "telco",
    "listen": "127.0.0.1:1",
    "insecure_loopback": True,
    "coordinator": {"name": "coord", "address": "127.0.0.1:2"},
    "peers": {"bank": "127.0.0.1:3", "shop": "127.0.0.1:4"},
    "policy": {"approvers": ["ana"]},
}
COORDINATOR = {
    "name": "coord",
    "listen": "127.0.0.1:1",
    "insecure_loopback": True,
    "parties": {"bank": "127.0.0.1:3", "telco": "127.0.0.1:4"},
    "users": {"read": ["ana"]},
}
NAMES = ("bank", "shop", "mill", "coord", "telco")


def answers(folder, monkeypatch, role, caller, names=NAMES):
    """What a daemon answers a caller about each name: nothing, or the lines of an error."""
    kind, said = (PartyConfig, PARTY) if role == "party" else (CoordinatorConfig, COORDINATOR)
    config = parse_settings(kind, {**said, "store": str(folder / "store")})

    async def say_hello(_, known, name):
        if name not in known:
            raise ConfigError(f"no address is known for {name!r}")
        if name == "shop":
            raise UnreachableError(f"{name} is not there", address=SECRET)
        if name == "coord":
            raise ConfigError(f"{SECRET} is party other, not {name}")

    monkeypatch.setattr(doctor, "say_hello", say_hello)
    served, found = _Served(None, DaemonAccess(config, role).asked(lambda: config)), {}
    for name in names:
        with suppress(PolicyError):
            reply = now(served.check_link(caller, CheckLinkRequest(name=name)))
            fault = reply.fault
            found[name] = f"{fault.code} {error_of_fault(fault)}" if reply.HasField("fault") else ""
    return found


STRANGERS = {
    "a party": ("party", Peer("party", "mill", "", 0)),
    "a user": ("party", Peer("user", "eve", "", 0)),
    "another coordinator": ("party", Peer("coordinator", "other", "", 0)),
    "a user with a party's name": ("party", Peer("user", "coord", "", 0)),
    "a user at the coordinator": ("coordinator", Peer("user", "eve", "", 0)),
    "a party at the coordinator": ("coordinator", Peer("party", "shop", "", 0)),
}


@pytest.mark.parametrize(("role", "caller"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_does_not_hear_whom_a_daemon_reaches(role, caller, tmp_path, monkeypatch):
    assert answers(tmp_path, monkeypatch, role, caller) == {}


@pytest.mark.parametrize("role", ["party", "coordinator"])
def test_a_peer_hears_of_its_own_link_alone(role, tmp_path, monkeypatch):
    found = answers(tmp_path, monkeypatch, role, Peer("party", "bank", "", 0))
    assert found == {"bank": ""}


@pytest.mark.parametrize(
    ("role", "kind", "name"),
    [
        ("party", "coordinator", "coord"),
        ("party", "user", "ana"),
        ("coordinator", "user", "ana"),
    ],
)
def test_whoever_may_look_hears_names_and_no_addresses(role, kind, name, tmp_path, monkeypatch):
    found = answers(tmp_path, monkeypatch, role, Peer(kind, name, "", 0))
    assert set(found) == set(NAMES)
    assert found["bank"] == ""
    assert ("unreachable" in found["shop"]) == (role == "party")
    assert all(SECRET not in said and "127.0.0.1" not in said for said in found.values())


@pytest.mark.parametrize(("role", "caller"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_hears_whom_a_daemon_reaches_where_anybody_may_ask(
    role, caller, tmp_path, monkeypatch
):
    monkeypatch.setattr(doctor, "check_asker", lambda *_: None)
    monkeypatch.setattr(doctor, "without_address", lambda error, *_: error)
    found = answers(tmp_path, monkeypatch, role, caller)
    assert found["bank"] == ""
    if role == "party":
        assert SECRET in found["shop"]
        assert SECRET in found["coord"]
