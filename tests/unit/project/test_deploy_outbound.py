"""The containers whose daemons only dial out: each reaches the relay, and nothing reaches them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from fedboost.ground.settings import load_settings
from fedboost.runtime.client.config import client_config
from fedboost.runtime.config.daemons import CoordinatorConfig, DaemonConfig, PartyConfig
from fedboost.runtime.config.relay import RelayConfig
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import VIA_RELAY, is_loopback, split_address
from fedboost.runtime.transport.certificates import Leaf, Term
from tests.conftest import ROOT
from tests.support.shown_commands import check

FOLDER = ROOT / "deploy" / "outbound"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
ORDINARY = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
PARTIES = ["bank", "telco", "shop"]
DAEMONS = ["coordinator", *PARTIES]
SAFE = ("image", "mem_limit", "init", "read_only", "cap_drop", "security_opt", "tmpfs", "restart")


def mounts(service: str) -> dict[str, str]:
    """Return the host's path of each path in a container."""
    split = (volume.split(":") for volume in SERVICES[service]["volumes"])
    return {parts[1]: parts[0] for parts in split}


def config(service: str, folder: Path = FOLDER) -> DaemonConfig:
    """Return the settings of a daemon."""
    kind = CoordinatorConfig if service == "coordinator" else PartyConfig
    return load_settings(kind, folder / f"{service}.yaml")


@pytest.fixture(scope="module")
def relay() -> RelayConfig:
    """Return the relay's settings."""
    return load_settings(RelayConfig, FOLDER / "relay.yaml")


def test_a_daemon_shares_a_network_with_the_relay_only():
    assert set(SERVICES) == {"relay", *DAEMONS, "submit"}
    networks = {name: service["networks"] for name, service in SERVICES.items()}
    meeting = networks.pop("relay")
    own = [network for (network,) in networks.values()]
    assert sorted(own) == sorted(set(own)) == sorted(meeting) == sorted(COMPOSE["networks"])
    assert all(network == {"internal": True} for network in COMPOSE["networks"].values())


def test_no_service_publishes_a_port():
    assert not [name for name, service in SERVICES.items() if "ports" in service]


@pytest.mark.parametrize("service", SERVICES)
def test_every_command_exists_and_its_settings_are_mounted(service):
    command = [str(word) for word in SERVICES[service]["command"]]
    check(command)
    assert "/run/fedboost/certs" in mounts(service)
    if service != "submit":
        assert command[-2:] == ["--config", f"/etc/fedboost/{service}.yaml"]
        assert mounts(service)[command[-1]] == f"./{service}.yaml"


def test_there_is_no_settings_file_that_nobody_mounts():
    mounted = {"compose.yaml", "relay.yaml", *(f"{name}.yaml" for name in DAEMONS)}
    assert {path.name for path in FOLDER.iterdir()} == mounted


@pytest.mark.parametrize("service", [*DAEMONS, "submit"])
def test_a_container_is_confined_like_the_one_that_listens(service):
    ours, ordinary = SERVICES[service], ORDINARY[service]
    assert {key: ours.get(key) for key in SAFE} == {key: ordinary.get(key) for key in SAFE}
    sources = {target: Path(source).name for target, source in mounts(service).items()}
    listed = (volume.split(":") for volume in ordinary["volumes"])
    assert sources == {parts[1]: Path(parts[0]).name for parts in listed}


@pytest.mark.parametrize("service", DAEMONS)
def test_a_daemon_dials_the_relay_and_listens_for_itself(service, relay):
    found = config(service)
    assert is_loopback(found.listen)
    assert found.dialed_relay is not None
    assert split_address(found.dialed_relay.address) == ("relay", split_address(relay.listen)[1])
    assert relay.name == (found.dialed_relay.name or "relay")
    others = {name: at for name, at in found.addresses().items() if name != found.name}
    assert set(others.values()) == {VIA_RELAY}
    assert found.name in relay.members
    assert found.warnings() == []


@pytest.mark.parametrize("service", DAEMONS)
def test_only_the_network_differs_from_the_settings_of_a_daemon_that_listens(service):
    ordinary = config(service, ROOT / "deploy" / "configs")
    ways = {"listen", "relay", "reach", "peers", "coordinator", "parties", "page", "metrics"}
    assert config(service).model_dump(exclude=ways) == ordinary.model_dump(exclude=ways)
    assert config(service).addresses().keys() == ordinary.addresses().keys()


def test_the_relay_admits_the_daemons_and_the_submitter(relay):
    roles = {name: member.role for name, member in relay.members.items()}
    assert roles == {"coordinator": "coordinator", **dict.fromkeys(PARTIES, "party"), "ana": "user"}
    port = split_address(relay.listen)[1]
    assert f"('127.0.0.1', {port})" in SERVICES["relay"]["healthcheck"]["test"][-1]


def test_the_submitter_reaches_the_coordinator_through_the_relay(relay, tmp_path):
    term = Term(datetime.now(UTC), 1, ())
    authority.create_certificates(tmp_path, [Leaf("user", "ana")], term)
    said = {**SERVICES["submit"]["environment"], "FEDBOOST_TLS": str(tmp_path)}
    found = client_config(None, None, said, Path("/nowhere"))
    assert (found.coordinator.name, found.coordinator.address) == ("coordinator", VIA_RELAY)
    assert found.relay is not None
    assert split_address(found.relay.address) == (relay.name, split_address(relay.listen)[1])
