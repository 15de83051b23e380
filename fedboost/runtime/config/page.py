"""Settings of the page that a daemon serves to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from fedboost.ground.printable import without_login
from fedboost.ground.settings import Settings
from fedboost.runtime.config.fields import HostName
from fedboost.runtime.transport.addresses import Address, CertifiedName, is_loopback
from fedboost.runtime.transport.tls import TlsFiles


def is_web_address(text: str) -> bool:
    """Return whether it is an https address, or an http one of this machine."""
    try:
        address = urlsplit(text)
        host, _ = address.hostname or "", address.port
    except ValueError:
        return False
    is_here = address.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")
    return (address.scheme == "https" or is_here) and bool(host)


def _checked_issuer(text: str) -> str:
    if is_web_address(text) and not {"?", "#", "@"} & set(text):
        return text
    shown = without_login(text)
    raise ValueError(f"{shown!r} is no issuer: https://HOST/…, as the provider's own page says it")


class Oidc(Settings):
    """Provider of OpenID Connect for sign-in to a page, beside its token."""

    issuer: Annotated[
        str, AfterValidator(_checked_issuer)
    ]  # https://HOST/…, as the provider says it
    client_id: str = Field(min_length=1)  # as the provider knows the page
    client_secret: str | None = Field(None, repr=False)  # as ${file:/path}; absent: a public client
    scopes: Annotated[tuple[str, ...], Field(strict=False)] = ()  # asked for beside `openid`
    claim: str = "groups"  # of the ID token
    roles: Mapping[CertifiedName, Annotated[tuple[str, ...], Field(strict=False, min_length=1)]] = (
        Field(
            min_length=1  # by role of the page: values of the claim; the first match counts
        )
    )


class Page(Settings):
    """The page that a daemon serves to people beside its own port."""

    listen: Address  # the page's own port
    user: CertifiedName  # user for whom the page acts, with that user's rights
    allow_remote: bool = False  # by TLS with the daemon's certificate, and then from anywhere
    names: Annotated[tuple[HostName, ...], Field(strict=False)] = ()  # host names for browsers
    oidc: Oidc | None = None  # absent: by the token alone
    session_hours: float = Field(12.0, gt=0.0, le=168.0)  # from signing in until it ends

    @property
    def users(self) -> tuple[str, ...]:
        """Return all users that the page may act for."""
        return (self.user, *(() if self.oidc is None else self.oidc.roles))


def check_page(page: Page, tls: TlsFiles | None) -> None:
    """Raise ValueError for a page that would go through a network in the clear."""
    if page.allow_remote and tls is None:
        raise ValueError("page.allow_remote needs tls: a page goes through no network in the clear")
    if not page.allow_remote and not is_loopback(page.listen):
        raise ValueError(
            f"page.listen is {page.listen}, which other machines can reach: listen on 127.0.0.1 "
            "and come through an SSH tunnel, or set page.allow_remote"
        )
