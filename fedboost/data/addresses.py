"""Addresses of storages and databases: where they lead, and what of them may be shown."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fedboost.data.kinds import place_of

SECRET_PARAMETERS = {"password", "sslpassword", "token", "secret_key", "session_token"}
PIECE_MIN = 3  # characters of a part of a secret that is hidden wherever it stands
_SCHEME = re.compile(r"([a-z][a-z0-9+]*):")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]*\]|[^:\[\]]*)(:[0-9]*)?")  # and port
_RAW = re.compile(r"[@/?#\[\]]")  # where a parser may break a login that is written raw
_BREAKS = re.compile(r"[@:/?#\[\]&=]")


def scheme_of(place: str) -> str | None:
    """Return what stands before the colon of an address, an alias by its whole name; None where
    nothing does, as in a path.
    """
    match = _SCHEME.match(place)
    return None if match is None else place_of(match[1]).scheme


def file_of(address: str) -> Path | None:
    """Return the file on this machine that an address leads to; None where it leads to none."""
    scheme, _, rest = address.partition(":")
    file = rest.removeprefix("///")
    return Path(file) if place_of(scheme).is_file and file else None


def location_of(address: str) -> str:
    """Return where an address of a server leads, in one spelling.

    Without login, options, fragment, the port that is usual, and what is doubled in the path; where
    options may name another host, port or database, they count.
    """
    place, parts = place_of(scheme_of(address)), urlsplit(address)
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
    """Return what stands before the last ``@``, as it is written; None where there is no login.

    A standard parser ends a login at the first ``/``, ``?`` or ``#``, which a password may hold. An
    ``@`` in an option behind a path, as in ``postgresql://h/d?user=a@b``, begins no host.
    """
    _, _, behind = address.partition("://")
    login, at, _ = behind.rpartition("@")
    is_login = at and not place_of(scheme_of(address)).is_file and not _is_option(behind)
    return login if is_login else None


def _is_option(behind: str) -> bool:
    """Return whether every ``@`` of what stands behind ``://`` stands in options."""
    place, mark, query = behind.partition("?")
    host, slash, _ = place.partition("/")
    fits = _HOST.fullmatch(host) is not None and "@" not in place and "#" not in behind
    return bool(slash and mark) and fits and all("=" in option for option in query.split("&"))


def password_of(address: str) -> str | None:
    """Return what stands behind the first colon of a login, as it is written; None for none."""
    _, colon, password = (login_of(address) or "").partition(":")
    return password if colon else None


def has_raw_login(address: str) -> bool:
    """Return whether a login holds characters at which a driver may break it apart.

    Drivers put the parts into their errors: of ``u:p@ss@h`` the host ``ss@h``.
    """
    return _RAW.search(login_of(address) or "") is not None


def secrets_of(address: str) -> Iterator[str]:
    """Yield what of an address may not be shown, as it is written: itself, login, and passwords."""
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
    """Return a text in which neither an address nor a secret of it stands, however it is written.

    `instead` stands in their place.
    """
    hidden = set[str]()
    for secret in secrets_of(address):
        plain = unquote(secret)
        hidden |= {secret, plain, *(quote(t, safe=s) for t in (secret, plain) for s in ("", "/"))}
    longest_first = sorted(hidden - {""}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda _: instead, text)
