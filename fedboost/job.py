"""A job as its file says it: who takes part, with which data and parameters."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedboost.data.selection import Selection
from fedboost.errors import ConfigError
from fedboost.flow import Table
from fedboost.settings import Settings

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name: letters, digits, - and _, at most 63")
    return text


Name = Annotated[str, AfterValidator(_name)]


class Parties(Settings):
    """Who takes part, by role."""

    guest: Name | None = None  # holds the labels; or
    guests: list[Name] | None = Field(None, min_length=2, max_length=64)  # a job for each
    hosts: list[Name] = Field(min_length=1, max_length=64)
    aggregator: Name | None = None  # of horizontal jobs: adds up; a party of its own or the guest

    @model_validator(mode="after")
    def _one_guest_or_several(self) -> Parties:
        if self.guest is None and self.guests is None:
            raise ValueError("the key 'guest' is missing (or 'guests', for a model of each)")
        if self.guest is not None and self.guests is not None:
            raise ValueError("guest and guests exclude each other: keep one of them")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Parties:
        if len(set(self.with_data)) != len(self.with_data):
            raise ValueError("a party is named twice among guest and hosts")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only one of guest and guests, so that what parties sign names nothing that is not."""
        absent = "guests" if self.guests is None else "guest"
        return {key: value for key, value in write(self).items() if key != absent}

    @property
    def with_data(self) -> tuple[str, ...]:
        """Who has a table: every guest, then the hosts."""
        guests = [self.guest] if self.guest is not None else self.guests or []
        return (*guests, *self.hosts)

    @property
    def everybody(self) -> tuple[str, ...]:
        """Every guest, the hosts, and an aggregator that is none of them."""
        adds_up = () if self.aggregator is None else (self.aggregator,)
        return tuple(dict.fromkeys((*self.with_data, *adds_up)))

    def table(self) -> Table:
        """The same, as protocols see it; a ConfigError where there are several guests."""
        if self.guest is None:
            raise ConfigError(
                "the job names several guests, and each trains in a job of its own",
                todo="fedboost job submit, cluster run and simulate make one for each of `guests`",
                key="parties.guests",
            )
        return Table(self.guest, tuple(self.hosts), self.aggregator)


class Validation(Settings):
    """Rows held out on every party by id."""

    fraction: float = Field(gt=0.0, lt=1.0)  # of the aligned rows
    seed: int = Field(0, ge=0)


class JobSpec(Settings):
    """The job file."""

    name: Name  # the beginning of its id
    protocol: str  # how it trains; parties' policies have to name it
    parties: Parties
    data: dict[str, Selection] = Field(default_factory=dict)
    validation: Validation | None = None
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _data_of_parties(self) -> JobSpec:
        known = set(self.parties.with_data)
        for party in self.data:
            if party not in known:
                raise ValueError(f"data names {party!r}, which is neither guest nor host")
        missing = sorted(known - set(self.data))
        if missing:
            raise ValueError(f"data names no data set for {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _names_of_each(self) -> JobSpec:
        for guest in self.parties.guests or []:
            _name(self._named(guest))
        return self

    def one_each(self) -> tuple[JobSpec, ...]:
        """A job NAME-GUEST for each guest, with its data and the hosts'; with one guest itself."""
        if self.parties.guests is None:
            return (self,)
        return tuple(self._of(guest) for guest in self.parties.guests)

    def _of(self, guest: str) -> JobSpec:
        parties = self.parties.model_copy(update={"guest": guest, "guests": None})
        data = {party: self.data[party] for party in parties.with_data}
        own = {"name": self._named(guest), "parties": parties, "data": data}
        return self.model_copy(update=own)

    def _named(self, guest: str) -> str:
        return f"{self.name}-{guest}"
