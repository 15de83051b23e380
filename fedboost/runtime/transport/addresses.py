"""Names and addresses of daemons as settings write them, and every wait on the way to one."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fedboost.ground.errors import ConfigError
from fedboost.ground.printable import without_login
from fedboost.ground.settings import Settings
from fedboost.runtime.transport.identity import NAME_PATTERN
from fedboost.runtime.transport.tls import FilePath, TlsFiles

# Names of containers have underscores, absolute names a point at the end.
HOST_PATTERN = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?\.?")


VIA_RELAY = "relay"  # stands for an address: the daemon is called through the relay


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[ipv6]:port``; raise ConfigError if invalid."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = is_ip(host)
    else:
        good = HOST_PATTERN.fullmatch(host) is not None
    if colon and good and port.isascii() and port.isdigit() and int(port) <= 65535:
        return host, int(port)
    shown = without_login(address)
    raise ConfigError(f"{shown!r} is not an address", todo="write HOST:PORT or [IPV6]:PORT")


def own_host(listen: str) -> str:
    """Return the host for connections of this machine to its own `listen`."""
    host, _ = split_address(listen)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (not bound)


def own_address(listen: str) -> str:
    """Return the address for connections of this machine to its own `listen`."""
    host, (_, port) = own_host(listen), split_address(listen)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Return whether ``host:port`` cannot leave this machine."""
    if address == VIA_RELAY:
        return False
    host, _ = split_address(address)
    return host == "localhost" or (is_ip(host) and ipaddress.ip_address(host).is_loopback)


def is_ip(host: str) -> bool:
    """Return whether it is an address of IPv4 or IPv6, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _checked_listen(text: str) -> str:
    try:
        split_address(text)
    except ConfigError as error:
        raise ValueError(f"{error.what}: {error.todo}") from None
    return text


def _checked_address(text: str) -> str:
    if split_address(_checked_listen(text))[1] == 0:
        raise ValueError(f"{text!r} has port 0, which cannot be called")
    return text


def _checked_way(text: str) -> str:
    return text if text == VIA_RELAY else _checked_address(text)


Listen = Annotated[str, AfterValidator(_checked_listen)]  # host:port; port 0 takes any free one
Address = Annotated[str, AfterValidator(_checked_address)]  # host:port
Way = Annotated[str, AfterValidator(_checked_way)]  # host:port, or `relay`
# How a daemon calls others: at their addresses; through the relay; at addresses that answer, and
# otherwise through the relay.
Reach: TypeAlias = Literal["direct", "outbound", "auto"]


def _checked_name(text: str) -> str:
    if NAME_PATTERN.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is not a name: a lower-case letter, then letters, digits and '-'")


CertifiedName = Annotated[str, AfterValidator(_checked_name)]  # of a party, coordinator or user


class Timers(Settings):
    """Every wait and its limit, in seconds; tests shorten them."""

    step_s: float = Field(600.0, gt=0)  # one step of a protocol, computation included
    call_s: float = Field(20.0, gt=0)  # one small question with a small answer
    peer_lost_s: float = Field(15.0, gt=0)  # silence after which a peer counts as lost
    retry_first_s: float = Field(0.5, gt=0)  # first pause before trying again; doubles
    retry_max_s: float = Field(20.0, gt=0)  # longest pause before trying again
    keepalive_s: float = Field(10.0, gt=0)  # between two pings, calls or not
    keepalive_timeout_s: float = Field(5.0, gt=0)  # wait for a ping's answer
    approval_s: float = Field(604_800.0, gt=0)  # a job waits this long for a person
    # A checkpoint of a short round, or inside one, comes no sooner behind the last; 0: every layer.
    keep_s: float = Field(1.0, ge=0)
    shutdown_s: float = Field(10.0, gt=0)  # calls that still run at the end may take this

    @model_validator(mode="after")
    def _check_order(self) -> Timers:
        if self.retry_first_s > self.retry_max_s:
            raise ValueError("retry_first_s must not be above retry_max_s")
        return self


class Remote(Settings):
    """Another daemon: the name in its certificate, and its address."""

    name: CertifiedName
    address: Way
    ca: FilePath | None = None  # PEM: the CA that alone certifies it; absent: tls.ca


class PinnedAddress(Settings):
    """An address, and the CA of the daemon there; a plain ``HOST:PORT`` has the CA in `tls.ca`."""

    address: Way
    ca: FilePath | None = None  # PEM: the CA that alone certifies it; absent: tls.ca

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, raw: object) -> object:
        return {"address": raw} if isinstance(raw, str) else raw

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return a schema that also allows the plain address."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @model_serializer
    def _as_text(self) -> object:
        """Return a plain address where no CA is pinned."""
        return self.address if self.ca is None else {"address": self.address, "ca": str(self.ca)}


TOKEN_CHARS_MIN = 32  # a token that can be guessed admits strangers


def _checked_token(text: str) -> str:
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    raise ValueError("a token has only letters, digits and signs of ASCII, and no spaces")


# Fields of this type are declared with repr=False.
Token = Annotated[str, Field(min_length=TOKEN_CHARS_MIN), AfterValidator(_checked_token)]


# A login has no character that would end it early in a URL; the host may lack a port.
PROXY_PATTERN = re.compile(
    r"http://([^/?#@\s\[\]]*@)?([A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?/?"
)


def _checked_proxy(text: str) -> str:
    if not text:
        return text
    matched = PROXY_PATTERN.fullmatch(text)
    if matched is None or matched[3] is None:  # not shown: it may hold a password
        raise ValueError(
            "this is no proxy: write http://[USER:WORD@]HOST:PORT, with %2F, %3F, %23 for /, ?, #"
        )
    return text


class RelayAddress(Settings):
    """The relay that a daemon or client dials, and how."""

    address: Address  # of its one port
    name: CertifiedName | None = None  # in its certificate; absent: the host in `address`
    ca: FilePath | None = None  # PEM: the CA that certifies it; absent: tls.ca
    # Where a proxy replaces certificates: identifies us instead of ours.
    token: Token | None = Field(None, repr=False)
    # http://[USER:WORD@]HOST:PORT of a proxy; empty: none; absent: HTTPS_PROXY, unless NO_PROXY
    # has the host.
    proxy: Annotated[str, AfterValidator(_checked_proxy)] | None = Field(None, repr=False)


def check_ways(addresses: Iterable[str], relay: object, reach: Reach) -> None:
    """Raise ValueError for a daemon called through the relay where no relay is named."""
    if relay is None and (reach != "direct" or VIA_RELAY in addresses):
        raise ValueError("relay is missing: give the address of the relay to dial")


INSECURE = "insecure_loopback is on: no link is encrypted and nobody is who they say they are"


def check_protection(tls: TlsFiles | None, insecure: bool, addresses: Mapping[str, str]) -> None:
    """Raise ValueError for links without TLS that leave this machine or were not requested."""
    if not insecure:
        if tls is None:
            raise ValueError("tls is missing: give ca, cert and key (fedboost certs create)")
        return
    if tls is not None:
        raise ValueError("insecure_loopback and tls exclude each other: remove one of them")
    for name, address in addresses.items():
        if not is_loopback(address):
            raise ValueError(f"insecure_loopback is refused: {name} at {address} is not loopback")
