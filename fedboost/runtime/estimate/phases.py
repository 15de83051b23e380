"""The costs of a phase of a walk: counts, seconds and bytes, and their growth with the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from google.protobuf.message import Message

from fedboost.flow import Step

# Seconds of a step on one core, and of its workers, which share the cores; and a call to a party.
ALONE, SHARED, ASKED = "seconds of a step", "seconds of workers", "answer a call"

Link = tuple[str, str]  # sender and receiver
Shares = tuple[float, float]  # of the rows, the second one larger
AmountKey = tuple[str, str, str]  # kind; party or sender; primitive or receiver
STEADY = 0.75  # a count of at least this share of the count at more rows does not grow with rows
DONE, BYTES, MESSAGES = "done", "bytes", "messages"


@dataclass
class Phase:
    """Work of the parties at about the same time, before the next phase; `times` in the job."""

    stage: str
    name: str
    place: tuple[int, ...] = ()  # the round of each loop around it
    amounts: dict[AmountKey, float] = field(default_factory=lambda: defaultdict(float))
    calls: float = 0.0  # of the coordinator, one after another
    exchanges: float = 0.0  # of messages, one after another: each waits for the network once
    times: float = 1.0
    round: int | None = None  # of the walk's main loop
    in_batches: bool = False  # one call asks for several of its rounds
    steps: list[Step] = field(default_factory=list)

    def add(self, party: str, what: str, count: float) -> None:
        """Add a count of a primitive, or seconds, at a party."""
        self.amounts[DONE, party, what] += count

    def send(self, link: Link, n_bytes: float, messages: float) -> None:
        """Add bytes from one party to another, in so many messages."""
        self.amounts[(BYTES, *link)] += n_bytes
        self.amounts[(MESSAGES, *link)] += messages

    def repeat(self, times: float) -> None:
        """Set how often the phase occurs in the job; a phase in batches gets larger instead."""
        if not self.in_batches:
            self.times = times
            return
        for amount in self.amounts:
            self.amounts[amount] *= 1.0 if ASKED in amount else times

    def operations(self) -> Iterator[tuple[str, str, float]]:
        """Yield party, primitive and count."""
        for (kind, party, what), count in self.amounts.items():
            if kind == DONE:
                yield party, what, count

    def sent(self) -> Iterator[tuple[Link, float, float]]:
        """Yield link, bytes and messages."""
        for (kind, sender, receiver), n_bytes in self.amounts.items():
            if kind == BYTES:
                yield (sender, receiver), n_bytes, self.amounts[MESSAGES, sender, receiver]

    @property
    def gives(self) -> set[type[Message]]:
        """The messages that its steps give."""
        return {step.gives for step in self.steps if step.gives is not None}


def grow_phases(fewer: Sequence[Phase], more: Sequence[Phase], shares: Shares) -> list[Phase]:
    """Return the phases of the whole job, from those on two shares of its rows.

    We assume that a step's seconds are a constant plus a part that grows evenly with the rows.
    Counts grow with the rows, or with a node's bins, which hardly become more with more rows.
    """
    known = dict(_numbered(fewer))
    above: dict[tuple[str, tuple[int, ...]], Phase] = {}
    phases = []
    for key, phase in _numbered(more):
        before = known.get(key, phase)
        loop = phase.name, phase.place[:-1] or phase.place
        amounts: dict[AmountKey, float] = defaultdict(float)
        for amount, count in phase.amounts.items():
            less = before.amounts.get(amount, 0.0)
            amounts[amount] = _grow_amount(amount[2], less, count, shares)
            most = above[loop].amounts.get(amount, 0.0) if loop in above else 0.0
            if most and phase.round is not None:  # a layer has at most twice the nodes above it
                amounts[amount] = max(count, min(amounts[amount], 2.0 * most))
        above[loop] = replace(phase, amounts=amounts)
        phases.append(above[loop])
    return phases


def _numbered(phases: Sequence[Phase]) -> Iterator[tuple[tuple[str, tuple[int, ...], int], Phase]]:
    """Yield phases with their name, place, and number among those with the same name and place."""
    number = Counter[tuple[str, tuple[int, ...]]]()
    for phase in phases:
        key = phase.name, phase.place
        yield (*key, number[key]), phase
        number[key] += 1


def _grow_amount(what: str, less: float, more: float, shares: Shares) -> float:
    """Return an amount of a phase at all rows.

    Seconds of kernels grow with the rows, from the lower estimate of the two.
    """
    if what == SHARED:
        return min(less / shares[0], more / shares[1])
    if what != ALONE and less > STEADY * more:
        return more
    return value_at_all_rows(less, more, shares)


def value_at_all_rows(less: float, more: float, shares: Shares) -> float:
    """Return a value at all rows, from two shares of them: constant, linear, or in between."""
    first, second = shares
    if second >= 1.0 or first >= second:
        return more
    slope = (more - less) / (second - first)
    return max(more, min(more / second, more + slope * (1.0 - second)))


def primitives(phases: Iterable[Phase]) -> set[str]:
    """Return all primitives of the phases, without seconds."""
    return {what for phase in phases for _, what, _ in phase.operations()} - {ALONE, SHARED}
