"""Addresses of storages and databases: where they lead, and what of them may be shown."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

STORAGES = ("s3", "gs", "hdfs")
FILE_ENGINES = ("sqlite", "duckdb")
ENGINES = (*FILE_ENGINES, "postgresql", "grpc", "grpc+tls")
SECRET_PARAMETERS = {"password", "sslpassword", "token", "secret_key", "session_token"}
PORTS = {"postgresql": "5432", "hdfs": "8020"}  # of addresses without one
PIECE_MIN = 3  # characters of a part of a secret that is hidden wherever it stands
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):")
_BREAKS = re.compile(r"[@:/?#\[\]&=]")  # where a parser may break a login that is written raw


def scheme_of(place: str) -> str | None:
    """Return what stands before the colon of an address, ``postgres`` by its whole name; None where
    nothing does, as in a path.
    """
    match = _SCHEME.match(place)
    if match is None:
        return None
    return "postgresql" if match[1] == "postgres" else match[1]


def file_of(address: str) -> Path | None:
    """Return the file that an address of SQLite or DuckDB leads to; None where it leads to none."""
    scheme, _, rest = address.partition(":")
    file = rest.removeprefix("///")
    return Path(file) if scheme in FILE_ENGINES and file else None


def location_of(address: str) -> str:
    """Return where an address of a server leads, in one spelling.

    Without login, options, fragment, the port that is usual, and what is doubled in the path; of
    PostgreSQL, options that name another host, port or database count.
    """
    scheme, parts = scheme_of(address) or "", urlsplit(address)
    host, _, port = parts.netloc.rpartition("@")[2].partition(":")
    if parts.netloc.endswith("]") or "]:" in parts.netloc:  # an IPv6 address
        host, _, port = parts.netloc.rpartition("@")[2].rpartition("]")
        port = port.removeprefix(":")
    path = unquote(parts.path)
    if scheme == "postgresql":
        named = {name.lower(): text for name, text in parse_qsl(parts.query)}
        host, port = named.get("host", host), named.get("port", port)
        path = named.get("dbname", path)
    if scheme in ("s3", "gs") or port == PORTS.get(scheme):
        port = ""  # a bucket has none
    path = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    return f"{scheme}://{unquote(host).lower().rstrip('.')}:{port}{path.rstrip('/')}"


def login_of(address: str) -> str | None:
    """Return what stands before the last ``@``, as it is written; None where there is no ``@``.

    A standard parser ends a login at the first ``/``, ``?`` or ``#``, which a password may hold.
    """
    _, _, behind = address.partition("://")
    login, at, _ = behind.rpartition("@")
    return login if at else None


def password_of(address: str) -> str | None:
    """Return what stands behind the first colon of a login, as it is written; None for none."""
    name, colon, password = (login_of(address) or "").partition(":")
    # The colon of a port, or one in a path, is behind a host.
    return password if colon and not re.search(r"[/?#]", name) else None


def has_raw_login(address: str) -> bool:
    """Return whether a login holds characters at which a driver may break it apart.

    Drivers put the parts into their errors: of ``u:p@ss@h`` the host ``ss@h``.
    """
    password = password_of(address)
    return password is not None and re.search(r"[@/?#\[\]]", password) is not None


def secrets_of(address: str) -> Iterator[str]:
    """Yield what of an address may not be shown, as it is written: itself, login, and passwords."""
    yield address
    login, password = login_of(address), password_of(address)
    if password:
        yield from (f"{login}@", str(login), password)
        yield from (part for part in _BREAKS.split(password) if len(part) >= PIECE_MIN)
    _, _, query = address.partition("?")
    for name, text in parse_qsl(query):
        if name.lower() in SECRET_PARAMETERS:
            yield text


def without_secrets(text: str, address: str, instead: str) -> str:
    """Return a text in which neither an address nor a secret of it stands, however it is written.

    `instead` stands in their place.
    """
    hidden = {
        form
        for secret in secrets_of(address)
        for form in (secret, unquote(secret), quote(secret), quote(secret, safe=""))
        if form
    }
    marks = re.compile("|".join(re.escape(form) for form in sorted(hidden, key=len, reverse=True)))
    return marks.sub(lambda _: instead, text)
