"""The job file: its parties, data and parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from fedboost.data.selection import Selection
from fedboost.flow import Table
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings, parse_settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedboost.ground.ids import EncodedIds

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
JOB_ID = r"^[a-z0-9][a-z0-9-]{0,79}$"
VIA = " via "  # in a submitter: between a person and the coordinator whose page the person used
AUTO = "auto"  # the encryption scheme is chosen before the parties sign
PURPOSE_CHARS_MAX = 500  # a sentence or two
FOLDS_MAX = 1000  # each fold is a separate job


def _check_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name: letters, digits, - and _, at most 63")
    return text


Name = Annotated[str, AfterValidator(_check_name)]


class Parties(Settings):
    """Parties of a job, by role."""

    guest: Name | None = None  # holds the labels; or
    guests: list[Name] | None = Field(None, min_length=2, max_length=64)  # a job for each
    hosts: list[Name] = Field(min_length=1, max_length=64)
    aggregator: Name | None = None  # of horizontal jobs: adds up; a separate party or the guest

    @model_validator(mode="after")
    def _one_guest_or_several(self) -> Parties:
        if self.guest is None and self.guests is None:
            raise ValueError("the key 'guest' is missing (or 'guests', for a model of each)")
        if self.guest is not None and self.guests is not None:
            raise ValueError("guest and guests exclude each other: keep one of them")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Parties:
        if len(set(self.parties_with_data)) != len(self.parties_with_data):
            raise ValueError("a party is named twice among guest and hosts")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the one of guest and guests that is not set: parties sign no empty key."""
        absent = "guests" if self.guests is None else "guest"
        return {key: value for key, value in write(self).items() if key != absent}

    @property
    def parties_with_data(self) -> tuple[str, ...]:
        """Return the parties with a table: every guest, then the hosts."""
        guests = [self.guest] if self.guest is not None else self.guests or []
        return (*guests, *self.hosts)

    @property
    def everybody(self) -> tuple[str, ...]:
        """Return every guest, the hosts, and an aggregator that is none of them."""
        adds_up = () if self.aggregator is None else (self.aggregator,)
        return tuple(dict.fromkeys((*self.parties_with_data, *adds_up)))

    def table(self) -> Table:
        """Return the parties as protocols see them; a ConfigError if there are several guests."""
        if self.guest is None:
            raise ConfigError(
                "the job names several guests, and each trains in a separate job",
                todo="fedboost job submit, cluster run and simulate make one for each of `guests`",
                key="parties.guests",
            )
        return Table(self.guest, tuple(self.hosts), self.aggregator)


class Validation(Settings):
    """Rows held out on every party by id: a share of them, or one of several equal parts."""

    fraction: float | None = Field(None, gt=0.0, lt=1.0)  # of the aligned rows; or
    fold: int | None = Field(None, ge=0, lt=FOLDS_MAX)  # the part that is held out, from 0
    folds: int | None = Field(None, ge=2, le=FOLDS_MAX)  # parts; each row is in one of them
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _one_way(self) -> Validation:
        by_fold = (self.fold, self.folds)
        if self.fraction is None and None in by_fold:
            raise ValueError("name a fraction of the rows, or a fold and of how many folds")
        if self.fraction is not None and by_fold != (None, None):
            raise ValueError("fraction and folds are two ways to hold out rows: use one of them")
        if self.fold is not None and self.folds is not None and self.fold >= self.folds:
            raise ValueError(f"fold counts from 0: the last of {self.folds} is {self.folds - 1}")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys that are not set: parties sign no empty key."""
        return {key: value for key, value in write(self).items() if value is not None}

    @property
    def held_out_share(self) -> float:
        """Return the share of the rows that is held out."""
        return self.fraction if self.fraction is not None else 1.0 / (self.folds or 1)

    def rows(self, ids: EncodedIds, *, by_id: bool = False) -> NDArray[np.bool_]:
        """Return a mask of the rows held out, bool (n,).

        `by_id` is for parties that hold different ids: then shares are about right, not exact.
        """
        from fedboost.data import holdout

        if self.fold is not None and self.folds is not None:
            parted = holdout.fold_rows_by_id if by_id else holdout.fold_rows
            return parted(ids, self.fold, self.folds, self.seed)
        assert self.fraction is not None
        hold_out = holdout.validation_rows_by_id if by_id else holdout.validation_rows
        return hold_out(ids, self.fraction, self.seed)


class Alignment(Settings):
    """How a job finds the rows in common."""

    # oprf: fast for many ids; ecdh: for few. auto: oprf from 20,000 ids of the guest on, padding
    # included
    method: Literal["auto", "oprf", "ecdh"] = "auto"


class PassedOver(Settings):
    """An encryption scheme earlier in the order than the chosen one, and the objection to it."""

    scheme: str
    why: Literal["policy", "rows", "settings"]  # of parties, or of the job
    parties: Annotated[tuple[Name, ...], Field(strict=False)] = ()  # that object
    what: str = Field("", max_length=300)  # for settings: the missing feature

    def objection_text(self) -> str:
        """Return the objection as a sentence."""
        whose, many = " and ".join(f"{party}'s" for party in self.parties), len(self.parties) > 1
        if self.why == "policy":
            verb = "policies do" if many else "policy does"
            return f"{whose} {verb} not allow {self.scheme}"
        if self.why == "rows":
            return f"{whose} table{'s' * many} may have more rows than {self.scheme} adds up"
        return self.what


class ChosenScheme(Settings):
    """Scheme that `encryption.scheme: auto` stands for in a job; see `encrypted.scheme.choice`."""

    scheme: str
    passed: Annotated[tuple[PassedOver, ...], Field(strict=False)] = ()  # in the rule's order

    @property
    def reason_text(self) -> str:
        """Return why the rule chose this scheme."""
        against = "; ".join(scheme.objection_text() for scheme in self.passed)
        return against or "every party's policy allows it"

    def fill_scheme(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a job's `params` with the scheme in place of `auto`."""
        said = params.get("encryption")
        said = said if isinstance(said, Mapping) else {}
        if said.get("scheme", AUTO) != AUTO:
            return dict(params)
        return {**params, "encryption": {**said, "scheme": self.scheme}}


