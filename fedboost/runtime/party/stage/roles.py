"""A party's roles in one stage: its steps, and the senders and receivers of their messages.

Most parties have one role. An aggregator may be a guest or a host as well: then it has both, each
with its state, and a message from one to the other does not leave the party.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from fedboost import flow
from fedboost.flow import AGGREGATOR, GUEST, Role, StageContext, Step
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.settings import Settings

RUNS = (GUEST, AGGREGATOR)  # roles of a single party, so their messages have one sender


@dataclass
class ActiveRole:
    """One role of the party in this stage."""

    module: ModuleType
    context: StageContext[Settings]
    state: Any = None
    last_step: str | None = None


class Roles:
    """The roles of a party in its protocol, its own part first."""

    def __init__(self, protocol: flow.Protocol[Settings], context: StageContext[Settings]) -> None:
        """`context` is the party's; each role gets a copy."""
        self.protocol, self._table, self._party = protocol, context.table, context.party
        self._parts = {
            role: ActiveRole(protocol.module(role), replace(context, role=role))
            for role in context.table.roles_of(context.party)
            if role in protocol.modules
        }
        self._role_in = {
            step.name: role
            for step in protocol.flow
            for role in reversed(step.roles)
            if role in self._parts
        }

    def __iter__(self) -> Iterator[ActiveRole]:
        return iter(self._parts.values())

    @property
    def main(self) -> ActiveRole:
        """The party's own part; an aggregator's role leaves no result."""
        return next(iter(self))

    @property
    def are_open(self) -> bool:
        """Return whether every role has its state."""
        return all(part.state is not None for part in self)

    # Steps

    def step(self, name: str) -> Step:
        """Return our step of that name; a ProtocolError if we have none."""
        step = self.protocol.step(name)
        if step is None or not self.does_step(step):
            role = self.main.context.role
            raise ProtocolError(f"a {role} of {self.protocol.name} has no step {name[:64]!r}")
        return step

    def our_taker(self, kind: str) -> Step:
        """Return our step that takes messages of that kind; a PeerError if we have none."""
        for step in self.protocol.steps_taking(kind):
            if self.does_step(step):
                return step
        role = self.main.context.role
        raise PeerError(f"a {role} of {self.protocol.name} takes no {kind[:64]!r}")

    def does_step(self, step: Step) -> bool:
        """Return whether the step is ours."""
        return step.name in self._role_in

    def of(self, step: Step) -> ActiveRole:
        """Return our role in a step."""
        return self._parts[self._role_in[step.name]]

    def may_start(self, step: Step) -> bool:
        """Return whether it is the step's turn."""
        part = self.of(step)
        return self.protocol.may_follow(part.context.role, step, part.last_step)

    def start(self, step: Step) -> None:
        """Note that the step has begun; a ProtocolError if it is not its turn."""
        part = self.of(step)
        if not self.may_start(step):
            last = part.last_step or "the start"
            raise ProtocolError(f"{step.name} may not come after {last}", step=step.name)
        part.last_step = step.name

    # Senders and receivers

    def takes_stream(self, step: Step) -> bool:
        """Return whether the step's messages arrive as a stream."""
        return step.takes is not None and step.takes in self.protocol.streamed

    def is_only_taker(self, step: Step) -> bool:
        """Return whether only this step of ours takes such messages; else a call names the step."""
        assert step.takes is not None
        taking = self.protocol.steps_taking(step.takes.DESCRIPTOR.full_name)
        return sum(self.does_step(other) for other in taking) == 1

    def giving_roles(self, step: Step) -> tuple[Role, ...]:
        """Return the roles that give the step's messages."""
        return () if step.takes is None else self.protocol.roles_giving(step.takes)

    def has_one_giver(self, step: Step) -> bool:
        """Return whether a single party gives the step's messages, for any set of hosts."""
        return all(role in RUNS for role in self.giving_roles(step))

    def senders(self, step: Step, among: Iterable[str]) -> list[str]:
        """Return the senders of the step's messages, `among` these hosts (empty: all)."""
        return self._parties_of(self.giving_roles(step), step, among)

    def receivers(self, step: Step, among: Iterable[str]) -> list[str]:
        """Return the receivers of the step's messages."""
        assert step.gives is not None
        taking = self.protocol.steps_taking(step.gives.DESCRIPTOR.full_name)
        return self._parties_of([role for s in taking for role in s.roles], step, among)

    def _parties_of(self, roles: Iterable[Role], step: Step, among: Iterable[str]) -> list[str]:
        """Return the parties of these roles; ourselves only in another role than that of `step`."""
        known = tuple(roles)
        ours = any(role in self._parts and role not in step.roles for role in known)
        parties = self._table.among(known, tuple(among))
        return [party for party in parties if ours or party != self._party]
