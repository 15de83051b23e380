"""Settings of relays and of those who dial them; secrets in them are never shown."""

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.client.config import client_config
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig
from fedboost.runtime.config.relay import RelayConfig, RelayService
from fedboost.runtime.relay.members import members_of_coordinator, members_of_relay

TLS = {"ca": "ca.pem", "cert": "bank.pem", "key": "bank.key"}
PARTY = {
    "name": "bank",
    "listen": "127.0.0.1:7101",
    "tls": TLS,
    "coordinator": {"name": "coord", "address": "relay"},
    "peers": {"telco": "relay"},
    "store": "store",
}
RELAY = {"address": "relay.example.org:443"}
TOKEN = "0123456789abcdef0123456789abcdef"


def party(**keys):
    return parse_settings(PartyConfig, {**PARTY, **keys})


def coordinator(**keys):
    raw = {
        "name": "coord",
        "listen": "127.0.0.1:7100",
        "tls": TLS,
        "parties": {"bank": "relay", "telco": {"address": "10.0.0.7:7102", "ca": "telco-ca.pem"}},
        "users": {"submit": ["ana"], "read": ["ana", "tim"]},
        "store": "store",
    }
    return parse_settings(CoordinatorConfig, {**raw, **keys})


def test_a_daemon_behind_the_relay_has_the_word_in_place_of_its_address():
    ours = party(relay=RELAY)
    assert ours.addresses() == {"bank": "127.0.0.1:7101", "coord": "relay", "telco": "relay"}
    assert ours.dialed_relay == ours.relay
    assert ours.reach == "direct"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "relay is missing"),
        ({"coordinator": {"name": "coord", "address": "10.0.0.1:1"}}, "relay is missing"),
        (
            {
                "coordinator": {"name": "coord", "address": "10.0.0.1:1"},
                "peers": {},
                "reach": "outbound",
            },
            "relay is missing",
        ),
        ({"relay": RELAY, "reach": "inbound"}, "reach"),
        ({"relay": {"address": "relay"}}, "is not an address"),
        ({"relay": {**RELAY, "token": "short"}}, "relay.token"),
        ({"relay": {**RELAY, "proxy": "https://proxy:1"}}, "is no proxy"),
        ({"relay": {**RELAY, "proxy": "http://ana:secret@proxy"}}, "is no proxy"),
        ({"relay": {"listen": "0.0.0.0:443"}}, "unknown key 'relay.listen'"),
    ],
)
def test_a_party_that_could_not_be_called_is_refused(keys, text):
    with pytest.raises(ConfigError) as caught:
        party(**keys)
    assert text in "\n".join(caught.value.lines())
    assert "secret" not in "\n".join(caught.value.lines())


def test_a_relay_needs_tls():
    raw = {key: value for key, value in PARTY.items() if key != "tls"}
    near = {"coordinator": {"name": "coord", "address": "127.0.0.1:1"}, "peers": {}}
    with pytest.raises(ConfigError, match="relay needs tls"):
        parse_settings(PartyConfig, {**raw, **near, "relay": RELAY, "insecure_loopback": True})
    with pytest.raises(ConfigError, match="is not loopback"):
        parse_settings(PartyConfig, {**raw, "relay": RELAY, "insecure_loopback": True})


def test_secrets_of_a_relay_are_not_shown():
    ours = party(relay={**RELAY, "token": TOKEN, "proxy": "http://ana:secret@proxy:3128"})
    theirs = coordinator(relay={"listen": "0.0.0.0:443", "tokens": {"bank": TOKEN}})
    alone = parse_settings(
        RelayConfig,
        {"name": "relay", "listen": "0.0.0.0:443", "tls": TLS,
         "members": {"bank": {"token": TOKEN}}},
    )  # fmt: skip
    for shown in (ours, theirs, alone):
        assert TOKEN not in repr(shown)
        assert "secret" not in repr(shown)


@pytest.mark.parametrize(
    ("listen", "dialled"),
    [
        ("0.0.0.0:443", "127.0.0.1:443"),
        ("[::]:443", "[::1]:443"),
        ("10.0.0.1:7443", "10.0.0.1:7443"),
    ],
)
def test_a_coordinator_dials_the_relay_in_its_own_daemon(listen, dialled):
    ours = coordinator(relay={"listen": listen, "tokens": {"bank": TOKEN}})
    assert isinstance(ours.relay, RelayService)
    assert ours.dialed_relay is not None
    assert (ours.dialed_relay.address, ours.dialed_relay.name) == (dialled, "coord")
    assert members_of_coordinator(ours) == {
        ("coordinator", "coord"): None,
        ("party", "bank"): TOKEN,
        ("party", "telco"): None,
        ("user", "ana"): None,
        ("user", "tim"): None,
    }


def test_a_coordinator_may_dial_a_relay_as_well():
    ours = coordinator(relay=RELAY, reach="auto")
    assert ours.dialed_relay == ours.relay


def test_a_token_of_nobody_is_refused():
    with pytest.raises(ConfigError, match=r"relay.tokens names 'shop'"):
        coordinator(relay={"listen": "0.0.0.0:443", "tokens": {"shop": TOKEN}})


def test_a_relay_alone_lists_its_members_with_their_cas():
    ours = parse_settings(
        RelayConfig,
        {
            "name": "relay",
            "listen": "0.0.0.0:443",
            "tls": TLS,
            "members": {
                "bank": {"token": TOKEN},
                "telco": {"ca": "telco-ca.pem"},
                "coord": {"role": "coordinator"},
            },
        },
    )
    assert members_of_relay(ours) == {
        ("party", "bank"): TOKEN,
        ("party", "telco"): None,
        ("coordinator", "coord"): None,
    }
    assert [owner for owner in ours.tls.pins] == [("party", "telco")]


def test_a_client_finds_the_relay_in_its_file_or_in_a_variable(tmp_path):
    files = parse_settings(PartyConfig, {**PARTY, "relay": RELAY}).tls
    env = {"FEDBOOST_RELAY": "relay@10.0.0.9:443"}
    ours = client_config("coord@relay", files, env, tmp_path)
    assert ours.coordinator.address == "relay"
    assert ours.relay is not None
    assert (ours.relay.name, ours.relay.address) == ("relay", "10.0.0.9:443")
    with pytest.raises(ConfigError, match="relay is missing"):
        client_config("coord@relay", files, {}, tmp_path)
