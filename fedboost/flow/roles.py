"""Parties of a job, and their roles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Role of a party in one job."""

    GUEST = "guest"  # holds the labels, owns the key
    HOST = "host"  # holds further columns
    AGGREGATOR = "aggregator"  # adds masked shares, holds no data


GUEST, HOST, AGGREGATOR = Role.GUEST, Role.HOST, Role.AGGREGATOR
EVERYBODY = (GUEST, HOST)


@dataclass(frozen=True)
class Table:
    """Parties of a job, by role, in the manifest's order."""

    guest: str
    hosts: tuple[str, ...]
    aggregator: str | None = None

    def of(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """Return the parties with any of these roles, guest first."""
        named = {GUEST: (self.guest,), HOST: self.hosts, AGGREGATOR: (self.aggregator,)}
        parties = [party for role in Role if role in roles for party in named[role] if party]
        return tuple(dict.fromkeys(parties))

    def among(self, roles: tuple[Role, ...], hosts: Collection[str]) -> tuple[str, ...]:
        """Return the same, without hosts outside `hosts`; empty `hosts` leaves no host out."""
        left_out = set(self.hosts) - set(hosts) if hosts else set()
        return tuple(party for party in self.of(roles) if party not in left_out)

    def roles_of(self, party: str) -> tuple[Role, ...]:
        """Return a party's roles, main role first; none for a stranger. A guest may add up too."""
        held = {GUEST: party == self.guest, HOST: party in self.hosts}
        held[AGGREGATOR] = party == self.aggregator
        return tuple(role for role in Role if held[role])

    def role_of(self, party: str) -> Role | None:
        """Return a party's main role, or None for a stranger."""
        return next(iter(self.roles_of(party)), None)
