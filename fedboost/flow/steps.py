"""Steps of a protocol, their results, and the charges of messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from google.protobuf.message import Message

from fedboost.flow.roles import Role
from fedboost.messages.job_pb2 import StatusReport

if TYPE_CHECKING:  # a coordinator knows no tables
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Step:
    """Row of a protocol's table: a step with its roles, the message it takes and the message it
    gives.

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
    tolerates: bool = False  # takes the messages that have arrived, even if some are missing
    # Last argument: the parties of these roles that still take part; lost ones never return.
    hears: tuple[Role, ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles that do this step."""
        return self.role if isinstance(self.role, tuple) else (self.role,)


class Spent(StrEnum):
    """Kinds of information about a table in a message; each adds up in the table's budget."""

    SUMS = "sums"  # of a column: equations about any bin of it, per training row
    PLACED = "placed"  # of a column: rows whose bin could be known exactly, per training row
    EPSILON = "epsilon"  # of a column: of a row's value, told with noise; inf: without
    # Rows outside training, such as held-out ones, whose scores the guest gets: of a job's rows in
    # common, each counted once.
    ROWS = "rows"
    IDS = "ids"  # that an alignment opens
    PEER_IDS = "peer ids"  # that a peer could ask an alignment about
    TOTALS = "totals"  # values of sums under masks, per training row
    METRICS = "metrics"  # values about labels that a coordinator hears: metrics, points of curves


@dataclass(frozen=True)
class Charge:
    """Charge of one message to its table's budget."""

    kind: Spent
    amount: float
    column: str = ""  # of the table; empty for a charge about rows, not values
    peer: str = ""  # the peer it counts for; empty: the message's receiver


@dataclass(frozen=True, eq=False)
class NoisyValues:
    """Values behind a message of noisy ones, in codes that only their owner can read.

    The first value of an id is charged ε a column, and so is every further one, with separate
    noise; the same value again has the same noise and is free.
    """

    noise: str  # names the derivation of the noise: a job's, for one table
    epsilon: float  # of each value
    columns: tuple[str, ...]
    ids: NDArray[np.uint64]  # (n,) keyed names
    codes: NDArray[np.uint8]  # (n, columns): two values of an id have two codes

    def __repr__(self) -> str:
        return f"NoisyValues({len(self.ids)} rows, hidden)"


@dataclass(frozen=True)
class DisclosureInfo:
    """Facts of a step about the people behind a message; for the party's own ledger, never sent."""

    rows: int | None = None  # number of rows
    groups: int | None = None  # number of groups that it has a value for
    smallest_group: int | None = None  # rows in the smallest of these
    epsilon: float | None = None  # of the noise on each value
    charges: tuple[Charge, ...] = ()
    noisy: NoisyValues | None = None  # values that the message tells with noise
    # Whether the same bytes, to the same receiver in the same job, tell nothing new: not for
    # answers, as the question may be a different one.
    is_free_again: bool = False

    @classmethod
    def from_group_sizes(cls, sizes: Iterable[int]) -> Self:
        """Return the facts about the rows of groups of these sizes; empty groups do not count."""
        held = [size for size in sizes if size]
        return cls(sum(held), len(held), min(held, default=None))


@dataclass(frozen=True)
class Out:
    """Result of a step: one message for all takers or one each, and a report to the coordinator.

    `about` is one for all messages, or one each.
    """

    send: Message | Mapping[str, Message] | None = None
    told: StatusReport | None = None
    about: DisclosureInfo | Mapping[str, DisclosureInfo] = DisclosureInfo()
