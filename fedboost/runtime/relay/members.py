"""Members of a relay, who prove themselves by certificate or by a token."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import compare_digest
from typing import TypeAlias

from aiohttp.web import Request

from fedboost.ground.errors import FedboostError, PolicyError
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.config.relay import RelayConfig, RelayService
from fedboost.runtime.transport.authorities import Authorities
from fedboost.runtime.transport.roots import CertificateOwner

Tokens: TypeAlias = Mapping[CertificateOwner, str | None]  # of all members; None: by certificate


def members_of_relay(config: RelayConfig) -> Tokens:
    """Return the members in a relay's own settings."""
    return {(member.role, name): member.token for name, member in config.members.items()}


def members_of_coordinator(config: CoordinatorConfig) -> Tokens:
    """Return the members of the relay in a coordinator's daemon: its parties, users and itself."""
    assert isinstance(config.relay, RelayService)
    tokens = config.relay.tokens
    owners: list[CertificateOwner] = [
        ("coordinator", config.name),
        *(("party", name) for name in config.parties),
        *(("user", name) for name in config.users.names),
    ]
    # A token is one member's: a daemon's, where a user has the same name.
    first = {name: (role, name) for role, name in reversed(owners)}
    return {owner: tokens.get(owner[1]) if first[owner[1]] == owner else None for owner in owners}


@dataclass(frozen=True)
class MemberProof:
    """Proof of a caller's name: a token, or a certificate whose chain TLS has checked."""

    token: str | None = field(repr=False)
    der: bytes | None = field(repr=False)

    @classmethod
    def of_request(cls, request: Request) -> MemberProof:
        """Return the proof that a caller shows."""
        shown = request.headers.get("Authorization")
        connection = request.get_extra_info("ssl_object")
        der = None if connection is None else connection.getpeercert(binary_form=True)
        return cls(None if shown is None else shown.removeprefix("Bearer "), der)


class Members:
    """The members of a relay; everybody else is refused."""

    def __init__(self, tokens: Callable[[], Tokens], authorities: Authorities) -> None:
        """Prepare the checks; `tokens` returns the current members."""
        self._tokens, self._authorities = tokens, authorities

    @property
    def clients(self) -> ssl.VerifyMode:
        """TLS's demand for certificates: required, or optional if a member has a token."""
        some = any(token is not None for token in self._tokens().values())
        return ssl.CERT_OPTIONAL if some else ssl.CERT_REQUIRED

    def identify(self, proof: MemberProof) -> CertificateOwner:
        """Return the member behind a proof; raise PolicyError for a stranger."""
        if proof.token is None:
            owner = self._by_certificate(proof.der)
        else:
            owner = self._by_token(proof.token)
        if owner not in self._tokens():
            raise PolicyError(f"{' '.join(owner)} is no member", todo="add it to `members`")
        return owner

    def _by_certificate(self, der: bytes | None) -> CertificateOwner:
        if der is None:
            raise PolicyError("a caller shows neither certificate nor token", todo="")
        try:
            return self._authorities.verify(ssl.DER_cert_to_PEM_cert(der).encode()).owner
        except FedboostError as error:
            raise PolicyError(error.what, todo=error.todo) from None

    def _by_token(self, shown: str) -> CertificateOwner:
        given = shown.encode(errors="replace")
        # All are compared, so that the time says nothing.
        found = [
            owner
            for owner, token in self._tokens().items()
            if token is not None and compare_digest(token.encode(), given)
        ]
        if not found:
            raise PolicyError("a caller shows a token that is nobody's", todo="")
        return found[0]
