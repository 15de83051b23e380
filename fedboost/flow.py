"""What a protocol is: roles, steps, the messages between them and the walk; no I/O.

A protocol is a folder below `fedboost.protocols`. Its `walk.py` holds the table of steps and the
order in which the coordinator calls them; one module per role holds one plain function per step.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from typing import Protocol as Interface

from google.protobuf.message import Message

from fedboost.errors import ProtocolError
from fedboost.messages.job_pb2 import StatusReport
from fedboost.settings import Settings

if TYPE_CHECKING:  # a coordinator knows no tables
    import numpy as np
    from numpy.typing import NDArray

    from fedboost.crypto.secrets import Secrets
    from fedboost.crypto.workers import Workers
    from fedboost.data.frame import Frame
    from fedboost.state import GrownList

T = TypeVar("T")


class Role(StrEnum):
    """What a party does in one job."""

    GUEST = "guest"  # holds the labels, owns the key
    HOST = "host"  # holds further columns
    AGGREGATOR = "aggregator"  # adds masked shares, holds no data


# Where a job stands: rounds done of the walk's outermost loop and, inside the next one, how many of
# each loop under way, outermost first. Places are compared as tuples are.
Place = tuple[int, ...]
START: Place = (0,)
LOOP: Place = (*START, 0)  # in front of the first round, with all that it stands on

UNBOUNDED = 1 << 20  # `most` of a loop that only a party's answer ends; nobody knows its rounds
# A fact of a checkpoint, hex: what all parties of its stage that have kept the place have alike.
HISTORY = "history_sha256"
MODEL = "model"  # the artefact of stages that use a model: the party's own shard
DISCLOSURE = "disclosure"  # that of one that uses an earlier job's disclosure again

GUEST, HOST, AGGREGATOR = Role.GUEST, Role.HOST, Role.AGGREGATOR
EVERYBODY = (GUEST, HOST)


@dataclass(frozen=True)
class Step:
    """One row of a protocol's table: who does it, which message it takes and which it gives.

    A step runs only when the messages it takes have arrived, and uses each once. `after` names the
    steps of the same role that may come right before; None means the one above in the table.
    """

    name: str
    role: Role | tuple[Role, ...]
    takes: type[Message] | None = None
    gives: type[Message] | None = None
    after: tuple[str | None, ...] | None = None
    streams: bool = False  # the message it gives comes in parts; the taker starts at the first
    one_sender: bool = False  # takes one message from anybody, not one from each
    tolerates: bool = False  # takes the messages that have come, whoever has sent none
    # Is told, last, which parties of these roles still take part; the others never will again.
    hears: tuple[Role, ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that do this step."""
        return self.role if isinstance(self.role, tuple) else (self.role,)


class Spent(StrEnum):
    """Kinds of what a message tells of a table; each adds up in the table's budget."""

    SUMS = "sums"  # of a column: equations about any bin of it, by the rows that are learnt from
    EPSILON = "epsilon"  # of a column: of a row's value, told with noise; inf: without
    ROWS = "rows"  # that are predicted, of a job's rows in common: never more than there are
    IDS = "ids"  # that an alignment opens
    TOTALS = "totals"  # values of sums under masks, by the rows that are learnt from
    METRICS = "metrics"  # values about labels that a coordinator hears: metrics, points of curves


@dataclass(frozen=True)
class Charge:
    """What one message takes out of its table's budget."""

    kind: Spent
    amount: float
    column: str = ""  # of the table; empty where it is about rows, not values


@dataclass(frozen=True)
class DisclosureInfo:
    """What a step knows of the people behind a message; for the party's own ledger, never sent."""

    rows: int | None = None  # how many of them
    groups: int | None = None  # over how many groups of them it says something each
    smallest_group: int | None = None  # rows in the smallest of these
    epsilon: float | None = None  # of the noise on each value
    charges: tuple[Charge, ...] = ()
    # Whether the same bytes, to the same receiver in the same job, tell nothing new: not where they
    # answer a question, which may be another one.
    is_free_again: bool = False

    @classmethod
    def of_groups(cls, sizes: Iterable[int]) -> Self:
        """About the rows of groups of these sizes; empty groups are nobody's."""
        held = [size for size in sizes if size]
        return cls(sum(held), len(held), min(held, default=None))


@dataclass(frozen=True)
class Out:
    """What a step leaves: one message for all takers or one each, and words to the coordinator.

    `about` is one for all messages, or one each.
    """

    send: Message | Mapping[str, Message] | None = None
    told: StatusReport | None = None
    about: DisclosureInfo | Mapping[str, DisclosureInfo] = DisclosureInfo()


