"""Settings of a relay: alone, or inside the coordinator's daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from fedboost.ground.settings import Settings
from fedboost.runtime.config.metrics import MetricsConfig
from fedboost.runtime.process.logs import LogFormat
from fedboost.runtime.transport.addresses import (
    TOKEN_CHARS_MIN,
    CertifiedName,
    Listen,
    Timers,
)
from fedboost.runtime.transport.identity import CertificateRole
from fedboost.runtime.transport.roots import CertificateOwner
from fedboost.runtime.transport.tls import FilePath, TlsFiles

Token = Annotated[str, Field(min_length=TOKEN_CHARS_MIN)]


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
    def _pin_authorities(self) -> RelayConfig:
        object.__setattr__(self, "tls", self.tls.with_pins(self.pinned_authorities()))
        return self
