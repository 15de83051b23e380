"""Settings of a relay: alone, or inside the coordinator's daemon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, model_validator

from fedboost.ground.settings import Settings
from fedboost.runtime.config.metrics import MetricsConfig
from fedboost.runtime.process.logs import LogFormat
from fedboost.runtime.transport.addresses import (
    CertifiedName,
    Listen,
    Timers,
    Token,
)
from fedboost.runtime.transport.identity import CertificateRole
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.tls import FilePath, TlsFiles


def _check_distinct(tokens: Iterable[str | None]) -> None:
    given = [token for token in tokens if token is not None]
    if len(set(given)) < len(given):
        raise ValueError("two members have the same token: give each its own")


class RelayMember(Settings):
    """A member: it dials in by certificate, or by a token if a proxy replaces certificates."""

    role: CertificateRole = "party"
    ca: FilePath | None = None  # PEM: the CA that alone certifies it; absent: tls.ca
    token: Token | None = Field(None, repr=False)  # as ${file:/path}


class RelayService(Settings):
    """A relay inside the coordinator's daemon: its parties and users may dial in."""

    listen: Listen  # the one port that they dial
    # By name, of members behind a proxy that replaces certificates; as ${file:/path}.
    tokens: Mapping[CertifiedName, Token] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _check_tokens(self) -> RelayService:
        _check_distinct(self.tokens.values())
        return self


class RelayConfig(Settings):
    """The file of ``fedboost relay serve``."""

    name: CertifiedName  # as in our certificate
    listen: Listen  # the one port that members dial
    tls: TlsFiles
    members: Mapping[CertifiedName, RelayMember] = Field(min_length=1)  # by name; only they dial in
    timers: Timers = Timers()
    metrics: MetricsConfig | None = None  # absent: no metrics
    logs: LogFormat = "text"  # json: one object a line

    def pinned_authorities(self) -> dict[CertificateOwner, Path | None]:
        """Return the CA of each member who has another than ours."""
        return {(member.role, name): member.ca for name, member in self.members.items()}

    @model_validator(mode="after")
    def _check_tokens(self) -> RelayConfig:
        _check_distinct(member.token for member in self.members.values())
        return self

    @model_validator(mode="after")
    def _pin_authorities(self) -> RelayConfig:
        object.__setattr__(self, "tls", self.tls.with_pins(self.pinned_authorities()))
        return self
