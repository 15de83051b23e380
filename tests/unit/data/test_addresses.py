"""Addresses: where they lead, and that no secret of one stands in what is printed."""

import re
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data import queries
from fedboost.data.addresses import (
    PIECE_MIN,
    has_raw_login,
    location_of,
    login_of,
    password_of,
    without_secrets,
)
from fedboost.data.sources import Connection, SourceSpec
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import DaskWorkers, TracesConfig
from fedboost.runtime.config.page import Oidc
from fedboost.runtime.transport.addresses import Remote

SAFE = "abcxyzABC0189-._~"
RAW = "@:/?#[]&=%+ !é"
NAMES = st.text("abcdexyz", min_size=1, max_size=8)
HOSTS = st.sampled_from(["db", "db.bank", "10.0.0.7", "[::1]", "db:5432"])
SCHEMES = st.sampled_from(["postgresql", "postgres", "grpc", "grpc+tls"])
# Marked, so that what is left of it is found whatever else a text holds.
PASSWORDS = st.lists(st.sampled_from([*RAW, "SECRET", "Hidden"]), min_size=1, max_size=6).map(
    "".join
)
MARKS = ("SECRET", "Hidden")


def is_shown(text):
    return any(mark in text for mark in MARKS)


def said(error):
    return "\n".join([*error.lines(), error.private, repr(error), str(error)])


@given(SCHEMES, NAMES, PASSWORDS, HOSTS, NAMES)
def test_a_password_in_a_file_is_refused_and_not_shown(scheme, user, password, host, database):
    url = f"{scheme}://{user}:{password}@{host}/{database}"
    for raw in (
        {"sql": "select 1", "connection": {"url": url}},
        {"path": f"s3://{user}:{password}@{host}/{database}"},
    ):
        with pytest.raises(ConfigError) as refused:
            parse_settings(SourceSpec, raw)
        assert not is_shown(said(refused.value))


@given(SCHEMES, NAMES, PASSWORDS, HOSTS, NAMES)
def test_a_raw_password_is_refused_before_a_driver_reads_it(scheme, user, password, host, database):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSN", f"{scheme}://{user}:{password}@{host}/{database}")
        raw = re.search(r"[@/?#\[\]]", password) is not None
        connection = Connection(env="DSN")
        if not raw:
            assert connection.read() == f"{scheme}://{user}:{password}@{host}/{database}"
            return
        with pytest.raises(ConfigError) as refused:
            connection.read()
        assert not is_shown(said(refused.value))
        source = SourceSpec(sql="select 1", connection=connection)
        with pytest.raises(FedboostError) as failed, queries.open_answer(source):
            pass
        assert not is_shown(said(failed.value))
        assert not is_shown(repr(source) + source.name)


def parts_that_drivers_name(address):
    """What drivers and parsers may quote of an address."""
    yield address
    behind = address.partition("://")[2]
    for mark in "@/?#:":
        yield from behind.split(mark)
        yield behind.partition(mark)[2]
        yield behind.rpartition(mark)[0]
    try:
        parts = urlsplit(address)
    except ValueError:
        return
    yield from (
        parts.netloc,
        parts.path,
        parts.query,
        parts.fragment,
        parts.netloc.rpartition("@")[0],
    )


@given(SCHEMES, NAMES, PASSWORDS, HOSTS, NAMES, st.booleans())
def test_no_part_of_a_password_stands_in_what_is_logged(
    scheme, user, password, host, database, encoded
):
    written = quote(password, safe="") if encoded else password
    address = f"{scheme}://{user}:{written}@{host}/{database}"
    for part in (*parts_that_drivers_name(address), password, quote(password)):
        error = OSError(f'could not translate host name "{part}" to address')
        text = queries._translated_error(error, address, Connection(env="DSN"))
        assert not is_shown(said(text)), part


@pytest.mark.parametrize("name", ["password", "sslpassword", "token"])
@given(PASSWORDS)
def test_secrets_among_options_are_hidden(name, password):
    address = f"postgresql://db/credit?{name}={quote(password, safe='')}&x=1"
    assert not is_shown(
        without_secrets(f"{password} {quote(password)} {address}", address, "env A")
    )


@given(NAMES, st.text(SAFE, min_size=1), HOSTS, NAMES)
def test_a_login_ends_at_the_last_at(user, password, host, database):
    address = f"postgresql://{user}:{password}@{host}/{database}"
    assert login_of(address) == f"{user}:{password}"
    assert password_of(address) == password
    assert not has_raw_login(address)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://db:5432/credit?user=ana@server",
        "postgresql://[::1]:5432/credit?user=ana@server&x=1",
        "postgresql://db/credit",
        "grpc+tls://db:1",
        "sqlite:////data/a@b.db",
        "duckdb:",
    ],
)
def test_an_address_without_a_login_has_none(address):
    assert login_of(address) is None
    assert password_of(address) is None
    assert without_secrets("db ana server", address, "env A") == "db ana server"


def test_a_user_without_a_password_is_no_secret():
    assert password_of("postgresql://ana@db/credit") is None
    assert without_secrets("role ana", "postgresql://ana@db/credit", "env A") == "role ana"


SAME = [
    ("s3://bank/a.parquet", "s3://bank/a.parquet?region=eu#x"),
    ("s3://Bank//x/../a.parquet/", "s3://bank/a.parquet"),
    ("postgresql://db/credit", "postgres://ana:p%40@DB.:5432/credit?sslmode=require"),
    ("postgresql://db/credit", "postgresql:///?host=db&dbname=credit"),
    ("hdfs://node:8020/a", "hdfs://node/a"),
    ("grpc://[::1]:31337", "grpc://u:p@[::1]:31337/"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_place_are_one(one, other):
    assert location_of(one) == location_of(other)


OTHERS = [
    ("s3://bank/a.parquet", "s3://bank/b.parquet"),
    ("s3://bank/a.parquet", "gs://bank/a.parquet"),
    ("s3://bank/a@b.parquet", "s3://shop/a@b.parquet"),
    ("postgresql://db/credit", "postgresql://db:5433/credit"),
    ("postgresql://db/credit", "postgresql://db/loans"),
    ("postgresql:///?host=a", "postgresql:///?host=b"),
]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_other_places_are_others(one, other):
    assert location_of(one) != location_of(other)


OTHER_ADDRESSES = {
    "an endpoint": (TracesConfig, "endpoint", ("http", "htp")),
    "a scheduler": (DaskWorkers, "dask", ("tls", "tcp")),
    "an issuer": (Oidc, "issuer", ("https", "ftp")),
    "a link": (Remote, "address", ("tcp",)),
}


@pytest.mark.parametrize("setting", OTHER_ADDRESSES.values(), ids=OTHER_ADDRESSES)
@given(NAMES, PASSWORDS, HOSTS)
def test_no_other_address_with_a_password_is_taken_or_shown(setting, user, password, host):
    kind, key, schemes = setting
    for scheme in schemes:
        with pytest.raises(ConfigError) as refused:
            parse_settings(kind, {key: f"{scheme}://{user}:{password}@{host}"})
        assert not is_shown(said(refused.value))


def test_short_parts_of_a_password_stay_where_they_are_words_of_the_error():
    text = without_secrets("a role", "postgresql://u:a@b@h/d", "env A")
    assert text == "a role"
    assert PIECE_MIN > 1
