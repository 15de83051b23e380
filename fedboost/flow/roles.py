"""Who takes part in a job, and as what."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a party does in one job."""

    GUEST = "guest"  # holds the labels, owns the key
    HOST = "host"  # holds further columns
    AGGREGATOR = "aggregator"  # adds masked shares, holds no data


GUEST, HOST, AGGREGATOR = Role.GUEST, Role.HOST, Role.AGGREGATOR
EVERYBODY = (GUEST, HOST)


@dataclass(frozen=True)
class Table:
    """Who takes part in a job, by role, in the manifest's order."""

    guest: str
    hosts: tuple[str, ...]
    aggregator: str | None = None

    def of(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """The parties with any of these roles, guest first."""
        named = {GUEST: (self.guest,), HOST: self.hosts, AGGREGATOR: (self.aggregator,)}
        parties = [party for role in Role if role in roles for party in named[role] if party]
        return tuple(dict.fromkeys(parties))

    def among(self, roles: tuple[Role, ...], hosts: Collection[str]) -> tuple[str, ...]:
        """The same, without the hosts that are not in `hosts`; empty `hosts` leaves nobody out."""
        left_out = set(self.hosts) - set(hosts) if hosts else set()
        return tuple(party for party in self.of(roles) if party not in left_out)

    def roles_of(self, party: str) -> tuple[Role, ...]:
        """A party's roles, its own part first; none for a stranger. A guest may add up, too."""
        held = {GUEST: party == self.guest, HOST: party in self.hosts}
        held[AGGREGATOR] = party == self.aggregator
        return tuple(role for role in Role if held[role])

    def role_of(self, party: str) -> Role | None:
        """A party's own part, or None for a stranger."""
        return next(iter(self.roles_of(party)), None)
