"""Tokens and logins for a relay: never shown, never guessable, one for each member."""

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.relay import RelayConfig, RelayMember, RelayService
from fedboost.runtime.transport.addresses import RelayAddress

TOKEN, OTHER = "correct-horse-battery-staple-0123", "correct-horse-battery-staple-4567"
LOGIN = "http://us%2Fer:pass%23word@proxy.example.org:3128"
TLS = {"ca": "a", "cert": "a", "key": "a"}


def relay_of(*tokens):
    members = {f"p{i}": {"token": token} for i, token in enumerate(tokens)}
    said = {"name": "hub", "listen": "127.0.0.1:1", "tls": TLS, "members": members}
    return parse_settings(RelayConfig, said)


SETTINGS = {
    "member": lambda: RelayMember(token=TOKEN),
    "relay": lambda: relay_of(TOKEN),
    "relay in a coordinator": lambda: RelayService(listen="a:1", tokens={"bank": TOKEN}),
    "dialled relay": lambda: RelayAddress(address="a:1", token=TOKEN, proxy=LOGIN),
}


@pytest.mark.parametrize("made", SETTINGS.values(), ids=SETTINGS)
def test_settings_do_not_show_tokens_and_logins(made):
    settings = made()
    shown = f"{settings!r} {settings}"
    assert "horse" not in shown
    assert "pass" not in shown


@pytest.mark.parametrize(
    "token", [TOKEN[:31], TOKEN + "\n", TOKEN + "\r\nX: y", f" {TOKEN}", "\u00fc" * 40, [TOKEN]]
)
def test_a_token_that_is_short_or_no_word_is_refused_and_not_shown(token):
    with pytest.raises(ConfigError, match="token") as refused:
        parse_settings(RelayAddress, {"address": "a:1", "token": token})
    assert "horse" not in str(refused.value)


def test_two_members_with_one_token_are_refused():
    relay_of(TOKEN, OTHER)
    with pytest.raises(ConfigError, match="same token") as refused:
        relay_of(TOKEN, TOKEN)
    assert "horse" not in str(refused.value)
    service = {"listen": "127.0.0.1:1", "tokens": {"bank": TOKEN, "telco": TOKEN}}
    with pytest.raises(ConfigError, match="same token"):
        parse_settings(RelayService, service)


PROXIES = [
    "http://user:secret",
    "http://user:se/cret@proxy:1",
    "http://user:se#cret@proxy:1",
    "http://user:se?cret@proxy:1",
    "https://user:secret@proxy:1",
    "user:secret@proxy:1",
    "http://user:secret@proxy",
]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_that_is_none_is_refused_without_its_login(proxy):
    with pytest.raises(ConfigError, match="proxy") as refused:
        parse_settings(RelayAddress, {"address": "a:1", "proxy": proxy})
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("proxy", [LOGIN, "http://proxy:1", "http://proxy:1/", "http://[::1]:1"])
def test_a_proxy_may_have_a_login(proxy):
    assert RelayAddress(address="a:1", proxy=proxy).proxy == proxy