def encryption_of(params: Mapping[str, Any], chosen: ChosenScheme | None) -> dict[str, str]:
    """Return `scheme` and `reason_text` of a job with encryption; empty for any other job.

    `params` are those of the job's file and may be unchecked.
    """
    if chosen is not None:
        return {"scheme": chosen.scheme, "because": chosen.reason_text}
    said = params.get("encryption")
    scheme = said.get("scheme") if isinstance(said, Mapping) else None
    if not isinstance(scheme, str):
        return {}
    return {"scheme": scheme, "because": "the job names it"}


class JobSpec(Settings):
    """The job file."""

    name: Name  # the beginning of its id
    protocol: str  # how it trains; parties' policies have to name it
    parties: Parties
    data: dict[str, Selection] = Field(default_factory=dict)
    # The id of an earlier job of the same parties whose rows in common are used again; or how they
    # are found.
    alignment: str | Alignment | None = None
    validation: Validation | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    # Whether the guest keeps its secrets and the received messages, so that its owner can show an
    # auditor that it was honest.
    replayable: bool = False
    # Why the job runs, in a sentence, for the owners who approve it.
    purpose: str | None = Field(None, min_length=1, max_length=PURPOSE_CHARS_MAX)

    @field_validator("purpose")
    @classmethod
    def _one_line(cls, said: str | None) -> str | None:
        if said is not None and not (said.isprintable() and said.strip()):
            raise ValueError("a purpose is one line of printable characters")
        return said

    @field_validator("alignment", mode="before")
    @classmethod
    def _alignment(cls, said: Any) -> Any:
        """Return a job's id, or settings; a ValueError for anything else."""
        if isinstance(said, Mapping):
            return parse_settings(Alignment, said, section="alignment")
        is_job = isinstance(said, str) and re.fullmatch(JOB_ID, said)
        if not (is_job or said is None or isinstance(said, Alignment)):
            raise ValueError(f"{str(said)[:80]!r} is neither a job's id nor a method")
        return said

    @model_validator(mode="after")
    def _data_of_parties(self) -> JobSpec:
        known = set(self.parties.parties_with_data)
        for party in self.data:
            if party not in known:
                raise ValueError(f"data names {party!r}, which is neither guest nor host")
        missing = sorted(known - set(self.data))
        if missing:
            raise ValueError(f"data names no data set for {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _classes_alike(self) -> JobSpec:
        listed = {p: data.label_values for p, data in self.data.items() if data.label_values}
        for party, classes in listed.items():
            first, other = next(iter(listed.items()))
            same = {str(value) for value in classes} == {str(value) for value in other}
            if len(classes) != len(other) or (same and classes != other):
                raise ValueError(
                    f"label_values of {first} and {party} number the classes differently: list "
                    "them in one order"
                )
        return self

    @model_validator(mode="after")
    def _names_of_each(self) -> JobSpec:
        for guest in self.parties.guests or []:
            _check_name(self._name_for_guest(guest))
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys that the job does not set, as older versions signed it."""
        later = ("alignment", "replayable", "purpose")
        return {key: value for key, value in write(self).items() if key not in later or value}

    @property
    def alignment_job(self) -> str | None:
        """Return the id of the job whose rows in common are used again, if any are."""
        return self.alignment if isinstance(self.alignment, str) else None

    def split_by_guest(self) -> tuple[JobSpec, ...]:
        """Return a job NAME-GUEST for each guest with its and the hosts' data, or this one job."""
        if self.parties.guests is None:
            return (self,)
        return tuple(self._job_of_guest(guest) for guest in self.parties.guests)

    def _job_of_guest(self, guest: str) -> JobSpec:
        parties = self.parties.model_copy(update={"guest": guest, "guests": None})
        data = {party: self.data[party] for party in parties.parties_with_data}
        changed = {"name": self._name_for_guest(guest), "parties": parties, "data": data}
        return self.model_copy(update=changed)

    def _name_for_guest(self, guest: str) -> str:
        return f"{self.name}-{guest}"
