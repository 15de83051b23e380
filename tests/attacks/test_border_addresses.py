"""A password with an @ as it is: drivers break it apart and put the parts into errors and logs.

The defences are `has_raw_login`, which refuses it before a driver reads it, and `without_secrets`.
"""

from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from fedboost.data import kinds, queries, sources
from fedboost.data.sources import Connection, SourceSpec
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings

PASSWORD = "first@second/third"
ADDRESS = f"postgresql://bank:{PASSWORD}@db/credit"
SLASHED = "postgresql://bank:first/second@db/credit"  # a common parser finds no password
PARTS = ("first", "second", "third")


def as_libpq_says(address):
    """Of the login it takes what stands before the first @ or /, and the rest for a host."""
    behind = address.partition("://")[2]
    host = behind.partition("@")[2].partition("/")[0]
    return OSError(f'could not translate host name "{host}" to address')


def read_of(monkeypatch):
    """What a log and whoever asks read of a table at the address."""
    monkeypatch.setenv("DSN", ADDRESS)

    def connect(address, _):
        raise as_libpq_says(address)

    engine = replace(kinds.ENGINES["postgresql"], opened=connect)
    monkeypatch.setitem(kinds.ENGINES, "postgresql", engine)
    source = SourceSpec(sql="select 1", connection=Connection(env="DSN"))
    with pytest.raises(FedboostError) as ended, queries.open_answer(source):
        pass
    return "\n".join([ended.value.private, *ended.value.lines()])


def shown(text):
    return [part for part in PARTS if part in text]


def test_no_part_of_a_password_is_read_from_a_log(monkeypatch):
    assert shown(read_of(monkeypatch)) == []
    # Also where a driver meets it: the words are hidden one by one.
    monkeypatch.setattr(sources, "has_raw_login", lambda _: False)
    assert shown(read_of(monkeypatch)) == []


def test_a_password_in_a_file_is_refused_without_being_shown():
    for address in (ADDRESS, SLASHED):
        with pytest.raises(ConfigError) as refused:
            parse_settings(Connection, {"url": address})
        assert shown(str(refused.value)) == []


def by_a_common_parser(text, address, instead):
    """As it was: the address, and the password as `urlsplit` finds it."""
    for secret in (address, urlsplit(address).password):
        text = text.replace(secret, instead) if secret else text
    return text


def test_parts_of_a_password_are_read_from_a_log_where_a_common_parser_finds_it(monkeypatch):
    monkeypatch.setattr(sources, "has_raw_login", lambda _: False)
    monkeypatch.setattr(queries, "without_secrets", by_a_common_parser)
    assert shown(read_of(monkeypatch)) == ["second"]
    monkeypatch.setattr(sources, "password_of", lambda address: urlsplit(address).password)
    assert (
        str(parse_settings(Connection, {"url": SLASHED})) == SLASHED
    )  # which errors and pages print
