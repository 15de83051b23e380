"""Rows of a protocol's table, what a step leaves, and what a message takes from a budget."""

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
    PLACED = "placed"  # of a column: rows whose bin could be known exactly, by the same rows
    EPSILON = "epsilon"  # of a column: of a row's value, told with noise; inf: without
    # Whose scores the guest gets and that are not learnt from, held-out ones among them: of a job's
    # rows in common, never more than there are.
    ROWS = "rows"
    IDS = "ids"  # that an alignment opens
    PEER_IDS = "peer ids"  # that a peer could ask an alignment about
    TOTALS = "totals"  # values of sums under masks, by the rows that are learnt from
    METRICS = "metrics"  # values about labels that a coordinator hears: metrics, points of curves


@dataclass(frozen=True)
class Charge:
    """What one message takes out of its table's budget."""

    kind: Spent
    amount: float
    column: str = ""  # of the table; empty where it is about rows, not values
    peer: str = ""  # for whom it counts; empty: for the message's receiver


@dataclass(frozen=True, eq=False)
class NoisyValues:
    """The values behind a message of noisy ones, in codes that only their owner can read.

    The first value of an id is charged ε a column, and so is every further one, which meets noise
    of its own; the same value again meets the same noise and is free.
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
    """What a step knows of the people behind a message; for the party's own ledger, never sent."""

    rows: int | None = None  # how many of them
    groups: int | None = None  # over how many groups of them it says something each
    smallest_group: int | None = None  # rows in the smallest of these
    epsilon: float | None = None  # of the noise on each value
    charges: tuple[Charge, ...] = ()
    noisy: NoisyValues | None = None  # values that the message tells with noise
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
