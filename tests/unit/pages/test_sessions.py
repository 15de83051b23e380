"""Signing in to a page: tokens in the store, sessions that end, guesses that are counted."""

import pytest

from fedboost.ground.errors import ConfigError, StoreError
from fedboost.ground.settings import parse_settings
from fedboost.pages import token
from fedboost.pages.sessions import (
    SESSIONS_MAX,
    SOURCES_MAX,
    WRONG_MAX,
    WRONG_S,
    Sessions,
    SignInRefusedError,
    is_same_secret,
)
from fedboost.runtime.config.daemons import PartyConfig

LASTS_S = 3600.0


class Clock:
    """Time as the test has it."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return Sessions(lambda: "good", "ana", LASTS_S, clock)


def party(**page):
    return parse_settings(
        PartyConfig,
        {
            "name": "bank",
            "listen": "127.0.0.1:7101",
            "tls": {"ca": "ca.pem", "cert": "bank.pem", "key": "bank.key"},
            "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
            "store": "var/bank",
            "policy": {"approvers": ["olga"]},
            **({"page": {"user": "olga", **page}} if page else {}),
        },
    )


def test_a_session_is_found_by_its_cookie_until_it_ends(sessions, clock):
    cookie = sessions.sign_in("good", "::1")
    assert sessions.find(cookie) is not None
    assert sessions.find(cookie[:-1]) is None
    assert sessions.find("") is None
    clock.now += LASTS_S - 1
    assert sessions.find(cookie) is not None
    clock.now += 1
    assert sessions.find(cookie) is None


def test_who_has_signed_out_is_out_and_nobody_else(sessions):
    one, other = sessions.sign_in("good", "::1"), sessions.sign_in("good", "::1")
    sessions.sign_out(one)
    sessions.sign_out("unknown")
    assert sessions.find(one) is None
    assert sessions.find(other) is not None


def test_cookies_and_forms_have_secrets_of_their_own(sessions):
    cookies = [sessions.sign_in("good", "::1") for _ in range(4)]
    secrets = [*cookies, *(sessions.find(cookie).csrf for cookie in cookies)]
    assert len(set(secrets)) == 8
    assert all(len(one) == 43 for one in secrets)


def test_another_token_ends_every_session(clock):
    current = ["first"]
    sessions = Sessions(lambda: current[0], "ana", LASTS_S, clock)
    cookie = sessions.sign_in("first", "::1")
    current[0] = "second"
    assert sessions.find(cookie) is None
    with pytest.raises(SignInRefusedError, match="not the token"):
        sessions.sign_in("first", "::1")


def test_after_many_wrong_tokens_their_source_has_to_wait_and_nobody_else(sessions, clock):
    inside = sessions.sign_in("good", "10.0.0.1")
    for _ in range(WRONG_MAX):
        with pytest.raises(SignInRefusedError, match="not the token"):
            sessions.sign_in("bad", "10.0.0.1")
    with pytest.raises(SignInRefusedError, match="too many") as refused:
        sessions.sign_in("bad", "10.0.0.1")
    assert refused.value.wait_s == WRONG_S
    with pytest.raises(SignInRefusedError, match="not the token"):
        sessions.sign_in("bad", "10.0.0.2")
    assert sessions.find(inside) is not None
    clock.now += WRONG_S
    with pytest.raises(SignInRefusedError, match="not the token"):
        sessions.sign_in("bad", "10.0.0.1")


def test_the_right_token_waits_for_no_wrong_ones_even_of_its_own_source(sessions):
    for _ in range(2 * WRONG_MAX):
        with pytest.raises(SignInRefusedError):
            sessions.sign_in("bad", "127.0.0.1")
    assert sessions.find(sessions.sign_in("good", "127.0.0.1")) is not None


def test_sources_of_wrong_tokens_are_remembered_up_to_a_bound(sessions):
    for n in range(SOURCES_MAX + 5):
        with pytest.raises(SignInRefusedError):
            sessions.sign_in("bad", f"source {n}")
    assert len(sessions._wrong) == SOURCES_MAX


def test_the_oldest_session_makes_room(sessions):
    cookies = [sessions.sign_in("good", "::1") for _ in range(SESSIONS_MAX + 1)]
    assert sessions.find(cookies[0]) is None
    assert all(sessions.find(cookie) is not None for cookie in cookies[1:])


def test_secrets_are_compared_whole():
    assert is_same_secret("ab", "ab")
    assert not is_same_secret("ab", "abc")
    assert not is_same_secret("", "a")


# The token


def test_a_token_is_drawn_once_and_only_its_owner_reads_it(tmp_path):
    store = tmp_path / "var"
    own = token.read_token(store)
    assert len(own) == 43
    assert token.read_token(store) == own
    assert (store / token.SIGN_IN_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in store.iterdir()] == [token.SIGN_IN_FILE]
    assert token.read_token(tmp_path / "other") != own


def test_a_token_that_others_could_read_is_refused_until_another_is_drawn(tmp_path):
    own = token.read_token(tmp_path)
    (tmp_path / token.SIGN_IN_FILE).chmod(0o640)
    with pytest.raises(StoreError, match="could be read by others"):
        token.read_token(tmp_path)
    assert token.renew_token(tmp_path) != own


@pytest.mark.parametrize(
    ("page", "address"),
    [
        ({"listen": "127.0.0.1:7180"}, "http://127.0.0.1:7180"),
        ({"listen": "[::1]:7180"}, "http://[::1]:7180"),
        ({"listen": "0.0.0.0:7180", "allow_remote": True}, "https://localhost:7180"),
        (
            {"listen": "0.0.0.0:7180", "allow_remote": True, "names": ["Bank.example.org"]},
            "https://bank.example.org:7180",
        ),
    ],
)
def test_the_link_leads_to_the_page_with_the_token_where_browsers_keep_it(page, address):
    config = party(**page)
    assert token.page_address(config) == address
    assert token.sign_in_url(config, "T") == f"{address}/sign-in#token=T"


def test_settings_without_a_page_say_how_to_get_one():
    with pytest.raises(ConfigError, match="have no page") as refused:
        token.page_settings(party())
    assert "listen: 127.0.0.1:7180" in refused.value.todo


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"listen": "0.0.0.0:7180"}, "other machines can reach"),
        ({"listen": "bank.example.org:7180"}, "other machines can reach"),
        ({"listen": "127.0.0.1:0"}, "port 0"),
        ({"listen": "127.0.0.1"}, "not an address"),
        ({"listen": "127.0.0.1:7180", "user": "ana"}, "missing in policy.approvers"),
        ({"listen": "127.0.0.1:7180", "names": ["https://x"]}, "neither a host's name"),
        ({"listen": "127.0.0.1:7180", "session_hours": 0.0}, "session_hours"),
        ({"listen": "127.0.0.1:7180", "sesion_hours": 1.0}, "unknown key"),
    ],
)
def test_a_page_that_should_not_be_served_is_refused_by_its_settings(page, words):
    with pytest.raises(ConfigError, match=words):
        party(**page)


def test_a_page_for_other_machines_is_warned_of():
    assert party(listen="127.0.0.1:7180").warnings() == []
    (warning,) = party(listen="0.0.0.0:7180", allow_remote=True).warnings()
    assert "can be reached from other machines" in warning
