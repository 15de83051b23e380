"""Addresses of storages and databases: their targets, their logins and their secrets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fedboost.data.kinds import address_scheme

SECRET_PARAMETERS = {"password", "sslpassword", "token", "secret_key", "session_token"}
PIECE_MIN = 3  # characters; shorter parts of a secret are not hidden by themselves
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]*\]|[^:\[\]]*)(:[0-9]*)?")  # and port
_RAW = re.compile(r"[@/?#\[\]]")  # a parser may break a raw login at these
_BREAKS = re.compile(r"[@:/?#\[\]&=]")


def scheme_of(place: str) -> str | None:
    """Return the scheme of an address, an alias by its full name; None for a path."""
    match = _SCHEME.match(place)
    return None if match is None else address_scheme(match[1]).scheme


def file_of(address: str) -> Path | None:
    """Return the file on this machine that an address leads to; None for another address."""
    scheme, _, rest = address.partition(":")
    file = rest.removeprefix("///")
    return Path(file) if address_scheme(scheme).is_file and file else None


def location_of(address: str) -> str:
    """Return the target of a server's address in one spelling.

    It has no login, options, fragment or usual port, and a path without repetitions. Options that
    may name another host, port or database take precedence.
    """
    place, parts = address_scheme(scheme_of(address)), urlsplit(address)
    host, _, port = parts.netloc.rpartition("@")[2].partition(":")
    if parts.netloc.endswith("]") or "]:" in parts.netloc:  # an IPv6 address
        host, _, port = parts.netloc.rpartition("@")[2].rpartition("]")
        port = port.removeprefix(":")
    path = unquote(parts.path)
    if place.in_options:
        named = {name.lower(): text for name, text in parse_qsl(parts.query)}
        host, port = named.get("host", host), named.get("port", port)
        path = named.get("dbname", path)
    if place.is_bucket or port == place.port:
        port = ""
    path = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    return f"{place.scheme}://{unquote(host).lower().rstrip('.')}:{port}{path.rstrip('/')}"


def login_of(address: str) -> str | None:
    """Return the login before the last ``@`` as written; None if there is no login.

    A standard parser ends a login at the first ``/``, ``?`` or ``#``, which a password may hold. An
    ``@`` in an option behind a path, as in ``postgresql://h/d?user=a@b``, begins no host.
    """
    _, _, behind = address.partition("://")
    login, at, _ = behind.rpartition("@")
    is_login = at and not address_scheme(scheme_of(address)).is_file and not _is_in_options(behind)
    return login if is_login else None


def _is_in_options(behind: str) -> bool:
    """Return whether every ``@`` behind ``://`` belongs to an option."""
    place, mark, query = behind.partition("?")
    host, slash, _ = place.partition("/")
    fits = _HOST.fullmatch(host) is not None and "@" not in place and "#" not in behind
    return bool(slash and mark) and fits and all("=" in option for option in query.split("&"))


def password_of(address: str) -> str | None:
    """Return the password, behind the first colon of a login, as written; None without one."""
    _, colon, password = (login_of(address) or "").partition(":")
    return password if colon else None


def has_raw_login(address: str) -> bool:
    """Return whether a login holds characters that make a driver split it.

    Drivers show the parts in their errors: for ``u:p@ss@h`` the host ``ss@h``.
    """
    return _RAW.search(login_of(address) or "") is not None


def secrets_of(address: str) -> Iterator[str]:
    """Yield the secret parts of an address as written: itself, its login, its passwords."""
    yield address
    login, password = login_of(address), password_of(address)
    if password:
        yield from (f"{login}@", str(login), password)
        for written in (password, unquote(password)):
            yield from (part for part in _BREAKS.split(written) if len(part) >= PIECE_MIN)
    for name, text in parse_qsl(address.partition("?")[2]):
        if name.lower() in SECRET_PARAMETERS:
            yield text


def without_secrets(text: str, address: str, instead: str) -> str:
    """Return a text with `instead` for an address and its secrets, in any of their spellings."""
    hidden = set[str]()
    for secret in secrets_of(address):
        plain = unquote(secret)
        hidden |= {secret, plain, *(quote(t, safe=s) for t in (secret, plain) for s in ("", "/"))}
    longest_first = sorted(hidden - {""}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda _: instead, text)