@dataclass(frozen=True)
class Artefact:
    """What a stage leaves in a party's own store: a checkpoint, an alignment, a model shard.

    `facts` is JSON, `arrays` are plain numpy arrays; neither ever travels.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    disclosure: Artefact | None = None  # beside it, what later jobs may use again
    transcript: Artefact | None = None  # and, since the last one, what an audit needs to know
    # Of a checkpoint, the lists that only grow; the store knows what it has of them
    grown: Mapping[str, GrownList] = field(default_factory=dict)

    @classmethod
    def of_state(cls, held: Any, transcript: Artefact | None = None, history: bytes = b"") -> Self:
        """Return a checkpoint of a dataclass (`fedboost.state`); `history` is its `HISTORY`."""
        from fedboost.state import parted_state

        facts, arrays, grown = parted_state(type(held), held)
        if history:
            facts[HISTORY] = history.hex()
        return cls(facts, arrays, transcript=transcript, grown=grown)

    def whole(self) -> Artefact:
        """Return the same with all lists among facts and arrays, as a store gives it back."""
        from fedboost.state import joined_state

        pieces = [one.since(0) for one in self.grown.values()]
        facts, arrays = joined_state(self.facts, self.arrays, pieces)
        return replace(self, facts=facts, arrays=arrays, grown={})

    def state(self, kind: type[T]) -> T:
        """Return what `of_state` has kept, of this kind."""
        from fedboost.state import load_state

        kept = self.whole()
        return load_state(kind, kept.facts, kept.arrays)


@dataclass(frozen=True)
class Releases:
    """What a job is expected to tell of one column of a host: equations about any bin of it.

    Whoever gets a sum and knows what each row adds to it has one equation on the rows in a bin. A
    forecast: what counts is what the messages that leave are charged with.
    """

    whole: int  # however many rows there are
    by_row: float = 0.0  # and for each of them

    def ratio(self, rows: int) -> float:
        """Equations by rows."""
        return self.whole / max(1, rows) + self.by_row


@dataclass(frozen=True)
class Table:
    """Who takes part in a job, by role, in the manifest's order."""

    guest: str
    hosts: tuple[str, ...]
    aggregator: str | None = None

    def of(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """The parties with any of these roles, guest first."""
        named = {GUEST: (self.guest,), HOST: self.hosts, AGGREGATOR: (self.aggregator,)}
        found = [party for role in Role if role in roles for party in named[role] if party]
        return tuple(dict.fromkeys(found))

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


class Signer(Interface):
    """The certificates of a job's parties at work."""

    def sign(self, text: bytes) -> bytes:
        """Our signature under a text."""

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Refuses, with a PeerError, what that party has not signed."""


class Notebook(Interface):
    """What a party must know again in every later attempt, whatever happens to this one."""

    def read(self) -> dict[str, Any]:
        """Return what was written last; nothing at first."""

    def write(self, facts: dict[str, Any]) -> None:
        """JSON; on the disk when this returns."""


@dataclass
class MemoryNotebook(Notebook):
    """A notebook without a store: it lasts as long as its process."""

    facts: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        """See `Notebook`."""
        return dict(self.facts)

    def write(self, facts: dict[str, Any]) -> None:
        """Keep the facts as JSON would; nothing reaches a disk."""
        self.facts = json.loads(json.dumps(facts))


@dataclass(frozen=True)
class StageContext:
    """What a party brings to one stage of a job."""

    party: str
    role: Role
    table: Table
    params: Any  # the protocol's own Settings
    frame: Frame | None  # the party's rows; None for a party without data
    validation: NDArray[np.bool_]  # rows of `frame` held out, on every party the same ids
    secrets: Secrets  # fresh for this stage and attempt
    job_secrets: Secrets  # of this stage, the same in every attempt: for what must not be redrawn
    # By a job's id: of what that job told first, as long as the store lives, for whatever tells it
    # again. Only of the party itself, so that nobody else can compute it.
    lasting_secrets: Callable[[str], Secrets]
    job: str  # its id
    origin: bytes  # 32 of them that no other job, manifest or stage has
    attempt_digest: bytes  # and 32 that no other attempt has
    place: Place  # behind which the stage is opened
    kept: Mapping[Place, str]  # the places that we could go on from, and their `HISTORY` if any
    signer: Signer
    notebook: Notebook
    workers: Workers
    artefacts: Mapping[str, Artefact]  # of the stages before, by their names
    limits: Any  # the party's own policy: what it allows its peers
    cipher: Any = None  # `encrypted.ciphers.Cipher` in place of the job's scheme, for an estimate

    @property
    def data(self) -> Frame:
        """The party's rows; a ProtocolError for a party without data."""
        if self.frame is None:
            raise ProtocolError(f"{self.party} has no table in this job")
        return self.frame

    @property
    def label(self) -> NDArray[np.float64]:
        """The label of each row; a ProtocolError for a table without."""
        if self.data.label is None:
            raise ProtocolError(f"{self.party}'s table has no label")
        return self.data.label

    @property
    def parts(self) -> dict[str, NDArray[np.int32]]:
        """The rows of `frame` by what they are for: train, and validation if any is held out."""
        import numpy as np

        parts = {"train": np.flatnonzero(~self.validation).astype(np.int32)}
        if self.validation.any():
            parts["validation"] = np.flatnonzero(self.validation).astype(np.int32)
        return parts

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody else at the table."""
        return tuple(p for p in self.table.of(tuple(Role)) if p != self.party)


class CheckpointPolicy(Enum):
    """After which rounds of a loop every party keeps where it stands."""

    EACH = 1
    NOW_AND_THEN = 2  # those that end a second or more after what was kept last (Timers.keep_s)
    NOTHING = 3


class Run(ABC):
    """The coordinator's hand: calls steps, counts rounds."""

    params: Any
    table: Table

    @abstractmethod
    def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> Awaitable[None]:
        """Has every party of a step's role do it (or only `at`), and waits for the slowest.

        Several steps are asked for at once: each party does its own in their order, as soon as
        what they take has come, and nobody waits for the coordinator in between.
        `among` names the hosts that take part in this stretch of the walk: only they do a host's
        step, and only their messages are sent and waited for; empty means all that are left.
        `spares` goes on without hosts that are gone, from here to the end of the job; one that also
        adds up is waited for. What the others settle without a host, by a step that `hears`, keeps
        it out of later attempts as well; before they do, they keep the last place they have passed,
        so that no attempt needs it again for what it was in.
        """

    async def loop(
        self,
        name: str,
        most: int,
        *steps: Step,
        first: tuple[Step, ...] = (),
        among: tuple[str, ...] = (),
        keeps: CheckpointPolicy | None = None,
        slowly: Walk | None = None,
    ) -> None:
        """Has `steps` done in each round of a loop (`rounds`), and `first` before the first of them
        in this attempt, if any is left, in one call with it.

        Several rounds may be asked for at once, so that nobody waits for the coordinator between
        two of them. One party's last step of a round may end the loop; each other party ends it as
        well, or takes in its first step of a round what that one gives, so that it begins none that
        does not come. A round that may be slow (`is_quick`) is walked by `slowly`, if there is one.
        """
        before = first
        for _ in self.rounds(name, most, keeps=keeps):
            if slowly is not None and not self.is_quick:
                await slowly(self)
                continue
            await self(*before, *steps, among=among)
            before = ()

    @property
    def is_resumed(self) -> bool:
        """Return whether the stage carries on behind a place that everybody has kept."""
        return False

    @property
    def is_quick(self) -> bool:
        """Return whether a round is likely to be over before anything inside it would be kept."""
        return False

    @abstractmethod
    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """In front of a walk's loop: keeps what it stands on, by default where it took its time."""

    @abstractmethod
    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Counts rounds of a loop: at most `most`, fewer when a party's answer ends it.

        Progress hangs on the outermost loop of a walk that keeps something.
        A job goes on behind the last place that everybody has kept: the outermost loop keeps each
        of its rounds, the loops inside it none, unless `keeps` says otherwise. An attempt that
        goes on inside a round walks through it as any other does, but that its loops begin where
        they were left: the steps in front of them are done again, by parties that know what the
        loops have settled. Of loops side by side in a round one may keep.
        """


Walk = Callable[[Run], Awaitable[None]]


class RowsUsed(Enum):
    """Which rows a job is about."""

    COMMON = "common"  # those that all parties have
    GUESTS = "guests"  # the guest's; each host has some of them, perhaps none, found by their ids
    OWN = "own"  # every party's, which nobody else has; all have the same columns


@dataclass(frozen=True)
class Asks:
    """What a protocol's parameters ask of a party's policy."""

    scheme: str | None = None
    key_bits: int | None = None  # None for schemes without a modulus
    gradient_bits: int | None = None  # declared bits of one encrypted gradient
    insecure: bool = False  # the scheme hides nothing from a curious peer
    epsilon: float | None = None  # of a value that a host discloses; inf: without noise
    host_noise: float | None = None  # σ of what hosts add to sums; None where they release none
    key_trees: int | None = None  # trees under one secret of a lattice; None for other schemes
    own_cells: bool = False  # contributors add up cells of their own rows (own_rows_min)
    quantile_tolerance: int | None = None  # rows, said for a search of cut points; None: default


@dataclass(frozen=True)
class Protocol:
    """A protocol as the runtime sees it.

    A role's module holds `begin(context) -> state`, a function
    `(state, got) -> Out | Iterator[Out]` for each
    of its steps (without `got` where the step takes nothing), `snapshot(state, place)` and
    `restore(state, artefact) -> StatusReport` for checkpoints, `finish(state) -> Artefact` and
    `bytes_max(state, step)`: how large a message that step may be sent. What `restore` tells may
    end a loop that the place is in.
    """

    name: str
    params: type[Settings]
    flow: tuple[Step, ...]
    walk: Walk
    modules: Mapping[Role, str]  # by their names: loaded by whoever takes the role
    before: tuple[str, ...] = ()  # protocols whose artefacts this one needs, in order
    # Further ones behind those where the params name a model, with their params but for `model`.
    before_model: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # What `finish` gives; "rows" is an array `rows`, int64: the places in the party's table of its
    # rows that the later stages are about, in their order there.
    leaves: Literal["artefact", "rows", "model", "predictions"] = "artefact"
    labelled: tuple[Role, ...] = (GUEST,)  # whose tables must hold the label
    rows: RowsUsed = RowsUsed.COMMON
    bags: bool = False  # a job may name several guests: each trains a model of its own
    model: Callable[[Any], str | None] | None = None  # the id of the model that the params name
    # The id of the job whose disclosure the params use again; nothing comes before such a job.
    reuses: Callable[[Any], str | None] | None = None
    settled: tuple[str, ...] = ()  # the params that such a job may not say: the other one has
    # Refuses a model that the params cannot use, by the facts of the party's own shard.
    fits: Callable[[Any, Mapping[str, Any]], None] | None = None
    asks: Callable[[Any], Asks] = lambda _: Asks()  # what the parameters ask of a policy
    # What sums may tell of a host: the params, who takes part, the host's name, and how many
    # columns it has (None: not known, or the job's first tree is not its model's).
    releases: Callable[[Any, Table, str, int | None], Releases] | None = None
    # What round `number` of a job takes, by kind: rounds of one kind take alike; None: all do.
    round_kind: Callable[[Any, Table, int], object] | None = None
    # Refuses a table before any payload leaves; the bool says whether rows are held out.
    check: Callable[[Role, Any, Frame, bool], None] | None = None

    def module(self, role: Role) -> ModuleType:
        """The module of a role, with all that it takes to be a party; see above."""
        return importlib.import_module(self.modules[role])

    @property
    def timed_as(self) -> str:
        """Return what the result's `seconds` call the stage: by what it leaves, or its own name."""
        return {"rows": "align", "model": "train", "predictions": "predict"}.get(
            self.leaves, self.name
        )

    def used_model(self, params: Any) -> str | None:
        """The id of the model that a job with these params uses, if it uses one."""
        return None if self.model is None else self.model(params)

    def stages(self, params: Any) -> tuple[str, ...]:
        """The protocols of a job with these params, in order; this one is the last."""
        if self.used_disclosure(params) is not None:
            return (self.name,)
        scoring = () if self.used_model(params) is None else tuple(self.before_model)
        return (*self.before, *scoring, self.name)

    def used_disclosure(self, params: Any) -> str | None:
        """The id of the job whose disclosure a job with these params uses again, if any."""
        return None if self.reuses is None else self.reuses(params)

    def step(self, name: str) -> Step | None:
        """The step of that name."""
        return self._by_name.get(name)

    def taker(self, kind: str) -> list[Step]:
        """The steps that take messages of that full name."""
        return self._takers.get(kind, [])

    def givers(self, kind: type[Message]) -> tuple[Role, ...]:
        """The roles that give messages of that type."""
        return self._givers.get(kind, ())

    @cached_property
    def streamed(self) -> frozenset[type[Message]]:
        """The messages that come in parts."""
        return frozenset(step.gives for step in self.flow if step.gives and step.streams)

    @cached_property
    def _givers(self) -> dict[type[Message], tuple[Role, ...]]:
        found: dict[type[Message], tuple[Role, ...]] = {}
        for step in self.flow:
            if step.gives is not None:
                known = found.get(step.gives, ())
                found[step.gives] = tuple(dict.fromkeys((*known, *step.roles)))
        return found

    @cached_property
    def _by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.flow}

    @cached_property
    def _takers(self) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for step in self.flow:
            if step.takes is not None:
                found.setdefault(step.takes.DESCRIPTOR.full_name, []).append(step)
        return found

    def may_follow(self, role: Role, step: Step, last: str | None) -> bool:
        """Return whether a party of `role` whose last step was `last` may do `step` now."""
        if step.after is not None:
            return last in step.after
        own = [s.name for s in self.flow if role in s.roles]
        place = own.index(step.name)
        return last == (own[place - 1] if place else None)
