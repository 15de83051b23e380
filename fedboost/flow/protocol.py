"""A protocol as the runtime sees it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from google.protobuf.message import Message

from fedboost.flow.roles import Role, Table
from fedboost.flow.run import Walk
from fedboost.flow.steps import Step
from fedboost.ground.settings import Settings

if TYPE_CHECKING:  # a coordinator knows no tables
    from fedboost.data.frame import Frame

P = TypeVar("P", bound=Settings)


@dataclass(frozen=True)
class Releases:
    """Forecast of a job's releases about one column of a host: equations about any bin of it.

    A party with a sum that knows each row's part of it has one equation on the rows in a bin. The
    actual account is the sum of the charges of sent messages.
    """

    whole: int  # for any number of rows
    by_row: float = 0.0  # and for each row
    # Most bits that its sums can tell of a column, by numbers of bins and rows.
    sum_bits: Callable[[int, int], float] | None = field(default=None, compare=False)
    layers: int = field(default=0, compare=False)  # of splits: each tells one bit of each row

    def ratio(self, rows: int) -> float:
        """Return the number of equations per row."""
        return self.whole / max(1, rows) + self.by_row


class RowsUsed(Enum):
    """Rows that a job is about."""

    COMMON = "common"  # rows that all parties have
    GUESTS = "guests"  # the guest's; each host has some of them, perhaps none, matched by ids
    OWN = "own"  # every party's, different ones; all have the same columns


@dataclass(frozen=True)
class Asks:
    """Demands of a protocol's parameters on a party's policy."""

    scheme: str | None = None
    key_bits: int | None = None  # None for schemes without a modulus
    gradient_bits: int | None = None  # declared bits of one encrypted gradient
    insecure: bool = False  # the scheme hides nothing from a curious peer
    epsilon: float | None = None  # of a value that a host discloses; inf: without noise
    host_noise: float | None = None  # σ of the hosts' noise on sums; None if hosts release none
    gradient_check: bool | None = None  # hosts check that gradients keep to their bits
    key_trees: int | None = None  # trees under one secret of a lattice; None for other schemes
    own_cells: bool = False  # contributors add up cells of their own rows (own_rows_min)
    quantile_tolerance: int | None = None  # rows, said for a search of cut points; None: default


@dataclass(frozen=True)
class TableUse(Generic[P]):
    """Use of the parties' tables by a protocol's jobs."""

    labelled: tuple[Role, ...] = ()  # roles whose tables must hold the label
    rows: RowsUsed = RowsUsed.COMMON
    bins_values: bool = False  # whether only `begin` and `restore` read a table's values
    # Most bins of a column in the table of a role, missing values aside; None: it has no bins.
    bins: Callable[[P, Role], int | None] = lambda _params, _role: None
    # Refuses a table before any payload leaves; the bool says whether rows are held out.
    check: Callable[[Role, P, Frame, bool], None] | None = None


@dataclass(frozen=True)
class PolicyFacts(Generic[P]):
    """Facts about jobs that a policy judges, by their params."""

    asks: Callable[[P], Asks] = lambda _: Asks()
    # Forecast of the releases about a host, by the params, the parties, the host's name, and its
    # number of columns (None: not known, or the job's first tree is not its model's).
    releases: Callable[[P, Table, str, int | None], Releases] | None = None


@dataclass(frozen=True)
class ModelUse(Generic[P]):
    """Use of an earlier model by jobs."""

    named_by: Callable[[P], str | None]  # the model's id, if the params name one
    # Refuses a model that the params cannot use, by the facts of the party's own shard.
    fits: Callable[[P, Mapping[str, object]], None]
    # Protocols that such a job runs first, behind `Protocol.before`; with their params but `model`.
    before: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class DisclosureReuse(Generic[P]):
    """Reuse of an earlier job's disclosure; no protocol comes before such a job."""

    named_by: Callable[[P], str | None]  # the earlier job's id, if the params name one
    settled: tuple[str, ...] = ()  # params that such a job may not set: the earlier one did


@dataclass(frozen=True)
class ReplaySupport(Generic[P]):
    """Replay of a guest's jobs."""

    lacks: Callable[[P], str]  # why jobs with these params cannot be replayed; empty: they can
    # Names the subject of a message that differs in a replay: from the guest's state, the step, the
    # honest message, and the sent message if it is kept.
    place: Callable[[object, str, Message, Message | None], str]


