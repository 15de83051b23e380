"""A job as its file says it: who takes part, with which data and parameters."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fedboost.data.selection import Selection
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

    guest: Name
    hosts: list[Name] = Field(min_length=1, max_length=64)
    aggregator: Name | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Parties:
        named = [self.guest, *self.hosts]
        if len(set(named)) != len(named):
            raise ValueError("a party is named twice among guest and hosts")
        return self

    def table(self) -> Table:
        """The same, as protocols see it."""
        return Table(self.guest, tuple(self.hosts), self.aggregator)


class Validation(Settings):
    """Rows held out on every party by id."""

    fraction: float = Field(gt=0.0, lt=1.0)  # of the aligned rows
    seed: int = Field(0, ge=0)


class JobSpec(Settings):
    """The job file."""

    name: Name
    protocol: str
    parties: Parties
    data: dict[str, Selection] = Field(default_factory=dict)
    validation: Validation | None = None
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _data_of_parties(self) -> JobSpec:
        known = {self.parties.guest, *self.parties.hosts}
        for party in self.data:
            if party not in known:
                raise ValueError(f"data names {party!r}, which is neither guest nor host")
        missing = sorted(known - set(self.data))
        if missing:
            raise ValueError(f"data names no data set for {', '.join(missing)}")
        return self