@dataclass(frozen=True)
class Protocol(Generic[P]):
    """A protocol as the runtime sees it.

    A role's module holds `begin(context) -> state`, a function `(state, got) -> Out |
    Iterator[Out]` for each of its steps (without `got` if the step takes nothing), `snapshot(state,
    place)` and `restore(state, artefact) -> StatusReport` for checkpoints, `finish(state) ->
    Artefact` and `bytes_max(state, step)`, the limit of a message to that step. The report of
    `restore` may end a loop that the place is in.
    """

    name: str
    params: type[P]
    flow: tuple[Step, ...]
    walk: Walk
    modules: Mapping[Role, str]  # names; loaded by parties of the role
    before: tuple[str, ...] = ()  # protocols whose artefacts this one needs, in order
    # The artefact of `finish`; "rows" is an array `rows`, int64: row numbers in the party's table
    # for later stages, in their order there.
    leaves: Literal["artefact", "rows", "model", "predictions"] = "artefact"
    several_guests: bool = False  # a job may name several; each trains a model
    tables: TableUse[P] = TableUse()
    policy: PolicyFacts[P] = PolicyFacts()
    # Kind of round `number`: rounds of one kind take equally long; None: all do.
    round_kind: Callable[[P, Table, int], object] | None = None
    # Abilities that a protocol may lack.
    model: ModelUse[P] | None = None
    reuse: DisclosureReuse[P] | None = None
    replay: ReplaySupport[P] | None = None

    def module(self, role: Role) -> ModuleType:
        """Return the module of a role, with all its functions; see above."""
        return importlib.import_module(self.modules[role])

    @property
    def timing_name(self) -> str:
        """Name of the stage in the result's `seconds`: by its artefact, or the protocol's name."""
        return {"rows": "align", "model": "train", "predictions": "predict"}.get(
            self.leaves, self.name
        )

    def used_model(self, params: P) -> str | None:
        """Return the id of the model that a job with these params uses, if it uses one."""
        return None if self.model is None else self.model.named_by(params)

    def stages(self, params: P) -> tuple[str, ...]:
        """Return the protocols of a job with these params, in order; this one is the last."""
        if self.used_disclosure(params) is not None:
            return (self.name,)
        uses = None if self.used_model(params) is None else self.model
        scoring = () if uses is None else tuple(uses.before)
        return (*self.before, *scoring, self.name)

    def used_disclosure(self, params: P) -> str | None:
        """Return the id of the job whose disclosure a job with these params uses again, if any."""
        return None if self.reuse is None else self.reuse.named_by(params)

    def step(self, name: str) -> Step | None:
        """Return the step of that name."""
        return self._by_name.get(name)

    def steps_taking(self, kind: str) -> list[Step]:
        """Return the steps that take messages of that full name."""
        return self._steps_by_message.get(kind, [])

    def roles_giving(self, kind: type[Message]) -> tuple[Role, ...]:
        """Return the roles that give messages of that type."""
        return self._roles_by_message.get(kind, ())

    @cached_property
    def streamed(self) -> frozenset[type[Message]]:
        """Messages that come in parts."""
        return frozenset(step.gives for step in self.flow if step.gives and step.streams)

    @cached_property
    def _roles_by_message(self) -> dict[type[Message], tuple[Role, ...]]:
        givers: dict[type[Message], tuple[Role, ...]] = {}
        for step in self.flow:
            if step.gives is not None:
                known = givers.get(step.gives, ())
                givers[step.gives] = tuple(dict.fromkeys((*known, *step.roles)))
        return givers

    @cached_property
    def _by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.flow}

    @cached_property
    def _steps_by_message(self) -> dict[str, list[Step]]:
        takers: dict[str, list[Step]] = {}
        for step in self.flow:
            if step.takes is not None:
                takers.setdefault(step.takes.DESCRIPTOR.full_name, []).append(step)
        return takers

    def may_follow(self, role: Role, step: Step, last: str | None) -> bool:
        """Return whether a party of `role` whose last step was `last` may do `step` now."""
        if step.after is not None:
            return last in step.after
        steps = [s.name for s in self.flow if role in s.roles]
        place = steps.index(step.name)
        return last == (steps[place - 1] if place else None)
